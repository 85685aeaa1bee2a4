"""Destinations: what a client sends to and subscribes to, named as RabbitMQ's STOMP plugin does.

    /queue/NAME             a queue, which is declared when it is first used
    /topic/KEY              the exchange amq.topic; a subscription has a queue of its own
    /exchange/NAME[/KEY]    any exchange; a subscription has a queue of its own
    /amq/queue/NAME         a queue that must exist
    /temp-queue/NAME        in `reply-to` only: a queue of the connection, for replies
    /reply-queue/NAME       where such a `reply-to` leads

A slash in a name is written as %2F, and a percent sign as %25.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple
from urllib.parse import quote, unquote

from entrepot.broker.router.event import DEFAULT_EXCHANGE
from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.names import is_short

TOPIC_EXCHANGE = "amq.topic"
_SAFE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "/%")


class Kind(Enum):
    QUEUE = "/queue/"
    TOPIC = "/topic/"
    EXCHANGE = "/exchange/"
    EXISTING_QUEUE = "/amq/queue/"
    TEMPORARY_QUEUE = "/temp-queue/"
    REPLY_QUEUE = "/reply-queue/"


class Destination(NamedTuple):
    kind: Kind
    exchange: str  # What is sent goes to this exchange,
    key: str  # with this routing key. For a queue it is the queue's name.


def parse(text: str) -> Destination:
    """Read a destination. Raises PeerError."""
    for kind in Kind:
        if text.startswith(kind.value):
            found = _read(kind, text.removeprefix(kind.value))
            if found is None or not all(map(_is_name, found)):
                raise PeerError(f"'{text[:300]}' is not a valid destination")
            return Destination(kind, *found)
    kinds = ", ".join(each.value for each in Kind)
    raise PeerError(f"'{text[:300]}' is not a valid destination: it begins with one of {kinds}")


def _read(kind: Kind, rest: str) -> tuple[str, str] | None:
    """Return exchange and key; None if there are none."""
    if kind is Kind.REPLY_QUEUE:  # Never written by a person, and not escaped.
        return (DEFAULT_EXCHANGE, rest) if rest else None
    parts = [unquote(part, errors="surrogateescape") for part in rest.split("/")]
    match kind, parts:
        case Kind.EXCHANGE, [str(name)] if name:
            return name, ""
        case Kind.EXCHANGE, [str(name), str(key)] if name:
            return name, key
        case Kind.TOPIC, [str(key)] if key:
            return TOPIC_EXCHANGE, key
        case ((Kind.QUEUE | Kind.EXISTING_QUEUE | Kind.TEMPORARY_QUEUE), [str(name)]) if name:
            return DEFAULT_EXCHANGE, name
    return None


def _is_name(name: str) -> bool:
    return is_short(name) and not any(each in name for each in "\r\n\0")


def describe(exchange: str, key: str) -> str:
    """Return the destination of a message that was published to this exchange with this key."""
    if exchange == DEFAULT_EXCHANGE:
        return Kind.QUEUE.value + _quoted(key)
    if exchange == TOPIC_EXCHANGE:
        return Kind.TOPIC.value + _quoted(key)
    where = Kind.EXCHANGE.value + _quoted(exchange)
    return f"{where}/{_quoted(key)}" if key else where


def _quoted(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:  # Names of other protocols need not be Unicode.
        return quote(name.encode("utf-8", "surrogateescape"), safe=_SAFE)
    return name.replace("%", "%25").replace("/", "%2F")


assert limits.NAME_BYTES_MAX < 300  # Error texts have whole names.
