"""How long everybody else waits while one client asks for much.

    python -m bench.stalls                       all rows, some minutes
    python -m bench.stalls --rows 'Fetch*'       some
    python -m bench.stalls --topics 2000         a smaller broker

Starts one entrepot with many topics and queues, sends each request once, and has a `Pinger`
ask for next to nothing meanwhile. A row is: how long the request took, the longest wait of a
ping, the longest of the control ping, and the stall: the longest wait for the broker without
what the machine did, see `pinger`.
"""

import base64
import contextlib
import fnmatch
import http.client
import json
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import click
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import TopicName

from bench import (
    amqp_wire,
    brokers,
    stalls_clients,
    stalls_groups,
    stalls_messages,
    stalls_sqs,
    wide,
)
from bench.amqp_wire import QUEUE_BIND_OK, QUEUE_DECLARE_OK, method, short, table
from bench.pinger import Pinger, Waits
from bench.wire import Refused

STALL_MS_MAX = 100.0
_SETTLE_S = 0.05  # What a request left for the loop to do later belongs to it.
_WIDE_TOPICS, _WIDE_PARTITIONS = 7, 9_900


class Row(NamedTuple):
    name: str
    seconds: float
    waits: Waits


class Stage:
    """A running broker with many topics and queues, and clients of it."""

    def __init__(self, broker: brokers.Broker, ports: dict[str, int], topics: int) -> None:
        self.broker = broker
        self.ports = ports  # By protocol.
        self.names = [f"topic-{i}" for i in range(topics)]
        self.narrow = [(name, 1) for name in self.names]
        partitions = min(_WIDE_PARTITIONS, max(10, topics // 2))
        self.wide = [(f"wide-{i}", partitions) for i in range(_WIDE_TOPICS)]
        self.queues = [f"queue-{i}" for i in range(topics)]
        self.kafka = broker.connect()
        self.amqp = broker.amqp()
        self.closing = contextlib.ExitStack()

    def topic_ids(self, names: list[str]) -> dict[str, bytes]:
        topics = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(n)) for n in names)
        asked = MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        found = self.kafka.call(asked).topics
        return {each.name: each.topic_id.bytes for each in found}

    def ask(self, request: bytes) -> bytes:
        self.kafka.socket.sendall(request)
        return self.kafka.answer()

    def http(self, verb: str, path: str, body: bytes | None = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=120)
        who = base64.b64encode(b"guest:guest").decode()
        headers = {"Authorization": f"Basic {who}", "Content-Type": "application/json"}
        connection.request(verb, path, body, headers)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        if response.status >= 300:
            raise Refused(f"{verb} {path}: {response.status} {data[:200]!r}")
        return data

    def connect(self, protocol: str) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", self.ports[protocol]), timeout=120)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    def declare(self, names: list[str], flags: int, on: amqp_wire.Connection) -> None:
        """All at once, and all their answers."""
        on.send(
            b"".join(
                method(50, 10, b"\0\0" + short(name) + bytes((flags,)) + table()) for name in names
            )
        )
        for _ in names:
            on.expect(QUEUE_DECLARE_OK)

    def bind_all(self, exchange: str, names: list[str], keys: int = 1) -> None:
        """Bind queues or topics, each by one of so many routing keys."""
        sent = (
            method(50, 20, b"\0\0" + short(name) + short(exchange) + short(key) + b"\0" + table())
            for name, key in zip(names, cycle(map(str, range(keys))), strict=False)
        )
        self.amqp.send(b"".join(sent))
        for _ in names:
            self.amqp.expect(QUEUE_BIND_OK)


Work = Callable[[], object]
Rows = Iterator[tuple[str, Callable[[Stage], Work]]]


def rows() -> Rows:
    """Names, and what prepares each request and returns how to send it. Later rows use what
    earlier ones made."""
    yield "CreateTopics, 20,000 topics", lambda s: lambda: s.ask(wide.create_topics(s.narrow))
    yield "CreateTopics, 7 x 9,900", lambda s: lambda: s.ask(wide.create_topics(s.wide))
    yield from _kafka_reads()
    yield from _kafka_changes()
    yield from _records()
    yield from stalls_groups.rows()
    yield from _queues()
    yield from _management()
    yield from stalls_messages.rows()
    yield from stalls_sqs.rows()
    yield (  # Before rows that need queues: there may be 100,000 partitions.
        "DELETE /api/vhosts with 10,000 queues",
        lambda s: lambda: s.http("DELETE", "/api/vhosts/imported"),
    )
    yield "DeleteTopics, 7 x 9,900, with offsets", _delete_wide
    yield from stalls_clients.rows()
    yield from _disappearing()


