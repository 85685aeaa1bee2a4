"""How long a topic keeps its records, and what an administrator can see and change."""

import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from kio.schema.errors import ErrorCode

from entrepot.core import batch
from entrepot.core.record import Record
from entrepot.testing import Broker, broker
from tests.end_to_end.bare import BareClient, batch_of, fetch_request, now_ms, values_of

WAIT_S = 30
DAY_MS = 24 * 3_600_000


@pytest.fixture
def admin(server: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap})


# --- how long


def files(server: Broker, topic: str, ending: str) -> list[Path]:
    return sorted((server.data_dir / "partitions" / f"{topic}-0").glob(f"*{ending}"))


def test_records_stay_after_they_are_read(server: Broker, client: BareClient) -> None:
    """On disk, in segments. Proves L-01."""
    client.create("stays", settings={"segment.bytes": "200"})
    sent = [b"%d" % number * 50 for number in range(6)]
    for value in sent:
        client.produce("stays", batch_of(value))
    for _ in range(3):
        assert values_of(client.read("stays")) == sent
    segments = files(server, "stays", ".log")
    assert len(segments) == 6
    for value, segment in zip(sent, segments, strict=True):
        assert value in segment.read_bytes()


def produce_aged(client: BareClient, topic: str, ages_days: list[int]) -> None:
    """A segment per batch, the batch as old as that."""
    for number, days in enumerate(ages_days):
        record = Record(None, b"%d" % number * 50, (), now_ms() - days * DAY_MS)
        assert client.produce(topic, batch.build([record], now_ms=0)).error_code == 0


def until_it_starts_at(client: BareClient, topic: str, offset: int) -> None:
    """Wait until retention has been there."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        (found,) = client.fetch(fetch_request(topic, 5)).topics[0].partitions
        if found.log_start_offset == offset:
            return
        time.sleep(0.02)
    pytest.fail(f"{topic} starts at {found.log_start_offset}, not at {offset}")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_old_and_surplus_records_go() -> None:
    """By time and by size, as each topic says: first marked, then removed. Proves L-02.
    Proves L-03."""
    rolling = {"segment.bytes": "200"}
    with broker() as server:
        time.sleep(1)  # Retention has looked around: else it might be early, and done by the stop.
        with BareClient(server) as client:
            client.create("kept", settings={**rolling, "retention.ms": "-1"})
            client.create("by-time", settings={**rolling, "retention.ms": str(3 * DAY_MS)})
            client.create("by-size", settings={**rolling, "retention.bytes": "250"})
            at_once = {"retention.ms": str(DAY_MS // 2), "file.delete.delay.ms": "0"}
            client.create("at-once", settings={**rolling, **at_once})
            for topic in ("kept", "by-time", "by-size", "at-once"):
                ages = [0] * 6 if topic == "by-size" else [9, 8, 7, 2, 1, 0]
                produce_aged(client, topic, ages)
        server.restart()  # Retention looks around at the start, and then now and again.
        with BareClient(server) as client:
            until_it_starts_at(client, "by-time", 3)
            until_it_starts_at(client, "by-size", 3)
            until_it_starts_at(client, "at-once", 5)
            assert [record.offset for record in client.read("by-time", 3)] == [3, 4, 5]
            assert [record.offset for record in client.read("by-size", 3)] == [3, 4, 5]
            assert len(client.read("kept")) == 6
            (found,) = client.fetch(fetch_request("by-time", 0)).topics[0].partitions
            assert found.error_code == ErrorCode.offset_out_of_range
            until(lambda: len(files(server, "by-time", ".log.deleted")) == 3)
            until(lambda: len(files(server, "at-once", ".log")) == 1)
            until(lambda: files(server, "at-once", ".log.deleted") == [])


def test_deleting_records(server: Broker, client: BareClient, admin: AdminClient) -> None:
    client.create("cut")
    client.produce("cut", batch_of(*(b"%d" % number for number in range(10))))
    (done,) = admin.delete_records([TopicPartition("cut", 0, 4)]).values()
    assert done.result(WAIT_S).low_watermark == 4
    assert [record.offset for record in client.read("cut", 4)] == [4, 5, 6, 7, 8, 9]
    (found,) = client.fetch(fetch_request("cut", 3)).topics[0].partitions
    assert found.error_code == ErrorCode.offset_out_of_range
    (everything,) = admin.delete_records([TopicPartition("cut", 0, -1)]).values()
    assert everything.result(WAIT_S).low_watermark == 10
    assert client.read("cut", 10) == []
    assert client.produce("cut", batch_of(b"next")).offset_first == 10


# --- the administrator


def config_of(admin: AdminClient, kind: ConfigResource.Type, name: str) -> dict[str, str]:
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    return {entry.name: entry.value for entry in future.result(WAIT_S).values()}


def test_what_an_administrator_does(server: Broker, admin: AdminClient) -> None:
    """Topics, partitions, brokers, settings. Groups are test_consumer_groups's. Proves Q-02."""
    settings = {"retention.ms": "60000"}
    new = NewTopic("managed", num_partitions=2, replication_factor=1, config=settings)
    admin.create_topics([new])["managed"].result(WAIT_S)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([new])["managed"].result(WAIT_S)
    admin.create_partitions([NewPartitions("managed", 5)])["managed"].result(WAIT_S)
    topics = confluent_kafka.TopicCollection(["managed"])
    described = admin.describe_topics(topics)["managed"].result(WAIT_S)
    assert [partition.id for partition in described.partitions] == [0, 1, 2, 3, 4]
    topic = ConfigResource.Type.TOPIC
    assert config_of(admin, topic, "managed")["retention.ms"] == "60000"
    operation = AlterConfigOpType.SET
    change = ConfigEntry("flush.ms", "7", incremental_operation=operation)
    changed = ConfigResource(topic, "managed", incremental_configs=[change])
    (future,) = admin.incremental_alter_configs([changed]).values()
    future.result(WAIT_S)
    config = config_of(admin, topic, "managed")
    assert (config["flush.ms"], config["retention.ms"]) == ("7", "60000")
    cluster = admin.describe_cluster().result(WAIT_S)
    (node,) = cluster.nodes
    assert (node.host, node.port) == server.endpoints["kafka"]
    assert config_of(admin, ConfigResource.Type.BROKER, str(node.id))["node.id"] == str(node.id)
    assert "managed" in admin.list_topics(timeout=WAIT_S).topics
    admin.delete_topics(["managed"])["managed"].result(WAIT_S)
    assert "managed" not in admin.list_topics(timeout=WAIT_S).topics


