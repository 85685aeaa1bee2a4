"""The format of AMQP 0-9-1 properties: how they are read, changed and stored.

Properties are the bytes of AMQP's content header: a word of flags, then the fields that are
present. The record of a message has a header `amqp` with exchange, routing key and these bytes,
unchanged. When the message is read as AMQP again, only that header counts. Messages of other
formats are translated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from entrepot.core import limits
from entrepot.core.errors import InvalidRoutingHeader
from entrepot.core.message import PERSISTENT, PLAIN, Envelope, Handling
from entrepot.core.names import is_short
from entrepot.core.neutral import KEY_HEADER, header_bytes, split_packed
from entrepot.core.properties import TEXTS, Death, Properties
from entrepot.gateway.rabbitmq import handling as words
from entrepot.gateway.rabbitmq.deaths import DEATHS, death_headers, read_deaths
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp import properties as wire
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.flat_table import texts
from entrepot.wire.amqp.properties import NONE, PropertyView, check, examine
from entrepot.wire.amqp.table import (
    Int64,
    Table,
    Timestamp,
    Value,
    decode_value,
    encode_value,
    short_string,
)

REPLY_TO = "amq.rabbitmq.reply-to"  # Stands for the channel's own reply consumer.
DELAYED_AT = "x-entrepot-held-at"  # The exchange that delays a message. Persisted.

# Properties as headers of a record. Persisted: never change a name.
_READABLE = {**TEXTS, "expiration": "expiration"}
_READABLE_NUMBERS = ("priority", "timestamp")
_OTHERS = ("cluster_id",)
# Properties of messages from other protocols must fit into one frame, too.
_HEAD_BYTES_MAX = amqp_limits.FRAME_BYTES_MAX - 1 * limits.KIB
_HEADERS_BYTES_MAX = _HEAD_BYTES_MAX // 2
_DEPTH_MAX = limits.TABLE_DEPTH_MAX - 1
_DEATHS = DEATHS.encode()
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)


class Inspection(NamedTuple):
    """What the broker needs to know of a published message's properties."""

    handling: Handling
    user_id: str | None = None
    asks_reply: bool = False  # Replies are to come to the publisher's channel.
    refusal: str = ""  # Why it must not be published. Empty means: it may.


class AmqpFormat:
    """Implements `Format` for AMQP 0-9-1."""

    name = "amqp"

    def inspect(self, head: bytes) -> Inspection:
        """Return what the broker needs to know of a message that is published.

        Raises AmqpError for malformed properties, and InvalidRoutingHeader.
        """
        mode, priority, reply_to, expiration, user_id = examine(head)
        ttl_ms, refusal = None, ""
        if expiration is not None:
            ttl_ms, wrong = words.read_expiration(expiration)
            refusal = f"invalid expiration '{expiration}': {wrong}" if wrong else ""
        is_persistent = mode == wire.PERSISTENT
        handling = PERSISTENT if is_persistent else PLAIN
        if priority or ttl_ms is not None:
            handling = Handling(is_persistent, priority or 0, ttl_ms)
        if b"x-" in head or b"CC" in head:  # There may be a header for the broker.
            headers = _headers(PropertyView(head))
            words.check_copies(headers)
            handling = words.with_headers(handling, headers)
        return Inspection(handling, user_id, reply_to == REPLY_TO, refusal)

    def handling(self, head: bytes) -> Handling:
        try:
            return self.inspect(head).handling
        except (AmqpError, InvalidRoutingHeader):
            return PLAIN

    def properties(self, head: bytes) -> Properties:
        view = PropertyView(head)
        mode, expiration = view.get("delivery_mode"), view.get("expiration")
        return Properties(
            **{name: view.get(name) for name in TEXTS},
            timestamp=view.get("timestamp"),
            priority=view.get("priority"),
            ttl_ms=None if expiration is None else words.read_expiration(expiration)[0],
            is_persistent=None if mode is None else mode == wire.PERSISTENT,
            headers=_headers(view),
            others={name: view.get(name) for name in _OTHERS if name in view},
        )

    def readable(self, head: bytes) -> list[tuple[str, bytes | None]]:
        found: list[tuple[str, bytes | None]] = []
        headers = b""
        for name, raw in wire.raw_values(head):
            if name in _READABLE:
                found.append((_READABLE[name], raw))
            elif name in _READABLE_NUMBERS:
                found.append((name, b"%d" % int.from_bytes(raw, "big")))
            elif name == "headers":
                headers = raw
        by_name = texts(headers, _text_of)
        found += [(name.decode("utf-8", "replace"), text) for name, text in by_name.items()]
        return found

    # --- what the broker adds

    def without_blind_copies(self, head: bytes) -> bytes:
        return PropertyView(head).patch_headers({}, (words.BLIND_COPIES,))

    def delayed_at(self, head: bytes, exchange: str) -> bytes:
        return PropertyView(head).patch_headers({DELAYED_AT: exchange})

    def after_delay(self, head: bytes) -> tuple[str, bytes]:
        view = PropertyView(head)
        headers = _headers(view)
        waited = {words.DELAY: -words.delay_ms(headers)}
        return str(headers.get(DELAYED_AT)), view.patch_headers(waited, (DELAYED_AT,))

    def deaths(self, head: bytes) -> Sequence[Death]:
        if _DEATHS not in head:  # Most have none.
            return ()
        return read_deaths(_headers(PropertyView(head)))

    def with_deaths(
        self, head: bytes, deaths: Sequence[Death], exchange: str, *, keeps_copies: bool
    ) -> bytes:
        is_first = len(deaths) == 1 and deaths[0].times == 1
        headers = _typed_deaths(death_headers(deaths, exchange, is_first=is_first))
        # `CC` was for the old routing key: a dead letter is not routed by it.
        without = () if keeps_copies else (words.COPIES,)
        view = PropertyView(head)
        if "expiration" in view:
            view = PropertyView(view.patch({"expiration": None}))
        return view.patch_headers(headers, without)

    # --- records

    def pack(self, envelope: Envelope) -> bytes:
        exchange = envelope.exchange.encode("utf-8", "surrogateescape")
        subject = envelope.subject.encode("utf-8", "surrogateescape")
        return b"%c%b%c%b%b" % (len(exchange), exchange, len(subject), subject, envelope.head)

    def unpack(self, packed: bytes) -> Envelope | None:
        found = split_packed(packed)
        if found is None or len(packed) > _HEAD_BYTES_MAX:
            return None
        exchange, subject, head = found
        try:
            check(head)
        except AmqpError:
            return None
        return Envelope(exchange, subject, head, self)

    # --- messages of other formats

    def head_of(self, envelope: Envelope) -> bytes:
        """Return the properties of a message of any format as bytes of AMQP."""
        if envelope.format is self:
            return envelope.head
        deaths = envelope.format.deaths(envelope.head)
        return _translated(envelope.properties, deaths)

    def own(self, envelope: Envelope) -> Envelope:
        """Return the envelope, translated to this format if it has another."""
        if envelope.format is self:
            return envelope
        return Envelope(envelope.exchange, envelope.subject, self.head_of(envelope), self)


