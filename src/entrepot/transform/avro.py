"""Avro: bare values of one schema, by fastavro.

A schema may be hostile: it comes from whoever may write to the repository. So it is bounded in size
and depth, a type must not contain itself, and everything must take room: of values that take none,
ten bytes can announce a billion.
"""

from __future__ import annotations

import io
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from entrepot.transform.refusal import DEPTH_MAX, Refused, check_document, check_size

_NUMBERS = {"int": int, "long": int, "float": float, "double": float}
_PRIMITIVES = {"null", "boolean", "bytes", "string", *_NUMBERS}
_BITS = {"int": 31, "long": 63}
_FIELDS_MAX = 5_000


class Avro:
    content_type = "avro/binary"

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from fastavro import parse_schema

        self._plain = _Plain()
        self._schema = self._plain.of(dict(schema), 0)
        if not isinstance(self._schema, dict) or self._schema.get("type") != "record":
            raise Refused("the schema is not of a record")
        try:
            self._parsed = parse_schema(self._schema)
        except Exception as error:  # It has several, and a schema is somebody else's.
            raise Refused(f"no schema of Avro: {error}") from None

    def read(self, data: bytes) -> dict[str, Any]:
        from fastavro import schemaless_reader

        check_size(data)
        source = io.BytesIO(data)
        try:
            found = schemaless_reader(source, self._parsed, None)
        except Exception as error:  # Whatever it meets in a hostile value.
            raise Refused(f"not Avro of this schema: {type(error).__name__}: {error}") from None
        if source.tell() != len(data):
            raise Refused(f"{len(data) - source.tell()} bytes are left behind the value")
        if not isinstance(found, dict):
            raise Refused("not a record")
        check_document(found)
        return found

    def write(self, document: dict[str, Any]) -> bytes:
        from fastavro import schemaless_writer

        check_document(document)
        written = io.BytesIO()
        fitted = _fitted(document, self._schema, self._plain.named, "")
        try:
            schemaless_writer(written, self._parsed, fitted)
        except Exception as error:
            raise Refused(f"it does not fit the schema: {error}") from None
        check_size(written.getvalue())
        return written.getvalue()


class _Plain:
    """A schema without what is not wanted: logical types, and all that can grow without end."""

    def __init__(self) -> None:
        self.named: dict[str, Any] = {}
        self._open: list[str] = []
        self._fields = 0

    def of(self, schema: Any, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise Refused(f"a schema nested deeper than {DEPTH_MAX}")
        if schema == "null":
            raise Refused("null is for unions: every value must take room")
        if isinstance(schema, str):
            if schema in self._open:
                raise Refused(f"type {schema} contains itself")
            if schema not in _PRIMITIVES and schema not in self.named:
                raise Refused(f"type {schema} is not known")
            return schema
        if isinstance(schema, list):
            return [each if each == "null" else self.of(each, depth + 1) for each in schema]
        if not isinstance(schema, dict):
            raise Refused("a schema is a name, a list or an object")
        return self._complex(schema, depth)

    def _complex(self, schema: dict[str, Any], depth: int) -> Any:
        kind = schema.get("type")
        if kind == "record":
            return self._record(schema, depth)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return {"type": kind, inner: self.of(schema.get(inner), depth + 1)}
        if kind in ("enum", "fixed"):
            if schema.get("size", 1) == 0:
                raise Refused("a type of no bytes")
            if kind == "enum" and not isinstance(schema.get("symbols"), list):
                raise Refused("an enum has symbols")
            kept = {
                key: schema[key] for key in ("type", "name", "symbols", "size") if key in schema
            }
            self.named[str(schema.get("name"))] = kept
            return kept
        return self.of(kind, depth + 1)

    def _record(self, schema: dict[str, Any], depth: int) -> Any:
        name, fields = schema.get("name"), schema.get("fields")
        if not isinstance(name, str) or not isinstance(fields, list) or not fields:
            raise Refused("a record has a name and fields")
        if name in self.named:
            raise Refused(f"type {name} is there twice")
        self._fields += len(fields)
        if self._fields > _FIELDS_MAX:
            raise Refused(f"more than {_FIELDS_MAX} fields")
        self._open.append(name)
        plain: dict[str, Any] = {"type": "record", "name": name, "fields": []}
        for field in fields:
            if not isinstance(field, dict) or not isinstance(field.get("name"), str):
                raise Refused(f"a field of {name} has no name")
            kept = {"name": field["name"], "type": self.of(field.get("type"), depth + 1)}
            if "default" in field:
                kept["default"] = field["default"]
            plain["fields"].append(kept)
        self._open.pop()
        self.named[name] = plain
        return plain


def _fitted(value: Any, schema: Any, named: Mapping[str, Any], where: str) -> Any:
    """Return a value as the schema wants it: numbers of texts, lists of single values."""
    if isinstance(schema, str):
        schema = named.get(schema, schema)
    if isinstance(schema, list):
        return _fitted_to_one(value, schema, named, where)
    if isinstance(schema, dict):
        if schema["type"] == "record":
            return _fitted_record(value, schema, named, where)
        if schema["type"] == "array":
            items = value if isinstance(value, list) else [value]
            return [_fitted(each, schema["items"], named, where) for each in items]
        if schema["type"] == "map" and isinstance(value, dict):
            of = schema["values"]
            return {key: _fitted(each, of, named, where) for key, each in value.items()}
        return b64decode(value) if schema["type"] == "fixed" and isinstance(value, str) else value
    try:
        return _fitted_primitive(value, schema)
    except (TypeError, ValueError, OverflowError) as error:
        raise Refused(f"field {where}: {error}") from None


def _fitted_primitive(value: Any, kind: str) -> Any:
    if kind in _NUMBERS and not isinstance(value, bool):
        number = _NUMBERS[kind](value)
        if isinstance(value, float) and number != value:
            raise ValueError(f"{value} is no whole number")
        if kind in _BITS and not -(1 << _BITS[kind]) <= number < 1 << _BITS[kind]:
            raise ValueError(f"{value} is too large")
        return number
    if kind == "boolean" and isinstance(value, str):
        if value not in ("true", "false"):
            raise ValueError(f"'{value}' is neither true nor false")
        return value == "true"
    if kind == "bytes" and isinstance(value, str):
        return b64decode(value, validate=True)
    if kind == "string" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


def _fitted_record(value: Any, schema: Any, named: Mapping[str, Any], where: str) -> Any:
    if not isinstance(value, dict):
        raise Refused(f"field {where}: not an object")
    names = [field["name"] for field in schema["fields"]]
    for name in value:
        if name not in names:
            raise Refused(f"the schema has no field {where}{name}")
    fitted = {}
    for field in schema["fields"]:
        name = field["name"]
        if name in value:
            fitted[name] = _fitted(value[name], field["type"], named, f"{where}{name}")
        elif "default" not in field and not _may_be_null(field["type"]):
            raise Refused(f"field {where}{name} is missing")
        elif "default" not in field:
            fitted[name] = None
    return fitted


def _may_be_null(schema: Any) -> bool:
    return isinstance(schema, list) and "null" in schema


def _fitted_to_one(value: Any, union: list[Any], named: Mapping[str, Any], where: str) -> Any:
    """Return what fits the first of several types that takes it."""
    if "null" in union and (value is None or value == ""):
        return None
    said = ""
    for schema in union:
        if schema == "null":
            continue
        try:
            return _fitted(value, schema, named, where)
        except Refused as refusal:
            said = said or str(refusal)
    raise Refused(said or f"field {where}: none of the types fits")
