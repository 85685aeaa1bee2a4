"""Reads and writes messages of any version by way of the class of another version.

kio has a dataclass for every version of every message. A handler wants one: the newest.
So reading and writing take two classes: the `layout`, whose fields say what the bytes
are, and the `model`, whose instances the handler sees. Fields are matched by name:

- reading, what the model lacks is dropped and what the layout lacks gets the model's
  default, or the zero of its type where it has none;
- writing, it is the other way round.

For each pair of classes a function is written as source text, as dataclasses do it, and
kept. It is twice as fast as a loop over the fields, and reads like this:

    def read(_reader):
        error_code, port, = _reader.unpack(_0)
        host = _1(_reader)
        _reader.skip_tags()
        return _model(error_code=_2(error_code), port=port, host=host, rack=_3)

Messages may be long, so both are also done in steps, an array's element a step: a function
that is written for that yields, and takes what an array gives with `yield from`.

kio's own reader is not used because a hostile array size makes it end the process; here
everything is bounded by `encoding`.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from itertools import groupby
from struct import Struct, calcsize
from typing import Any, TypeVar

from entrepot.core.errors import MalformedFrame
from entrepot.core.steps import Steps
from entrepot.wire.kafka.encoding import (
    DAMAGE,
    CompactReader,
    CompactWriter,
    LegacyReader,
    LegacyWriter,
    Reader,
    Writer,
    tagged,
    uuid_bytes,
    uuid_from,
)
from entrepot.wire.kafka.schema import EPOCH, FIXED, NUMBERS, Field, fields_of, remembered

E = TypeVar("E")

Read = Callable[[Any], Any]  # Takes a reader, returns the value that is next.
ReadSteps = Callable[[Any], Steps[Any]]
Write = Callable[[Any], bytes]  # Takes a value, returns its bytes.
Pieces = Callable[[Any], Iterable[bytes]]  # Takes a value, yields its bytes in pieces.
Convert = Callable[[Any], Any]

CHUNK_BYTES_MIN = 64 * 1024  # The size of each chunk of a long answer, but for the last.

_INT8 = Struct(">b")
_MILLISECOND = timedelta(milliseconds=1)
_SHORT = 8  # Layouts of arrays shorter than this are made once and kept.


def decode(model: type[E], layout: type[Any], buffer: memoryview, position: int = 0) -> E:
    """Read the message that begins at the position. Raises MalformedFrame.

    Bytes after its end are ignored, as Kafka does: librdkafka 2.16 sends some.
    """
    reader = _reader_class(layout)(buffer, position)
    try:
        entity: E = _entity_read(model, layout)(reader)
    except DAMAGE as error:
        raise MalformedFrame(f"{layout.__name__} v{layout.__version__}: {error}") from None
    return entity


def decode_steps(model: type[E], layout: type[Any], buffer: memoryview, position: int) -> Steps[E]:
    """Do what `decode` does, in steps, one for each element of an array."""
    reader = _reader_class(layout)(buffer, position)
    try:
        entity: E = yield from _entity_read_steps(model, layout)(reader)
    except DAMAGE as error:
        raise MalformedFrame(f"{layout.__name__} v{layout.__version__}: {error}") from None
    return entity


def encode(entity: Any, layout: type[Any]) -> bytes:
    return _entity_write(type(entity), layout)(entity)


def encode_steps(entity: Any, layout: type[Any]) -> Steps[list[bytes]]:
    """Write a message in steps, one for each element of an array. Returns its chunks."""
    chunks: list[bytes] = []
    pending: list[bytes] = []
    size = 0
    for piece in _entity_pieces(type(entity), layout)(entity):
        pending.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES_MIN:
            chunks.append(b"".join(pending))
            pending.clear()
            size = 0
        yield
    chunks.append(b"".join(pending))
    return chunks


def _reader_class(layout: type[Any]) -> type[Reader]:
    return CompactReader if layout.__flexible__ else LegacyReader


def _writer_class(layout: type[Any]) -> type[Writer]:
    return CompactWriter if layout.__flexible__ else LegacyWriter


class _Names(dict[str, Any]):
    """The values that a generated function uses, by the names it has for them. The names begin
    with an underscore, as no field's name does."""

    def refer(self, value: Any) -> str:
        name = f"_{len(self)}"
        self[name] = value
        return name


