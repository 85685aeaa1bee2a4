"""`python -m tests.cluster.lecture_table`: the lecture's table of replication, as it comes out.

Replication 3, `min.insync.replicas` 1, 2 and 3, with 0, 1 and 2 nodes killed, and a producer of
confluent-kafka with acks 0, 1 and all: what Kafka promises, and what this cluster does.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import NewTopic

from tests.cluster.world import HEAL_S_MAX, World

MINIMUMS = (1, 2, 3)
DEAD = (0, 1, 2)
ACKS = ("0", "1", "all")
TAKEN, REFUSED, UNANSWERED = "taken", "NOT_ENOUGH_REPLICAS", "not answered"
_SETTINGS = {"cluster.session_timeout_ms": 2_000, "cluster.replica_lag_time_max_ms": 2_000}
_ANSWER_S = 20.0


class Row(NamedTuple):
    minimum: int
    dead: int
    acks: str
    expected: str
    seen: str

    @property
    def is_right(self) -> bool:
        return self.expected == self.seen


def expected(minimum: int, dead: int, acks: str) -> str:
    """Return what Kafka answers. Only acks=all asks for the minimum."""
    if acks == "0":
        return UNANSWERED
    return REFUSED if acks == "all" and 3 - dead < minimum else TAKEN


def rows(world: World) -> Iterator[Row]:
    """Yield the rows; nodes are killed on the way, and stay so."""
    admin, topics = world.admin(), {minimum: f"min-{minimum}" for minimum in MINIMUMS}
    new = [
        NewTopic(name, 1, 3, config={"min.insync.replicas": str(minimum)})
        for minimum, name in topics.items()
    ]
    for made in admin.create_topics(new).values():
        made.result(30)
    told: dict[str, dict[bytes, str]] = {name: {} for name in topics.values()}
    for dead in DEAD:
        if dead:
            world.kill(world.nodes[-dead])
        _wait_in_sync(world, [*topics.values()], 3 - dead)
        for minimum, name in topics.items():
            for acks in ACKS:
                value = f"{minimum} {dead} {acks}".encode()
                seen = produce(world, name, acks, value)
                told[name][value] = seen
                yield Row(minimum, dead, acks, expected(minimum, dead, acks), seen)
    for name, answers in told.items():
        there = read(world, name)
        for value, seen in answers.items():
            assert value in there or seen != TAKEN, f"{value!r} was acknowledged, and is lost"
            assert value not in there or seen != REFUSED, f"{value!r} was refused, and is seen"


def produce(world: World, topic: str, acks: str, value: bytes) -> str:
    """Return what the producer is told of one record, without another try."""
    told: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            told.append(error.name())
        else:
            offset = message.offset()
            told.append(UNANSWERED if offset is None or offset < 0 else TAKEN)

    producer = Producer(
        {
            "bootstrap.servers": world.bootstrap, "acks": acks, "log_level": 0,
            "message.send.max.retries": 0, "linger.ms": 0,
            "reconnect.backoff.max.ms": 200, "topic.metadata.refresh.fast.interval.ms": 100,
        }
    )  # fmt: skip
    # The producer is to know the leader, so that its only try goes there.
    producer.list_topics(topic, _ANSWER_S)
    producer.produce(topic, value, on_delivery=delivered)
    producer.flush(_ANSWER_S)
    if acks == "0" and told == [TAKEN]:  # librdkafka makes up an offset of 0.
        return UNANSWERED
    return told[0] if told else "nothing"


def _wait_in_sync(world: World, topics: list[str], count: int) -> None:
    """Wait until each topic has a leader, and so many replicas in sync."""
    deadline, admin = time.monotonic() + HEAL_S_MAX, world.admin()
    while True:
        seen = admin.list_topics(timeout=10)
        infos = [seen.topics[name].partitions.get(0) for name in topics if name in seen.topics]
        if len(infos) == len(topics) and all(
            info is not None and info.leader in seen.brokers and len(info.isrs) == count
            for info in infos
        ):
            return
        assert time.monotonic() < deadline, [str(info) for info in infos]
        time.sleep(0.1)


def read(world: World, topic: str) -> list[bytes | None]:
    """Return the values of all records."""
    consumer = Consumer(
        {
            "bootstrap.servers": world.bootstrap, "group.id": "table", **world.client,
            "enable.auto.commit": False, "enable.partition.eof": True,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[bytes | None] = []
    while (message := consumer.poll(_ANSWER_S)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


def text(found: list[Row]) -> str:
    lines = ["min.insync  dead  acks  expected             seen"]
    for row in found:
        mark = "" if row.is_right else "  <-- differs"
        lines.append(
            f"{row.minimum:>10}  {row.dead:>4}  {row.acks:<4}  {row.expected:<19}  "
            f"{row.seen:<19}{mark}".rstrip()
        )
    lines.append(f"{sum(row.is_right for row in found)} of {len(found)} as expected")
    return "\n".join(lines)


def table(directory: Path) -> list[Row]:
    with World(directory, 3, _SETTINGS) as world:
        return list(rows(world))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="entrepot-table-") as temporary:
        found = table(Path(temporary))
    print(text(found))
    sys.exit(not all(row.is_right for row in found))


if __name__ == "__main__":
    main()
