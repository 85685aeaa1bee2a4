"""Values that have a schema, decoded by the console in a real browser."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import confluent_kafka
import fastavro
import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.browsing import NEEDS_CHROMIUM, WAIT_S, Browser, chromium

pytestmark = [pytest.mark.slow, NEEDS_CHROMIUM]


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.http": 0}) as started:
        yield started


@pytest.fixture(scope="module")
def page(server: Broker) -> Iterator[Browser]:
    with chromium() as visit:
        page = visit(f"http://{server.http_address}")
        page.open()
        page.log_in("guest", "guest")
        page.problems()
        yield page


def test_what_has_a_schema_is_decoded(server: Broker, page: Browser) -> None:
    """A registry whose Kafka this broker is keeps its schemas in a topic here."""
    schema = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "who", "type": ["null", "string"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "tags", "type": {"type": "map", "values": "double"}},
            {
                "name": "state",
                "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]},
            },
            {"name": "parts", "type": {"type": "array", "items": "Order"}},
        ],
    }
    now = datetime(2030, 1, 2, tzinfo=UTC)
    order = {"id": 2**62, "who": "Zoë", "at": now, "price": Decimal("-12.50"), "tags": {"a": 1.5}}
    order |= {"state": "PAID", "parts": []}
    packed = io.BytesIO()
    fastavro.schemaless_writer(packed, fastavro.parse_schema(schema), order | {"parts": [order]})
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    stored = {"subject": "orders-value", "version": 1, "id": 7, "schema": json.dumps(schema)}
    producer.produce("_schemas", json.dumps(stored), b'{"keytype":"SCHEMA"}')
    producer.produce("orders", b"\0\0\0\0\x07" + packed.getvalue(), partition=0)
    producer.produce("orders", b"\0\0\0\0\x07\xff", partition=0)
    producer.produce("orders", b"\0\0\0\0\x09abc", partition=0)
    assert producer.flush(WAIT_S) == 0
    page.open("topics/orders?from=first")
    decoded = '"who": "Zoë"', '"price": "-12.50"', '"at": "2030-01-02T00:00:00.000Z"', '"PAID"'
    page.wait_for(*decoded, f'"id": "{2**62}"', "The value is shorter than its schema says.")
    page.wait_for("the topic _schemas has no schema 9", "09 61 62 63")
    assert page.problems() == []


def test_json_is_shown_as_it_is_written(server: Broker, page: Browser) -> None:
    long = json.dumps({"names": ["a" * 30] * 4, "none": [], "empty": {}})
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    for value in (
        '{"id":12345678901234567890, "10":1.50,"2":"a,b:{\\"","e":1E400}',
        long,
        "[" * 50_000 + "]" * 50_000,
        '{"a":1,}',
    ):
        producer.produce("written", value, partition=0)
    assert producer.flush(WAIT_S) == 0
    page.open("topics/written?from=first")
    page.wait_for("4 records")
    shown = page.run("[...document.querySelectorAll('pre')].map((each) => each.textContent)")
    assert shown[0] == '{"id": 12345678901234567890, "10": 1.50, "2": "a,b:{\\"", "e": 1E400}'
    names = ",\n".join(f'    "{"a" * 30}"' for _ in range(4))
    assert shown[1] == f'{{\n  "names": [\n{names}\n  ],\n  "none": [],\n  "empty": {{}}\n}}'
    assert shown[2].startswith("[[[")
    assert shown[3] == '{"a":1,}'
    assert page.problems() == []


def test_avro_of_strangers_is_decoded_within_bounds(page: Browser) -> None:
    nested = '"null"'
    for number in range(40):  # Small, and a value of 2**40 parts.
        again = f'"R{number - 1}"' if number else '"null"'
        fields = f'{{"name":"a","type":{nested}}},{{"name":"b","type":{again}}}'
        nested = f'{{"type":"record","name":"R{number}","fields":[{fields}]}}'
    own = '{"type":"record","name":"A","fields":[{"name":"a","type":"A"}]}'
    nulls, scaled = '{"type":"array","items":"null"}', '"logicalType":"decimal","scale":1000000000'
    for schema, data, said in (
        (nested, b"", "There are too many values in it."),
        (own, b"", "The value is too deep."),
        ("[" * 5000 + "]" * 5000, b"\0", "The schema is too deep."),
        (nulls, b"\xfe\xff\xff\xff\x0f\0", "A length is impossible."),
        (nulls, b"\xff" * 9 + b"\x01", "A length is impossible."),
        ('"long"', b"\xff" * 11, "A number is too long."),
        ('{"type":"fixed","name":"f","size":-1}', b"", "shorter than its schema says"),
        ('{"type":"nosuch"}', b"", "refers to nosuch"),
        ('{"type":"record"}', b"", "none of Avro"),
        ('"int"', b"\x02\x02", "1 bytes are left over."),
        (f'{{"type":"bytes",{scaled}}}', b"\x02\x05", "05"),
    ):
        call = f"decodeAvro({json.dumps(schema)}, new Uint8Array({list(data)}))"
        script = f"const {{decodeAvro}} = await import('/console/avro.js'); return {call};"
        assert said in page.run(f"(async () => {{ {script} }})().catch((error) => error.message)")
