"""AMQP 1.0's type system: values as bytes, each with a constructor that names its type.

Values are Python's where Python has such a type: None, bool, int (a long), float (a double), str,
bytes, UUID, list and dict. The others are subclasses that remember which type they are, so that
what was decoded is encoded as the same type again. Decimals are carried as their bytes.

Decoding is bounded: by depth, and by the number of values in all lists, maps and arrays of one
call. A list that announces more elements than it has bytes for is refused before it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from entrepot.wire.amqp10 import limits
from entrepot.wire.amqp10.errors import Amqp10Error, Condition

Value = Any


class Symbol(str):
    """A name out of a small set, in ASCII."""

    __slots__ = ()


class Char(str):
    """One character."""

    __slots__ = ()


class UByte(int):
    __slots__ = ()


class UShort(int):
    __slots__ = ()


class UInt(int):
    __slots__ = ()


class ULong(int):
    __slots__ = ()


class Byte(int):
    __slots__ = ()


class Short(int):
    __slots__ = ()


class Int(int):
    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970."""

    __slots__ = ()


class Float(float):
    """A number of 32 bits."""

    __slots__ = ()


class Decimal(bytes):
    """A decimal number of 4, 8 or 16 bytes, which is carried and never read."""

    __slots__ = ()


class Array(list[Value]):
    """Values of one type, whose constructor is in `code`."""

    def __init__(self, values: list[Value], code: bytes) -> None:
        super().__init__(values)
        self.code = code  # The constructor, with its descriptor if the elements are described.


class Described(NamedTuple):
    """A value with a descriptor, which says what it means."""

    descriptor: Value
    value: Value


NULL: Final = b"\x40"
_BYTE, _SHORT, _INT, _LONG = (Struct(">" + code) for code in "bhiq")
_UBYTE, _USHORT, _UINT, _ULONG = (Struct(">" + code) for code in "BHIQ")
_FLOAT, _DOUBLE = Struct(">f"), Struct(">d")
_DESCRIBED = 0x00


