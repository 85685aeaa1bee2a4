"""The format of messages whose protocol has none of its own, and of records that others wrote.

The properties are `Properties`, and what the broker notes about a message, as MessagePack. A
record's header `message` has the exchange, the subject and these bytes.

A record that was not written as a message, as by a producer of Kafka, has no such header. Then
its key is the subject, if it is a short text. A header with the name of a property is that
property, and any other header stays a header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from entrepot.core.encoding import encode_headers
from entrepot.core.message import PERSISTENT, Envelope, Format, Handling
from entrepot.core.names import is_short
from entrepot.core.properties import TEXTS, Death, Properties
from entrepot.core.record import Record

KEY_HEADER = "kafka-key"  # A record's key that cannot be a subject.
# Properties as headers of a record. Persisted: never change a name.
_READABLE = {
    **TEXTS,
    "ttl_ms": "expiration",
    "priority": "priority",
    "timestamp": "timestamp",
}
_BY_HEADER = {header: name for name, header in _READABLE.items()}
_NUMBERS_END = {"priority": 2**8, "timestamp": 2**64, "ttl_ms": 2**63}
_TEXT_BYTES_MAX = 255


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """The properties as they are stored. Persisted: never change a name."""

    properties: Properties = Properties()
    delay_ms: int = 0
    confirms_when_consumed: bool = False
    copies: tuple[str, ...] = ()
    blind_copies: tuple[str, ...] = ()
    deduplication_id: bytes | None = None
    deduplication_ttl_ms: int | None = None
    group: str | None = None
    deaths: tuple[Death, ...] = ()
    delayed_at: str = ""  # The delayed exchange at which it waits.

    @property
    def handling(self) -> Handling:
        properties = self.properties
        found = Handling(
            properties.is_persistent is True,
            properties.priority or 0,
            properties.ttl_ms,
            self.delay_ms,
            self.confirms_when_consumed,
            self.copies,
            self.blind_copies,
            self.deduplication_id,
            self.deduplication_ttl_ms,
            self.group,
        )
        return PERSISTENT if found == PERSISTENT else found  # Told by identity: see `Envelope`.


class NeutralFormat:
    """Implements `Format`."""

    name = "message"

    def write(self, head: Head) -> bytes:
        """Return the head as bytes. The values of its headers are of MessagePack's types."""
        try:
            return _encode(head)
        except UnicodeEncodeError:  # Names of queues and exchanges need not be Unicode.
            return _encode(_as_unicode(msgspec.to_builtins(head, builtin_types=(bytes,))))

    def read(self, head: bytes) -> Head:
        """Decode a head. Bytes that are not a head give an empty one."""
        try:
            return _decode(head)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return _NOTHING

    def handling(self, head: bytes) -> Handling:
        return self.read(head).handling

    def properties(self, head: bytes) -> Properties:
        return self.read(head).properties

    def readable(self, head: bytes) -> Iterator[tuple[str, bytes | None]]:
        properties = self.properties(head)
        for name, header in _READABLE.items():
            value = getattr(properties, name)
            if value is not None:
                yield header, header_bytes(value)
        for name, value in properties.headers.items():
            yield unicode_name(name), None if value is None else header_bytes(value)

    def without_blind_copies(self, head: bytes) -> bytes:
        return self.write(replace(self.read(head), blind_copies=()))

    def delayed_at(self, head: bytes, exchange: str) -> bytes:
        return self.write(replace(self.read(head), delayed_at=exchange))

    def after_delay(self, head: bytes) -> tuple[str, bytes]:
        found = self.read(head)
        return found.delayed_at, self.write(replace(found, delayed_at="", delay_ms=0))

    def deaths(self, head: bytes) -> Sequence[Death]:
        return self.read(head).deaths

    def with_deaths(
        self, head: bytes, deaths: Sequence[Death], exchange: str, *, keeps_copies: bool
    ) -> bytes:
        found = self.read(head)
        return self.write(
            replace(
                found,
                properties=replace(found.properties, ttl_ms=None),
                copies=found.copies if keeps_copies else (),
                deaths=tuple(deaths),
            )
        )

    def pack(self, envelope: Envelope) -> bytes:
        where = _sized(envelope.exchange) + _sized(envelope.subject)
        return where + envelope.head

    def unpack(self, packed: bytes) -> Envelope | None:
        found = split_packed(packed)
        if found is None:
            return None
        exchange, subject, head = found
        try:
            _decode(head)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        return Envelope(exchange, subject, head, self)


