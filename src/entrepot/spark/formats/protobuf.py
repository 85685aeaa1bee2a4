"""Protobuf: `from_protobuf`, with a file of descriptors.

`protoc --descriptor_set_out=orders.desc --include_imports orders.proto` makes that file. A schema
registry has only the text of a schema, which nothing here can compile; so with values in
Confluent's wire format, the schema's id and the place of the message in it are passed over.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from pyspark.sql import Column
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from entrepot.spark.formats.framing import BadValue, Decode, decoded, unframed

_TIMESTAMP = "google.protobuf.Timestamp"
_EPOCH = datetime.fromtimestamp(0, UTC)
_KINDS: dict[int, DataType] = {
    FieldDescriptor.CPPTYPE_INT32: IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: LongType(),
    FieldDescriptor.CPPTYPE_UINT32: LongType(),
    FieldDescriptor.CPPTYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: StringType(),
    FieldDescriptor.CPPTYPE_STRING: StringType(),
}


class DescriptorError(ValueError):
    """A file of descriptors that is none, or has no such message."""


def from_protobuf(
    column: Column | str,
    message: str,
    *,
    descriptor_file: str,
    framed: bool = False,
    on_error: str = "fail",
) -> Column:
    """Return the values of a binary column as structs.

    `message` is its full name, such as `shop.Order`; the file is read on the driver. `framed=True`
    is for values in Confluent's wire format.
    """
    data = Path(descriptor_file).read_bytes()
    kind = _struct(_descriptor(data, message), ())
    return decoded(column, kind, partial(_decoder, data, message, framed), on_error)


@lru_cache(100)
def _descriptor(data: bytes, message: str) -> Descriptor:
    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(data)
        for each in files.file:
            pool.Add(each)
        return pool.FindMessageTypeByName(message)
    except DecodeError:
        raise DescriptorError(
            "the file has no descriptors: protoc --descriptor_set_out makes them"
        ) from None
    except (KeyError, TypeError) as error:
        raise DescriptorError(
            f"there is no message {message}, or an import is missing "
            f"(protoc --include_imports): {error}"
        ) from None


def _struct(descriptor: Descriptor, inside: tuple[str, ...]) -> StructType:
    name = descriptor.full_name
    if name in inside:
        raise DescriptorError(f"message {name} contains itself, which no column can")
    fields = descriptor.fields
    return StructType([StructField(each.name, _kind(each, (*inside, name))) for each in fields])


def _kind(field: FieldDescriptor, inside: tuple[str, ...]) -> DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return MapType(_single(entry["key"], inside), _single(entry["value"], inside))
    found = _single(field, inside)
    return ArrayType(found) if field.is_repeated else found


def _single(field: FieldDescriptor, inside: tuple[str, ...]) -> DataType:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if field.message_type.full_name == _TIMESTAMP:
            return TimestampType()
        return _struct(field.message_type, inside)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return BinaryType()
    return _KINDS[field.cpp_type]


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return bool(kind is not None and kind.GetOptions().map_entry)


# --- on the executors


def _decoder(data: bytes, message: str, framed: bool) -> Decode:
    made = message_factory.GetMessageClass(_descriptor(data, message))

    def decode(value: bytes) -> Any:
        body = bytes(_behind_places(unframed(value)[1])) if framed else value
        found = made()
        try:
            found.ParseFromString(body)
        except DecodeError as error:
            raise BadValue(f"not a {message}: {error}") from None
        return _values(found)

    return decode


def _behind_places(body: memoryview) -> memoryview:
    """Pass over which message of the schema it is: a count and so many numbers, as varints."""
    position, left = 0, 1
    is_count = True
    while left:
        number = shift = 0
        while True:
            if position >= len(body) or shift > 63:
                raise BadValue("it ends before the value begins")
            byte = body[position]
            position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        left -= 1
        if is_count:
            left, is_count = number >> 1, False  # Zigzag; 0 stands for the first message.
    return body[position:]


def _values(message: Message) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: FieldDescriptor) -> Any:
    found = getattr(message, field.name)
    if _is_map(field):
        of = field.message_type.fields_by_name["value"]
        return [(key, _one(found[key], of)) for key in found]
    if field.is_repeated:
        return [_one(each, field) for each in found]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(found, field)


def _one(value: Any, field: FieldDescriptor) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if field.message_type.full_name == _TIMESTAMP:
            return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
        return _values(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value
