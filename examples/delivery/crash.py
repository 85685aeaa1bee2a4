"""What the three examples share: twenty events, a worker that dies, and its successor."""

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer

COUNT = 20
CRASH_AT = 10
WAIT_S = 30.0

# Takes the broker's address, where to leave its results, and at which record it dies.
Worker = Callable[[str, Path, int | None], None]


def send(bootstrap: str, topic: str, values: Iterable[str], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for value in values:
        producer.produce(topic, value)
    producer.flush(WAIT_S)


def subscribed(bootstrap: str, topic: str) -> Consumer:
    """With a name of its own in the group, so that a successor takes its place at once."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-workers",
            "group.instance.id": "worker",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    return consumer


def messages(consumer: Consumer) -> Iterator[Message]:
    """One after the other, to the last of the twenty."""
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None, "nothing came"
        if message.error() is None:
            yield message
            if message.offset() == COUNT - 1:
                break
    consumer.close()


def die() -> None:
    """As kill -9 does: no goodbye, nothing flushed."""
    os.kill(os.getpid(), signal.SIGKILL)


def twice(worker: Worker, bootstrap: str, results: Path) -> None:
    """A worker that dies in the middle, then one that does not."""
    spawn = multiprocessing.get_context("spawn")
    for crash_at, expected in ((CRASH_AT, -signal.SIGKILL), (None, 0)):
        process = spawn.Process(target=worker, args=(bootstrap, results, crash_at))
        process.start()
        process.join()
        assert process.exitcode == expected, f"the worker ended with {process.exitcode}"


def report(what: str, sent: Iterable[str], done: Iterable[str]) -> None:
    times = Counter(done)
    lost = [value for value in sent if value not in times]
    repeated = [value for value, count in times.items() if count > 1]
    print(f"{len(times)} of {COUNT} {what}")
    print(f"lost: {', '.join(lost) or 'none'}")
    print(f"twice: {', '.join(repeated) or 'none'}")
