"""The format of AMQP 1.0 messages: how they are read, changed and stored.

A head is what kind of body the message has, the sizes of header, footer and the broker's note,
these three, and then the sections between header and body as the publisher wrote them. The
record of a message has a header `amqp-1.0` with exchange, subject and head; its value is the
body alone if that was one binary value or text, otherwise the bytes of the body's sections.

Whoever reads the message by AMQP 1.0 gets these sections as they were; the header is the only one
that the broker changes. Messages of other formats are translated: see docs/MAPPING.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from entrepot.core.message import Envelope, Handling
from entrepot.core.neutral import header_bytes, split_packed, unicode_name
from entrepot.core.ports import Buffer
from entrepot.core.properties import TEXTS, Death, Properties
from entrepot.wire.amqp10 import limits, message, types
from entrepot.wire.amqp10.errors import Amqp10Error
from entrepot.wire.amqp10.message import (
    ANNOTATIONS,
    APPLICATION_PROPERTIES,
    Body,
    Header,
    Middle,
    Parts,
)
from entrepot.wire.amqp10.types import Symbol, Timestamp, Value

_HEAD = Struct(">BBHHI")  # Section and constructor of the body; sizes of header, footer, note.
_DELAY = "x-opt-delay"  # The annotation that a delayed exchange reads, in milliseconds.
_DEATHS = "x-opt-deaths"  # As RabbitMQ calls it.
_NO_MIDDLE = Middle({}, message.Properties(), {})
_INT64 = range(-(2**63), 2**63)
# Properties of other protocols that are annotations here, by RabbitMQ's names.
_ANNOTATED = {"type": "x-basic-type", "app_id": "x-basic-app-id"}


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the broker notes about a message. Persisted: never change a name."""

    deaths: tuple[Death, ...] = ()
    delayed_at: str = ""  # The delayed exchange at which it waits.


_NO_NOTE = Note()
_encode_note = msgspec.msgpack.Encoder().encode
_decode_note = msgspec.msgpack.Decoder(Note).decode


class Head(NamedTuple):
    """A head, divided."""

    body_kind: Body
    header: bytes
    footer: bytes
    note: Note
    middle: bytes


def join(head: Head) -> bytes:
    note = b"" if head.note == _NO_NOTE else _encode_note(head.note)
    sizes = _HEAD.pack(*head.body_kind, len(head.header), len(head.footer), len(note))
    return b"".join((sizes, head.header, head.footer, note, head.middle))


def split(head: bytes) -> Head:
    section, constructor, header_size, footer_size, note_size = _HEAD.unpack_from(head)
    header_at = _HEAD.size
    footer_at = header_at + header_size
    note_at = footer_at + footer_size
    middle_at = note_at + note_size
    return Head(
        Body(section, constructor),
        head[header_at:footer_at],
        head[footer_at:note_at],
        _decode_note(head[note_at:middle_at]) if note_size else _NO_NOTE,
        head[middle_at:],
    )


def head_of(parts: Parts) -> bytes:
    """Return the head of a message that a client sent.

    Its header is that of a first delivery: most messages are delivered once.
    """
    header = message.write_header(parts.sent._replace(first_acquirer=True, delivery_count=0))
    return join(Head(parts.body_kind, header, parts.footer, _NO_NOTE, parts.middle))