def _kafka_reads() -> Rows:
    def sent(make: Callable[[Stage], bytes]) -> Callable[[Stage], Work]:
        def prepare(stage: Stage) -> Work:
            request = make(stage)
            return lambda: stage.ask(request)

        return prepare

    yield "Metadata, all", sent(lambda s: wide.metadata(None))
    yield "Metadata, by name", sent(lambda s: wide.metadata(s.names))
    yield "ListOffsets, 69,300", sent(lambda s: wide.list_offsets(s.wide))
    yield "Fetch, 69,300, no wait", sent(lambda s: wide.fetch(s.wide, 0))
    yield "Fetch, 69,300, waiting", sent(lambda s: wide.fetch(s.wide, 500))
    yield "Fetch, named twice", sent(lambda s: wide.fetch(2 * s.wide, 0))
    yield "DescribeLogDirs, all", sent(lambda s: wide.describe_log_dirs())
    yield "DescribeConfigs, 20,000", sent(lambda s: wide.describe_configs(s.names))
    yield "DescribeTopicPartitions", sent(lambda s: wide.describe_topic_partitions(s.names))
    yield "FindCoordinator, 100,000", sent(lambda s: wide.find_coordinators(_names(s, 5)))
    yield "DescribeGroups, 100,000", sent(lambda s: wide.describe_groups(_names(s, 5)))
    yield "DeleteGroups, 100,000", sent(lambda s: wide.delete_groups(_names(s, 5)))


def _names(stage: Stage, times: int) -> list[str]:
    return [f"{name}-{i}" for name in stage.names for i in range(times)]


def _kafka_changes() -> Rows:
    def sent(make: Callable[[Stage], bytes]) -> Callable[[Stage], Work]:
        def prepare(stage: Stage) -> Work:
            request = make(stage)
            return lambda: stage.ask(request)

        return prepare

    yield "OffsetCommit, 69,300", sent(lambda s: wide.offset_commit("group", s.wide))
    yield "OffsetFetch, 69,300", sent(lambda s: wide.offset_fetch("group", s.wide))
    yield "OffsetFetch, all", sent(lambda s: wide.offset_fetch("group", None))
    yield "OffsetDelete, 69,300", sent(lambda s: wide.offset_delete("group", s.wide))
    yield "DeleteRecords, 69,300", sent(lambda s: wide.delete_records(s.wide))
    yield "AlterShareGroupOffsets", sent(lambda s: wide.alter_share_group_offsets("share", s.wide))
    yield "CreateAcls, 20,000", sent(lambda s: wide.create_acls(s.names))
    yield "DescribeAcls, all", sent(lambda s: wide.describe_acls())
    yield "DeleteAcls, 20,000", sent(lambda s: wide.delete_acls(s.names))
    yield "AddPartitionsToTxn, 69,300", _transaction


def _transaction(stage: Stage) -> Work:
    answer = stage.ask(wide.init_producer_id("transaction"))
    producer = struct.unpack_from(">qh", answer, 10)

    def work() -> None:
        stage.ask(wide.add_partitions_to_txn("transaction", producer, stage.wide))
        stage.ask(wide.end_txn("transaction", producer))

    return work


def _records() -> Rows:
    yield "Fetch, waiting while 3,000 are produced to", _waiting_fetch
    yield "Produce, 2,000,000 keys to compact", _compacted
    yield "Produce, eight bombs to recompress", _bombs
    yield (
        "Produce, to 20,000 topics",
        _produced(lambda s: wide.produce_to_all(s.narrow, wide.small_batch())),
    )
    yield (
        "Produce, to 29,700",
        _produced(lambda s: wide.produce_to_all(s.wide[:3], wide.small_batch())),
    )
    yield "Fetch, 29,700 with a record each", _produced(lambda s: wide.fetch(s.wide[:3], 0))
    yield (
        "Produce, 50,000 times to one",
        _produced(lambda s: wide.produce_to_all([("topic-0", 1)], wide.small_batch(), 50_000)),
    )
    yield "Produce, one batch of 100 MiB", _large_batch


def _produced(make: Callable[[Stage], bytes]) -> Callable[[Stage], Work]:
    def prepare(stage: Stage) -> Work:
        request = make(stage)
        return lambda: stage.ask(request)

    return prepare


def _large_batch(stage: Stage) -> Work:
    stage.ask(wide.create_topics([("large", 1)], [("max.message.bytes", str(129 << 20))]))
    batch = wide.record_batch(wide.large_record(100 << 20), 1, int(time.time() * 1_000))
    request = wide.produce([("large", 0, batch)])
    return lambda: stage.ask(request)


