"""Connectors in this process or in one of their own, which may be killed.

    python -m tests.end_to_end.connecting --records 20000 --kills 20

moves numbered records with each kind of connector, while its process and the broker are
killed with kill -9, at random, and prints how many were lost or are there twice.
"""

import asyncio
import contextlib
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import click
import confluent_kafka
import pika

from entrepot.client.client import Client
from entrepot.connect.running import Run
from entrepot.connect.settings import load
from entrepot.core.clock import SystemClock
from entrepot.net.sockets import SocketNet
from entrepot.testing import Broker, broker
from tests.end_to_end.transacting import create

WAIT_S = 60.0
PARTITIONS = 2


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value)


def describe(directory: Path, name: str, connector: str, **settings: Any) -> Path:
    """A connector's file."""
    path = directory / f"{name}.toml"
    settings = {"name": name, "connector": connector, **settings}
    path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in settings.items()))
    return path


def run_once(bootstrap: str, path: Path) -> None:
    """In this process."""

    async def run() -> None:
        async with Client(SocketNet(), bootstrap) as client:
            await Run(load(str(path)), str(path)).run(client, SystemClock(), once=True)

    asyncio.run(run())


def send(bootstrap: str, topic: str, *records: tuple[Any, Any] | str) -> None:
    """Values, or pairs of key and value."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number, record in enumerate(records):
        key, value = (None, record) if isinstance(record, str) else record
        producer.produce(topic, key=key, value=value)
        if number % 10_000 == 9_999:
            producer.flush(WAIT_S)
    assert producer.flush(WAIT_S) == 0


def received(bootstrap: str, topic: str) -> list[confluent_kafka.Message]:
    """All that a reader of committed records finds, partition by partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, WAIT_S).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, part, 0) for part in partitions])
        found, ended = [], set[int]()
        while len(ended) < len(partitions):
            message = consumer.poll(WAIT_S)
            assert message is not None, f"nothing more came of {topic}"
            if message.error() is None:
                found.append(message)
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    finally:
        consumer.close()
    return sorted(found, key=lambda each: (each.partition(), each.offset()))


class Process:
    """`entrepot connect run`, as one starts it."""

    def __init__(self, path: Path, bootstrap: str) -> None:
        self._command = [
            sys.executable, "-m", "entrepot.cli", "connect", "run", str(path), "-b", bootstrap,
        ]  # fmt: skip
        self.log_path = path.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(WAIT_S)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None


class Inbox:
    """An HTTP server that remembers what it was sent, and now and then is not well."""

    def __init__(self, *, fails_every: int = 0) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[bytes], int] = lambda body: 200
        self._count = 0
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                inbox._count += 1
                failing = fails_every and inbox._count % fails_every == 0
                status = 503 if failing else inbox.answer(body)
                if status == 200:
                    inbox.bodies.append(body)
                    inbox.headers.append(dict(self.headers))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/in"

    def __enter__(self) -> "Inbox":
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


# --- the experiments


class Outcome(NamedTuple):
    what: str
    records: int
    lost: int
    duplicated: int
    misplaced: int  # After a larger number of the same partition.
    connectors_killed: int
    brokers_killed: int
    seconds: float