AMQP = AmqpFormat()


def _headers(view: PropertyView) -> Table:
    headers: Table | None = view.get("headers")
    return headers or {}


def _text_of(encoded: bytes) -> bytes:
    """Return the text of an encoded value, as it is in the record header."""
    return header_bytes(decode_value(encoded))


def _typed_deaths(headers: Mapping[str, Value]) -> dict[str, Value]:
    """Return the headers with the types that RabbitMQ writes: some clients insist on them."""
    entries: list[Value] = [
        {
            name: Timestamp(value.timestamp())
            if isinstance(value, datetime)
            else Int64(value)
            if type(value) is int
            else value
            for name, value in entry.items()
        }
        for entry in headers[DEATHS]
    ]
    return {**headers, DEATHS: entries}


# Translating.


def _translated(properties: Properties, deaths: Sequence[Death]) -> bytes:
    found: dict[str, Value] = {
        name: text
        for name in TEXTS
        if (text := getattr(properties, name)) is not None and is_short(text)
    }
    if properties.timestamp is not None and 0 <= properties.timestamp < 2**64:
        found["timestamp"] = properties.timestamp
    if properties.priority is not None and 0 <= properties.priority < 2**8:
        found["priority"] = properties.priority
    if properties.ttl_ms is not None:
        found["expiration"] = str(properties.ttl_ms)
    if properties.is_persistent is not None:
        found["delivery_mode"] = wire.PERSISTENT if properties.is_persistent else 1
    others = properties.others
    found |= {name: others[name] for name in _OTHERS if name in others and is_short(others[name])}
    headers: Table = dict(_fitting(properties.headers.items()))
    if deaths:
        exchange = deaths[0].exchange or ""
        death_table = death_headers(deaths, exchange, is_first=len(deaths) == 1)
        headers |= _typed_deaths(death_table)
    if headers:
        found["headers"] = headers
    return wire.encode(wire.BasicProperties(**found)) if found else NONE


def _fitting(headers: Iterable[tuple[str, object]]) -> Iterator[tuple[str, Value]]:
    """Return the headers that AMQP can express; the first ones, if not all fit into a frame."""
    size = 0
    for name, value in headers:
        if name == KEY_HEADER and isinstance(value, bytes):
            yield name, value[:_HEADERS_BYTES_MAX]
            continue
        if not is_short(name):
            continue
        table_value = _table_value(value, _DEPTH_MAX)
        size += len(short_string(name)) + len(encode_value(table_value))
        if size > _HEADERS_BYTES_MAX:
            return
        yield name, table_value


def _table_value(value: object, depth: int) -> Value:
    """Return the value as a type of field tables; as a text if they have no such type."""
    if value is None or isinstance(value, bool | float | bytes):
        return value
    if isinstance(value, int):
        if value in _INT64:
            return int(value) if value in _INT32 else Int64(value)
        return str(value)
    if isinstance(value, Mapping) and depth:
        return {
            str(name): _table_value(each, depth - 1)
            for name, each in value.items()
            if is_short(str(name))
        }
    if isinstance(value, list | tuple) and depth:
        return [_table_value(each, depth - 1) for each in value]
    if isinstance(value, datetime):
        return Timestamp(value.timestamp())
    return str(value) if not isinstance(value, Decimal) else float(value)
