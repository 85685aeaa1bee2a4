"""AMQP 1.0's messages: sections, of which the broker reads few and changes none but the header.

A message is a header, annotations for the next receiver (delivery annotations), annotations,
properties, application properties, a body and a footer; each is a described value, and only the
body must be there. Everything but the header and the delivery annotations is the publisher's own
and comes to receivers as it was written, to the byte.

A body that is one binary value, or one text, is told apart from its constructor, so that other
protocols can have the bytes alone. Any other body stays as its bytes are.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from entrepot.wire.amqp10 import limits, types
from entrepot.wire.amqp10.types import (
    Reader,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    Value,
    malformed,
)

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS = 0x70, 0x71, 0x72
PROPERTIES, APPLICATION_PROPERTIES = 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
_BODY = (DATA, SEQUENCE, VALUE)
_NAMES: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
# Constructors of one binary value or text, by the section they may be alone in.
PLAIN: Final = {DATA: (0xA0, 0xB0), VALUE: (0xA0, 0xB0, 0xA1, 0xB1)}
_UINT = Struct(">I")


class Header(NamedTuple):
    durable: bool = False
    priority: int | None = None  # None means: the default, 4.
    ttl_ms: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0


_NO_HEADER = Header()


class Body(NamedTuple):
    """Which section a body was, and the constructor of its value. 0 means: see the bytes."""

    section: int = 0
    constructor: int = 0


class Parts(NamedTuple):
    """A message in parts. The bytes of a section include its descriptor."""

    header: bytes
    middle: bytes  # Annotations, properties and application properties.
    body_kind: Body
    body: bytes
    footer: bytes
    sent: Header  # The header, decoded.


class Properties(NamedTuple):
    """The section of that name (part 3.2.4)."""

    message_id: Value = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Value = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


def split(data: bytes) -> Parts:
    """Divide a message into its parts, checking how they are made. Raises Amqp10Error."""
    reader = Reader(data)
    header = middle = body = footer = b""
    sent = _NO_HEADER
    kind: Body | None = None
    last = 0
    while not reader.is_at_end:
        start = reader.at
        section = _section(reader)
        if section < last or (section == last and section in (HEADER, FOOTER, VALUE)):
            raise malformed("sections that are out of order")
        last = section
        content = reader.at
        if section in _BODY:
            found = _plain_body(data, start, content, section)
            kind, body = _joined(kind, body, found, data[start : _end_of(reader)])
            continue
        if section == HEADER:
            header = data[start : _end_of(reader)]
            sent = read_header(header)
        elif section == FOOTER:
            footer = data[start : _end_of(reader)]
        else:
            _check_section(reader, section)
            if section != DELIVERY_ANNOTATIONS:
                middle += data[start : reader.at]
    if len(middle) + len(header) + len(footer) > limits.HEAD_BYTES_MAX:
        raise malformed("annotations and properties that are too large")
    if kind is None:
        raise malformed("a message without a body")
    return Parts(header, middle, kind, body, footer, sent)


def _section(reader: Reader) -> int:
    """Read a section's descriptor; return its number."""
    number = reader.small_descriptor()
    if number:  # As nearly everybody writes it.
        if not HEADER <= number <= FOOTER:
            raise malformed("a section that no message has")
        return number
    if reader.take(1) != b"\0":
        raise malformed("a section without a descriptor")
    descriptor = reader.value()
    found = _NAMES.get(descriptor) if isinstance(descriptor, str) else descriptor
    if not isinstance(found, int) or not HEADER <= found <= FOOTER:
        raise malformed("a section that no message has")
    return int(found)


def _end_of(reader: Reader) -> int:
    """Pass over the next value; return where it ends."""
    reader.skip()
    return reader.at


def _check_section(reader: Reader, section: int) -> None:
    value = reader.value()
    if section == PROPERTIES:
        _read_properties(value)
    elif not isinstance(value, dict):
        raise malformed("a section that must be a map")
    elif section == APPLICATION_PROPERTIES and any(type(key) is not str for key in value):
        raise malformed("an application property whose name is no text")


def _plain_body(data: bytes, start: int, content: int, section: int) -> tuple[Body, bytes] | None:
    """Return the body if it is one binary value or text; None for any other."""
    if data[start:content] != b"\0\x53" + bytes((section,)) or content >= len(data):
        return None
    constructor = data[content]
    if constructor not in PLAIN.get(section, ()):
        return None
    width = 1 if constructor & 0xF0 == 0xA0 else 4
    begin = content + 1 + width
    end = begin + int.from_bytes(data[content + 1 : begin], "big")
    if end > len(data):
        return None  # Passing over it finds that out as well, and says so.
    return Body(section, constructor), data[begin:end]


