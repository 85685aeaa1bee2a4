"""Each format read and written, each pair of them, and what is refused."""

from __future__ import annotations

import contextlib
import json
from base64 import b64encode
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from entrepot.transform.kinds import Kind, kind_of
from entrepot.transform.refusal import DEPTH_MAX, VALUE_BYTES_MAX, Refused

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
    ],
}
FIELDS = {"id": "integer", "price": "number", "paid": "boolean"}
ORDER = {"id": 7, "customer": "Rossi & <Söhne>", "price": 90.5, "paid": True, "note": "soon"}


def descriptors() -> str:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    of = [
        kinds.TYPE_INT32,
        kinds.TYPE_STRING,
        kinds.TYPE_DOUBLE,
        kinds.TYPE_BOOL,
        kinds.TYPE_STRING,
    ]
    for number, (name, kind) in enumerate(zip(ORDER, of, strict=True), 1):
        order.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    return b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()).decode()


SCHEMAS: dict[str, dict[str, Any]] = {
    "json": {},
    "xml": {"root": "order", "fields": FIELDS},
    "csv": {"columns": [*ORDER], "fields": FIELDS},
    "avro": AVRO,
    "protobuf": {"descriptors": descriptors(), "message": "shop.Order"},
    "thrift": {
        "fields": [
            {"id": 1, "name": "id", "type": "i32", "required": True},
            {"id": 2, "name": "customer", "type": "string"},
            {"id": 3, "name": "price", "type": "double"},
            {"id": 4, "name": "paid", "type": "bool"},
            {"id": 7, "name": "note", "type": "string"},
        ]
    },
    "xdr": {
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "customer", "type": "string"},
            {"name": "price", "type": "double"},
            {"name": "paid", "type": "bool"},
            {"name": "note", "type": {"optional": "string"}},
        ]
    },
}


def of(kind: str) -> Kind:
    return kind_of(kind, SCHEMAS[kind])


@pytest.mark.parametrize(("one", "other"), [*product(SCHEMAS, SCHEMAS)])
def test_every_format_becomes_every_other(one: str, other: str) -> None:
    written = of(one).write(ORDER)
    assert of(one).read(written) == ORDER
    converted = of(other).write(of(one).read(written))
    assert of(other).read(converted) == ORDER


def test_what_each_looks_like() -> None:
    assert (
        of("xml").write({"id": 1, "paid": False}) == b"<order><id>1</id><paid>false</paid></order>"
    )
    assert of("csv").write({"id": 1, "customer": 'a "b"', "price": 2.5}) == b'1,"a ""b""",2.5,,\r\n'
    assert of("json").write({"id": 1}) == b'{"id":1}'


def test_xdr_is_as_its_standard_has_it() -> None:
    """The file of section 7.3 of RFC 4506, with its kind as a number: 48 bytes."""
    kind = {"struct": [{"name": "type", "type": "int"}, {"name": "interpreter", "type": "string"}]}
    fields = [("name", "string"), ("kind", kind), ("owner", "string"), ("data", "opaque")]
    xdr = kind_of("xdr", {"fields": [{"name": name, "type": of} for name, of in fields]})
    bytes_of_the_standard = bytes.fromhex(
        "00000009 73696c6c 7970726f 67000000 00000002 00000004 6c697370"
        "00000004 6a6f686e 00000006 28717569 74290000"
    )
    assert len(bytes_of_the_standard) == 48
    file = {
        "name": "sillyprog",
        "kind": {"type": 2, "interpreter": "lisp"},
        "owner": "john",
        "data": b64encode(b"(quit)").decode(),
    }
    assert xdr.read(bytes_of_the_standard) == file
    assert xdr.write(file) == bytes_of_the_standard


def test_thrift_is_as_its_own_library_writes_it() -> None:
    """The bytes were written by Apache Thrift's package for Python, 0.25."""
    types = {
        "id": "i64",
        "customer": "string",
        "paid": "bool",
        "price": "double",
        "numbers": {"list": "i32"},
        "kinds": {"set": "byte"},
        "counts": {"map": "i16"},
        "place": {"struct": [{"id": 1, "name": "city", "type": "string"}]},
        "data": "binary",
    }
    order = {
        "id": 7,
        "customer": "Rossi",
        "paid": True,
        "price": 90.5,
        "numbers": [1, -2],
        "kinds": [-1],
        "counts": {"a": 300},
        "place": {"city": "Köln"},
        "data": b64encode(b"\x00\xff").decode(),
    }
    written = bytes.fromhex(
        "0a0001 0000000000000007 0b0002 00000005 526f737369 020003 01 040004 4056a00000000000"
        "0f0005 08 00000002 00000001 fffffffe 0e0006 03 00000001 ff"
        "0d0007 0b 06 00000001 00000001 61 012c 0c0008 0b0001 00000005 4bc3b66c6e 00"
        "0b0009 00000002 00ff 00"
    )
    fields = [
        {"id": number, "name": name, "type": kind}
        for number, (name, kind) in enumerate(types.items(), 1)
    ]
    thrift = kind_of("thrift", {"fields": fields})
    assert thrift.read(written) == order
    assert thrift.write(order) == written
    newest_only = kind_of("thrift", {"fields": fields[-1:]})  # Of all others it knows nothing.
    assert newest_only.read(written) == {"data": order["data"]}
    assert newest_only.read(b"\0") == {}


