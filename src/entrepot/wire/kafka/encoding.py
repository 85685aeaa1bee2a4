"""Kafka's primitive types in their two encodings.

A message version is either legacy (16- and 32-bit lengths, -1 for null) or flexible
(lengths as unsigned varints plus one, 0 for null, and tagged fields at the end of every
structure). The two readers and the two writers have the same methods, so code that
knows a message's fields is written once and handed one of them.

Readers are bounded: a length is held against the bytes that are left before anything
is made of it, and all arrays of one message draw on one budget of elements. They raise
`MalformedFrame`, or one of `DAMAGE` where Python's own checks are as good and cheaper;
every public decoder turns the latter into the former.

Writers are functions from a value to its bytes. A value they cannot write is a mistake
of ours and fails as Python has it fail.
"""

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, ClassVar
from uuid import UUID

from entrepot.core import limits
from entrepot.core.errors import MalformedFrame
from entrepot.core.ports import Buffer

DAMAGE = (IndexError, OverflowError, UnicodeDecodeError, struct.error)

INT16 = Struct(">h")
INT32 = Struct(">i")

_UUID_ZERO = bytes(16)
_UVARINT_BYTES_MAX = 5


class Reader:
    """Reads one message, and knows how far it has got. Holds what both encodings share."""

    __slots__ = ("buffer", "elements_left", "end", "position")

    def __init__(self, buffer: memoryview, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position  # May be beyond the end; then the next read fails.
        self.end = len(buffer)
        # How many array elements and tagged fields may still come.
        self.elements_left = limits.REQUEST_ELEMENTS_MAX

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self.buffer, self.position)
        self.position += layout.size
        return values

    def take(self, size: int) -> memoryview:
        """Return a view of the next bytes, and pass over them."""
        position = self.position
        end = position + size
        if size < 0 or end > self.end:
            raise MalformedFrame(f"a length of {size} with {self.end - position} bytes left")
        self.position = end
        return self.buffer[position:end]

    def uuid(self) -> UUID | None:
        return uuid_from(bytes(self.take(16)))

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise MalformedFrame("null for a string that cannot be null")
        return value

    def data(self) -> memoryview:
        value = self.nullable_data()
        if value is None:
            raise MalformedFrame("null for bytes that cannot be null")
        return value

    def count(self, bytes_each: int) -> int:
        """Read the size of an array whose elements take at least so many bytes each."""
        count = self.nullable_count(bytes_each)
        if count is None:
            raise MalformedFrame("null for an array that cannot be null")
        return count

    def nullable_string(self) -> str | None:
        raise NotImplementedError

    def nullable_data(self) -> memoryview | None:
        raise NotImplementedError

    def nullable_count(self, bytes_each: int) -> int | None:
        raise NotImplementedError

    def tags(self, known: Mapping[int, Callable[[Any], Any]]) -> dict[int, Any]:
        """Read the tagged fields of a structure. Those that are not in `known` are passed over."""
        raise NotImplementedError

    def skip_tags(self) -> None:
        raise NotImplementedError

    def _admit(self, count: int, bytes_each: int) -> int:
        if count < 0 or count * bytes_each > self.end - self.position:
            raise MalformedFrame(f"an array of {count} with {self.end - self.position} bytes left")
        self.elements_left -= count
        if self.elements_left < 0:
            raise MalformedFrame(f"more than {limits.REQUEST_ELEMENTS_MAX} elements")
        return count


class LegacyReader(Reader):
    __slots__ = ()

    def nullable_string(self) -> str | None:
        (size,) = INT16.unpack_from(self.buffer, self.position)
        self.position += 2
        return None if size == -1 else str(self.take(size), "utf-8")

    def nullable_data(self) -> memoryview | None:
        (size,) = INT32.unpack_from(self.buffer, self.position)
        self.position += 4
        return None if size == -1 else self.take(size)

    def nullable_count(self, bytes_each: int) -> int | None:
        (count,) = INT32.unpack_from(self.buffer, self.position)
        self.position += 4
        return None if count == -1 else self._admit(count, bytes_each)

    def tags(self, known: Mapping[int, Callable[[Any], Any]]) -> dict[int, Any]:
        return {}

    def skip_tags(self) -> None:
        pass


