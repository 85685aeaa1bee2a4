"""Share groups with confluent-kafka's share consumer, on a real broker."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.types import GroupId

from entrepot import testing
from tests.end_to_end.bare import BareClient

WAIT_S = 30.0
EXPLICIT = {"share.acknowledgement.mode": "explicit"}


@pytest.fixture
def broker() -> Iterator[testing.Broker]:
    with testing.broker() as started:
        yield started


def create(broker: testing.Broker, topic: str, group: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(WAIT_S)
    values = {"share.auto.offset.reset": "earliest"}
    values |= {name.replace("_", "."): value for name, value in settings.items()}
    resource = ConfigResource(
        ResourceType.GROUP,
        group,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in values.items()
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def produce(broker: testing.Broker, topic: str, count: int, first: int = 0) -> list[bytes]:
    values = [b"%d" % number for number in range(first, first + count)]
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 20})
    for value in values:
        producer.produce(topic, value, headers=[("made", b"here")])
    producer.flush(WAIT_S)
    return values


def consumer(broker: testing.Broker, topic: str, group: str, **settings: Any) -> ShareConsumer:
    made = ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group, **settings})
    made.subscribe([topic])
    return made


def poll(consumer: ShareConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        found += [each for each in consumer.poll(0.2) if each.error() is None]
    return found


def commit(consumer: ShareConsumer) -> None:
    assert [error for error in consumer.commit_sync(WAIT_S).values() if error is not None] == []


def read(broker: testing.Broker, topic: str, count: int) -> list[Any]:
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
    reader.assign([TopicPartition(topic, 0, 0)])
    found = reader.consume(count, WAIT_S)
    reader.close()
    return found


def each_in_a_thread(*works: Callable[[], None]) -> None:
    # As daemons: one that hangs fails its test, and not the end of the whole run.
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_ten_consumers_get_each_record_once(broker: testing.Broker) -> None:
    """Each has got something before it goes: librdkafka 2.16 hangs in the `close` of one that
    was just told what to read and has not asked for it yet."""
    create(broker, "work", "workers", errors_deadletterqueue_topic_name="dlq.work")
    values = produce(broker, "work", 2_000)
    seen: Counter[bytes] = Counter()
    helpers: dict[int, None] = {}
    all_had_some = threading.Event()
    deadline = time.monotonic() + WAIT_S

    def is_over() -> bool:
        is_done = all_had_some.is_set() and len(seen) == len(values)
        return is_done or time.monotonic() > deadline

    def work() -> None:
        with consumer(broker, "work", "workers", **EXPLICIT) as member:
            while not is_over():
                for message in member.poll(0.1):
                    seen[message.value()] += 1
                    helpers[threading.get_ident()] = None
                    poison = message.value() == b"7"
                    member.acknowledge(
                        message, AcknowledgeType.REJECT if poison else AcknowledgeType.ACCEPT
                    )
                commit(member)

    def go_on_producing() -> None:
        while len(helpers) < 10 and time.monotonic() < deadline:
            time.sleep(0.05)
            values.extend(produce(broker, "work", 100, first=len(values)))
        all_had_some.set()

    each_in_a_thread(*[work] * 10, go_on_producing)
    assert seen == Counter(values)
    assert len(helpers) == 10
    (letter,) = read(broker, "dlq.work", 1)
    assert letter.value() == b"7"
    assert dict(letter.headers()) == {
        "made": b"here",
        "__dlq.errors.topic": b"work",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"7",
        "__dlq.errors.group": b"workers",
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"Offset rejected by client.",
    }


def test_a_release_comes_again_and_ends_at_the_limit(broker: testing.Broker) -> None:
    create(broker, "t", "g", share_delivery_count_limit="2")
    produce(broker, "t", 1)
    with consumer(broker, "t", "g", **EXPLICIT) as member:
        for _ in range(2):
            (message,) = poll(member, 1)
            member.acknowledge(message, AcknowledgeType.RELEASE)
            commit(member)
        assert len(member.poll(1.0)) == 0


@pytest.mark.usefixtures("every_durability")
def test_what_was_acknowledged_survives_a_kill(broker: testing.Broker) -> None:
    """And what was not comes again."""
    create(broker, "t", "g")
    values = produce(broker, "t", 200)
    accepted: list[bytes] = []
    with consumer(broker, "t", "g", **EXPLICIT) as member:
        for message in poll(member, len(values)):
            is_even = int(message.value()) % 2 == 0
            if is_even:
                accepted.append(message.value())
            member.acknowledge(
                message, AcknowledgeType.ACCEPT if is_even else AcknowledgeType.RELEASE
            )
        commit(member)
        broker.kill()
        broker.start()
    with consumer(broker, "t", "g") as member:
        again = poll(member, len(values) - len(accepted))
        assert sorted(each.value() for each in again) == sorted(set(values) - set(accepted))
        commit(member)
        assert len(member.poll(1.0)) == 0


def test_a_consumer_that_is_gone_leaves_its_records_to_others(broker: testing.Broker) -> None:
    create(broker, "t", "g")
    produce(broker, "t", 3)
    first = consumer(broker, "t", "g", **EXPLICIT)
    assert len(poll(first, 3)) == 3
    with consumer(broker, "t", "g") as second:
        assert len(second.poll(1.0)) == 0
        first.close()
        assert len(poll(second, 3)) == 3
        commit(second)


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
def test_nothing_that_was_accepted_comes_again_through_kills(broker: testing.Broker) -> None:
    """Three consumers, one in ten records released, the broker killed eight times."""
    create(broker, "t", "g", share_delivery_count_limit="1000")
    values = frozenset(produce(broker, "t", 5_000))
    accepted: dict[bytes, None] = {}
    again: list[bytes] = []
    is_over = threading.Event()

    def work() -> None:
        with consumer(broker, "t", "g", **EXPLICIT, **{"socket.timeout.ms": 5_000}) as member:
            while not is_over.is_set():
                mine = _accept_some(member, accepted, again)
                with contextlib.suppress(KafkaException):
                    outcome = member.commit_sync(10.0)
                    if outcome and not any(outcome.values()):
                        accepted.update(dict.fromkeys(mine))

    def kill() -> None:
        for _ in range(8):
            time.sleep(1)
            broker.kill()
            broker.start()
        deadline = time.monotonic() + WAIT_S
        while lag(broker, "g", "t") and time.monotonic() < deadline:
            time.sleep(0.2)
        is_over.set()

    each_in_a_thread(work, work, work, kill)
    assert again == []
    assert lag(broker, "g", "t") == 0
    assert len(accepted) > len(values) / 2  # Some answers were lost with the broker.


def _accept_some(
    member: ShareConsumer, accepted: dict[bytes, None], again: list[bytes]
) -> list[bytes]:
    mine: list[bytes] = []
    with contextlib.suppress(KafkaException):
        for message in member.poll(0.2):
            if message.error() is not None:
                continue
            if message.value() in accepted:
                again.append(message.value())
            is_released = int(message.value()) % 10 == 3 and not mine
            member.acknowledge(
                message, AcknowledgeType.RELEASE if is_released else AcknowledgeType.ACCEPT
            )
            if not is_released:
                mine.append(message.value())
    return mine


def lag(broker: testing.Broker, group: str, topic: str) -> int:
    """Records that are not settled."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(group), topics=None)
    with BareClient(broker) as client:
        answer = client.ask(DescribeShareGroupOffsetsRequest(groups=(asked,)))
    (found,) = [each for each in answer.groups[0].topics if each.topic_name == topic]
    return sum(each.lag for each in found.partitions)