# Reading.


@remembered
def _entity_read(model: type[Any], layout: type[Any]) -> Read:
    return _compile_read(model, layout, in_steps=False)


@remembered
def _entity_read_steps(model: type[Any], layout: type[Any]) -> ReadSteps:
    return _compile_read(model, layout, in_steps=True)


def _compile_read(model: type[Any], layout: type[Any], *, in_steps: bool) -> Read:
    wanted = {field.name: field for field in fields_of(model)}
    names = _Names(_model=model)
    lines = []
    arguments = {name: names.refer(field.default) for name, field in wanted.items()}
    tags: dict[int, Read] = {}
    for is_fixed, group in groupby(fields_of(layout), key=lambda field: field.is_fixed):
        if is_fixed:
            run = list(group)
            lines.append(_unpack_line(run, wanted, names))
            arguments |= {
                field.name: _converted(field.name, _conversion_read(field), names)
                for field in run
                if field.name in wanted
            }
            continue
        for field in group:
            target = wanted.get(field.name)
            read: Any
            if in_steps and field.is_long:
                read = _array_read_steps(field, target or field, _reader_class(layout))
                lines.append(f"{field.name} = yield from {names.refer(read)}(_reader)")
                if target:
                    arguments[field.name] = field.name
                continue
            read = _value_read(field, target or field, _reader_class(layout))
            if field.tag is None:
                lines.append(f"{field.name} = {names.refer(read)}(_reader)")
                if target:
                    arguments[field.name] = field.name
            elif target:
                tags[field.tag] = read
                arguments[field.name] = f"_tags.get({field.tag}, {arguments[field.name]})"
    lines.append(f"_tags = _reader.tags({names.refer(tags)})" if tags else "_reader.skip_tags()")
    keywords = ", ".join(f"{name}={value}" for name, value in arguments.items())
    body = "\n    ".join([*lines, *(["yield"] * in_steps), f"return _model({keywords})"])
    exec(f"def read(_reader):\n    {body}", names)
    read_entity: Read = names["read"]
    return read_entity


def _unpack_line(run: list[Field], wanted: dict[str, Field], names: _Names) -> str:
    codes = ">"
    targets = ""
    for field in run:
        code = FIXED[field.kind]
        if field.name in wanted:
            codes += code
            targets += f"{field.name}, "
        else:
            codes += f"{calcsize('>' + code)}x"
    return f"{targets or '()'} = _reader.unpack({names.refer(Struct(codes))})"


def _converted(expression: str, convert: Convert | None, names: _Names) -> str:
    return expression if convert is None else f"{names.refer(convert)}({expression})"


def _conversion_read(field: Field) -> Convert | None:
    match field.kind:
        case "uuid":
            return uuid_from
        case "error_code":
            codes = {int(code): code for code in field.python}
            unknown = field.python(-1)
            return lambda code: codes.get(code, unknown)
        case "timedelta_i32" | "timedelta_i64":
            return lambda ms: timedelta(milliseconds=ms)
        case "datetime_i64":
            null = -1 if field.is_nullable else None
            return lambda ms: None if ms == null else EPOCH + timedelta(milliseconds=ms)
    return None


def _value_read(field: Field, target: Field, reader_class: type[Reader]) -> Read:
    """Return a function that reads a field of the layout as a field of the model has it. Both are
    of the same kind."""
    if field.is_array and field.kind in NUMBERS:
        return _numbers_read(field, reader_class)
    element = _element_read(field, target, reader_class)
    if field.is_array:
        return _array_read(field, element, reader_class)
    if field.is_nullable and not field.kind:
        return lambda reader: None if reader.unpack(_INT8)[0] < 0 else element(reader)
    return element