def _delete_wide(stage: Stage) -> Work:
    stage.ask(wide.offset_commit("group", stage.wide))
    return lambda: stage.ask(wide.delete_topics([name for name, _ in stage.wide]))


def _waiting_fetch(stage: Stage) -> Work:
    topics = [(f"wide-{0}", min(3_000, stage.wide[0][1]))]
    batch = wide.small_batch()
    produced = [wide.produce([("wide-0", index, batch)]) for index in range(topics[0][1])]

    def work() -> None:
        with stage.broker.connect() as waiting:
            waiting.socket.sendall(wide.fetch(topics, 20_000))
            time.sleep(0.2)
            for start in range(0, len(produced), 50):
                stage.kafka.socket.sendall(b"".join(produced[start : start + 50]))
                for _ in produced[start : start + 50]:
                    stage.kafka.answer()

    return work


def _compacted(stage: Stage) -> Work:
    settings = [("cleanup.policy", "compact"), ("max.message.bytes", str(50 << 20))]
    stage.ask(wide.create_topics([("compacted", 1)], settings))
    body = wide.keyed_records(2_000_000)
    batch = wide.record_batch(body, 2_000_000, int(time.time() * 1_000), is_gzip=True)
    return lambda: stage.ask(wide.produce([("compacted", 0, batch)]))


def _bombs(stage: Stage) -> Work:
    stage.ask(wide.create_topics([("recompressed", 8)], [("compression.type", "zstd")]))
    batch = wide.record_batch(
        wide.large_record(100 << 20), 1, int(time.time() * 1_000), is_gzip=True
    )
    return lambda: stage.ask(wide.produce([("recompressed", index, batch) for index in range(8)]))


def _queues() -> Rows:
    yield "queue.declare, 20,000 transient", lambda s: lambda: s.declare(s.queues, 0, s.amqp)
    yield "queue.bind, 20,000 to a fanout", _bind
    yield "basic.publish to 20,000 queues", _publish
    yield "exchange.delete with 20,000 bindings", _delete_exchange
    yield "basic.publish to 20,000 topics", _publish_to_topics
    yield "100 x basic.publish, each to 200 queues", _publish_to_parts
    yield "disconnect with 20,000 exclusive queues", _exclusive
    yield "queue.purge of 1,000,000", _purge
    yield "disconnect with 100,000 unacked", _unacked


def _bind(stage: Stage) -> Work:
    stage.amqp.declare_exchange("everybody", "fanout")
    return lambda: stage.bind_all("everybody", stage.queues)


def _publish(stage: Stage) -> Work:
    stage.amqp.confirm()
    return _published(stage, amqp_wire.publication("everybody", "", b"hello", persistent=False))


def _published(stage: Stage, sent: bytes, count: int = 1) -> Work:
    """Send so many publishes in one write, on a connection with confirms."""

    def work() -> None:
        stage.amqp.send(sent)
        confirmed = 0
        while confirmed < count:
            number, is_multiple = struct.unpack(">QB", stage.amqp.expect(amqp_wire.ACK).arguments)
            confirmed = number if is_multiple else confirmed + 1

    return work


def _publish_to_topics(stage: Stage) -> Work:
    stage.amqp = stage.broker.amqp()
    stage.amqp.declare_exchange("topics", "fanout")
    stage.bind_all("topics", stage.names)
    stage.amqp.confirm()
    return _published(stage, amqp_wire.publication("topics", "", b"hello", persistent=False))


def _publish_to_parts(stage: Stage) -> Work:
    stage.amqp = stage.broker.amqp()
    stage.amqp.declare_exchange("parts", "direct")
    stage.bind_all("parts", stage.queues, 100)
    stage.amqp.confirm()
    keys = map(str, range(100))
    sent = [amqp_wire.publication("parts", key, b"hello", persistent=False) for key in keys]
    return _published(stage, b"".join(sent), 100)


def _delete_exchange(stage: Stage) -> Work:
    return lambda: stage.amqp.delete_exchange("everybody")


def _exclusive(stage: Stage) -> Work:
    other = stage.broker.amqp()
    stage.declare([f"exclusive-{i}" for i in range(len(stage.queues))], 4, other)

    def work() -> None:
        other.socket.close()
        time.sleep(3)

    return work