class Amqp10Format:
    """Implements `Format` for AMQP 1.0."""

    name = "amqp-1.0"

    def handling(self, head: bytes) -> Handling:
        found = split(head)
        header = message.read_header(found.header)
        delay_ms = 0
        if _DELAY.encode() in found.middle:
            delay = _middle(found.middle).annotations.get(_DELAY)
            delay_ms = int(delay) if isinstance(delay, int) and 0 < delay < 2**32 else 0
        return Handling(header.durable, header.priority or 0, header.ttl_ms, delay_ms)

    def properties(self, head: bytes) -> Properties:
        found = split(head)
        header = message.read_header(found.header)
        annotations, properties, application = _middle(found.middle)
        user, created = properties.user_id, properties.creation_time
        annotated = {
            ours: str(annotations[theirs])
            for ours, theirs in _ANNOTATED.items()
            if theirs in annotations
        }
        others = {"subject": properties.subject, "group-id": properties.group_id}
        return Properties(
            content_type=_text(properties.content_type),
            content_encoding=_text(properties.content_encoding),
            correlation_id=_text(properties.correlation_id),
            reply_to=properties.reply_to,
            message_id=_text(properties.message_id),
            user_id=None if user is None else user.decode("utf-8", "replace"),
            timestamp=None if created is None or created < 0 else created // 1_000,
            priority=header.priority,
            ttl_ms=header.ttl_ms,
            is_persistent=header.durable,
            headers={name: _shared(value) for name, value in application.items()},
            others={name: each for name, each in others.items() if each is not None},
            **annotated,
        )

    def readable(self, head: bytes) -> Iterator[tuple[str, bytes | None]]:
        properties = self.properties(head)
        for name, header in TEXTS.items():
            value = getattr(properties, name)
            if value is not None:
                yield header, header_bytes(value)
        for name, number in (
            ("expiration", properties.ttl_ms),
            ("priority", properties.priority),
            ("timestamp", properties.timestamp),
        ):
            if number is not None:
                yield name, b"%d" % number
        for name, value in properties.headers.items():
            yield unicode_name(name), None if value is None else header_bytes(value)

    # --- what the broker adds

    def without_blind_copies(self, head: bytes) -> bytes:
        return head

    def delayed_at(self, head: bytes, exchange: str) -> bytes:
        found = split(head)
        return join(found._replace(note=replace(found.note, delayed_at=exchange)))

    def after_delay(self, head: bytes) -> tuple[str, bytes]:
        """Return the exchange, and a head without the delay."""
        found = split(head)
        annotations, _, _ = middle = _middle(found.middle)
        kept = {name: value for name, value in annotations.items() if name != _DELAY}
        changed = _middle_bytes(middle._replace(annotations=kept))
        note = replace(found.note, delayed_at="")
        return found.note.delayed_at, join(found._replace(note=note, middle=changed))

    def deaths(self, head: bytes) -> Sequence[Death]:
        return split(head).note.deaths

    def with_deaths(
        self, head: bytes, deaths: Sequence[Death], exchange: str, *, keeps_copies: bool
    ) -> bytes:
        found = split(head)
        header = message.read_header(found.header)._replace(ttl_ms=None)
        note = replace(found.note, deaths=tuple(deaths))
        return join(found._replace(header=message.write_header(header), note=note))

    # --- records

    def pack(self, envelope: Envelope) -> bytes:
        return b"".join((*map(_sized, (envelope.exchange, envelope.subject)), envelope.head))

    def unpack(self, packed: bytes) -> Envelope | None:
        found = split_packed(packed)
        if found is None or not _is_head(found[2]):
            return None
        return Envelope(*found, self)

    # --- for the receiver of a message of any format

    def sections(
        self,
        envelope: Envelope,
        body: Buffer,
        attempts: int,
        told: Mapping[Value, Value] | None = None,
    ) -> tuple[bytes, bytes]:
        """Return what comes before the bytes of the body, and what comes after them.

        `told` is added to the annotations.
        """
        if envelope.format is self:
            kind, header, footer, note, middle = split(envelope.head)
            if note.deaths:
                middle = _with_deaths_annotation(middle, note.deaths)
        else:
            kind, footer = message.plain_kind(len(body)), b""
            header, middle = _translated(envelope.properties)
            deaths = envelope.format.deaths(envelope.head)
            if deaths:
                middle = _with_deaths_annotation(middle, deaths)
        if told is not None:
            middle = _with_annotations(middle, told)
        if attempts:
            found = message.read_header(header)
            header = message.write_header(
                found._replace(first_acquirer=False, delivery_count=attempts)
            )
        return header + middle + message.body_head(kind, len(body)), footer


AMQP_1_0 = Amqp10Format()


def _sized(name: str) -> bytes:
    data = name.encode("utf-8", "surrogateescape")
    return bytes((len(data),)) + data


