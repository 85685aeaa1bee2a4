"""Avro: `from_avro`, with a schema from a file, a text or a registry.

The columns are those of the *reader's* schema, which is known when the query is made. With a
registry every value names the schema that it was *written* with, which may be another version;
fields are matched as Avro's rules of resolution say.
"""

import io
import json
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from entrepot.spark.formats.framing import BadValue, Decode, decoded, unframed
from entrepot.spark.formats.registry import latest_schema, schema_by_id

_SIMPLE: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
}
_LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}


class SchemaError(ValueError):
    """A schema that cannot be columns of Spark."""


def from_avro(
    column: Column | str,
    *,
    schema: str | Mapping[str, Any] | None = None,
    schema_file: str | None = None,
    registry: str | None = None,
    subject: str | None = None,
    framed: bool | None = None,
    on_error: str = "fail",
) -> Column:
    """Return the values of a binary column as structs.

    The schema is a text or a dictionary, or in a file on the driver, or the newest of `subject` in
    the registry. With `registry`, an address such as `http://localhost:8081`, values are in
    Confluent's wire format and are read with the schema that they name. With `framed=True` and no
    registry the names are passed over: all values were written with the given schema.
    """
    given = [each is not None for each in (schema, schema_file, subject)]
    if given.count(True) != 1:
        raise SchemaError("one of schema, schema_file and subject says what to read")
    if schema_file is not None:
        schema = Path(schema_file).read_text(encoding="utf-8")
    if subject is not None:
        if registry is None:
            raise SchemaError("a subject is of a registry: say registry='http://localhost:8081'")
        schema = latest_schema(registry, subject)
    assert schema is not None
    text = schema if isinstance(schema, str) else json.dumps(schema)
    kind = columns_of(text)
    has_frame = registry is not None if framed is None else framed
    return decoded(column, kind, partial(_decoder, text, registry, has_frame), on_error)


def columns_of(text: str) -> StructType:
    """Return the columns of a record's schema. Raises SchemaError."""
    kind, _ = _kind(_loaded(text), _Names({}))
    if not isinstance(kind, StructType):
        raise SchemaError(f"the schema is not of a record but of {kind.simpleString()}")
    return kind


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise SchemaError("the schema is not JSON") from None


class _Names:
    """The types with a name so far, by their whole names; and the namespace we are in."""

    def __init__(self, known: dict[str, DataType], namespace: str = "") -> None:
        self._known = known
        self._namespace = namespace

    def within(self, schema: Mapping[str, Any]) -> "_Names":
        """Return the names that count inside of a named type."""
        return _Names(self._known, self._whole(schema).rpartition(".")[0])

    def find(self, name: str) -> DataType | None:
        return self._known.get(self._whole({"name": name})) or self._known.get(name)

    def add(self, schema: Mapping[str, Any], kind: DataType) -> None:
        self._known[self._whole(schema)] = kind

    def _whole(self, schema: Mapping[str, Any]) -> str:
        name, namespace = schema["name"], schema.get("namespace", self._namespace)
        return name if "." in name or not namespace else f"{namespace}.{name}"


def _kind(schema: Any, names: _Names) -> tuple[DataType, bool]:
    """Return the type and whether it may be null."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise SchemaError(f"a union of {len(others)} types is no column: {schema}")
        return _kind(others[0], names)[0], len(others) < len(schema)
    if isinstance(schema, str):
        found = _SIMPLE.get(schema) or names.find(schema)
        if found is None:
            raise SchemaError(f"type {schema} is not known here, or contains itself")
        return found, False
    found = _complex(schema, names)
    if "name" in schema:
        names.add(schema, found)
    return found, False


def _complex(schema: Mapping[str, Any], names: _Names) -> DataType:
    of = schema["type"]
    logical = schema.get("logicalType")
    if logical == "decimal":
        return DecimalType(int(schema["precision"]), int(schema.get("scale", 0)))
    if logical in _LOGICAL:
        return _LOGICAL[str(logical)]
    if of == "array":
        return ArrayType(*_kind(schema["items"], names))
    if of == "map":
        return MapType(StringType(), *_kind(schema["values"], names))
    if of not in ("record", "error"):
        return _kind(of, names)[0]
    inside = names.within(schema)
    # Null where the whole value is.
    return StructType(
        [StructField(each["name"], _kind(each["type"], inside)[0]) for each in schema["fields"]]
    )


# --- on the executors


def _decoder(text: str, registry: str | None, framed: bool) -> Decode:
    from fastavro import schemaless_reader
    from fastavro.schema import SchemaParseException

    reader = _parsed(text)

    def decode(data: bytes) -> Any:
        number, body = unframed(data) if framed else (None, memoryview(data))
        writer = reader
        if registry is not None and number is not None:
            writer = _parsed(schema_by_id(registry, number))
        source = io.BytesIO(body)
        try:
            found = schemaless_reader(source, writer, reader)
        except (EOFError, IndexError, KeyError, ValueError, TypeError, OverflowError) as error:
            raise BadValue(f"not Avro of this schema: {type(error).__name__}: {error}") from None
        except SchemaParseException as error:
            raise BadValue(f"its schema does not fit: {error}") from None
        if source.tell() != len(body):
            raise BadValue(f"{len(body) - source.tell()} bytes are left behind it")
        return found

    return decode


@lru_cache(1_000)
def _parsed(text: str) -> Any:
    from fastavro import parse_schema

    return parse_schema(_without_unknown(json.loads(text)))


def _without_unknown(schema: Any) -> Any:
    """Leave out logical types that no column stands for: their values stay what they are."""
    if isinstance(schema, list):
        return [_without_unknown(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    known = schema.get("logicalType") in (*_LOGICAL, "decimal")
    return {
        name: _without_unknown(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        if known or name != "logicalType"
    }
