"""Avro and Protobuf as columns: without Spark's Java, and in it."""

import io
import json
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")

import pyarrow as pa
from confluent_kafka import Producer
from fastavro import schemaless_writer
from google.protobuf import descriptor_pb2, message_factory, timestamp_pb2
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from entrepot.spark.formats import BadValue, avro, protobuf
from entrepot.spark.formats.registry import RegistryError, latest_schema, schema_by_id
from entrepot.testing import Broker
from tests.spark.producing import create

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                   "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}  # fmt: skip
FIRST: dict[str, Any] = ORDER | {"fields": [f for f in ORDER["fields"] if f["name"] != "note"]}
TEXT = json.dumps(ORDER)
NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "price": Decimal("12.50"),
        "note": None if number % 2 else "gift",
        "at": NOON,
        "day": date(2026, 1, 2),
        "colour": "BLUE",
        "lines": [{"n": 1}, {"n": 2}],
        "tags": {"a": "b"},
        "token": "00000000-0000-0000-0000-000000000001",
    }


def written(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    schemaless_writer(target, avro._parsed(json.dumps(schema)), value)
    return target.getvalue()


def framed(number: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + data


def arrow(kind: StructType, *values: Any) -> list[Any]:
    """As Spark gets them."""
    found: list[Any] = pa.array(values, type=to_arrow_type(kind, timezone="UTC")).to_pylist()
    return found


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """What Confluent's registry answers: schema 7 is the first version, 300 the second."""
    schemas = {
        "/schemas/ids/7": {"schema": json.dumps(FIRST)},
        "/schemas/ids/300": {"schema": TEXT},
        "/subjects/orders-value/versions/latest": {"id": 300, "schema": TEXT},
        "/schemas/ids/8": {"schema": "syntax = ...", "schemaType": "PROTOBUF"},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = schemas.get(self.path)
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


# --- Avro


def test_a_record_of_every_type() -> None:
    decode = avro._decoder(TEXT, None, framed=False)
    assert arrow(avro.columns_of(TEXT), decode(written(ORDER, order(1)))) == [
        order(1) | {"tags": [("a", "b")]}
    ]


def test_a_type_with_a_name_is_known_by_its_whole_name() -> None:
    """Once it was written out: a number with a logical type, and one name in two namespaces."""
    money = {"type": "fixed", "name": "Money", "size": 4, "logicalType": "decimal", "precision": 9}
    places = {
        "type": "record",
        "name": "Trip",
        "namespace": "a",
        "fields": [
            {"name": "price", "type": money},
            {"name": "toll", "type": "Money"},
            {"name": "from", "type": place("Place", "latitude", "a")},
            {"name": "to", "type": place("Place", "street", "b")},
            {"name": "back", "type": "Place"},
            {"name": "home", "type": ["null", "b.Place"]},
        ],
    }
    kind = avro.columns_of(json.dumps(places))
    assert {each.name: each.dataType.simpleString() for each in kind} == {
        "price": "decimal(9,0)",
        "toll": "decimal(9,0)",
        "from": "struct<latitude:string>",
        "to": "struct<street:string>",
        "back": "struct<latitude:string>",
        "home": "struct<street:string>",
    }


def place(name: str, field: str, namespace: str) -> dict[str, Any]:
    fields = [{"name": field, "type": "string"}]
    return {"type": "record", "name": name, "namespace": namespace, "fields": fields}


def test_each_value_is_read_with_the_schema_that_it_names(registry: str) -> None:
    """The first version has no note: the second one's default stands for it."""
    decode = avro._decoder(TEXT, registry, framed=True)
    old = decode(framed(7, written(FIRST, order(2))))
    new = decode(framed(300, written(ORDER, order(2))))
    assert (old["note"], new["note"]) == (None, "gift")
    assert {**old, "note": "gift"} == new
    with pytest.raises(RegistryError, match="/schemas/ids/9: 404"):
        decode(framed(9, b""))
    with pytest.raises(RegistryError, match="a schema of PROTOBUF"):
        schema_by_id(registry, 8)
    with pytest.raises(RegistryError, match="not an address like http"):
        latest_schema("localhost:8081", "orders-value")


@pytest.mark.parametrize(
    "data",
    [b"", b"\1\0\0\0\7x", written(ORDER, order(1)), framed(300, b"\2"),
     framed(300, written(ORDER, order(1)) + b"more")],
)  # fmt: skip
def test_what_is_not_avro_is_said(registry: str, data: bytes) -> None:
    with pytest.raises(BadValue):
        avro._decoder(TEXT, registry, framed=True)(data)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ('"string"', "not of a record but of string"),
        ("{", "not JSON"),
        ('{"type": "record", "name": "a", "fields": [{"name": "b", "type": ["int", "string"]}]}',
         "a union of 2 types"),
        ('{"type": "record", "name": "a", "fields": [{"name": "b", "type": ["null", "a"]}]}',
         "contains itself"),
    ],
)  # fmt: skip
def test_what_cannot_be_columns_is_said(schema: str, said: str) -> None:
    with pytest.raises(avro.SchemaError, match=said):
        avro.columns_of(schema)


# --- Protobuf


def descriptors(directory: Path) -> str:
    """As protoc writes them: message shop.Order, with what it is made of."""
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )  # fmt: skip
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    line = file.message_type.add(name="Line")
    line.field.add(name="n", number=1, type=5, label=1)
    made = file.message_type.add(name="Order")
    made.field.add(name="id", number=1, type=3, label=1)
    made.field.add(name="note", number=2, type=9, label=1, proto3_optional=True, oneof_index=0)
    made.oneof_decl.add(name="_note")
    made.field.add(name="colour", number=3, type=14, label=1, type_name=".shop.Colour")
    made.field.add(name="lines", number=4, type=11, label=3, type_name=".shop.Line")
    made.field.add(name="at", number=5, type=11, label=1, type_name=".google.protobuf.Timestamp")
    made.field.add(name="many", number=6, type=4, label=1)
    made.field.add(name="raw", number=7, type=12, label=1)
    tags = made.nested_type.add(name="TagsEntry")
    tags.options.map_entry = True
    tags.field.add(name="key", number=1, type=9, label=1)
    tags.field.add(name="value", number=2, type=9, label=1)
    made.field.add(name="tags", number=8, type=11, label=3, type_name=".shop.Order.TagsEntry")
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="left", number=1, type=11, label=1, type_name=".shop.Tree")
    known = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    path = directory / "orders.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[known, file]).SerializeToString())
    return str(path)


