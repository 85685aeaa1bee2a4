"""`entrepot top` in a terminal and in a pipe, and `entrepot doctor` beside a broker that runs."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator

import pika
import pytest

from entrepot.testing import Broker, broker

WAIT_S = 60
ENTREPOT = (sys.executable, "-m", "entrepot.cli")


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.http": 0}) as started:
        with pika.BlockingConnection(pika.URLParameters(started.amqp_url)) as connection:
            channel = connection.channel()
            channel.queue_declare("[red]work", durable=True)
            channel.basic_publish("", "[red]work", b"x")
        yield started


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, *command: str) -> None:
        self._ours, theirs = pty.openpty()
        surroundings = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=surroundings
        )
        os.close(theirs)
        self.said = b""

    def wait_for(self, text: bytes) -> None:
        """Wait until the terminal was told that since the last call."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.said:
            assert time.monotonic() < deadline, self.said[-2_000:]
            if select.select([self._ours], [], [], 0.2)[0]:
                self.said += os.read(self._ours, 65_536)
        self.said = self.said.partition(text)[2]

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(server: Broker) -> Iterator[Terminal]:
    found = Terminal(*ENTREPOT, "top", "--http", server.http_address, "--interval", "0.3")
    yield found
    found.close()


def test_it_is_watched_until_q(terminal: Terminal) -> None:
    terminal.wait_for(b"protocol")
    terminal.wait_for(b"quit")
    terminal.press(b"\t")
    terminal.wait_for(b"[red]work")
    terminal.press(b"s")
    terminal.wait_for("unacked ▾".encode())
    terminal.press(b"\x1b[B\x1b[A ")
    terminal.wait_for(b"space goes on")
    terminal.press(b" ")
    terminal.wait_for(b"scroll")
    terminal.press(b"q")
    assert terminal.process.wait(WAIT_S) == 0


def test_a_broker_that_goes_away_is_waited_for() -> None:
    with broker(settings={"ports.http": 0}) as server:
        address = server.http_address
        found = Terminal(*ENTREPOT, "top", "--http", address, "--interval", "0.2")
        try:
            found.wait_for(b"protocol")
            server.stop()
            found.wait_for(b"no broker answers")
            server.start()
            found.wait_for(b"scroll")
            found.press(b"q")
            assert found.process.wait(WAIT_S) == 0
        finally:
            found.close()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ENTREPOT, *arguments], capture_output=True, text=True, timeout=WAIT_S, check=False
    )


def test_a_pipe_gets_one_snapshot(server: Broker) -> None:
    found = run("top", "--http", server.http_address)
    assert found.returncode == 0, found.stderr
    assert "[red]work" in found.stdout
    assert "\x1b" not in found.stdout
    assert run("top", "--http", "127.0.0.1:1").returncode == 1


def test_the_doctor_knows_the_broker_that_runs(server: Broker) -> None:
    found = run("doctor", "--data-dir", str(server.data_dir))
    (line,) = (line for line in found.stdout.splitlines() if " data " in line)
    assert line.endswith("a broker runs on it")
