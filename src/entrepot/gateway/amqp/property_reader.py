"""A message's properties for the broker, which does not know their bytes, and as records.

Publishers say the same properties again and again, so what was found in them is remembered.

A record's first header, `amqp`, holds everything: exchange, routing key, and the properties
as they came. It is what counts when the message is read as AMQP again. The headers after it
say the same for those who speak no AMQP: properties under the names below, the message's own
headers under theirs, texts as UTF-8, numbers as digits. A record that came by another way has
no such header, or one that is not what we write; then its key is the routing key where that
can be, and its headers become properties and headers by the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from entrepot.broker.queue.message import Facts, Headers
from entrepot.broker.queue.settings import QueueSettings
from entrepot.broker.router.event import ExchangeSettings, ExchangeType, Match
from entrepot.core import limits
from entrepot.core.envelope import Envelope
from entrepot.core.record import Record
from entrepot.core.value import FrozenTable
from entrepot.gateway.rabbitmq.binding_arguments import header_conditions
from entrepot.gateway.rabbitmq.exchange_arguments import settings_of
from entrepot.gateway.rabbitmq.queue_arguments import parse
from entrepot.wire.amqp import properties as wire
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.properties import PERSISTENT, PropertyView, check
from entrepot.wire.amqp.table import Int64, Table, Timestamp, Value, short_string

REPLY_TO = "amq.rabbitmq.reply-to"  # Stands for the publisher's own consumer of answers.

AMQP_HEADER = "amqp"
_CONFIRM_BYTES = b"x-confirm"  # In properties that may have such a header.
_DEATHS = "x-death"  # The header that the broker itself writes numbers and times into.
KEY_HEADER = "kafka-key"  # A record's key that cannot be a routing key.
_NAMES = {
    "content_type": "content-type",
    "content_encoding": "content-encoding",
    "correlation_id": "correlation-id",
    "reply_to": "reply-to",
    "message_id": "message-id",
    "expiration": "expiration",
    "priority": "priority",
    "type": "type",
    "user_id": "user-id",
    "app_id": "app-id",
    "timestamp": "timestamp",
}
_NAMED = ("correlation_id", "message_id", "timestamp")
_PROPERTIES = {readable: name for name, readable in _NAMES.items()}
_SHORT_BYTES_MAX = 255
# What came by another way must go to consumers in one frame all the same.
_PROPERTIES_BYTES_MAX = limits.AMQP_FRAME_BYTES_MAX - 1 * limits.KIB
_HEADERS_BYTES_MAX = _PROPERTIES_BYTES_MAX // 2
_HEADER_BYTES = 6  # The sizes of its name and its value, and a letter.
_EXPIRATION_MS_MAX = 315_360_000_000  # Ten years: RabbitMQ's.
_INTEGER = re.compile(r"[+-]?[0-9]+")


class Inspection(NamedTuple):
    """What was found in properties that are well formed."""

    facts: Facts
    user_id: str | None
    asks_reply: bool  # The answer is to come to the publisher's channel.
    refusal: str = ""  # Why a publisher may not say this.


class AmqpPropertyReader:
    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, Inspection] = {}

    def inspect(self, properties: bytes) -> Inspection:
        """Raises AmqpError for what is malformed."""
        found = self._known.get(properties)
        if found is None:
            found = _inspect(check(properties))
            if len(self._known) >= limits.AMQP_PROPERTIES_CACHED_MAX:
                self._known.clear()
            self._known[properties] = found
        return found

    def facts(self, properties: bytes) -> Facts:
        return self.inspect(properties).facts

    def headers(self, properties: bytes) -> Mapping[str, object]:
        headers: Table = PropertyView(properties).get("headers") or {}
        return headers

    def named(self, properties: bytes) -> Mapping[str, object]:
        view = PropertyView(properties)
        return {name: view.get(name) for name in _NAMED if name in view}

    def with_headers(
        self, properties: bytes, headers: Mapping[str, object], *, expires: bool = True
    ) -> bytes:
        changes: dict[str, Value] = {
            "headers": {
                name: _typed(value) if name == _DEATHS else value for name, value in headers.items()
            }
        }
        if not expires:
            changes["expiration"] = None
        return PropertyView(properties).patch(changes)

    # --- records

    def to_record(self, envelope: Envelope) -> Headers:
        exchange, routing_key, properties = envelope
        authority = short_string(exchange) + short_string(routing_key) + properties
        readable = [(AMQP_HEADER, authority), *_readable(PropertyView(properties))]
        return tuple(readable)

    def from_record(self, record: Record) -> Envelope:
        if record.headers and record.headers[0][0] == AMQP_HEADER:
            found = _split(record.headers[0][1] or b"")
            if found is not None:
                return found
        return _translated(record)

    def stored_settings(self, arguments: FrozenTable, where: str) -> QueueSettings:
        return parse(arguments, where)

    def exchange_settings(self, kind: ExchangeType, arguments: FrozenTable) -> ExchangeSettings:
        return settings_of(kind, arguments)

    def header_conditions(self, arguments: FrozenTable) -> tuple[FrozenTable, Match]:
        return header_conditions(arguments)


def may_be_patient(properties: bytes) -> bool:
    """Whether it may be confirmed only when it is consumed, which may take long."""
    return _CONFIRM_BYTES in properties


def _inspect(view: PropertyView) -> Inspection:
    ttl_ms, refusal = None, ""
    expiration = view.get("expiration")
    if expiration is not None:
        ttl_ms, wrong = _read_expiration(expiration)
        refusal = f"invalid expiration '{expiration}': {wrong}" if wrong else ""
    facts = Facts(view.get("delivery_mode") == PERSISTENT, view.get("priority") or 0, ttl_ms)
    return Inspection(
        facts,
        view.get("user_id"),
        view.get("reply_to") == REPLY_TO,
        refusal,
    )


def _read_expiration(text: str) -> tuple[int | None, str]:
    """The milliseconds, or what RabbitMQ says that is wrong with them."""
    found = _INTEGER.match(text)
    if found is None:
        return None, "no_integer"
    if found.end() < len(text):
        return None, f'{{leftover_string,"{text[found.end() :]}"}}'
    milliseconds = int(text)
    if milliseconds < 0:
        return None, f"{{value_negative,{milliseconds}}}"
    if milliseconds > _EXPIRATION_MS_MAX:
        return None, f"{{value_too_large,{milliseconds}}}"
    return milliseconds, ""


def _typed(value: object) -> Value:
    """With the types that RabbitMQ writes: the clients of some languages insist on them."""
    if isinstance(value, datetime):
        return Timestamp(value.timestamp())
    if isinstance(value, Mapping):
        return {name: _typed(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_typed(each) for each in value]
    return Int64(value) if type(value) is int else value


# Records.


def _readable(view: PropertyView) -> Iterator[tuple[str, bytes | None]]:
    for name, readable in _NAMES.items():
        value = view.get(name)
        if value is not None:
            yield readable, _as_bytes(value)
    for name, value in (view.get("headers") or {}).items():
        yield _unicode(name), None if value is None else _as_bytes(value)


def _as_bytes(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.encode("utf-8", "surrogateescape")


def _unicode(name: str) -> str:
    """A record's header has a name that is UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _split(authority: bytes) -> Envelope | None:
    """None: nothing that we wrote. Anybody may write records with such a header."""
    try:
        key_at = 1 + authority[0]
        properties_at = key_at + 1 + authority[key_at]
        check(authority[properties_at:])
    except (IndexError, AmqpError):
        return None
    if len(authority) > _PROPERTIES_BYTES_MAX:
        return None
    exchange, key = authority[1:key_at], authority[key_at + 1 : properties_at]
    return Envelope(
        exchange.decode("utf-8", "surrogateescape"),
        key.decode("utf-8", "surrogateescape"),
        authority[properties_at:],
    )