class Experiment:
    """One kind of connector, through kills. Each feeds numbers in and finds them at the end."""

    def __init__(
        self, server: Broker, directory: Path, records: int, kills: int, seed: int
    ) -> None:
        self.server = server
        self.directory = directory
        self.records = records
        self.kills = kills
        self.chance = random.Random(seed)
        self.processes: list[Process] = []
        self.connectors_killed = self.brokers_killed = 0

    def connector(self, name: str, connector: str, **settings: Any) -> Path:
        settings.setdefault("batch", {"records": 100})
        settings.setdefault("poll_ms", 50)
        path = describe(self.directory, name, connector, **settings)
        self.processes.append(Process(path, self.server.bootstrap))
        return path

    def topic(self, name: str) -> None:
        create(self.server.bootstrap, name, PARTITIONS)

    def fill(self, topic: str) -> None:
        """Numbers, under two keys, each of which keeps them in order."""
        send(
            self.server.bootstrap,
            topic,
            *((f"key-{number % 2}", json.dumps({"n": number})) for number in range(self.records)),
        )

    def run(self, what: str, feed: Callable[[int], None], find: Callable[[], list[int]]) -> Outcome:
        """`feed` is called with each number in turn; `find` returns what has arrived."""
        started = time.monotonic()
        for process in self.processes:
            process.start()
        try:
            self._feed_and_kill(feed)
            self._wait_for(find)
        finally:
            for process in self.processes:
                process.stop()
        found = find()
        counts = Counter(found)
        return Outcome(
            what,
            self.records,
            lost=self.records - len(counts),
            duplicated=len(found) - len(counts),
            misplaced=sum(
                later < earlier
                for half in (0, 1)
                for earlier, later in pairwise([n for n in found if n % 2 == half])
            ),
            connectors_killed=self.connectors_killed,
            brokers_killed=self.brokers_killed,
            seconds=round(time.monotonic() - started, 1),
        )

    def _feed_and_kill(self, feed: Callable[[int], None]) -> None:
        when = sorted(self.chance.randrange(self.records) for _ in range(2 * self.kills))
        turns = ["connector", "broker"] * self.kills
        for number in range(self.records):
            while when and when[0] <= number:
                when.pop(0)
                self._kill(turns.pop())
            feed(number)

    def _kill(self, victim: str) -> None:
        time.sleep(self.chance.uniform(0.3, 1.5))  # So that it gets to work first.
        if victim == "broker":
            self.server.kill()
            time.sleep(self.chance.uniform(0, 0.3))
            self.server.start()
            self.brokers_killed += 1
            return
        process = self.chance.choice(self.processes)
        process.kill()
        process.start()
        self.connectors_killed += 1

    def _wait_for(self, find: Callable[[], list[int]]) -> None:
        """Until all have arrived, or none for a while."""
        count, deadline = 0, time.monotonic() + WAIT_S
        while count < self.records and time.monotonic() < deadline:
            for process in self.processes:
                if not process.is_running():  # It was started while there was no broker.
                    process.start()
            time.sleep(0.2)
            arrived = len(set(find()))
            if arrived > count:
                count, deadline = arrived, time.monotonic() + WAIT_S


def numbers_in(server: Broker, topic: str) -> list[int]:
    return [json.loads(message.value())["n"] for message in received(server.bootstrap, topic)]


def tail_a_log(experiment: Experiment) -> Outcome:
    """A file that grows and is rotated, into a topic."""
    experiment.topic("tailed")
    log = experiment.directory / "app.log"
    options = {"path": f"{log}*", "tail": True, "format": "json", "key": "half"}
    experiment.connector("tail", "file-source", topic="tailed", options=options)
    rotations = 0

    def feed(number: int) -> None:
        nonlocal rotations
        with log.open("ab") as file:
            file.write(b'{"n": %d, "half": "%d"}\n' % (number, number % 2))
        if number % (experiment.records // 5) == experiment.records // 5 - 1:
            rotations += 1
            log.rename(log.with_name(f"app.log.{rotations}"))

    return experiment.run(
        "file, tailed and rotated -> topic", feed, lambda: numbers_in(experiment.server, "tailed")
    )


def copy_a_table(experiment: Experiment) -> Outcome:
    """Changes of a SQLite table into a topic, and from there into another database."""
    experiment.topic("changes")
    first, second = (experiment.directory / name for name in ("first.db", "second.db"))
    for path in (first, second):
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY, text TEXT)")
    experiment.connector(
        "out",
        "sqlite-changes",
        topic="changes",
        options={"path": str(first), "tables": ["numbers"], "install": True, "snapshot": True},
    )
    experiment.connector(
        "in",
        "sqlite-sink",
        topic="changes",
        options={"path": str(second), "table": "numbers", "changes": True, "mode": "insert"},
    )
    source = sqlite3.connect(first, timeout=WAIT_S, isolation_level=None)
    source.execute("PRAGMA synchronous = OFF")
    target = sqlite3.connect(second, timeout=WAIT_S)

    def feed(number: int) -> None:
        source.execute("INSERT INTO numbers VALUES (?, ?)", (number, f"text {number}"))

    def find() -> list[int]:
        return [n for (n,) in target.execute("SELECT n FROM numbers ORDER BY n")]

    outcome = experiment.run("SQLite changes -> topic -> SQLite", feed, find)
    messages = received(experiment.server.bootstrap, "changes")
    numbers = [json.loads(message.value())["after"]["n"] for message in messages]
    return outcome._replace(duplicated=outcome.duplicated + len(numbers) - len(set(numbers)))


