"""Metrics: who may read them, what is listed, and that the page is made in steps."""

import re
import subprocess
import sys
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.acls import ANY, Acl, Pattern, PermissionType, acl_record
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import CommittedOffset
from entrepot.core import limits
from entrepot.core.measures import MessageCount, Traffic
from entrepot.core.ports import Space
from entrepot.gateway.http.management import metrics
from entrepot.gateway.http.management.call import Sources
from entrepot.wire.http.request import Request
from tests.unit.gateway.http.management.house import House, in_house

PAGE = Path("docs/reference/metrics.md").read_text("utf-8")
# The house of these tests does not say how large its disk is.
SPACE = {"entrepot_disk_free_bytes", "entrepot_disk_size_bytes"}


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


@in_house()
async def test_what_became_of_messages(house: House) -> None:
    await house.declare("work")
    await house.publish("work", *"abcde")
    await house.take("work", "ack_requeue_false", 2)
    await house.call("DELETE", "/api/queues/%2F/work/contents")
    found = read((await scraped(house))[1])
    assert found["entrepot_queue_messages_accepted_total", "work", "/"] == 5
    assert found["entrepot_queue_messages_consumed_total", "work", "/"] == 2
    assert found["entrepot_queue_messages_dropped_total", "work", "/"] == 3
    assert found["entrepot_queue_messages_ready", "work", "/"] == 0
    assert found["entrepot_queue_messages_deferred", "work", "/"] == 0


@in_house()
async def test_how_far_a_group_is_behind(house: House) -> None:
    await house.broker.create_topic("events", 1)
    await house.publish("events", "a", "b", "c")
    place = TopicPartition("events", 0)
    await house.broker.groups.commit_offsets(
        "readers", "", -1, {place: CommittedOffset(1, -1, "", house.clock.now_ms())}
    )
    found = read((await scraped(house))[1])
    assert found["entrepot_group_lag", "readers", "0", "events"] == 2
    assert found["entrepot_group_committed_offset", "readers", "0", "events"] == 1


@in_house()
async def test_what_is_short(house: House) -> None:
    async def nearly_full() -> Space:
        return Space(limits.DISK_FREE_BYTES_LOW - 1, 100 * limits.GIB)

    listing_at_most(house, 10, space=nearly_full)
    found = read((await scraped(house))[1])
    assert found["entrepot_alarm", "disk"] == 1
    assert found["entrepot_alarm", "memory"] == 0
    assert found["entrepot_disk_size_bytes",] == 100 * limits.GIB

    async def gone() -> Space:
        raise OSError("the disk is gone")

    listing_at_most(house, 10, space=gone)
    status, text = await scraped(house)
    assert status == 200
    assert ("entrepot_alarm", "disk") not in read(text)


@in_house()
async def test_latencies(house: House) -> None:
    kafka, amqp = MessageCount(), MessageCount()
    kafka.fetching.histogram.add(0.002)
    amqp.answering.histogram.add(0.03)
    listing_at_most(house, 10, messages={"kafka": kafka, "amqp": amqp})
    found = read((await scraped(house))[1])
    assert found["entrepot_fetch_latency_seconds_count", "kafka"] == 1
    assert found["entrepot_fetch_latency_seconds_bucket", "0.001", "kafka"] == 0
    assert found["entrepot_fetch_latency_seconds_bucket", "0.0025", "kafka"] == 1
    assert found["entrepot_confirm_latency_seconds_sum", "amqp"] == 0.03
    assert ("entrepot_produce_latency_seconds_count", "amqp") not in found


@in_house()
async def test_every_name_is_known_to_the_documentation(house: House) -> None:
    """And the other way round: what is documented is there."""
    every = MessageCount()
    listing_at_most(house, 10, messages={"kafka": every, "amqp": every}, traffic=dict)
    names = set(re.findall(r"^# TYPE (entrepot_\w+)", (await scraped(house))[1], re.M))
    rows = [line for line in PAGE.splitlines() if line.startswith("| `entrepot_")]
    told = {each for row in rows for each in re.findall(r"`(entrepot_\w+)", row.split("|")[1])}
    assert names - SPACE == told - SPACE


def test_the_library_is_not_imported_before_a_scrape() -> None:
    code = f"import sys, {metrics.__name__}; print('prometheus_client' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"False\n"