def test_what_is_refused(admin: AdminClient) -> None:
    def create(name: str, **options: object) -> None:
        admin.create_topics([NewTopic(name, **options)])[name].result(WAIT_S)

    for name, options, code in (
        ("a/b", {}, "TOPIC_EXCEPTION"),
        ("fine", {"config": {"no.such.setting": "1"}}, "INVALID_CONFIG"),
        ("fine", {"config": {"retention.ms": "soon"}}, "INVALID_CONFIG"),
        ("fine", {"num_partitions": 0}, "INVALID_PARTITIONS"),
        ("fine", {"replication_factor": 3}, "INVALID_REPLICATION_FACTOR"),
    ):
        with pytest.raises(KafkaException, match=code):
            create(name, **options)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        admin.delete_topics(["nosuch"])["nosuch"].result(WAIT_S)


def test_settings_of_the_server_change_while_it_runs(tmp_path: Path) -> None:
    kind = ConfigResource.Type.BROKER
    with broker(tmp_path / "data") as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        (node,) = admin.describe_cluster().result(WAIT_S).nodes
        own = str(node.id)
        listener = config_of(admin, kind, own)["advertised.listeners"]
        assert listener == f"PLAINTEXT://{node.host}:{node.port}"
        admin.create_topics([NewTopic("followed", 1)])["followed"].result(WAIT_S)
        operation = AlterConfigOpType.SET
        change = ConfigEntry("log.retention.ms", "80000", incremental_operation=operation)
        resource = ConfigResource(kind, own, incremental_configs=[change])
        (future,) = admin.incremental_alter_configs([resource]).values()
        future.result(WAIT_S)
        fixed = ConfigResource(kind, own, set_config={"advertised.listeners": "PLAINTEXT://a:1"})
        (future,) = admin.alter_configs([fixed]).values()
        with pytest.raises(KafkaException, match="Cannot update these configs dynamically"):
            future.result(WAIT_S)
        server.restart()
        assert config_of(admin, kind, own)["log.retention.ms"] == "80000"
        topic = config_of(admin, ConfigResource.Type.TOPIC, "followed")
        assert topic["retention.ms"] == "80000"