def _is_head(head: bytes) -> bool:
    """Return whether bytes out of a record, which anybody may have written, are a head."""
    if len(head) < _HEAD.size or len(head) > 2 * limits.HEAD_BYTES_MAX:
        return False
    try:
        found = split(head)
        message.read_header(found.header)
        message.read_middle(found.middle)
    except (Amqp10Error, AttributeError, msgspec.DecodeError, ValueError, RecursionError):
        return False
    section, constructor = found.body_kind
    return (section, constructor) == (0, 0) or constructor in message.PLAIN.get(section, ())


def _middle(data: bytes) -> Middle:
    return message.read_middle(data) if data else _NO_MIDDLE


def _middle_bytes(middle: Middle) -> bytes:
    parts = []
    if middle.annotations:
        parts.append(message.write_map(ANNOTATIONS, middle.annotations))
    if middle.properties != _NO_MIDDLE.properties:
        parts.append(message.write_properties(middle.properties))
    if middle.application:
        parts.append(message.write_map(APPLICATION_PROPERTIES, middle.application))
    return b"".join(parts)


def _with_deaths_annotation(middle: bytes, deaths: Sequence[Death]) -> bytes:
    entries = [
        {
            Symbol("queue"): each.queue,
            Symbol("reason"): Symbol(each.reason.encode("ascii", "replace").decode()),
            Symbol("count"): types.ULong(min(each.times, 2**63)),
            Symbol("exchange"): each.exchange or "",
            Symbol("routing-keys"): list(each.subjects),
        }
        | ({} if each.time_ms is None else {Symbol("first-time"): Timestamp(each.time_ms)})
        for each in deaths
    ]
    return _with_annotations(middle, {Symbol(_DEATHS): entries})


def _with_annotations(middle: bytes, added: Mapping[Value, Value]) -> bytes:
    found = _middle(middle)
    return _middle_bytes(found._replace(annotations={**found.annotations, **added}))


def _text(value: Value) -> str | None:
    """Return an id or a symbol as a text."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def _shared(value: Value) -> object:
    """Return the value of an application property as other protocols have it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else str(value)


# Translating.


def _translated(properties: Properties) -> tuple[bytes, bytes]:
    """Return header and middle for the properties of another protocol."""
    priority = properties.priority
    header = Header(
        bool(properties.is_persistent),
        priority if priority is not None and 0 <= priority < 256 else None,
        None if properties.ttl_ms is None else min(properties.ttl_ms, 2**32 - 1),
        first_acquirer=True,
    )
    created = properties.timestamp
    found = message.Properties(
        message_id=_fitting(properties.message_id),
        user_id=None if properties.user_id is None else _bytes(properties.user_id),
        subject=_fitting(properties.others.get("subject")),
        reply_to=_fitting(properties.reply_to),
        correlation_id=_fitting(properties.correlation_id),
        content_type=_symbol(properties.content_type),
        content_encoding=_symbol(properties.content_encoding),
        creation_time=Timestamp(created * 1_000)
        if created is not None and abs(created) < 2**53
        else None,
        group_id=_fitting(properties.others.get("group-id")),
    )
    annotations: dict[Value, Value] = {
        Symbol(theirs): unicode_name(value)
        for ours, theirs in _ANNOTATED.items()
        if (value := getattr(properties, ours)) is not None
    }
    application = dict(_applications(properties.headers.items()))
    return message.write_header(header), _middle_bytes(Middle(annotations, found, application))


def _applications(headers: Iterable[tuple[str, object]]) -> Iterator[tuple[str, Value]]:
    """Return the headers as application properties; the first ones, if there are too many."""
    size = 0
    for name, value in headers:
        simple = _simple(value)
        size += len(name) + len(types.encode(simple))
        if size > limits.HEAD_BYTES_MAX // 2:
            return
        yield unicode_name(name), simple


def _simple(value: object) -> Value:
    """Return a value as a type of application properties, which are no lists and no maps."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value in _INT64 else str(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes):
        return bytes(value)
    return unicode_name(str(value))


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def _fitting(value: str | None) -> str | None:
    return None if value is None else unicode_name(value)


def _symbol(value: str | None) -> Symbol | None:
    return Symbol(value) if value is not None and value.isascii() else None