def test_xml_with_attributes_and_lists() -> None:
    xml = kind_of("xml", {"root": "o", "fields": {"n": "integer"}})
    document = {"@kind": 'a"b', "n": [1, 2], "in": {"#text": "t", "x": "1"}}
    assert xml.read(xml.write(document)) == document
    assert xml.read(b"<?xml version='1.0' encoding='iso-8859-1'?><o><a>\xe4</a></o>") == {"a": "ä"}


def test_a_schema_makes_numbers_of_texts_and_lists_of_single_values() -> None:
    schema = {
        "type": "record",
        "name": "A",
        "fields": [
            {"name": "many", "type": {"type": "array", "items": "long"}},
            {"name": "maybe", "type": ["null", "double"]},
            {"name": "kept", "type": "string", "default": "x"},
        ],
    }
    avro = kind_of("avro", schema)
    assert avro.read(avro.write({"many": "3"})) == {"many": [3], "maybe": None, "kept": "x"}
    assert avro.read(avro.write({"many": [], "maybe": "2.5", "kept": 1}))["maybe"] == 2.5


DEEP = DEPTH_MAX + 1
BOMB = b"""<?xml version="1.0"?><!DOCTYPE order [<!ENTITY a "aaaaaaaaaa"><!ENTITY b
"&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]><order>&c;</order>"""
OUTSIDE = b'<!DOCTYPE order [<!ENTITY x SYSTEM "file:///etc/passwd">]><order><a>&x;</a></order>'


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("xml", BOMB, "document type"),
        ("xml", OUTSIDE, "document type"),
        ("xml", b"<order>" + b"<a>" * 50_000, "nested deeper"),
        ("xml", b"<order>" + b"<a/>" * 60_000 + b"</order>", None),
        ("xml", b"<order>&undefined;</order>", "not XML"),
        ("xml", b"<order><a></order>", "not XML"),
        ("xml", b"<?xml version='1.0' encoding='nothing'?><order/>", "encoding"),
        ("xml", b"<other/>", "not order"),
        ("xml", b"<order><id>seven</id></order>", "field id"),
        ("xml", b"<order><id><a>1</a></id></order>", None),
        ("xml", b"<order>" + b" " * VALUE_BYTES_MAX + b"</order>", "more than"),
        ("json", b"[" * 200_000, "not JSON"),
        ("json", b'{"a":' * DEEP + b"1" + b"}" * DEEP, "nested deeper"),
        ("json", b'{"a":[' + b"0," * 110_000 + b"0]}", "more than 100000"),
        ("json", b"[1]", "not an object"),
        ("json", b"\xff", "not JSON"),
        ("csv", b"1,2\r\n", "not one row"),
        ("csv", b"1,a,2,true,\r\n2,b,2,true,\r\n", "not one row"),
        ("csv", b'"1,a', "not CSV"),
        ("csv", b"x,a,2,true,\r\n", "field id"),
        ("csv", b"1,a,2,yes,\r\n", "neither true nor false"),
        ("avro", b"\x02\xfe\xff\xff\xff\x0f", "not Avro"),
        ("avro", b"", "not Avro"),
        ("protobuf", b"\xff\xff\xff", "not a message"),
        ("thrift", b"", "ends before"),
        ("thrift", b"\0", "id is missing"),
        ("thrift", b"\x0a\0\1" + bytes(8), "another type"),
        ("thrift", b"\x0b\0\2\xff\xff\xff\xff", "negative length"),
        ("thrift", b"\x0b\0\2\x7f\xff\xff\xff", "ends before"),
        ("thrift", b"\x0b\0\2\0\0\0\1\xff", "no UTF-8"),
        ("thrift", b"\x02\0\4\2", "neither true nor false"),
        ("thrift", b"\x0f\0\x09\x08\x7f\xff\xff\xff", "ends before"),
        ("thrift", b"\x0f\0\x09\x63\0\0\0\1", "no type"),
        ("thrift", b"\x63\0\x09", "no type"),
        ("thrift", b"\x0c\0\x09" * DEEP, "nested deeper"),
        ("thrift", b"\x08\0\1" + bytes(6), "left behind"),
        ("xdr", b"\0\0\0\7\xff\xff\xff\xff", "ends before"),
        ("xdr", b"\0\0\0\7\0\0\0\1a\0\0\1", "not zero"),
        ("xdr", bytes(16) + b"\0\0\0\2", "neither true nor false"),
        ("xdr", bytes(28), "left behind"),
    ],
)
def test_a_hostile_value_is_refused(kind: str, data: bytes, said: str | None) -> None:
    if said is None:  # Odd, and nothing to refuse.
        of(kind).read(data)
        return
    with pytest.raises(Refused, match=said):
        of(kind).read(data)


