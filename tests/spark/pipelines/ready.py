"""What the tests of ready-made pipelines share: JSON into topics and out of them, and a run."""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from entrepot.testing import Broker

WAIT_S = 30
STATE = "spark.sql.streaming.stateStore.providerClass"
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def as_json(value: Any) -> str:
    assert isinstance(value, datetime), value
    return value.isoformat() + "Z"


def send(server: Broker, topic: str, rows: Iterable[dict[str, Any]], key: str) -> None:
    """Each row a record, with the value of that field as its key. The topic is made."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5})
    for row in rows:
        producer.produce(topic, json.dumps(row, default=as_json), key=str(row.get(key)))
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def received(server: Broker, topic: str) -> list[dict[str, Any]]:
    """All committed records of a topic of one partition, as another program would read them."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "auditor",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
        found.append(json.loads(message.value()))
    consumer.close()
    return found


class Live:
    """Pipelines of a module that are running."""

    def __init__(self, runner: Any, running: list[Any]) -> None:
        self.runner = runner
        self._running = running

    def drain(self) -> None:
        """Until all that was sent has gone through, the first pipelines first."""
        for each in self._running:
            each.drain()

    def view(self, name: str) -> list[Any]:
        return list(self.runner.view(name).collect())


@contextmanager
def live(
    spark: Any, module: ModuleType, directory: Path, server: Broker, *names: str
) -> Iterator[Live]:
    """They begin one after the other: two cores have enough to do with one."""
    from entrepot.spark.pipelines import Runner

    spark.conf.set(STATE, ROCKS_DB)  # For states of one's own, as the command line has it.
    runner = Runner(spark, module, directory, server.bootstrap)
    try:
        with ExitStack() as stack:
            running = []
            for name in names:
                running.append(stack.enter_context(runner.start(name)))
                running[-1].drain()
            yield Live(runner, running)
    finally:
        spark.conf.unset(STATE)
