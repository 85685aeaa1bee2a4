"""Addresses: what a link sends to or receives from, named as in RabbitMQ 4, or by a plain name.

    /queues/NAME                    a queue that must exist
    /exchanges/NAME[/KEY]           any exchange; a receiver has a queue of its own
    /topics/KEY                     the exchange amq.topic, likewise
    NAME                            a queue, which is declared when it is first used; with the
                                    capability `topic`, as JMS has it, /topics/NAME
    queue://NAME, topic://NAME      the same, for clients that write it that way
    amqps://HOST/NAME               a queue, as clients of Azure Service Bus write it
    (none)                          of a target: each message says in `to` where it goes

Names in addresses that begin with a slash are percent-encoded.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple
from urllib.parse import unquote

from entrepot.broker.router.event import DEFAULT_EXCHANGE
from entrepot.core.names import is_short
from entrepot.wire.amqp10.errors import Amqp10Error, Condition, Scope

TOPIC_EXCHANGE = "amq.topic"
_TOPIC_CAPABILITIES = ("topic", "temporary-topic")
_URLS = ("amqps://", "amqp://", "sb://")
_SHOWN = 300  # Characters of an address in an error text.


class Kind(Enum):
    QUEUE = "queue"  # Declared when it is first used.
    EXISTING_QUEUE = "existing queue"
    EXCHANGE = "exchange"


class Address(NamedTuple):
    kind: Kind
    exchange: str  # What is sent goes to this exchange,
    key: str  # with this routing key. For a queue it is the queue's name.
    is_service_bus: bool = False  # A queue as Azure Service Bus has it.


def is_url(text: str | None) -> bool:
    """Return whether an address is written as clients of Azure Service Bus do."""
    return text is not None and text.startswith(_URLS)


def parse(text: str, capabilities: Collection[str] = ()) -> Address:
    """Read an address. Raises Amqp10Error, which ends the link."""
    found = _read(text, capabilities)
    if found is None or not (is_short(found.exchange) and is_short(found.key)):
        wrong = f"'{text[:_SHOWN]}' is not a valid address"
        raise Amqp10Error(Condition.INVALID_FIELD, wrong, Scope.LINK)
    return found


def _read(text: str, capabilities: Collection[str]) -> Address | None:
    if is_url(text):
        return _of_service_bus(text)
    if not text.startswith("/"):
        return _plain(text, any(each in capabilities for each in _TOPIC_CAPABILITIES))
    parts = [unquote(part, errors="surrogateescape") for part in text[1:].split("/")]
    match parts:
        case ["queues", name] if name:
            return Address(Kind.EXISTING_QUEUE, DEFAULT_EXCHANGE, name)
        case ["exchanges", name] if name:
            return Address(Kind.EXCHANGE, name, "")
        case ["exchanges", name, key] if name:
            return Address(Kind.EXCHANGE, name, key)
        case ["topics", key] if key:
            return Address(Kind.EXCHANGE, TOPIC_EXCHANGE, key)
    return None


def _of_service_bus(text: str) -> Address | None:
    _, _, name = text.partition("://")[2].partition("/")
    if "/subscriptions/" in name.lower():
        problem = "subscriptions of Service Bus are not supported: use a queue, or /topics/KEY"
        raise Amqp10Error(Condition.NOT_IMPLEMENTED, problem, Scope.LINK)
    return Address(Kind.QUEUE, DEFAULT_EXCHANGE, name, is_service_bus=True) if name else None


def _plain(text: str, is_topic: bool) -> Address | None:
    for prefix, names_topic in (("topic://", True), ("queue://", False)):
        if text.startswith(prefix):
            text, is_topic = text.removeprefix(prefix), names_topic
    if not text:
        return None
    if is_topic:
        return Address(Kind.EXCHANGE, TOPIC_EXCHANGE, text)
    return Address(Kind.QUEUE, DEFAULT_EXCHANGE, text)
