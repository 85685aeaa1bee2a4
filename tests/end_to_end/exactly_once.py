"""Consume, transform, produce, exactly once, through kills of the workers and the broker.

Numbered records go into a topic; workers, each a process of its own, copy them to another
in transactions, offsets and all, and now and then abort one. Meanwhile workers and the
broker are killed with kill -9, at random. At the end a reader of committed records must find
every number once, on the partition it came from.

    python -m tests.end_to_end.exactly_once --records 1000000 --kills 20

runs it at full size and prints the counts.
"""

import contextlib
import itertools
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import click
import confluent_kafka

from entrepot.testing import Broker, broker
from tests.end_to_end.transacting import WAIT_S, confluent_producer, connected, create

SOURCE, TARGET, GROUP = "numbers", "copies", "copiers"
PARTITIONS = 4
BATCH = 100  # Records in a transaction.
ABORTED = 20  # Every so many transactions, one is aborted for no other reason.
SETTINGS = {
    "groups.consumer_session_timeout_ms": 3_000,
    "groups.consumer_heartbeat_interval_ms": 500,
}


@dataclass
class Outcome:
    records: int
    lost: int
    duplicated: int
    misplaced: int  # On another partition than they came from, or out of order.
    aborted: int  # Records that only a reader of everything sees.
    workers_killed: int
    brokers_killed: int
    seconds: float


# --- a worker


def work(bootstrap: str, name: str, protocol: str) -> None:
    """Copy until killed. A transaction that fails is aborted, and begun again from its offsets."""
    producer = confluent_producer(bootstrap, name, transaction_timeout_ms=10_000)
    producer.init_transactions(WAIT_S)
    # With a name in the group, a successor takes the place of the dead at once. Not so in a modern
    # group, where the place is taken until the session ends.
    classic = {"session.timeout.ms": 6_000, "group.instance.id": name}
    consumer = confluent_kafka.Consumer(
        {
            **connected(bootstrap),
            "group.id": GROUP,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **(classic if protocol == "classic" else {}),
        }
    )
    consumer.subscribe([SOURCE])
    for turn in itertools.count():
        messages = [m for m in consumer.consume(BATCH, 0.5) if m.error() is None]
        is_doubtful = turn % ABORTED == ABORTED - 1
        if messages and not copy(producer, consumer, messages, is_doubtful=is_doubtful):
            rewind(consumer, messages)


def copy(
    producer: confluent_kafka.Producer,
    consumer: confluent_kafka.Consumer,
    messages: list[confluent_kafka.Message],
    *,
    is_doubtful: bool,
) -> bool:
    """One transaction; False when it was aborted. Raises what is fatal."""
    ends: dict[int, int] = {}
    try:
        producer.begin_transaction()
        for message in messages:
            producer.produce(TARGET, message.value(), partition=message.partition())
            ends[message.partition()] = message.offset() + 1
        offsets = [confluent_kafka.TopicPartition(SOURCE, p, end) for p, end in ends.items()]
        if is_doubtful:
            producer.flush(WAIT_S)
            until_done(lambda: producer.abort_transaction(WAIT_S))
            return False
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(offsets, metadata, WAIT_S)
        until_done(lambda: producer.commit_transaction(WAIT_S))
    except confluent_kafka.KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        until_done(lambda: producer.abort_transaction(WAIT_S))
        return False
    return True


def until_done(verb: Any) -> None:
    while True:
        try:
            verb()
            return
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable():
                raise


def rewind(consumer: confluent_kafka.Consumer, messages: list[confluent_kafka.Message]) -> None:
    first: dict[int, int] = {}
    for message in messages:
        first.setdefault(message.partition(), message.offset())
    for partition, offset in first.items():
        # It may be another worker's by now, who begins at the committed offset.
        with contextlib.suppress(confluent_kafka.KafkaException):
            consumer.seek(confluent_kafka.TopicPartition(SOURCE, partition, offset))


# --- the experiment


