"""Metrics: who may read them, what is listed, and that the page is made in steps."""

import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.acls import ANY, Acl, Pattern, PermissionType, acl_record
from entrepot.core.measures import Histogram, MessageCount, Traffic
from entrepot.core.steps import finish
from entrepot.gateway.http.management import metrics
from entrepot.gateway.http.management.call import Sources
from entrepot.gateway.http.management.metrics import Family
from entrepot.wire.http.request import Request
from tests.unit.gateway.http.management.house import House, in_house


async def scraped(house: House, user: str | None = None) -> tuple[int, str]:
    who = user or house.who
    token = b64encode(f"{who}:{who}".encode()).decode()
    headers = {"host": "localhost", "authorization": f"Basic {token}"}
    response = await house.handle(Request("GET", "/metrics", headers, b""), "127.0.0.1")
    return response.status, bytes(response.body).decode()


def read(text: str) -> dict[tuple[str, ...], float]:
    """Values by name and labels, which come in the order of their names."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def listing_at_most(house: House, rows_max: int, **sources: object) -> None:
    found = replace(Sources(**sources), rows_max=rows_max)  # type: ignore[arg-type]
    house.handle._context = replace(house.handle._context, sources=found)


@in_house()
async def test_partitions_and_queues(house: House) -> None:
    await house.broker.create_topic("events", 2)
    await house.declare("work")
    await house.publish("events", "a", "b", "c")
    await house.publish("work", "a", "b")
    status, text = await scraped(house)
    found = read(text)
    assert status == 200
    ends = [found["entrepot_partition_log_end_offset", each, "events"] for each in ("0", "1")]
    assert sum(ends) == 3
    assert found["entrepot_queue_messages_ready", "work", "/"] == 2
    assert found["entrepot_queue_messages_leased", "work", "/"] == 0
    assert found["entrepot_commit_latency_seconds_count",] > 0
    assert found["entrepot_rows_left_out", "partition"] == 0
    assert found["entrepot_build_info", "1.2.3"] == 1


@in_house()
async def test_traffic_by_protocol(house: House) -> None:
    traffic, messages = Traffic(), MessageCount()
    traffic.opened, traffic.closed, traffic.bytes_sent = 5, 2, 700
    messages.published = messages.delivered = 9
    listing_at_most(
        house,
        10,
        traffic=lambda: {"kafka": traffic},
        messages={"kafka": messages, "amqp": messages},
        unfinished_bytes=lambda: 42,
    )
    found = read((await scraped(house))[1])
    assert found["entrepot_connections", "kafka"] == 3
    assert found["entrepot_connections_opened_total", "kafka"] == 5
    assert found["entrepot_sent_bytes_total", "kafka"] == 700
    assert found["entrepot_messages_published_total", "kafka"] == 9
    assert found["entrepot_messages_delivered_total", "amqp"] == 9
    assert ("entrepot_messages_delivered_total", "kafka") not in found
    assert found["entrepot_unfinished_input_bytes",] == 42


@in_house()
async def test_what_is_beyond_the_limit_is_counted(house: House) -> None:
    listing_at_most(house, 3)
    await house.broker.create_topic("events", 5)
    for name in "abcd":
        await house.declare(name)
    found = read((await scraped(house))[1])
    listed = [key for key in found if key[0] == "entrepot_partition_log_end_offset"]
    assert len(listed) == 3
    assert found["entrepot_rows_left_out", "partition"] == 2
    assert found["entrepot_rows_left_out", "queue"] == 1


def test_a_name_that_is_not_unicode() -> None:
    page = bytearray()
    family = Family("rows", "Rows.", ("queue",), [((metrics._label('\udcff"\n'),), 1.0)])
    finish(metrics._write(prometheus_client, family, page))
    assert read(page.decode()) == {("entrepot_rows", '\\xff"\n'): 1}


@in_house(asks=True)
async def test_who_may_read_them(house: House) -> None:
    await house.add_user("ana")
    assert (await scraped(house, "ana"))[0] == 403
    entry = Acl(
        ResourceKind.CLUSTER,
        Pattern.LITERAL,
        "kafka-cluster",
        "ana",
        ANY,
        Operation.DESCRIBE,
        PermissionType.ALLOW,
    )
    await house.broker.change_security(acl_record(entry))
    assert (await scraped(house, "ana"))[0] == 200
    assert (await house.call("GET", "/metrics", user="bob"))[0] == 401


@pytest.mark.parametrize("count", [0, 1, metrics.SAMPLES_AT_ONCE, 3 * metrics.SAMPLES_AT_ONCE + 1])
def test_a_long_family_is_written_in_steps(count: int) -> None:
    samples = [((str(number),), float(number)) for number in range(count)]
    family = Family("rows", "Rows.", ("number",), samples)
    page = bytearray()
    steps = sum(1 for _ in metrics._write(prometheus_client, family, page))
    assert steps == max(1, -(-count // metrics.SAMPLES_AT_ONCE))
    at_once = metrics._metric(prometheus_client, family, samples)
    assert bytes(page) == metrics._text(prometheus_client, at_once)


def test_the_histogram() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.add(value)
    text = metrics._text(prometheus_client, metrics._latency(prometheus_client, histogram))
    (family,) = text_string_to_metric_families(text.decode())
    buckets = {sample.labels["le"]: sample.value for sample in family.samples if sample.labels}
    assert buckets == {"1.0": 2, "2.0": 3, "+Inf": 4}
    assert {sample.value for sample in family.samples if not sample.labels} == {4, 12.0}


def test_nothing_is_looked_at_beyond_the_limit() -> None:
    looked = []

    def looks() -> Iterator[object]:
        for number in range(10):
            yield lambda number=number: (looked.append(number), ((str(number),), (1.0,)))[1]

    rows = finish(metrics._rows("row", ("number",), {"a": "A."}, looks(), 4))  # type: ignore[arg-type]
    assert (looked, rows.total, len(rows.found)) == ([0, 1, 2, 3], 10, 4)


def test_the_library_is_not_imported_before_a_scrape() -> None:
    code = f"import sys, {metrics.__name__}; print('prometheus_client' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"False\n"