def record(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields}


def nested(depth: int) -> Any:
    return {"type": "array", "items": nested(depth - 1)} if depth else "int"


def lists(depth: int) -> Any:
    return {"list": lists(depth - 1)} if depth else "i32"


def optional(depth: int) -> Any:
    return {"optional": optional(depth - 1)} if depth else "int"


@pytest.mark.parametrize(
    ("kind", "schema", "said"),
    [
        ("avro", record({"type": "array", "items": "null"}), "take room"),
        ("avro", record({"type": "array", "items": record()}), "has a name and fields"),
        ("avro", record({"type": "fixed", "name": "F", "size": 0}), "no bytes"),
        ("avro", record("R"), "contains itself"),
        ("avro", record(["null", "R"]), "contains itself"),
        ("avro", record(nested(200)), "nested deeper"),
        ("avro", record(*["int"] * 6_000), "more than 5000 fields"),
        ("avro", record("Unknown"), "not known"),
        ("avro", {"type": "int"}, "not of a record"),
        ("avro", record({"type": "enum", "name": "E", "symbols": "x"}), "has symbols"),
        ("avro", {"type": "record", "name": "R", "fields": [1]}, "has no name"),
        ("xml", {"root": "a b"}, "root"),
        ("xml", {"fields": {"a": "date"}}, "none of text"),
        ("xml", {"entities": {}}, "none of root"),
        ("csv", {}, "columns"),
        ("csv", {"columns": ["a", "a"]}, "each once"),
        ("json", {"x": 1}, "none of"),
        ("protobuf", {"descriptors": "AAAA", "message": "a.B"}, "no descriptors"),
        ("protobuf", {"message": "a.B"}, "make a schema"),
        ("asn1", {}, "none of json"),
        ("thrift", {"fields": [{"id": 0, "name": "a", "type": "i32"}]}, "from 1 to 32767"),
        ("thrift", {"fields": [{"id": True, "name": "a", "type": "i32"}]}, "from 1 to 32767"),
        ("thrift", {"fields": [{"id": 1, "name": "a", "type": "i32"}] * 2}, "id of its own"),
        ("thrift", {"fields": [{"id": 1, "type": "i32"}]}, "name of its own"),
        ("thrift", {"fields": [{"id": 1, "name": "a", "type": "date"}]}, "no type"),
        ("thrift", {"fields": [{"id": 1, "name": "a", "type": lists(50)}]}, "nested deeper"),
        ("xdr", {"fields": []}, "a name and a type"),
        ("xdr", {"fields": [{"name": "a", "type": "date"}]}, "no type"),
        ("xdr", {"fields": [{"name": "a", "type": "int"}] * 2}, "name of its own"),
        ("xdr", {"fields": [{"name": "a", "type": optional(50)}]}, "nested deeper"),
    ],
)
def test_a_hostile_schema_is_refused(kind: str, schema: Mapping[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        kind_of(kind, json.loads(json.dumps(schema)))


@pytest.mark.parametrize(
    ("kind", "document", "said"),
    [
        ("xml", {"a b": 1}, "no name of an element"),
        ("xml", {"a": "\x00"}, "control characters"),
        ("xml", {"a": [[1]]}, "lists of lists"),
        ("csv", {"id": [1]}, "no structure"),
        ("csv", {"other": 1}, "no column other"),
        ("avro", {**ORDER, "more": 1}, "no field more"),
        ("avro", {"id": 1}, "customer is missing"),
        ("avro", {**ORDER, "id": "seven"}, "field id"),
        ("avro", {**ORDER, "id": 2**40}, "too large"),
        ("avro", {**ORDER, "id": 1.5}, "no whole number"),
        ("protobuf", {"id": "seven"}, "does not fit"),
        ("protobuf", {"more": 1}, "does not fit"),
        ("json", {"a": "x" * VALUE_BYTES_MAX}, "more than"),
        ("thrift", {"customer": "a"}, "id is missing"),
        ("thrift", {**ORDER, "id": 2**31}, "field id"),
        ("thrift", {**ORDER, "more": 1}, "no field more"),
        ("xdr", {"id": 1}, "customer: it is missing"),
        ("xdr", {**ORDER, "id": 2**31}, "field id"),
        ("xdr", {**ORDER, "more": 1}, "no field more"),
    ],
)
def test_what_a_format_cannot_say(kind: str, document: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        of(kind).write(document)


@pytest.mark.parametrize("kind", SCHEMAS)
@given(data=st.data())
def test_whatever_comes_is_read_or_refused(kind: str, data: st.DataObject) -> None:
    """Bytes of any kind, and messages with a few of their bytes changed."""
    message = bytearray(of(kind).write(ORDER))
    for _ in range(data.draw(st.integers(1, 5))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    for hostile in (bytes(message), data.draw(st.binary(max_size=100))):
        try:
            document = of(kind).read(hostile)
        except Refused:
            continue
        for other in SCHEMAS:
            with contextlib.suppress(Refused):
                of(other).write(document)
