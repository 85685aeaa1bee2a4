"""Methods: the numbers of their class and their own, and their fields in order.

A method's Python class is its declaration: the annotations of its fields, in order, are their
wire types. Reading and writing are derived from that, for servers and clients alike. Consecutive
bits share a byte; no method has more of them than fit into one.

A frame that does not hold exactly its method's fields is a frame error, as in RabbitMQ; a table
that is malformed, or nested too deep, is a syntax error. What is read never refers to the frame's
memory.
"""

from collections.abc import Callable
from dataclasses import fields as dataclass_fields
from functools import cache
from itertools import groupby
from struct import Struct
from struct import error as StructError  # noqa: N812  # Its own name says less.
from typing import Annotated, Any, ClassVar, TypeAlias, cast, get_type_hints

from entrepot.wire.amqp import table
from entrepot.wire.amqp.errors import AmqpError, ReplyCode

Octet: TypeAlias = Annotated[int, "octet"]
Short: TypeAlias = Annotated[int, "short"]
Long: TypeAlias = Annotated[int, "long"]
LongLong: TypeAlias = Annotated[int, "longlong"]
Bit: TypeAlias = Annotated[bool, "bit"]
LongString: TypeAlias = Annotated[bytes, "longstr"]
ShortString: TypeAlias = Annotated[str, "shortstr"]
# A short string that a broker passes on. It need not be UTF-8, and is kept unchanged.
PassedString: TypeAlias = Annotated[str, "passedstr"]
Arguments: TypeAlias = Annotated[table.FrozenTable, "table"]

Id = tuple[int, int]
Read = Callable[[memoryview, int], tuple[Any, int]]  # Returns the value and its end.
Write = Callable[[Any], bytes]
Group = tuple[tuple[str, ...], Read, Write]  # One field, or bits that share a byte.
Layout = tuple[Group, ...]

_ID = Struct(">HH")
_UINT32 = Struct(">I")
_INTEGERS = {
    "octet": Struct(">B"),
    "short": Struct(">H"),
    "long": Struct(">I"),
    "longlong": Struct(">Q"),
}
_BITS_PER_BYTE = 8


class Method:
    """The superclass of all methods, which are frozen dataclasses."""

    __slots__ = ()

    ID: ClassVar[Id]
    NAME: ClassVar[str]  # As the specification writes it: `queue.declare-ok`.
    HAS_CONTENT: ClassVar[bool] = False


def read_id(payload: memoryview | bytes) -> Id:
    """Return the numbers of the class and the method. Raises AmqpError."""
    try:
        class_id, method_id = _ID.unpack_from(payload)
    except StructError:
        raise AmqpError(ReplyCode.FRAME_ERROR, "a method frame without a method") from None
    return class_id, method_id


def read_fields(kind: type[Method], payload: memoryview | bytes) -> Method:
    """Return the method of that class from its frame's payload. Raises AmqpError."""
    view = memoryview(payload)
    position = _ID.size
    values: list[Any] = []
    try:
        for names, read, _ in _layout(kind):
            value, position = read(view, position)
            if len(names) == 1:
                values.append(value)
            else:
                values += value
        if position != len(view):
            raise _cannot_decode(f"{len(view) - position} bytes after its last field")
    except (IndexError, StructError):
        raise _of(kind, _cannot_decode("the frame ends within a field")) from None
    except AmqpError as error:
        raise _of(kind, error) from None
    return kind(*values)


def write(method: Method) -> bytes:
    """Return the payload of the method's frame."""
    parts = [_ID.pack(*method.ID)]
    for names, _, write_value in _layout(type(method)):
        if len(names) == 1:
            parts.append(write_value(getattr(method, names[0])))
        else:
            parts.append(write_value([getattr(method, name) for name in names]))
    return b"".join(parts)


def _cannot_decode(why: str) -> AmqpError:
    return AmqpError(ReplyCode.FRAME_ERROR, f"cannot decode: {why}")


def _of(kind: type[Method], error: AmqpError) -> AmqpError:
    """Return the error with the method in which it occurred."""
    return AmqpError(error.code, f"{kind.NAME}: {error.explanation}", method_id=kind.ID)


def _make_layout(kind: type[Any]) -> Layout:
    hints = get_type_hints(kind, include_extras=True)
    declared = [(field.name, hints[field.name].__metadata__[0]) for field in dataclass_fields(kind)]
    layout: list[Group] = []
    for is_bits, group in groupby(declared, key=lambda item: item[1] == "bit"):
        run = list(group)
        if is_bits and len(run) > 1:
            assert len(run) <= _BITS_PER_BYTE, kind
            names = tuple(name for name, _ in run)
            layout.append((names, _bits_read(len(run)), _write_bits))
        else:
            layout += [((name,), *_codec(wire_type)) for name, wire_type in run]
    return tuple(layout)


# The casts keep the type, which functools.cache would lose of a function of classes.
_layout = cast(Callable[[type[Method]], Layout], cache(cast(Any, _make_layout)))


def _codec(wire_type: str) -> tuple[Read, Write]:
    match wire_type:
        case "bit":
            return _read_bit, _write_bit
        case "shortstr":
            return _read_short_string, table.short_string
        case "passedstr":
            return _read_passed_string, table.short_string
        case "longstr":
            return _read_long_string, table.long_string
        case "table":
            return _read_table, lambda value: table.long_string(table.encode(value))
    layout = _INTEGERS[wire_type]
    size = layout.size
    return lambda view, position: (layout.unpack_from(view, position)[0], position + size), (
        layout.pack
    )


def _read_bit(view: memoryview, position: int) -> tuple[bool, int]:
    return view[position] & 1 != 0, position + 1


def _write_bit(value: bool) -> bytes:
    return b"\x01" if value else b"\0"


def _bits_read(count: int) -> Read:
    def read_bits(view: memoryview, position: int) -> tuple[list[bool], int]:
        bits = view[position]
        return [bits >> place & 1 != 0 for place in range(count)], position + 1

    return read_bits


def _write_bits(values: list[bool]) -> bytes:
    return bytes((sum(1 << place for place, value in enumerate(values) if value),))


def _span(view: memoryview, start: int, size: int) -> tuple[memoryview, int]:
    end = start + size
    if end > len(view):
        raise IndexError
    return view[start:end], end


def _read_short_string(view: memoryview, position: int) -> tuple[str, int]:
    data, end = _span(view, position + 1, view[position])
    try:
        return str(data, "utf-8"), end
    except UnicodeDecodeError:
        raise AmqpError(ReplyCode.FRAME_ERROR, "a short string that is not UTF-8") from None


def _read_passed_string(view: memoryview, position: int) -> tuple[str, int]:
    data, end = _span(view, position + 1, view[position])
    return str(data, "utf-8", "surrogateescape"), end


def _read_long_string(view: memoryview, position: int) -> tuple[bytes, int]:
    (size,) = _UINT32.unpack_from(view, position)
    data, end = _span(view, position + _UINT32.size, size)
    return bytes(data), end


def _read_table(view: memoryview, position: int) -> tuple[table.Table, int]:
    (size,) = _UINT32.unpack_from(view, position)
    data, end = _span(view, position + _UINT32.size, size)
    return table.decode(data), end
