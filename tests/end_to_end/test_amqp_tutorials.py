"""RabbitMQ's tutorials one to seven, as a reader runs them: programs beside one another.

With AMQP=host:port in the environment they are run on the broker that is there, RabbitMQ for
one, which is how we know that they are right. What kills the broker needs one of ours.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pika
import pytest

from entrepot import testing
from entrepot.testing import Broker

ROOT = Path(__file__).parent.parent.parent
SAID_S_MAX = 60.0
QUIET_S = 0.3  # Who has something to say has said it by then.


class Program:
    """One of the tutorials' programs, running. What it prints is read as it comes."""

    def __init__(self, address: str, name: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.end_to_end.tutorials", address, name, *arguments]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT, text=True)
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def tell(self) -> None:
        """Say that its work is over."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)

    def said(self, count: int = 1) -> list[str]:
        """The next lines."""
        lines = [self._lines.get(timeout=SAID_S_MAX) for _ in range(count)]
        assert None not in lines, "it ended"
        return [line for line in lines if line is not None]

    def more(self) -> list[str]:
        """Whatever it says until it is quiet."""
        lines = []
        while True:
            try:
                line = self._lines.get(timeout=QUIET_S)
            except queue.Empty:
                return lines
            assert line is not None, "it ended"
            lines.append(line)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Desk:
    """Where programs are started. Consumers stay until the end, the others are waited for."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._stack = ExitStack()

    def start(self, name: str, *arguments: str) -> Program:
        """A consumer, when it is ready."""
        program = Program(self.address, name, *arguments)
        self._stack.callback(program.close)
        assert program.said() == ["waiting"]
        return program

    def run(self, name: str, *arguments: str) -> list[str]:
        command = [sys.executable, "-m", "tests.end_to_end.tutorials", self.address, name]
        done = subprocess.run(
            [*command, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SAID_S_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def count(self, name: str) -> int:
        """How many messages are ready in a queue."""
        host, _, port = self.address.rpartition(":")
        parameters = pika.ConnectionParameters(host, int(port))
        with pika.BlockingConnection(parameters) as connection:
            declared = connection.channel().queue_declare(name, passive=True)
            return int(declared.method.message_count)

    def close(self) -> None:
        self._stack.close()


def address_of(broker: Broker) -> str:
    host, port = broker.endpoints["amqp"]
    return f"{host}:{port}"


@pytest.fixture
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    address = os.environ.get("AMQP") or address_of(request.getfixturevalue("server"))
    made = Desk(address)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    """Of a queue that no other test has."""
    return f"tutorial-{uuid4().hex[:8]}"


def test_hello_world(desk: Desk) -> None:
    """Tutorial one."""
    receiver = desk.start("receive")
    assert desk.run("send") == ["sent Hello World!"]
    assert receiver.said() == ["received hello Hello World!"]


def test_stored_and_forwarded(desk: Desk) -> None:
    """Proves S-04, the first use: the receiver comes later."""
    desk.run("send")
    receiver = desk.start("receive")
    assert receiver.said() == ["received hello Hello World!"]


def test_work_is_dealt_out(desk: Desk, name: str) -> None:
    """Tutorial two: round robin."""
    workers = [desk.start("worker", name, "transient", "automatic", "0") for _ in range(2)]
    desk.run("new_task", name, "transient", *(f"task {number}" for number in range(6)))
    taken = [[line for line in worker.said(6) if line[0] == "r"] for worker in workers]
    assert sorted(taken) == [
        ["received task 0", "received task 2", "received task 4"],
        ["received task 1", "received task 3", "received task 5"],
    ]


def test_automatic_acknowledgement_loses_on_a_crash(desk: Desk, name: str) -> None:
    """Proves D-01 and R-17: what the dead one had been sent is gone."""
    worker = desk.start("worker", name, "transient", "automatic", "0")
    desk.run("new_task", name, "transient", "long ..........", "next")
    assert worker.said() == ["received long .........."]
    worker.kill()
    heir = desk.start("worker", name, "transient", "automatic", "0")
    assert heir.more() == []
    assert desk.count(name) == 0


def test_explicit_acknowledgement_redelivers(desk: Desk, name: str) -> None:
    """Proves D-02 and R-17: another worker gets what the dead one had not finished."""
    worker = desk.start("worker", name, "transient", "explicit", "0", "until told")
    desk.run("new_task", name, "transient", "quick", "long ..........", "next")
    assert worker.said(3) == ["received quick", "done quick", "received long .........."]
    worker.kill()
    heir = desk.start("worker", name, "transient", "explicit", "0")
    assert heir.said() == ["received long .........."]
    assert heir.said(3) == ["done long ..........", "received next", "done next"]


def test_prefetch_is_fair(desk: Desk, name: str) -> None:
    """Proves E-05: a busy worker gets nothing new."""
    desk.run("new_task", name, "durable", "long ...............", "a", "b", "c", "d")
    busy = desk.start("worker", name, "durable", "explicit", "1", "until told")
    assert busy.said() == ["received long ..............."]
    quick = desk.start("worker", name, "durable", "explicit", "1")
    assert [line for line in quick.said(8) if line[0] == "r"] == [
        f"received {task}" for task in "abcd"
    ]
    busy.tell()
    assert busy.said() == ["done long ..............."]


def test_publish_and_subscribe(desk: Desk) -> None:
    """Tutorial three."""
    subscribers = [desk.start("receive_logs") for _ in range(3)]
    desk.run("emit_log", "info: everybody hears it")
    for subscriber in subscribers:
        assert subscriber.said() == ["received  info: everybody hears it"]
    late = desk.start("receive_logs")
    assert late.more() == []
    desk.run("emit_log", "info: and so do those who came late")
    assert late.said() == ["received  info: and so do those who came late"]


def test_routing(desk: Desk) -> None:
    """Tutorial four."""
    errors = desk.start("receive_logs_direct", "error")
    everything = desk.start("receive_logs_direct", "info", "warning", "error")
    desk.run("emit_log_direct", "info", "all is well")
    desk.run("emit_log_direct", "error", "run")
    desk.run("emit_log_direct", "debug", "nobody cares")
    assert everything.said(2) == ["received info all is well", "received error run"]
    assert errors.said() == ["received error run"]
    assert everything.more() + errors.more() == []


def test_topics(desk: Desk) -> None:
    """Tutorial five, with its animals."""
    orange = desk.start("receive_logs_topic", "*.orange.*")
    rabbits = desk.start("receive_logs_topic", "*.*.rabbit", "lazy.#")
    keys = (
        "quick.orange.rabbit",
        "lazy.orange.elephant",
        "quick.orange.fox",
        "lazy.brown.fox",
        "lazy.pink.rabbit",
        "quick.brown.fox",
        "orange",
        "quick.orange.new.rabbit",
        "lazy.orange.new.rabbit",
    )
    desk.run("emit_log_topic", "x", *keys)
    assert orange.said(3) == [
        "received quick.orange.rabbit x",
        "received lazy.orange.elephant x",
        "received quick.orange.fox x",
    ]
    assert rabbits.said(5) == [
        "received quick.orange.rabbit x",
        "received lazy.orange.elephant x",
        "received lazy.brown.fox x",
        "received lazy.pink.rabbit x",
        "received lazy.orange.new.rabbit x",
    ]
    assert orange.more() + rabbits.more() == []


def test_the_new_york_example(desk: Desk) -> None:
    """Proves R-10 and ZZ-1: a star is one word."""
    one, two, any_number = (
        desk.start("receive_logs_topic", key) for key in ("*.newYork", "*.*.newYork", "#.newYork")
    )
    desk.run("emit_log_topic", "x", "location.northAmerica.newYork")
    for receiver in (two, any_number):
        assert receiver.said() == ["received location.northAmerica.newYork x"]
    assert one.more() == []


def test_remote_procedure_call(desk: Desk) -> None:
    """Tutorial six, and R-16: reply-to and correlation id do their work."""
    server = desk.start("rpc_server")
    assert desk.run("rpc_client", "20") == ["got 6765"]
    assert desk.run("rpc_client", "10") == ["got 55"]
    assert server.said(2) == ["asked for 20", "asked for 10"]


def test_publisher_confirms(desk: Desk, name: str) -> None:
    """Tutorial seven: one at a time, and many at once."""
    assert desk.run("confirm_each", name, "100") == ["confirmed 100", "returned"]
    assert desk.count(name) == 100
    assert desk.run("confirm_together", f"{name}-2", "1000") == ["confirmed 1000"]
    assert desk.count(f"{name}-2") == 1_000


@pytest.mark.slow
def test_durable_survives_a_kill(tmp_path: Path, name: str) -> None:
    """Proves R-19, S-07 and S-08: what is durable and persistent is there again, and nothing
    else is."""
    with testing.broker(tmp_path / "data") as broker:
        desk = Desk(address_of(broker))
        long = "task 1 " + 20 * "."  # Not done when the worker is killed.
        tasks = ["task 0", long, "task 2", "task 3", "task 4"]
        desk.run("new_task", name, "durable", *tasks)
        desk.run("new_task", f"{name}-t", "transient", "lost")
        worker = desk.start("worker", name, "durable", "explicit", "1")
        assert worker.said(2) == ["received task 0", "done task 0"]
        worker.kill()
        broker.kill()
        broker.start()
        heir = desk.start("worker", name, "durable", "explicit", "1")
        lines: list[str] = []
        while "done task 4" not in lines:
            lines += heir.said()
        done = [line for line in lines if line.startswith("done")]
        done = done[done[0] == "done task 0" :]  # Its acknowledgement may have died with it.
        assert done == [f"done {task}" for task in tasks[1:]]
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
            desk.count(f"{name}-t")
        desk.close()


def test_a_restart_loses_what_is_not_durable(tmp_path: Path, name: str) -> None:
    """Proves S-07: an orderly restart too."""
    with testing.broker(tmp_path / "data") as broker:
        desk = Desk(address_of(broker))
        desk.run("new_task", name, "transient", "lost")
        assert desk.count(name) == 1
        broker.restart()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
            desk.count(name)
        desk.close()