class Reader:
    """Decodes values. Raises Amqp10Error for bytes that are none."""

    __slots__ = ("_data", "_left", "at")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self.at = at
        self._left = limits.VALUES_MAX

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self._data)

    def value(self, depth: int = limits.VALUE_DEPTH_MAX) -> Value:
        """Return the next value."""
        at = self.at
        if at >= len(self._data):
            raise malformed("a value that ends too early")
        code = self._data[at]
        self.at = at + 1
        if code == _DESCRIBED:
            if not depth:
                raise malformed("values nested too deep")
            return Described(self.value(depth - 1), self.value(depth - 1))
        return self._of(code, depth)

    def _of(self, code: int, depth: int) -> Value:
        """Return the value of a constructor whose byte is already read."""
        self._left -= 1
        if self._left < 0:
            raise malformed("too many values")
        read = _FIXED.get(code)
        if read is not None:
            width, make = read
            return make(self.take(width))
        kind = code & 0xF0
        if kind in (0xA0, 0xB0):
            size = self._byte() if kind == 0xA0 else self._four()
            return _variable(code & 0x0F, self.take(size))
        if code in _COMPOUND:
            if not depth:
                raise malformed("values nested too deep")
            return self._compound(code, depth - 1)
        raise malformed(f"no type has the constructor 0x{code:02x}")

    def _compound(self, code: int, depth: int) -> Value:
        is_small = code & 0xF0 in (0xC0, 0xE0)
        size = self._byte() if is_small else self._four()
        end = self.at + size
        if end > len(self._data):
            raise malformed("a value that ends too early")
        count = self._byte() if is_small else self._four()
        if count > size and code & 0xF0 not in (0xE0, 0xF0):
            raise malformed("more elements than there are bytes")
        found = _COMPOUND[code](self, count, depth)
        if self.at != end:
            raise malformed("elements that do not fit their size")
        return found

    def list_of(self, count: int, depth: int) -> list[Value]:
        return [self.value(depth) for _ in range(count)]

    def map_of(self, count: int, depth: int) -> dict[Value, Value]:
        if count % 2:
            raise malformed("a map with a key and no value")
        found: dict[Value, Value] = {}
        for _ in range(count // 2):
            key = self.value(depth)
            try:
                found[key] = self.value(depth)
            except TypeError:
                raise malformed("a map whose key is a list, a map or an array") from None
        return found

    def array_of(self, count: int, depth: int) -> Array:
        if count > limits.VALUES_MAX:
            raise malformed("too many values")
        start = self.at
        code, descriptor = self._byte(), None
        is_described = code == _DESCRIBED
        if is_described:
            descriptor = self.value(depth)
            code = self._byte()
        constructor = self._data[start : self.at]
        values = [self._of(code, depth) for _ in range(count)]
        if is_described:
            values = [Described(descriptor, each) for each in values]
        return Array(values, constructor)

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        start = self.at
        self.at = end = start + size
        if end > len(self._data):
            raise malformed("a value that ends too early")
        return self._data[start:end]

    def small_descriptor(self) -> int:
        """Return the number of the next descriptor if it is one of one byte, and pass over it; or
        0, and nothing is read."""
        at = self.at
        if self._data[at : at + 2] != b"\0\x53" or at + 2 >= len(self._data):
            return 0
        number = self._data[at + 2]
        self.at = at + 3 if number else at
        return number

    def skip(self, depth: int = limits.VALUE_DEPTH_MAX) -> None:
        """Pass over the next value, without looking into lists, maps and arrays."""
        if not depth:
            raise malformed("values nested too deep")
        code = self._byte()
        if code == _DESCRIBED:
            self.skip(depth - 1)
            self.skip(depth - 1)
            return
        fixed = _FIXED.get(code)
        if fixed is not None:
            self.take(fixed[0])
            return
        kind = code & 0xF0
        if kind in (0xA0, 0xC0, 0xE0):
            self.take(self._byte())
        elif kind in (0xB0, 0xD0, 0xF0):
            self.take(self._four())
        else:
            raise malformed(f"no type has the constructor 0x{code:02x}")

    def _byte(self) -> int:
        at = self.at
        if at >= len(self._data):
            raise malformed("a value that ends too early")
        self.at = at + 1
        return self._data[at]

    def _four(self) -> int:
        return int.from_bytes(self.take(4), "big")


def decode(data: bytes) -> Value:
    """Return the one value in these bytes. Raises Amqp10Error."""
    reader = Reader(data)
    found = reader.value()
    if not reader.is_at_end:
        raise malformed("bytes after a value")
    return found


def malformed(text: str) -> Amqp10Error:
    return Amqp10Error(Condition.DECODE_ERROR, text)


def _truth(data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise malformed("a boolean that is neither 0 nor 1")
    return data == b"\1"


def _char(data: bytes) -> Char:
    try:
        return Char(data.decode("utf-32-be"))
    except UnicodeDecodeError:
        raise malformed("a char that is not Unicode") from None


def _unsigned(kind: type[int]) -> Callable[[bytes], int]:
    return lambda data: kind(int.from_bytes(data, "big"))


def _signed(kind: type[int]) -> Callable[[bytes], int]:
    return lambda data: kind(int.from_bytes(data, "big", signed=True))


# Constructors of values with a fixed width: how many bytes, and what they are.
_FIXED: Final[dict[int, tuple[int, Callable[[bytes], Value]]]] = {
    0x40: (0, lambda _: None),
    0x41: (0, lambda _: True),
    0x42: (0, lambda _: False),
    0x43: (0, lambda _: UInt(0)),
    0x44: (0, lambda _: ULong(0)),
    0x45: (0, lambda _: []),
    0x50: (1, _unsigned(UByte)),
    0x51: (1, _signed(Byte)),
    0x52: (1, _unsigned(UInt)),
    0x53: (1, _unsigned(ULong)),
    0x54: (1, _signed(Int)),
    0x55: (1, _signed(int)),
    0x56: (1, _truth),
    0x60: (2, _unsigned(UShort)),
    0x61: (2, _signed(Short)),
    0x70: (4, _unsigned(UInt)),
    0x71: (4, _signed(Int)),
    0x72: (4, lambda data: Float(_FLOAT.unpack(data)[0])),
    0x73: (4, _char),
    0x74: (4, Decimal),
    0x80: (8, _unsigned(ULong)),
    0x81: (8, _signed(int)),
    0x82: (8, lambda data: float(_DOUBLE.unpack(data)[0])),
    0x83: (8, _signed(Timestamp)),
    0x84: (8, Decimal),
    0x94: (16, Decimal),
    0x98: (16, lambda data: UUID(bytes=data)),
}
_COMPOUND: Final[dict[int, Callable[[Reader, int, int], Value]]] = {
    0xC0: Reader.list_of,
    0xD0: Reader.list_of,
    0xC1: Reader.map_of,
    0xD1: Reader.map_of,
    0xE0: Reader.array_of,
    0xF0: Reader.array_of,
}


def _variable(kind: int, data: bytes) -> Value:
    if kind == 0x0:
        return data
    try:
        if kind == 0x1:
            return data.decode()
        if kind == 0x3:
            return Symbol(data.decode("ascii"))
    except UnicodeDecodeError:
        raise malformed("a text that is not in its character set") from None
    raise malformed("no type has this constructor")


# --- encoding


def encode(value: Value) -> bytes:
    """Return the bytes of a value, with its constructor."""
    if value is None:
        return NULL
    found = _ENCODERS.get(type(value))
    if found is None:
        raise TypeError(f"no type of AMQP for {type(value).__name__}")
    return found(value)


def ulong(value: int) -> bytes:
    if not value:
        return b"\x44"
    return b"\x53" + _UBYTE.pack(value) if value < 256 else b"\x80" + _ULONG.pack(value)


def uint(value: int) -> bytes:
    if not value:
        return b"\x43"
    return b"\x52" + _UBYTE.pack(value) if value < 256 else b"\x70" + _UINT.pack(value)


def long(value: int) -> bytes:
    return b"\x55" + _BYTE.pack(value) if -128 <= value < 128 else b"\x81" + _LONG.pack(value)


def integer(value: int) -> bytes:
    return b"\x54" + _BYTE.pack(value) if -128 <= value < 128 else b"\x71" + _INT.pack(value)


def text(value: str) -> bytes:
    return _sized(0xA1, 0xB1, value.encode())


def symbol(value: str) -> bytes:
    return _sized(0xA3, 0xB3, value.encode("ascii"))


def binary(value: bytes) -> bytes:
    return _sized(0xA0, 0xB0, value)


def _sized(small: int, large: int, data: bytes) -> bytes:
    size = len(data)
    if size < 256:
        return bytes((small, size)) + data
    return bytes((large,)) + _UINT.pack(size) + data


def list_of_encoded(elements: list[bytes]) -> bytes:
    """Return a list of values that are encoded already. Nulls at its end are left out."""
    while elements and elements[-1] == NULL:
        elements.pop()
    if not elements:
        return b"\x45"
    return _compound_bytes(0xC0, 0xD0, len(elements), b"".join(elements))


def _compound_bytes(small: int, large: int, count: int, data: bytes) -> bytes:
    if len(data) < 255 and count < 256:
        return bytes((small, len(data) + 1, count)) + data
    return bytes((large,)) + _UINT.pack(len(data) + 4) + _UINT.pack(count) + data


def described(code: int, value: bytes) -> bytes:
    """Return an encoded value with a numeric descriptor."""
    return b"\0" + ulong(code) + value


def _list(value: list[Value]) -> bytes:
    encoded = [encode(each) for each in value]
    if not encoded:
        return b"\x45"
    return _compound_bytes(0xC0, 0xD0, len(encoded), b"".join(encoded))


def _map(value: dict[Value, Value]) -> bytes:
    data = b"".join([encode(key) + encode(each) for key, each in value.items()])
    return _compound_bytes(0xC1, 0xD1, 2 * len(value), data)


def symbols(values: list[str] | tuple[str, ...]) -> bytes:
    """Return an array of symbols."""
    each = [value.encode("ascii") for value in values]
    data = b"\xb3" + b"".join([_UINT.pack(len(one)) + one for one in each])
    return b"\xf0" + _UINT.pack(len(data) + 4) + _UINT.pack(len(each)) + data


def _array(value: Array) -> bytes:
    """Return an array as it was decoded: its elements without their own constructors."""
    code = value.code[-1]
    bare = [_bare(code, each.value if isinstance(each, Described) else each) for each in value]
    data = value.code + b"".join(bare)
    return b"\xf0" + _UINT.pack(len(data) + 4) + _UINT.pack(len(value)) + data


def _bare(code: int, value: Value) -> bytes:
    fixed = _FIXED.get(code)
    if fixed is not None:
        width = fixed[0]
        if not width:
            return b""
        if isinstance(value, bool):
            return bytes((value,))
        if isinstance(value, UUID):
            return value.bytes
        if isinstance(value, Decimal):
            return bytes(value)
        if isinstance(value, Char):
            return value.encode("utf-32-be")
        if isinstance(value, float):
            return (_FLOAT if width == 4 else _DOUBLE).pack(value)
        return int(value).to_bytes(width, "big", signed=value < 0)
    kind = code & 0xF0
    if kind in (0xA0, 0xB0):
        data = value if isinstance(value, bytes) else value.encode()
        return (_UBYTE if kind == 0xA0 else _UINT).pack(len(data)) + data
    whole = encode(value)
    return _resized(whole, is_small=kind in (0xC0, 0xE0))


def _resized(whole: bytes, *, is_small: bool) -> bytes:
    """Return a list, map or array without its constructor, with sizes of the width asked for."""
    if whole == b"\x45":
        size, count, rest = 0, 0, b""
    elif whole[0] & 0xF0 in (0xC0, 0xE0):
        count, rest = whole[2], whole[3:]
    else:
        count, rest = _UINT.unpack_from(whole, 5)[0], whole[9:]
    if is_small:
        return _UBYTE.pack(len(rest) + 1) + _UBYTE.pack(count) + rest
    size = len(rest) + 4
    return _UINT.pack(size) + _UINT.pack(count) + rest


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    bool: lambda value: b"\x41" if value else b"\x42",
    int: long,
    UByte: lambda value: b"\x50" + _UBYTE.pack(value),
    UShort: lambda value: b"\x60" + _USHORT.pack(value),
    UInt: uint,
    ULong: ulong,
    Byte: lambda value: b"\x51" + _BYTE.pack(value),
    Short: lambda value: b"\x61" + _SHORT.pack(value),
    Int: integer,
    Timestamp: lambda value: b"\x83" + _LONG.pack(value),
    Float: lambda value: b"\x72" + _FLOAT.pack(value),
    float: lambda value: b"\x82" + _DOUBLE.pack(value),
    Decimal: lambda value: {4: b"\x74", 8: b"\x84", 16: b"\x94"}[len(value)] + value,
    Char: lambda value: b"\x73" + value.encode("utf-32-be"),
    UUID: lambda value: b"\x98" + value.bytes,
    str: text,
    Symbol: symbol,
    bytes: binary,
    list: _list,
    tuple: lambda value: _list([*value]),
    dict: _map,
    Array: _array,
    Described: lambda value: b"\0" + encode(value.descriptor) + encode(value.value),
}