def _element_read(field: Field, target: Field, reader_class: type[Reader]) -> Read:
    is_nullable = field.is_nullable and not field.is_array
    match field.kind:
        case "":
            return _entity_read(target.python, field.python)
        case "string":
            return reader_class.nullable_string if is_nullable else reader_class.string
        case "bytes" | "records" if is_nullable:
            return lambda reader: None if (data := reader.nullable_data()) is None else bytes(data)
        case "bytes" | "records":
            return lambda reader: bytes(reader.data())
    layout = Struct(">" + FIXED[field.kind])
    convert = _conversion_read(field)
    if convert is None:
        return lambda reader: reader.unpack(layout)[0]
    return lambda reader: convert(reader.unpack(layout)[0])


def _array_read(field: Field, element: Read, reader_class: type[Reader]) -> Read:
    read_count = reader_class.nullable_count if field.is_nullable else reader_class.count
    bytes_each = field.element_bytes_min(flexible=reader_class is CompactReader)

    def read_array(reader: Reader) -> Any:
        count = read_count(reader, bytes_each)
        return None if count is None else tuple([element(reader) for _ in range(count)])

    return read_array


def _array_read_steps(field: Field, target: Field, reader_class: type[Reader]) -> ReadSteps:
    read_count = reader_class.nullable_count if field.is_nullable else reader_class.count
    bytes_each = field.element_bytes_min(flexible=reader_class is CompactReader)
    if not field.kind and _has_arrays(field.python):
        read_element = _entity_read_steps(target.python, field.python)
    else:
        read_element = _one_step(_element_read(field, target, reader_class))

    def read_array(reader: Reader) -> Steps[Any]:
        count = read_count(reader, bytes_each)
        if count is None:
            return None
        elements = []
        for _ in range(count):
            elements.append((yield from read_element(reader)))
        return tuple(elements)

    return read_array


def _one_step(read: Read) -> ReadSteps:
    def read_step(reader: Reader) -> Steps[Any]:
        yield
        return read(reader)

    return read_step


def _has_arrays(layout: type[Any]) -> bool:
    return any(field.is_long for field in fields_of(layout))


def _numbers_read(field: Field, reader_class: type[Reader]) -> Read:
    read_count = reader_class.nullable_count if field.is_nullable else reader_class.count
    bytes_each = field.element_bytes_min(flexible=reader_class is CompactReader)
    layouts = _number_layouts(field)

    def read_numbers(reader: Reader) -> Any:
        count = read_count(reader, bytes_each)
        return None if count is None else reader.unpack(layouts(count))

    return read_numbers


def _number_layouts(field: Field) -> Callable[[int], Struct]:
    """Return a function from the size of an array of these numbers to its layout."""
    code = NUMBERS[field.kind]
    short = tuple(Struct(f">{count}{code}") for count in range(_SHORT))
    return lambda count: short[count] if count < _SHORT else Struct(f">{count}{code}")


# Writing.


@remembered
def _entity_write(model: type[Any], layout: type[Any]) -> Write:
    names = _Names()
    parts = (part for part, _ in _parts_write(model, layout, names, in_pieces=False))
    write_entity: Write = eval(f"lambda entity: b''.join(({', '.join(parts)},))", names)
    return write_entity


@remembered
def _entity_pieces(model: type[Any], layout: type[Any]) -> Pieces:
    names = _Names()
    lines = [
        f"yield from {part}" if is_many else f"yield {part}"
        for part, is_many in _parts_write(model, layout, names, in_pieces=True)
    ]
    exec("def pieces(entity):\n    " + "\n    ".join(lines), names)
    pieces: Pieces = names["pieces"]
    return pieces