NEUTRAL = NeutralFormat()
_NOTHING = Head()
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Head).decode
NO_PROPERTIES = _encode(_NOTHING)


class Formats:
    """All formats in which messages are stored."""

    def __init__(self, formats: Iterable[Format] = ()) -> None:
        self._by_name: dict[str, Format] = {each.name: each for each in (NEUTRAL, *formats)}

    def envelope(self, record: Record) -> Envelope:
        """Return the envelope of the message in a record."""
        if record.headers:
            name, packed = record.headers[0]
            found = self._by_name.get(name)
            if found is not None and packed is not None:
                envelope = found.unpack(packed)
                if envelope is not None:
                    return envelope
        return foreign_envelope(record)


def record_section(envelope: Envelope) -> bytes:
    """Return the encoded headers of a message's record. They are encoded once per envelope."""
    section = envelope.section
    if section is None:
        found = envelope.format
        headers = ((found.name, found.pack(envelope)), *found.readable(envelope.head))
        section = envelope.section = encode_headers(headers)
    return section


def split_packed(packed: bytes) -> tuple[str, str, bytes] | None:
    """Return exchange, subject and head, as `pack` joined them; None for other bytes."""
    try:
        subject_at = 1 + packed[0]
        head_at = subject_at + 1 + packed[subject_at]
    except IndexError:
        return None
    if head_at > len(packed):
        return None
    exchange, subject = packed[1:subject_at], packed[subject_at + 1 : head_at]
    return (
        exchange.decode("utf-8", "surrogateescape"),
        subject.decode("utf-8", "surrogateescape"),
        packed[head_at:],
    )


def _sized(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return bytes((len(data),)) + data


def _as_unicode(value: Any) -> Any:
    if isinstance(value, str):
        return unicode_name(value)
    if isinstance(value, dict):
        return {_as_unicode(name): _as_unicode(each) for name, each in value.items()}
    return [*map(_as_unicode, value)] if isinstance(value, list | tuple) else value


# Values of headers.


def header_bytes(value: object) -> bytes:
    """Encode the value of a property or header as the value of a record header: as text."""
    if isinstance(value, bytes):
        return value
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.encode("utf-8", "surrogateescape")


def unicode_name(name: str) -> str:
    """Return the name of a record header for this name: it must be Unicode."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# Records that were not written as messages.


def foreign_envelope(record: Record) -> Envelope:
    """Return the envelope of a record that was not written as a message."""
    found: dict[str, Any] = {}
    headers: dict[str, object] = {}
    subject = ""
    if record.key is not None:
        text = _text(record.key)
        if isinstance(text, str) and is_short(text):
            subject = text
        else:
            headers[KEY_HEADER] = bytes(record.key)
    for header, data in record.headers:
        name = _BY_HEADER.get(header)
        value = None if name is None else _property(name, data)
        if name is not None and value is not None and name not in found:
            found[name] = value
        else:
            headers.setdefault(header, None if data is None else _text(data))
    if record.timestamp_ms >= 0:
        found.setdefault("timestamp", record.timestamp_ms // 1_000)
    if not found and not headers:
        return Envelope("", subject, NO_PROPERTIES, NEUTRAL)
    head = NEUTRAL.write(Head(Properties(**found, headers=headers)))
    return Envelope("", subject, head, NEUTRAL)


def _text(data: bytes) -> str | bytes:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return bytes(data)


def _property(name: str, data: bytes | None) -> str | int | None:
    """Decode the value of a property; None if it is not a valid one."""
    if data is None or len(data) > _TEXT_BYTES_MAX:
        return None
    text = _text(data)
    if not isinstance(text, str):
        return None
    if name not in _NUMBERS_END:
        return text
    if not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number < _NUMBERS_END[name] else None