def _joined(
    kind: Body | None, body: bytes, found: tuple[Body, bytes] | None, whole: bytes
) -> tuple[Body, bytes]:
    """Return the body with one more section. More than one of them stay as they are."""
    if kind is None and found is not None:
        return found
    if kind is not None and kind.section:
        body = body_bytes(kind, body)
    return Body(), body + whole


def body_bytes(kind: Body, body: bytes) -> bytes:
    """Return the sections of a body as they were."""
    return body_head(kind, len(body)) + body


def body_head(kind: Body, size: int) -> bytes:
    """Return what comes before the bytes of a body of that size."""
    if not kind.section:
        return b""
    lead = bytes((0, 0x53, kind.section, kind.constructor))
    return lead + (bytes((size,)) if kind.constructor & 0xF0 == 0xA0 else _UINT.pack(size))


def plain_kind(size: int) -> Body:
    """Return how a body of bytes is written that came by another protocol."""
    return Body(DATA, 0xA0 if size < 256 else 0xB0)


def data_of(parts: Parts) -> list[bytes]:
    """Return the values of a body that is one or more sections of data. Raises Amqp10Error."""
    if parts.body_kind.section == DATA:
        return [parts.body]
    found = []
    reader = Reader(parts.body)
    while not reader.is_at_end:
        value = _section(reader) == DATA and reader.value()
        if not isinstance(value, bytes):
            raise malformed("a body that must be data")
        found.append(value)
    return found


# --- single sections


def read_header(data: bytes) -> Header:
    """Read the header of a message; empty bytes mean: there is none. Raises Amqp10Error."""
    if not data:
        return Header()
    value = types.decode(data).value
    if not isinstance(value, list) or len(value) > len(Header._fields):
        raise malformed("a header that is no list of five")
    wanted = (bool, UByte, UInt, bool, UInt)
    found = {}
    for name, kind, field in zip(Header._fields, wanted, value, strict=False):
        if field is not None:
            if type(field) is not kind:
                raise malformed(f"a header whose field {name} has another type")
            found[name] = kind(field)
    return Header(**found)


def write_header(header: Header) -> bytes:
    fields = [
        b"\x41" if header.durable else b"\x42",
        types.NULL if header.priority is None else types.encode(UByte(header.priority)),
        types.NULL if header.ttl_ms is None else types.uint(header.ttl_ms),
        b"\x41" if header.first_acquirer else b"\x42",
        types.uint(header.delivery_count),
    ]
    return types.described(HEADER, types.list_of_encoded(fields))


def _read_properties(value: Value) -> Properties:
    if not isinstance(value, list) or len(value) > len(Properties._fields):
        raise malformed("properties that are no list of thirteen")
    wanted: dict[str, type] = {
        "user_id": bytes,
        "to": str,
        "subject": str,
        "reply_to": str,
        "content_type": Symbol,
        "content_encoding": Symbol,
        "absolute_expiry_time": Timestamp,
        "creation_time": Timestamp,
        "group_id": str,
        "group_sequence": UInt,
        "reply_to_group_id": str,
    }
    for name, field in zip(Properties._fields, value, strict=False):
        kind = wanted.get(name)
        if field is not None and kind is not None and type(field) is not kind:
            raise malformed(f"properties whose field {name} has another type")
    return Properties(*value)


def write_properties(properties: Properties) -> bytes:
    fields = [types.encode(field) for field in properties]
    return types.described(PROPERTIES, types.list_of_encoded(fields))


def write_map(section: int, value: dict[Value, Value]) -> bytes:
    return types.described(section, types.encode(value))


class Middle(NamedTuple):
    """The sections between header and body, decoded."""

    annotations: dict[Value, Value]
    properties: Properties
    application: dict[Value, Value]


def read_middle(data: bytes) -> Middle:
    """Decode the middle of a message. Raises Amqp10Error."""
    annotations: dict[Value, Value] = {}
    application: dict[Value, Value] = {}
    properties = Properties()
    reader = Reader(data)
    while not reader.is_at_end:
        section, value = _section(reader), reader.value()
        if section == PROPERTIES:
            properties = _read_properties(value)
        elif not isinstance(value, dict):
            raise malformed("a section that must be a map")
        elif section == ANNOTATIONS:
            annotations = value
        elif section == APPLICATION_PROPERTIES:
            application = value
    return Middle(annotations, properties, application)