class Experiment:
    def __init__(
        self, server: Broker, records: int, *, workers: int, protocol: str, seed: int
    ) -> None:
        self._server = server
        self._records = records
        self._protocol = protocol
        self._chance = random.Random(seed)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._count = workers
        self._is_over = threading.Event()
        self._found = Reader(server.bootstrap, committed=True)
        self.workers_killed = 0
        self.brokers_killed = 0

    def run(self, kills: int) -> Outcome:
        started = time.monotonic()
        self._write()
        self._workers = [self._worker(number) for number in range(self._count)]
        killer = threading.Thread(target=self._kill, args=(kills,))
        killer.start()
        try:
            self._read_until_done()
        finally:
            self._is_over.set()
            killer.join()
            for worker in self._workers:
                worker.kill()
                worker.wait()
        return self._judge(self._found.rows, time.monotonic() - started)

    def _write(self) -> None:
        for topic in (SOURCE, TARGET):
            create(self._server.bootstrap, topic, PARTITIONS)
        producer = confluent_producer(
            self._server.bootstrap,
            enable_idempotence=True,
            linger_ms=20,
            queue_buffering_max_messages=1_000_000,
        )
        for number in range(self._records):
            producer.produce(SOURCE, str(number), partition=number % PARTITIONS)
            if number % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(10 * WAIT_S) == 0

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        code = (
            "from tests.end_to_end.exactly_once import work; "
            f"work({self._server.bootstrap!r}, 'copier-{number}', {self._protocol!r})"
        )
        return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)

    def _kill(self, kills: int) -> None:
        """Both kinds, in any order, all along the way; who died by itself is started again."""
        due = ["worker"] * kills + ["broker"] * kills
        self._chance.shuffle(due)
        when = sorted(self._chance.randrange(self._records) for _ in due)
        while not self._is_over.wait(self._chance.uniform(0, 0.1)):
            for number, worker in enumerate(self._workers):
                if worker.poll() is not None:
                    self._workers[number] = self._worker(number)
            if not due or len(self._found.rows) < when[-len(due)]:
                continue
            if due.pop() == "broker":
                self._server.kill()
                time.sleep(self._chance.uniform(0, 0.3))
                self._server.start()
                self.brokers_killed += 1
            else:
                number = self._chance.randrange(self._count)
                self._workers[number].kill()
                self._workers[number].wait()
                self._workers[number] = self._worker(number)
                self.workers_killed += 1

    def _read_until_done(self) -> None:
        """Until all are there, and for a while after: one more would be one too many."""
        deadline = time.monotonic() + 120 + self._records / 500
        quiet = 0
        while quiet < 5:
            count = self._found.read(0.5)
            enough = len(self._found.rows) >= self._records
            quiet = quiet + 1 if enough and not count else 0
            assert time.monotonic() < deadline, f"{len(self._found.rows)} of {self._records} copied"
        self._found.close()

    def _judge(self, rows: list[tuple[int, int]], seconds: float) -> Outcome:
        times = Counter(number for _, number in rows)
        last = [-1] * PARTITIONS
        misplaced = 0
        for partition, number in rows:
            misplaced += number % PARTITIONS != partition or number <= last[partition]
            last[partition] = max(last[partition], number)
        everything = Reader(self._server.bootstrap, committed=False)
        while everything.read(1.0):
            pass
        everything.close()
        return Outcome(
            self._records,
            sum(number not in times for number in range(self._records)),
            sum(count - 1 for count in times.values()),
            misplaced,
            len(everything.rows) - len(rows),
            self.workers_killed,
            self.brokers_killed,
            seconds,
        )


class Reader:
    """Of the copies, from the beginning; goes on through kills of the broker."""

    def __init__(self, bootstrap: str, *, committed: bool) -> None:
        self.rows: list[tuple[int, int]] = []
        self._consumer = confluent_kafka.Consumer(
            {
                **connected(bootstrap),
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        beginning = confluent_kafka.OFFSET_BEGINNING
        self._consumer.assign(
            [confluent_kafka.TopicPartition(TARGET, n, beginning) for n in range(PARTITIONS)]
        )

    def read(self, seconds: float) -> int:
        """What comes within that time; how much it was."""
        found = [m for m in self._consumer.consume(10_000, seconds) if m.error() is None]
        self.rows += [(message.partition(), int(message.value())) for message in found]
        return len(found)

    def close(self) -> None:
        self._consumer.close()


def experiment(
    records: int,
    kills: int,
    *,
    workers: int = 2,
    protocol: str = "classic",
    durability: str = "fsync",
    seed: int = 0,
) -> Outcome:
    with broker(durability=durability, settings=SETTINGS) as server:
        it = Experiment(server, records, workers=workers, protocol=protocol, seed=seed)
        return it.run(kills)


@click.command()
@click.option("--records", default=1_000_000, show_default=True)
@click.option("--kills", default=20, help="Of workers, and of the broker.", show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--protocol", type=click.Choice(["classic", "consumer"]), default="classic")
@click.option("--durability", type=click.Choice(["fsync", "interval", "os"]), default="fsync")
@click.option("--seed", default=0, show_default=True)
def main(records: int, kills: int, workers: int, protocol: str, durability: str, seed: int) -> None:
    """Copy records exactly once although everybody is killed, and count."""
    outcome = experiment(
        records, kills, workers=workers, protocol=protocol, durability=durability, seed=seed
    )
    click.echo(
        f"{outcome.records} records copied in {outcome.seconds:.0f} s, "
        f"{outcome.workers_killed} workers and {outcome.brokers_killed} brokers killed: "
        f"{outcome.lost} lost, {outcome.duplicated} duplicated, {outcome.misplaced} misplaced; "
        f"a reader of everything sees {outcome.aborted} more, which were aborted"
    )
    sys.exit(1 if outcome.lost or outcome.duplicated or outcome.misplaced else 0)


if __name__ == "__main__":
    main()