def _fill(stage: Stage, queue: str, count: int) -> None:
    stage.amqp.declare_queue(queue)
    message = amqp_wire.publication("", queue, b"hello", persistent=False)
    for _ in range(count // 1_000):
        stage.amqp.send(1_000 * message)
    for _ in range(600):
        with stage.broker.amqp() as looking:
            if looking.count(queue) == count:
                return
        time.sleep(0.1)
    raise Refused(f"{queue} did not fill")


def _purge(stage: Stage) -> Work:
    stage.amqp = stage.broker.amqp()  # Without confirms.
    _fill(stage, "full", 1_000_000)

    def work() -> None:
        stage.amqp.send(method(50, 30, b"\0\0" + short("full") + b"\0"))
        stage.amqp.expect((50, 31))

    return work


def _unacked(stage: Stage) -> Work:
    _fill(stage, "unacked", 100_000)
    other = stage.broker.amqp()
    other.consume("unacked", "tag", auto_ack=False)
    for _ in range(300_000):
        other.frame()

    def work() -> None:
        other.socket.close()
        time.sleep(1)

    return work


def _management() -> Rows:
    for path in ("queues", "bindings", "overview", "exchanges", "vhosts", "definitions"):
        yield f"GET /api/{path}", _get(f"/api/{path}")
    yield "POST /api/definitions", _import


def _get(path: str) -> Callable[[Stage], Work]:
    return lambda stage: lambda: stage.http("GET", path)


def _import(stage: Stage) -> Work:
    stage.http("PUT", "/api/vhosts/imported")
    queues = [
        {"name": name, "vhost": "imported", "durable": True, "auto_delete": False, "arguments": {}}
        for name in stage.queues[:10_000]
    ]
    body = json.dumps({"queues": queues}).encode()
    return lambda: stage.http("POST", "/api/definitions", body)


def _disappearing() -> Rows:
    yield "CreatePartitions, 7 x 9,900", _create_partitions
    yield "DeleteTopics, 20,000 topics", lambda s: lambda: s.ask(wide.delete_topics(s.names))


def _create_partitions(stage: Stage) -> Work:
    stage.ask(wide.create_topics([(f"more-{i}", 1) for i in range(len(stage.wide))]))
    more = [(f"more-{i}", count) for i, (_, count) in enumerate(stage.wide)]
    return lambda: stage.ask(wide.create_partitions(more))


NEEDED = 2  # The first rows make what the others ask about; they are always run.


def measure(stage: Stage, patterns: tuple[str, ...]) -> Iterator[Row]:
    with Pinger(stage.broker.host, stage.broker.port, stage.broker.pid) as pinger:
        for number, (name, prepare) in enumerate(rows()):
            wanted = not patterns or any(fnmatch.fnmatch(name, each) for each in patterns)
            if not wanted and number >= NEEDED:
                continue
            try:
                work = prepare(stage)
                time.sleep(_SETTLE_S)
                pinger.waits()
                start = time.perf_counter()
                work()
                seconds = time.perf_counter() - start
                time.sleep(_SETTLE_S)
            except (Refused, OSError) as error:
                print(f"{name}: {error}", file=sys.stderr)
                stage.kafka, stage.amqp = stage.broker.connect(), stage.broker.amqp()
                continue
            yield Row(name, seconds, pinger.waits())


@contextlib.contextmanager
def staged(topics: int) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="stalls-") as root:
        settings = [f"queues.max_message_bytes={stalls_messages.LARGE_BYTES}"]
        broker = brokers.start_entrepot("os", Path(root), is_whole=True, settings=settings)
        try:
            endpoints = json.loads((Path(root) / brokers.DATA / "endpoints.json").read_text())
            ports = {name: each["port"] for name, each in endpoints.items()}
            stage = Stage(broker, ports, topics)
            with stage.closing:
                yield stage
        finally:
            broker.stop()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rows", "patterns", multiple=True, help="Only these: a pattern, 'Fetch*'.")
@click.option("--topics", default=20_000, show_default=True, help="Topics, and queues.")
def main(patterns: tuple[str, ...], topics: int) -> None:
    """Measure how long others wait while one client asks for much."""
    print(f"{'request':<45} {'took s':>7} {'others ms':>10} {'control ms':>10} {'stall ms':>9}")
    with staged(topics) as stage:
        for name, seconds, waits in measure(stage, patterns):
            late = "  <--" if waits.stall_ms > STALL_MS_MAX else ""
            print(
                f"{name:<45} {seconds:>7.2f} {waits.broker_ms:>10.1f} {waits.control_ms:>10.1f}"
                f" {waits.stall_ms:>9.1f}{late}",
                flush=True,
            )
        print(f"memory of the broker: {stage.broker.rss_mib():.0f} MiB")


if __name__ == "__main__":
    main()