def write_files(experiment: Experiment) -> Outcome:
    """A topic to the end of a file."""
    experiment.topic("filed")
    path = experiment.directory / "filed.jsonl"
    options = {"path": str(path), "format": "json"}
    experiment.connector("file", "file-sink", topic="filed", options=options)
    experiment.fill("filed")
    ready = path.exists

    def find() -> list[int]:
        return [json.loads(line)["n"] for line in path.read_bytes().splitlines()] if ready() else []

    return experiment.run("topic -> file", lambda number: None, find)


def write_objects(experiment: Experiment) -> Outcome:
    """A topic into objects in a directory."""
    experiment.topic("stored")
    root = experiment.directory / "store"
    batch = {"records": 97, "wait_ms": 50}
    experiment.connector(
        "store", "store-sink", topic="stored", batch=batch, options={"path": str(root)}
    )
    experiment.fill("stored")

    def find() -> list[int]:
        objects = sorted(root.rglob("*.jsonl"))
        return [json.loads(line)["n"] for each in objects for line in each.open()]

    return experiment.run("topic -> objects", lambda number: None, find)


def post_records(experiment: Experiment) -> Outcome:
    """A topic to a URL: none is lost, some come again."""
    experiment.topic("posted")
    experiment.fill("posted")
    with Inbox(fails_every=50) as inbox:
        experiment.connector("post", "http-sink", topic="posted", options={"url": inbox.url})
        return experiment.run(
            "topic -> HTTP (at least once)",
            lambda number: None,
            lambda: [json.loads(body)["n"] for body in list(inbox.bodies)],
        )


def publish_records(experiment: Experiment) -> Outcome:
    """A topic to a queue: none is lost, some come again, under the id they had."""
    experiment.topic("published")
    experiment.fill("published")
    server = experiment.server
    declare_queue(server, "queued")
    options = {"url": server.amqp_url, "routing_key": "queued"}
    experiment.connector(
        "publish", "amqp-sink", topic="published", batch={"records": 10}, options=options
    )

    def find() -> list[int]:
        # A durable queue is a topic that can be read.
        return [
            json.loads(message.value())["n"] for message in received(server.bootstrap, "queued")
        ]

    outcome = experiment.run("topic -> queue (at least once)", lambda number: None, find)
    found = received(server.bootstrap, "queued")
    identified = {dict(message.headers())["message-id"]: message.value() for message in found}
    assert len(identified) == len(set(identified.values())) == len(set(find()))
    return outcome


def consume_messages(experiment: Experiment) -> Outcome:
    """A queue into a topic, in many small batches: most kills come in the middle of one."""
    experiment.topic("consumed")
    server = experiment.server
    numbers = (b'{"n": %d}' % number for number in range(experiment.records))
    declare_queue(server, "queue", *numbers)
    options = {"url": server.amqp_url, "queue": "queue", "prefetch": 20}
    experiment.connector(
        "consume", "amqp-source", topic="consumed", batch={"records": 5}, options=options
    )
    return experiment.run(
        "queue -> topic", lambda number: None, lambda: numbers_in(server, "consumed")
    )


def declare_queue(server: Broker, name: str, *bodies: bytes) -> None:
    """With messages that have ids."""
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True)
        for number, body in enumerate(bodies):
            properties = pika.BasicProperties(delivery_mode=2, message_id=f"m{number}")
            channel.basic_publish("", name, body, properties, mandatory=True)


EXPERIMENTS = (
    tail_a_log,
    copy_a_table,
    write_files,
    write_objects,
    post_records,
    publish_records,
    consume_messages,
)
AT_LEAST_ONCE = (post_records, publish_records)


def experiment(
    which: Callable[[Experiment], Outcome], records: int, kills: int, seed: int = 0
) -> Outcome:
    with (
        tempfile.TemporaryDirectory(prefix="connect-") as directory,
        broker(durability="os") as server,
    ):
        return which(Experiment(server, Path(directory), records, kills, seed))


@click.command()
@click.option("--records", default=20_000, show_default=True)
@click.option("--kills", default=20, show_default=True, help="Of connectors, and of brokers.")
@click.option("--seed", default=0)
def main(records: int, kills: int, seed: int) -> None:
    """Kill connectors and brokers while records are moved; count what arrived."""
    for which in EXPERIMENTS:
        outcome = experiment(which, records, kills, seed)
        click.echo("  ".join(f"{key}={value}" for key, value in outcome._asdict().items()))


if __name__ == "__main__":
    main()