def message(path: str, number: int) -> bytes:
    kind = protobuf._descriptor(Path(path).read_bytes(), "shop.Order")
    made = message_factory.GetMessageClass(kind)(
        id=number, colour="BLUE", lines=[{"n": 1}], many=2**64 - 1, raw=b"\0", tags={"a": "b"}
    )
    made.at.FromDatetime(NOON)
    if number % 2 == 0:
        made.note = "gift"
    return bytes(made.SerializeToString())


def test_a_message_of_every_type(tmp_path: Path) -> None:
    path = descriptors(tmp_path)
    data = Path(path).read_bytes()
    kind = protobuf._struct(protobuf._descriptor(data, "shop.Order"), ())
    plain = protobuf._decoder(data, "shop.Order", framed=False)
    (found,) = arrow(kind, plain(message(path, 1)))
    assert found == {
        "id": 1, "note": None, "colour": "BLUE", "lines": [{"n": 1}], "at": NOON,
        "many": Decimal(2**64 - 1), "raw": b"\0", "tags": [("a", "b")],
    }  # fmt: skip
    in_frame = protobuf._decoder(data, "shop.Order", framed=True)
    for place in (b"\0", b"\2\0", b"\4\2\0"):  # The first message, the same in full, a nested one.
        assert in_frame(framed(1, place + message(path, 2)))["note"] == "gift"
    for wrong in (b"", framed(1, b""), framed(1, b"\4\2"), framed(1, b"\0\xff")):
        with pytest.raises(BadValue):
            in_frame(wrong)


def test_descriptors_that_do_not_fit(tmp_path: Path) -> None:
    data = Path(descriptors(tmp_path)).read_bytes()
    with pytest.raises(protobuf.DescriptorError, match=r"no message shop.Oder"):
        protobuf._descriptor(data, "shop.Oder")
    with pytest.raises(protobuf.DescriptorError, match="has no descriptors"):
        protobuf._descriptor(b"message Order {}", "shop.Order")
    with pytest.raises(protobuf.DescriptorError, match=r"shop.Tree contains itself"):
        protobuf._struct(protobuf._descriptor(data, "shop.Tree"), ())


# --- in Spark


def test_the_guides_formats(
    spark: Any, server: Broker, tmp_path: Path, registry: str, new_topic: Callable[[], str]
) -> None:
    """JSON, Avro and Protobuf, by file and by registry, and a bad value that becomes null."""
    from pyspark.sql.functions import col, from_json

    from entrepot.spark.formats import from_avro, from_protobuf

    descriptor_file = descriptors(tmp_path)
    schema_file = tmp_path / "order.avsc"
    schema_file.write_text(TEXT)
    values = {
        "json": [json.dumps({"id": n, "note": "gift"}).encode() for n in (1, 2)],
        "avro": [written(ORDER, order(n)) for n in (1, 2)],
        "registry": [framed(7, written(FIRST, order(1))), framed(300, written(ORDER, order(2)))],
        "protobuf": [message(descriptor_file, n) for n in (1, 2)],
        "bad": [b"?"],
    }
    topics = {name: create(server, new_topic()) for name in values}
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for name, several in values.items():
        for value in several:
            producer.produce(topics[name], value, partition=0)
    assert producer.flush(30) == 0

    def rows(name: str, column: Any) -> list[Any]:
        options = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topics[name]}
        frame = spark.read.format("entrepot").options(**options).load()
        found = frame.select(column.alias("o")).select("o.id", "o.note").collect()
        return [tuple(row) for row in found]

    by_file = {"schema_file": str(schema_file)}
    both = [(1, None), (2, "gift")]
    line = from_json(col("value").cast("string"), "id long, note string")
    assert rows("json", line) == [(1, "gift"), (2, "gift")]
    assert rows("avro", from_avro("value", **by_file)) == both
    assert rows("registry", from_avro("value", registry=registry, subject="orders-value")) == both
    named = from_protobuf("value", "shop.Order", descriptor_file=descriptor_file)
    assert rows("protobuf", named) == both
    assert rows("bad", from_avro("value", **by_file, on_error="null")) == [(None, None)]
    with pytest.raises(Exception, match="BadValue: a value of 1 bytes: not Avro of this schema"):
        rows("bad", from_avro("value", **by_file))


def test_a_delta_table_is_read_by_its_files(spark: Any, tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    path = str(tmp_path / "table")
    write_deltalake(path, pa.table({"n": [1, 2]}))
    write_deltalake(path, pa.table({"n": [3]}), mode="overwrite")
    write_deltalake(path, pa.table({"n": [4]}), mode="append")
    found = spark.read.parquet(*DeltaTable(path).file_uris()).orderBy("n").collect()
    assert [row.n for row in found] == [3, 4]