def _parts_write(
    model: type[Any], layout: type[Any], names: _Names, *, in_pieces: bool
) -> Iterator[tuple[str, bool]]:
    """Yield expressions whose values, one after the other, are an entity's bytes. True stands
    beside one whose value is many pieces."""
    given = {field.name: field for field in fields_of(model)}
    writer = _writer_class(layout)
    tags: list[tuple[int, str, Write, bytes]] = []  # Number, name, how, the default's bytes.
    for is_run, group in groupby(
        fields_of(layout), key=lambda field: field.is_fixed and field.name in given
    ):
        if is_run:
            yield _pack_part(list(group), names), False
            continue
        for field in group:
            source = given.get(field.name)
            default = _value_write(field, field, writer)(field.default)
            if field.tag is not None:
                if source:
                    write = _value_write(field, source, writer)
                    tags.append((field.tag, field.name, write, default))
            elif source:
                is_many = in_pieces and field.is_long
                value: Any = (_array_pieces if is_many else _value_write)(field, source, writer)
                yield f"{names.refer(value)}(entity.{field.name})", is_many
            else:
                yield names.refer(default), False
    if tags:
        yield f"{names.refer(_tags_write(tags))}(entity)", False
    else:
        yield names.refer(writer.NO_TAGS), False


def _pack_part(run: list[Field], names: _Names) -> str:
    codes = "".join(FIXED[field.kind] for field in run)
    values = (_converted(f"entity.{field.name}", _conversion_write(field), names) for field in run)
    return f"{names.refer(Struct('>' + codes).pack)}({', '.join(values)})"


def _conversion_write(field: Field) -> Convert | None:
    match field.kind:
        case "uuid":
            return uuid_bytes
        case "timedelta_i32" | "timedelta_i64":
            return lambda value: value // _MILLISECOND
        case "datetime_i64" if field.is_nullable:
            return lambda value: -1 if value is None else (value - EPOCH) // _MILLISECOND
        case "datetime_i64":
            return lambda value: (value - EPOCH) // _MILLISECOND
    return None


def _tags_write(tags: list[tuple[int, str, Write, bytes]]) -> Write:
    """Return a function that writes tagged fields, but for those that have their default. Bytes
    are compared: a value of the model's class never equals one of the layout's."""

    def write_tags(entity: Any) -> bytes:
        fields = []
        for tag, name, write, default in tags:
            value = write(getattr(entity, name))
            if value != default:
                fields.append((tag, value))
        return tagged(fields)

    return write_tags


def _value_write(field: Field, source: Field, writer: type[Writer]) -> Write:
    """Return a function that writes a field of the model as a field of the layout, which is of
    the same kind."""
    if field.is_array:
        return _array_write(field, source, writer)
    element = _element_write(field, source, writer)
    if field.is_nullable and not field.kind:
        return lambda value: b"\xff" if value is None else b"\x01" + element(value)
    return element


def _element_write(field: Field, source: Field, writer: type[Writer]) -> Write:
    is_nullable = field.is_nullable and not field.is_array
    match field.kind:
        case "":
            return _entity_write(source.python, field.python)
        case "string":
            return writer.nullable_string if is_nullable else writer.string
        case "bytes" | "records":
            return writer.nullable_data if is_nullable else writer.data
    write = Struct(">" + FIXED[field.kind]).pack
    convert = _conversion_write(field)
    return write if convert is None else lambda value: write(convert(value))


def _array_write(field: Field, source: Field, writer: type[Writer]) -> Write:
    length = writer.length
    if field.kind in NUMBERS:
        layouts = _number_layouts(field)

        def write_array(values: Any) -> bytes:
            return length(len(values)) + layouts(len(values)).pack(*values)
    else:
        element = _element_write(field, source, writer)

        def write_array(values: Any) -> bytes:
            return length(len(values)) + b"".join(map(element, values))

    if field.is_nullable:
        return lambda values: length(None) if values is None else write_array(values)
    return write_array


def _array_pieces(field: Field, source: Field, writer: type[Writer]) -> Pieces:
    length = writer.length
    if not field.kind and _has_arrays(field.python):
        pieces_of = _entity_pieces(source.python, field.python)
    else:
        element = _element_write(field, source, writer)

        def pieces_of(value: Any) -> Iterable[bytes]:
            return (element(value),)

    def pieces(values: Any) -> Iterator[bytes]:
        if values is None:
            yield length(None)
            return
        yield length(len(values))
        for value in values:
            yield from pieces_of(value)

    return pieces