def _translated(record: Record) -> Envelope:
    """A record of others, as properties."""
    found: dict[str, Value] = {}
    headers: Table = {}
    routing_key = ""
    if record.key is not None:
        text = _text(record.key)
        if isinstance(text, str) and len(record.key) <= _SHORT_BYTES_MAX:
            routing_key = text
        else:
            headers[KEY_HEADER] = bytes(record.key[:_HEADERS_BYTES_MAX])
    size = 0
    for name, data in record.headers:
        property_name = _PROPERTIES.get(name)
        value = None if property_name is None else _property(property_name, data)
        if value is not None and property_name not in found:
            found[property_name or ""] = value
        elif len(name.encode()) <= _SHORT_BYTES_MAX:
            size += len(name.encode()) + len(data or b"") + _HEADER_BYTES
            if size <= _HEADERS_BYTES_MAX:  # Of more than that, the first ones.
                headers.setdefault(name, None if data is None else _text(data))
    if record.timestamp_ms >= 0:
        found.setdefault("timestamp", record.timestamp_ms // 1_000)
    if headers:
        found["headers"] = headers
    return Envelope("", routing_key, wire.encode(wire.Properties(**found)))


def _text(data: bytes) -> str | bytes:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return bytes(data)


def _property(name: str, data: bytes | None) -> Value:
    """None: not a value of this property."""
    if data is None or len(data) > _SHORT_BYTES_MAX:
        return None
    text = _text(data)
    if not isinstance(text, str):
        return None
    if name not in ("priority", "timestamp"):
        return text
    if not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number < (2**8 if name == "priority" else 2**64) else None
