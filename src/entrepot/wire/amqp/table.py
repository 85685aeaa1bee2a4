"""Field tables: names with typed values, nested, as RabbitMQ reads and writes them.

The specification and its first brokers disagree about the letters of some types. Here
it is as in RabbitMQ: `s` is a 16-bit number and never a short string, `l` and
`L` are both signed 64 bits and written as `l`, `I` is signed and `i` unsigned, `x` is
bytes, a decimal's digits are unsigned, and of two fields with one name the first counts.

Python has fewer kinds of numbers, so every wire type has a Python type of its own: the
usual ones where there is one (`bool`, `str`, `bytes`, `float`, `Decimal`, `list`,
`dict`, `None`, and `int` for `I`), and a subclass of `int` or `float` for the rest. A
table that is read and written again has the types it came with, and can be compared
and calculated with like any number.

Texts are UTF-8 by convention only, and RabbitMQ does not check: what is not UTF-8 is
kept in surrogate escapes, and written as it came.

A length is compared with the bytes that are left before anything is allocated, and
nesting is bounded. Every value takes at least a byte, so a frame's bound bounds a table.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from struct import Struct
from struct import error as StructError  # noqa: N812  # Its own name says less.
from typing import Any

from entrepot.core import limits
from entrepot.core.ports import Buffer
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.flat_table import LONG_STRINGS, SIZES

Value = Any  # One of the types above; the values of tables and arrays likewise.
Table = dict[str, Value]
FrozenTable = Mapping[str, Value]


class Int8(int):
    """`b`."""


class UInt8(int):
    """`B`."""


class Int16(int):
    """`s`."""


class UInt16(int):
    """`u`."""


class UInt32(int):
    """`i`."""


class Int64(int):
    """`l`, and `L` when it is read."""


class Timestamp(int):
    """`T`: seconds since 1970, unsigned 64 bits."""


class Float32(float):
    """`f`."""


_UINT32 = Struct(">I")
_DECIMAL = Struct(">BI")
_NUMBERS: dict[str, tuple[Struct, Callable[[Any], Value]]] = {
    "b": (Struct(">b"), Int8),
    "B": (Struct(">B"), UInt8),
    "s": (Struct(">h"), Int16),
    "u": (Struct(">H"), UInt16),
    "I": (Struct(">i"), int),
    "i": (Struct(">I"), UInt32),
    "l": (Struct(">q"), Int64),
    "L": (Struct(">q"), Int64),
    "T": (Struct(">Q"), Timestamp),
    "f": (Struct(">f"), Float32),
    "d": (Struct(">d"), float),
    "t": (Struct(">?"), bool),
}
_LETTERS: dict[type, str] = {
    **{kind: letter for letter, (_, kind) in _NUMBERS.items() if isinstance(kind, type)},
    Int64: "l",
    str: "S",
    bytes: "x",
    Decimal: "D",
    dict: "F",
    list: "A",
    type(None): "V",
}
# RabbitMQ's names of the types, as in its error texts.
TYPE_NAMES = {
    "b": "byte", "B": "unsignedbyte", "s": "short", "u": "unsignedshort", "I": "signedint",
    "i": "unsignedint", "l": "long", "T": "timestamp", "f": "float", "d": "double",
    "t": "bool", "S": "longstr", "x": "binary", "D": "decimal", "F": "table", "A": "array",
    "V": "void",
}  # fmt: skip
_CLASSES = {**dict.fromkeys("bBsuIilD", "int"), "f": "float", "d": "float"}
_NESTED = {ord("F"): True, ord("A"): False}  # Whether the values in it have names.
_INT32_MIN, _INT32_END = -(2**31), 2**31


def malformed(what: str) -> AmqpError:
    return AmqpError(ReplyCode.SYNTAX_ERROR, what)


def type_name(value: Value) -> str:
    """Return RabbitMQ's name of the value's type."""
    return TYPE_NAMES[_letter(value)]


def type_class(value: Value) -> str:
    """Return the class of the value's type. Values of different classes never match."""
    letter = _letter(value)
    return _CLASSES.get(letter, TYPE_NAMES[letter])


def _letter(value: Value) -> str:
    letter = _LETTERS[type(value)]
    return "l" if letter == "I" and not _INT32_MIN <= value < _INT32_END else letter


# Reading.


def decode(data: Buffer) -> Table:
    """Return a table from its bytes, without the length in front. Raises AmqpError."""
    view = memoryview(data)
    try:
        return _read_table(view, 0, len(view), limits.TABLE_DEPTH_MAX)
    except (IndexError, StructError):
        raise malformed("a table ends within a value") from None