class CompactReader(Reader):
    __slots__ = ()

    def uvarint(self) -> int:
        value = self.buffer[self.position]
        if value < 0x80:
            self.position += 1
            return value
        value, self.position = read_uvarint(self.buffer, self.position)
        return value

    def nullable_string(self) -> str | None:
        size = self.uvarint()
        return str(self.take(size - 1), "utf-8") if size else None

    def nullable_data(self) -> memoryview | None:
        size = self.uvarint()
        return self.take(size - 1) if size else None

    def nullable_count(self, bytes_each: int) -> int | None:
        count = self.uvarint()
        return self._admit(count - 1, bytes_each) if count else None

    def tags(self, known: Mapping[int, Callable[[Any], Any]]) -> dict[int, Any]:
        count = self.uvarint()
        if not count:
            return {}
        values = {}
        for _ in range(self._admit(count, 2)):
            tag = self.uvarint()
            size = self.uvarint()
            end = self.position + size
            read = known.get(tag)
            if read is None:
                self.take(size)
                continue
            values[tag] = read(self)
            if self.position != end:
                raise MalformedFrame(f"tagged field {tag} is not of the size it says")
        return values

    def skip_tags(self) -> None:
        if self.buffer[self.position] == 0:
            self.position += 1
        else:
            self.tags({})


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Return the unsigned varint at a position, and the position after it."""
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for place in range(1, _UVARINT_BYTES_MAX):
        byte = buffer[position + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, position + place + 1
    raise MalformedFrame("a varint of more than five bytes")


class Writer:
    """Functions that turn values into bytes. Holds what both encodings share."""

    NO_TAGS: ClassVar[bytes]  # The end of a structure without tagged fields.

    @staticmethod
    def length(value: int | None) -> bytes:
        """Write the size that stands before an array, bytes or records. None means null."""
        raise NotImplementedError

    @staticmethod
    def string(value: str) -> bytes:
        raise NotImplementedError

    @staticmethod
    def nullable_string(value: str | None) -> bytes:
        raise NotImplementedError

    @classmethod
    def data(cls, value: Buffer) -> bytes:
        return cls.length(len(value)) + value

    @classmethod
    def nullable_data(cls, value: Buffer | None) -> bytes:
        return cls.length(None) if value is None else cls.data(value)


class LegacyWriter(Writer):
    NO_TAGS = b""

    @staticmethod
    def length(value: int | None) -> bytes:
        return INT32.pack(-1 if value is None else value)

    @staticmethod
    def string(value: str) -> bytes:
        encoded = value.encode()
        return INT16.pack(len(encoded)) + encoded

    @staticmethod
    def nullable_string(value: str | None) -> bytes:
        return b"\xff\xff" if value is None else LegacyWriter.string(value)


class CompactWriter(Writer):
    NO_TAGS = b"\0"

    @staticmethod
    def length(value: int | None) -> bytes:
        return b"\0" if value is None else uvarint(value + 1)

    @staticmethod
    def string(value: str) -> bytes:
        encoded = value.encode()
        return uvarint(len(encoded) + 1) + encoded

    @staticmethod
    def nullable_string(value: str | None) -> bytes:
        return b"\0" if value is None else CompactWriter.string(value)


_UVARINTS = tuple(bytes([value]) for value in range(0x80))


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _UVARINTS[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def tagged(fields: list[tuple[int, bytes]]) -> bytes:
    """Write the end of a flexible structure: its tagged fields, by tag and bytes."""
    parts = [uvarint(len(fields))]
    for tag, value in sorted(fields):
        parts += (uvarint(tag), uvarint(len(value)), value)
    return b"".join(parts)


@lru_cache(maxsize=4096)
def uuid_from(value: bytes) -> UUID | None:
    """Return the UUID with these bytes; None for zeros, which are Kafka's null. Results are cached,
    because a UUID is slow to make."""
    return None if value == _UUID_ZERO else UUID(bytes=value)


def uuid_bytes(value: UUID | None) -> bytes:
    return _UUID_ZERO if value is None else value.bytes
