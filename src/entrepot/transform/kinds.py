"""The kinds of formats: bytes into a document, and a document into bytes.

A document is what JSON can say. XML and CSV have nothing but texts, so a format of theirs says in
`fields` what is a number or a boolean. Avro, Protobuf, Thrift and XDR know it by their schemas.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from entrepot.transform.refusal import NODES_MAX, Refused, check_document, check_size, encoded
from entrepot.transform.thrift import Thrift
from entrepot.transform.xdr import Xdr
from entrepot.transform.xml import read_xml, write_xml

KINDS = ("json", "xml", "csv", "avro", "protobuf", "thrift", "xdr")
Document = dict[str, Any]
FIELDS: dict[str, Callable[[str], object]] = {
    "text": str,
    "integer": int,
    "number": float,
    "boolean": lambda text: _boolean(text),
}


class Kind(Protocol):
    """Reads and writes messages of one format. Both raise Refused."""

    content_type: str

    def read(self, data: bytes) -> Document: ...

    def write(self, document: Document) -> bytes: ...


def kind_of(kind: str, schema: Mapping[str, Any]) -> Kind:
    """Return what reads and writes a format. Raises Refused if the schema makes no sense."""
    try:
        return _kind_of(kind, schema)
    except ModuleNotFoundError as error:
        raise Refused(f"{error.name} is missing: pip install 'entrepot[transform]'") from None


def _kind_of(kind: str, schema: Mapping[str, Any]) -> Kind:
    match kind:
        case "json":
            _check_names(schema, ())
            return Json()
        case "xml":
            _check_names(schema, ("root", "fields"))
            return Xml(schema)
        case "csv":
            _check_names(schema, ("columns", "fields"))
            return Csv(schema)
        case "avro":
            from entrepot.transform.avro import Avro

            return Avro(schema)
        case "protobuf":
            from entrepot.transform.protobuf import Protobuf

            _check_names(schema, ("descriptors", "message"))
            return Protobuf(schema)
        case "thrift":
            _check_names(schema, ("fields",))
            return Thrift(schema)
        case "xdr":
            _check_names(schema, ("fields",))
            return Xdr(schema)
    raise Refused(f"{kind} is none of {', '.join(KINDS)}")


def _check_names(schema: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in schema:
        if name not in known:
            raise Refused(f"{name} is none of {', '.join(known) or '(this kind has no schema)'}")


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"'{text}' is neither true nor false")
    return text == "true"


class Json:
    content_type = "application/json"

    def read(self, data: bytes) -> Document:
        check_size(data)
        try:
            found = msgspec.json.decode(data)
        except (ValueError, RecursionError) as error:
            raise Refused(f"not JSON: {error}") from None
        check_document(found)
        return _object(found)

    def write(self, document: Document) -> bytes:
        try:
            written = msgspec.json.encode(document)
        except (TypeError, ValueError, RecursionError) as error:
            raise Refused(f"JSON cannot say it: {error}") from None
        check_size(written)
        return written


class Xml:
    content_type = "application/xml"

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._root = schema.get("root", "message")
        if not isinstance(self._root, str) or not self._root.isidentifier():
            raise Refused("root is the name of an element")
        self._fields = _fields(schema)

    def read(self, data: bytes) -> Document:
        check_size(data)
        root, found = read_xml(data)
        if root != self._root:
            raise Refused(f"the element is {root}, not {self._root}")
        return _typed(found if isinstance(found, dict) else {}, self._fields)

    def write(self, document: Document) -> bytes:
        check_document(document)
        return encoded(write_xml(self._root, document))


class Csv:
    """One row a message; `columns` are its fields."""

    content_type = "text/csv"

    def __init__(self, schema: Mapping[str, Any]) -> None:
        columns = schema.get("columns")
        if not isinstance(columns, list) or not 0 < len(columns) <= NODES_MAX:
            raise Refused("columns are the names of the fields")
        if not all(isinstance(name, str) for name in columns) or len({*columns}) < len(columns):
            raise Refused("columns are names, each once")
        self._columns: list[str] = columns
        self._fields = _fields(schema)

    def read(self, data: bytes) -> Document:
        check_size(data)
        try:
            rows = [*csv.reader(io.StringIO(data.decode(), newline=""), strict=True)]
        except (csv.Error, UnicodeDecodeError) as error:
            raise Refused(f"not CSV: {error}") from None
        if len(rows) != 1 or len(rows[0]) != len(self._columns):
            raise Refused(f"not one row of {len(self._columns)} cells")
        return _typed(dict(zip(self._columns, rows[0], strict=True)), self._fields)

    def write(self, document: Document) -> bytes:
        for name in document:
            if name not in self._columns:
                raise Refused(f"no column {name}")
        text = io.StringIO(newline="")
        cells = [_cell(document.get(name)) for name in self._columns]
        csv.writer(text, lineterminator="\r\n").writerow(cells)
        return encoded(text.getvalue())


def text_of(value: object) -> str:
    """Return what is not nested as XML and CSV say it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return str(msgspec.to_builtins(value))  # Bytes as base64, times as ISO 8601 has them.


def _cell(value: object) -> str:
    if isinstance(value, dict | list):
        raise Refused("a cell of CSV holds no structure")
    return text_of(value)


def _object(found: object) -> Document:
    if not isinstance(found, dict):
        raise Refused("not an object with fields")
    return found


def _fields(schema: Mapping[str, Any]) -> dict[str, Callable[[str], object]]:
    fields = schema.get("fields", {})
    if not isinstance(fields, dict):
        raise Refused("fields are names, each with what it is")
    for name, what in fields.items():
        if what not in FIELDS:
            raise Refused(f"field {name}: {what} is none of {', '.join(FIELDS)}")
    return {name: FIELDS[what] for name, what in fields.items()}


def _typed(document: Document, fields: Mapping[str, Callable[[str], object]]) -> Document:
    """Turn texts into what the format says they are, also those of a list."""
    typed = dict(document)
    for name, read in fields.items():
        value = typed.get(name)
        try:
            if isinstance(value, list):
                typed[name] = [read(each) for each in value]
            elif name in typed:
                typed[name] = read(value) if isinstance(value, str) else value
        except (TypeError, ValueError) as error:
            raise Refused(f"field {name}: {error}") from None
    return typed