def decode_value(data: Buffer) -> Value:
    """Return a value from its bytes, which begin with the letter of its type. Raises AmqpError."""
    view = memoryview(data)
    try:
        return _read_value(view, 0, len(view), limits.TABLE_DEPTH_MAX)[0]
    except (IndexError, StructError):
        raise malformed("a value that ends too early") from None


def fields(data: Buffer) -> list[tuple[int, int, int]]:
    """Return where each field of a table begins, where its value begins, and where both end.

    Nested values are checked, too, so this raises what `decode` raises.
    """
    view = memoryview(data)
    found = []
    position = 0
    try:
        while position < len(view):
            value = position + 1 + view[position]
            end = _walk(view, value, len(view), limits.TABLE_DEPTH_MAX)
            found.append((position, value, end))
            position = end
    except (IndexError, StructError):
        raise malformed("a table ends within a value") from None
    return found


def _read_table(view: memoryview, position: int, end: int, depth: int) -> Table:
    table: Table = {}
    while position < end:
        start = position + 1
        position = start + view[position]
        name = str(view[start:position], "utf-8", "surrogateescape")
        value, position = _read_value(view, position, end, depth)
        table.setdefault(name, value)
    return table


def _read_array(view: memoryview, position: int, end: int, depth: int) -> list[Value]:
    array = []
    while position < end:
        value, position = _read_value(view, position, end, depth)
        array.append(value)
    return array


def _read_value(view: memoryview, position: int, end: int, depth: int) -> tuple[Value, int]:
    """Return the value and where it ends, which is not after `end`. Raises AmqpError."""
    letter = view[position]
    start, stop = _bounds(view, position, end)
    if letter in _NESTED:
        if depth == 0:
            raise malformed(f"tables nested more than {limits.TABLE_DEPTH_MAX} deep")
        read = _read_table if _NESTED[letter] else _read_array
        return read(view, start, stop, depth - 1), stop
    if letter == ord("S"):
        return str(view[start:stop], "utf-8", "surrogateescape"), stop
    if letter == ord("x"):
        return bytes(view[start:stop]), stop
    if letter == ord("V"):
        return None, stop
    if letter == ord("D"):
        scale, digits = _DECIMAL.unpack_from(view, start)
        return Decimal((0, tuple(map(int, str(digits))), -scale)), stop
    layout, kind = _NUMBERS[chr(letter)]
    return kind(layout.unpack_from(view, start)[0]), stop


def _bounds(view: memoryview, position: int, end: int) -> tuple[int, int]:
    """Return where the content of the value at `position` begins and ends."""
    letter = view[position]
    start = position + 1
    size = SIZES.get(letter)
    if size is None:
        if letter not in _NESTED and letter not in LONG_STRINGS:
            raise malformed(f"a table value of unknown type {chr(letter)!r}")
        (size,) = _UINT32.unpack_from(view, start)
        start += 4
    if start + size > end:
        raise malformed(f"a table value of {size} bytes with {max(end - start, 0)} left")
    return start, start + size


def _walk(view: memoryview, position: int, end: int, depth: int) -> int:
    """Return where the value ends, after checking that all in it is well formed."""
    letter = view[position]
    start, stop = _bounds(view, position, end)
    if letter not in _NESTED:
        return stop
    if depth == 0:
        raise malformed(f"tables nested more than {limits.TABLE_DEPTH_MAX} deep")
    has_names = _NESTED[letter]
    while start < stop:
        if has_names:
            start += 1 + view[start]
        start = _walk(view, start, stop, depth - 1)
    return stop


# Writing. A value of another type is an error of ours: it raises a KeyError.


def encode(table: FrozenTable) -> bytes:
    """Return the bytes of a table, without the length in front."""
    return b"".join([field(name, value) for name, value in table.items()])


def field(name: str, value: Value) -> bytes:
    """Return one field of a table: its name and its value."""
    encoded = name.encode("utf-8", "surrogateescape")
    return b"%c%b%b" % (len(encoded), encoded, encode_value(value))


def encode_value(value: Value) -> bytes:
    if type(value) is str:  # Most are.
        data = value.encode("utf-8", "surrogateescape")
        return b"S%b%b" % (_UINT32.pack(len(data)), data)
    letter = _letter(value)
    code = letter.encode()
    match letter:
        case "x":
            return code + long_string(value)
        case "F":
            return code + long_string(encode(value))
        case "A":
            return code + long_string(b"".join(map(encode_value, value)))
        case "V":
            return code
        case "D":
            return code + _decimal(value)
    return code + _NUMBERS[letter][0].pack(value)


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), value
    assert sign == 0 >= exponent, value
    return _DECIMAL.pack(-exponent, int("".join(map(str, digits))))


def short_string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return bytes((len(data),)) + data


def long_string(data: Buffer) -> bytes:
    return _UINT32.pack(len(data)) + data
