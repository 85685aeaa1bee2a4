"""Consumer groups with the real client libraries, on a real broker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from entrepot import testing
from entrepot.broker.consumer_group.records import CommittedOffset, GroupRecordKind, Key, decode
from entrepot.core.record import Record
from tests.end_to_end.consumers import (
    CLASSIC,
    MODERN,
    SESSION_MS,
    SETTINGS,
    WAIT_S,
    Pump,
    committed,
    members,
    produce,
    rows,
    wait_until,
)

# A member in a process of its own: says what it has, until it is killed.
MEMBER = """
import sys
from confluent_kafka import Consumer
consumer = Consumer(dict(pair.split("=", 1) for pair in sys.argv[2:]))
consumer.subscribe([sys.argv[1]])
while True:
    consumer.poll(0.1)
    print(len(consumer.assignment()), flush=True)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.broker(settings=SETTINGS) as started:
        yield started


@pytest.fixture
def topic(broker: testing.Broker, request: pytest.FixtureRequest) -> str:
    """A topic of three partitions, named after the test."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 3)])[name].result(WAIT_S)
    return name


# --- sharing


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {**CLASSIC, "partition.assignment.strategy": "range"},
        {**CLASSIC, "partition.assignment.strategy": "roundrobin"},
        {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
        MODERN,
        {**MODERN, "group.remote.assignor": "range"},
    ],
    ids=["range", "roundrobin", "cooperative-sticky", "modern-uniform", "modern-range"],
)
def test_a_group_shares_and_those_who_stay_take_over(
    broker: testing.Broker, topic: str, settings: dict[str, Any]
) -> None:
    """Proves K-05, K-06 and K-08: each record to one member, whoever comes and goes."""
    with members(broker, topic, **settings) as group:
        for name in ("a", "b", "c"):
            group.add(name)
        group.poll_until(lambda: group.sizes() == [1, 1, 1])
        produce(broker, topic, 20)
        group.poll_until(lambda: len(group.everything()) >= 60)
        assert group.everything() == rows(20)
        assert [len({row[0] for row in group.seen[name]}) for name in "abc"] == [1, 1, 1]
        group.remove("b")
        group.poll_until(lambda: group.sizes() == [1, 2])
        produce(broker, topic, 10, first=20)
        group.poll_until(lambda: len(group.everything()) >= 90)
        assert group.everything() == rows(30)
        group.add("d")
        group.poll_until(lambda: group.sizes() == [1, 1, 1])


@pytest.mark.slow
@pytest.mark.parametrize("settings", [CLASSIC, MODERN], ids=["classic", "modern"])
def test_a_member_that_is_killed_is_missed(
    broker: testing.Broker, topic: str, settings: dict[str, Any]
) -> None:
    """Proves K-06."""
    with members(broker, topic, **settings) as group:
        group.add("a")
        group.poll_until(lambda: group.sizes() == [3])
        common = {"bootstrap.servers": broker.bootstrap, "group.id": f"group-of-{topic}"}
        pairs = [f"{key}={value}" for key, value in {**common, **settings}.items()]
        other = subprocess.Popen(
            [sys.executable, "-c", MEMBER, topic, *pairs], stdout=subprocess.PIPE, text=True
        )
        try:
            group.poll_until(lambda: len(group.assigned()["a"]) < 3)
            assert other.stdout is not None
            while other.stdout.readline().strip() == "0":
                group.poll_until(lambda: True)
            other.kill()
            killed = time.monotonic()
            group.poll_until(lambda: group.sizes() == [3])
            assert time.monotonic() - killed < SESSION_MS / 1_000 + 10
        finally:
            other.kill()
            other.wait()


def test_a_static_member_is_waited_for(broker: testing.Broker, topic: str) -> None:
    """It is away for less than its session: nobody else notices, and it gets its part back."""
    with members(broker, topic, **{**CLASSIC, "session.timeout.ms": 10_000}) as group:
        group.add("a", group_instance_id="one")
        group.add("b", group_instance_id="two")
        group.poll_until(lambda: group.sizes() == [1, 2])
        before = group.assigned()
        group.remove("b")  # A static member does not leave; it is gone.
        produce(broker, topic, 5)
        group.poll_until(lambda: len(group.seen["a"]) == 5 * len(before["a"]))
        assert group.assigned()["a"] == before["a"]
        group.add("b2", group_instance_id="two")
        group.poll_until(lambda: group.assigned()["b2"] == before["b"])
        group.poll_until(lambda: len(group.everything()) == 15)
        assert group.assigned()["a"] == before["a"]


def test_a_static_member_of_a_modern_group(broker: testing.Broker, topic: str) -> None:
    with members(broker, topic, **MODERN) as group:
        group.add("a", group_instance_id="one")
        group.add("b", group_instance_id="two")
        group.poll_until(lambda: group.sizes() == [1, 2])
        before = group.assigned()
        group.remove("b")
        group.add("b2", group_instance_id="two")
        group.poll_until(lambda: group.assigned().get("b2") == before["b"])
        assert group.assigned()["a"] == before["a"]


def test_topics_by_regular_expression(broker: testing.Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with members(broker, f"^{topic}.*", **MODERN, group_id=f"group-of-{topic}") as group:
        group.add("a")
        group.poll_until(lambda: group.sizes() == [3])
        admin.create_topics([NewTopic(f"{topic}-more", 2)])[f"{topic}-more"].result(WAIT_S)
        group.poll_until(lambda: group.sizes() == [5])


# --- going on


def test_a_consumer_goes_on_from_what_it_committed(broker: testing.Broker, topic: str) -> None:
    """Proves K-01 and K-03."""
    produce(broker, topic, 10)
    with members(broker, topic, **CLASSIC, enable_auto_commit=False) as group:
        consumer = group.add("a")
        group.poll_until(lambda: len(group.everything()) == 30)
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    with members(broker, topic, **CLASSIC) as group:
        consumer = group.add("b")
        group.poll_until(lambda: len(group.everything()) == 26)
        assert group.everything() == [row for row in rows(10) if row >= (0, 4)]
        consumer.assign([TopicPartition(topic, 1, 7)])
        group.seen["b"].clear()
        group.poll_until(lambda: len(group.everything()) == 3)
        assert group.everything() == [(1, 7), (1, 8), (1, 9)]


@pytest.mark.parametrize("settings", [CLASSIC, MODERN], ids=["classic", "modern"])
def test_clients_commit_by_themselves(
    broker: testing.Broker, topic: str, settings: dict[str, Any]
) -> None:
    """Proves K-04."""
    produce(broker, topic, 5)
    with members(broker, topic, **settings, auto_commit_interval_ms=100) as group:
        consumer = group.add("a")
        group.poll_until(lambda: len(group.everything()) == 15)
        group.poll_until(lambda: committed(consumer, topic) == [5, 5, 5])


def test_groups_do_not_know_of_each_other(broker: testing.Broker, topic: str) -> None:
    """Proves K-07, K-08 and K-09: one group divides the work, one group each gets all of it."""
    produce(broker, topic, 10)
    with (
        members(broker, topic, **CLASSIC, group_id=f"{topic}-one") as one,
        members(broker, topic, **MODERN, group_id=f"{topic}-two") as two,
        members(broker, topic, **CLASSIC, group_id=f"{topic}-three") as three,
    ):
        one.add("a")
        two.add("b")
        for group in (one, two):
            group.poll_until(lambda group=group: len(group.everything()) == 30)  # type: ignore[misc]
        produce(broker, topic, 5, first=10)
        one.poll_until(lambda: len(one.everything()) == 45)
        three.add("c")
        three.add("d")
        three.poll_until(lambda: len(three.everything()) == 45)
        two.poll_until(lambda: len(two.everything()) == 45)
        assert one.everything() == two.everything() == three.everything() == rows(15)


@pytest.mark.parametrize("settings", [CLASSIC, MODERN], ids=["classic", "modern"])
def test_a_service_grows_by_adding_members(
    broker: testing.Broker, topic: str, settings: dict[str, Any]
) -> None:
    """Proves K-08 and K-09: every member of a group works, and the other group has it all."""
    with (
        members(broker, topic, **settings, group_id=f"{topic}-service") as service,
        members(broker, topic, **settings, group_id=f"{topic}-audit") as audit,
    ):
        service.add("a")
        audit.add("z")
        service.poll_until(lambda: service.sizes() == [3])
        service.add("b")
        service.add("c")
        service.poll_until(lambda: service.sizes() == [1, 1, 1])
        produce(broker, topic, 10)
        for group in (service, audit):
            group.poll_until(lambda group=group: len(group.everything()) >= 30)  # type: ignore[misc]
        assert service.everything() == audit.everything() == rows(10)
        assert {name: len(seen) for name, seen in service.seen.items()} == dict.fromkeys("abc", 10)


def test_offsets_are_a_topic_that_can_be_read(broker: testing.Broker, topic: str) -> None:
    """Proves K-02."""
    group = f"group-of-{topic}"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    for offset in (3, 8):
        consumer.commit(
            offsets=[TopicPartition(topic, 1, offset, metadata="here")], asynchronous=False
        )
    consumer.close()
    reader = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=2_000,
        exclude_internal_topics=False,
    )
    partitions = reader.partitions_for_topic("__consumer_offsets")
    reader.assign([kafka.TopicPartition("__consumer_offsets", each) for each in partitions])
    found = [decode(Record(message.key, message.value)) for message in reader]
    reader.close()
    mine = [
        row[1] for row in found if row and row[0] == Key(GroupRecordKind.OFFSET, group, topic, 1)
    ]
    assert [
        (each.offset, each.metadata.rstrip("\0"))  # librdkafka's C strings show through.
        for each in mine
        if isinstance(each, CommittedOffset)
    ] == [
        (3, "here"),
        (8, "here"),
    ]


# --- other clients


def test_kafka_python(broker: testing.Broker, topic: str) -> None:
    """Proves K-04, K-05 and K-06."""
    seen: list[tuple[int, int]] = []
    pumps = [Pump(broker, topic, seen) for _ in range(2)]
    try:
        wait_until(lambda: all(each.consumer.assignment() for each in pumps))
        wait_until(lambda: sum(len(each.consumer.assignment()) for each in pumps) == 3)
        produce(broker, topic, 10)
        wait_until(lambda: len(seen) >= 30)
        assert sorted(seen) == rows(10)
        pumps.pop().stop()
        wait_until(lambda: len(pumps[0].consumer.assignment()) == 3)
        produce(broker, topic, 5, first=10)
        wait_until(lambda: len(seen) >= 45)
        assert sorted(seen) == rows(15)
    finally:
        for pump in pumps:
            pump.stop()


def test_aiokafka(broker: testing.Broker, topic: str) -> None:
    """Proves K-05 and K-06."""
    produce(broker, topic, 10)

    def consumer() -> Any:
        return aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=f"group-of-{topic}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
        )

    async def take(members: list[Any], seen: list[tuple[int, int]], count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(dict.fromkeys(seen)) < count:
                for member in members:
                    for batch in (await member.getmany(timeout_ms=50)).values():
                        seen += [(message.partition, message.offset) for message in batch]

    async def main() -> None:
        first, second = consumer(), consumer()
        await first.start()
        await second.start()
        seen: list[tuple[int, int]] = []
        await take([first, second], seen, 30)
        assert len(first.assignment()) + len(second.assignment()) == 3
        await first.commit()
        await second.stop()
        seen.clear()
        produce(broker, topic, 5, first=10)
        await take([first], seen, 15)
        assert {row for row in seen if row[1] >= 10} == set(rows(15, first=10))
        await first.stop()

    asyncio.run(main())


def test_two_libraries_in_one_group(broker: testing.Broker, topic: str) -> None:
    """They have an assignor in common, and nothing else."""
    with members(broker, topic, **CLASSIC, partition_assignment_strategy="range") as group:
        group.add("a")
        group.poll_until(lambda: group.sizes() == [3])
        other = Pump(broker, topic, [])
        try:
            group.poll_until(
                lambda: 0 < len(other.consumer.assignment()) == 3 - len(group.assigned()["a"])
            )
        finally:
            other.stop()
        group.poll_until(lambda: group.sizes() == [3])


# --- tools


def test_an_administrator_looks_and_moves(broker: testing.Broker, topic: str) -> None:
    """Proves K-10: members, assignment and lag; offsets are moved when nobody is there."""
    produce(broker, topic, 10)
    group_id = f"group-of-{topic}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with members(broker, topic, **CLASSIC, enable_auto_commit=False) as group:
        consumer = group.add("a")
        group.poll_until(lambda: len(group.everything()) == 30)
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        told = admin.describe_consumer_groups([group_id])[group_id].result(WAIT_S)
        assert told.state is ConsumerGroupState.STABLE
        (member,) = told.members
        assert member.client_id == "a"
        assert len(member.assignment.topic_partitions) == 3
        ids = [each.group_id for each in admin.list_consumer_groups().result(WAIT_S).valid]
        assert group_id in ids
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0))
        assert end - committed(consumer, topic)[0] == 6
        with pytest.raises(KafkaException, match="not empty"):
            admin.delete_consumer_groups([group_id])[group_id].result(WAIT_S)
    moved = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, 0, 1)])
    admin.alter_consumer_group_offsets([moved])[group_id].result(WAIT_S)
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])
    (found,) = listed[group_id].result(WAIT_S).topic_partitions
    assert (found.partition, found.offset) == (0, 1)
    admin.delete_consumer_groups([group_id])[group_id].result(WAIT_S)
    ids = [each.group_id for each in admin.list_consumer_groups().result(WAIT_S).valid]
    assert group_id not in ids


# --- over the broker's death


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
@pytest.mark.parametrize("settings", [CLASSIC, MODERN], ids=["classic", "modern"])
def test_a_group_outlives_its_broker(settings: dict[str, Any]) -> None:
    """Proves K-03: after kill -9 members and offsets are where they were."""
    with testing.broker(settings=SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 3)])["t"].result(WAIT_S)
        produce(broker, "t", 10)
        with members(broker, "t", **settings, enable_auto_commit=False) as group:
            first = group.add("a")
            group.add("b")
            group.poll_until(lambda: group.sizes() == [1, 2])
            group.poll_until(lambda: len(dict.fromkeys(group.everything())) == 30)
            first.commit(
                offsets=[TopicPartition("t", p, 7) for p in group.assigned()["a"]],
                asynchronous=False,
            )
            before = committed(first, "t")
            assert 7 in before
            broker.kill()
            broker.start()
            produce(broker, "t", 5, first=10)
            group.poll_until(lambda: len(dict.fromkeys(group.everything())) == 45)
            assert committed(first, "t") == before
            group.poll_until(lambda: group.sizes() == [1, 2])
