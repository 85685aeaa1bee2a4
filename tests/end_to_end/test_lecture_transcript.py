"""The terminal sessions of the lectures, with the scripts in bin/ and their own words.

Requirements P-01 to P-07, P-09 and AE-01. Only the port and the data directory differ
from what a reader types: others may be using the usual ones.
"""

import contextlib
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

ROOT = Path(__file__).parents[2]
WAIT_S = 60
NAMES = tuple(
    sorted(
        path.name
        for path in (ROOT / "bin").iterdir()
        if path.name.startswith(("kafka-", "zookeeper-", "zkServer")) and path.suffix != ".sh"
    )
)


class Terminal:
    """A shell in which bin/ of the checkout is at hand."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._directory = directory
        shim = directory / "installed" / "entrepot"
        shim.parent.mkdir(exist_ok=True)
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m entrepot.cli "$@"\n')
        shim.chmod(0o755)
        path = f"{shim.parent}{os.pathsep}{os.environ['PATH']}"
        source = os.pathsep.join(entry for entry in sys.path if entry)
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": source}

    def open(self, script: str, *arguments: str, **options: object) -> subprocess.Popen[str]:
        command = [str(ROOT / "bin" / script), *arguments]
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            command,
            cwd=self._directory,
            env=self.environment,
            text=True,
            **{
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **options,
            },
        )

    def run(self, script: str, *arguments: str, text: str = "") -> str:
        """What it prints, stdout and then stderr. It must succeed."""
        process = self.open(script, *arguments)
        output, errors = process.communicate(text, timeout=WAIT_S)
        assert process.returncode == 0, output + errors
        return output + errors


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def started(
    directory: Path, suffix: str, properties: str = "server.properties"
) -> Iterator[Terminal]:
    """kafka-server-start config/server.properties … kafka-server-stop."""
    port = free_port()
    terminal = Terminal(directory, f"localhost:{port}")
    data = directory / "logs"
    server = terminal.open(
        f"kafka-server-start{suffix}",
        str(ROOT / "config" / properties),
        *("--override", f"listeners=PLAINTEXT://localhost:{port}"),
        *("--override", f"advertised.listeners=PLAINTEXT://localhost:{port}"),
        *("--override", f"log.dirs={data}"),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert server.stdout is not None
        lines = [line.rstrip("\n") for line in iter(server.stdout.readline, "ready\n")]
        assert f"localhost:{port}" in lines[-1]
        yield terminal
        stopped = terminal.run(f"kafka-server-stop{suffix}", "--data-dir", str(data))
        assert stopped.startswith("stopped process")
        assert server.wait(WAIT_S) == 0
    finally:
        server.kill()
        server.communicate()


@pytest.mark.slow
def test_transcript_p01_to_p07(tmp_path: Path) -> None:
    with started(tmp_path, "", "kafka.properties") as terminal:
        server = ("--bootstrap-server", terminal.bootstrap)
        topics, producer = "kafka-topics", "kafka-console-producer"
        create = ("--replication-factor", "1", "--partitions", "1", "--topic", "test")
        assert terminal.run(topics, "--create", *server, *create) == "Created topic test.\n"
        assert terminal.run(topics, "--list", *server) == "test\n"
        assert terminal.run(producer, *server, "--topic", "test", text="msg 1\nmsg 2\n") == ""
        keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
        text = "course:sdcc\nuniversity:Tor Vergata\n"
        assert terminal.run(producer, *server, "--topic", "test", *keyed, text=text) == ""
        everything = ["msg 1", "msg 2", "sdcc", "Tor Vergata"]
        assert read_until_interrupted(terminal, "--from-beginning", lines=4) == everything
        tail = ("--offset", "2", "--partition", "0")
        assert read_until_interrupted(terminal, *tail, lines=2) == everything[2:]
        keys = ("--property", "print.key=true", "--property", "print.offset=true")
        where = ("--property", "print.partition=true", "--property", "key.separator=:")
        assert read_until_interrupted(terminal, *tail, *keys, *where, lines=2) == [
            "Partition:0:Offset:2:course:sdcc",
            "Partition:0:Offset:3:university:Tor Vergata",
        ]
        (described, *partitions) = terminal.run(
            topics, "--describe", *server, "--topic", "test"
        ).splitlines()
        assert "PartitionCount: 1\tReplicationFactor: 1" in described
        assert len(partitions) == 1
        entity = ("--entity-type", "topics", "--entity-name", "test")
        settings = terminal.run("kafka-configs", "--describe", "--all", *server, *entity)
        assert "flush.messages=10000" in settings, "the flush policy of the file, P-01"
        assert "flush.ms=1000" in settings
        newer = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
        assert terminal.run(producer, *server, "--topic", "test", *newer, text="a:b\n") == ""
        last = ("--offset", "4", "--partition", "0", "--property", "print.key=true")
        assert read_until_interrupted(terminal, *last, lines=1) == ["a\tb"], "ZZ-9"
        assert terminal.run(topics, "--delete", *server, "--topic", "test") == ""
        assert terminal.run(topics, "--list", *server) == ""


def read_until_interrupted(terminal: Terminal, *arguments: str, lines: int) -> list[str]:
    """What the consumer prints before Ctrl-C; it must count the same."""
    consumer = terminal.open(
        "kafka-console-consumer",
        *("--bootstrap-server", terminal.bootstrap, "--topic", "test"),
        *arguments,
    )
    assert consumer.stdout is not None
    found = [consumer.stdout.readline().rstrip("\n") for _ in range(lines)]
    consumer.send_signal(signal.SIGINT)
    output, errors = consumer.communicate(timeout=WAIT_S)
    assert (output, errors) == ("", f"Processed a total of {lines} messages\n")
    return found


def test_the_producer_prompts_at_a_terminal_p03(tmp_path: Path) -> None:
    with started(tmp_path, "") as terminal:
        keyboard, screen = pty.openpty()
        producer = terminal.open(
            "kafka-console-producer",
            *("--bootstrap-server", terminal.bootstrap, "--topic", "test"),
            stdin=screen,
            stdout=screen,
            stderr=screen,
        )
        os.close(screen)
        assert read_until(keyboard, b">") == b">"
        os.write(keyboard, b"msg 1\n")
        assert read_until(keyboard, b"\n>") == b"msg 1\r\n>"
        os.write(keyboard, b"\x04")
        assert producer.wait(WAIT_S) == 0
        os.close(keyboard)
        assert read_until_interrupted(terminal, "--from-beginning", lines=1) == ["msg 1"]


def read_until(descriptor: int, end: bytes) -> bytes:
    found = b""
    deadline = time.monotonic() + WAIT_S
    while not found.endswith(end) and time.monotonic() < deadline:
        if select.select([descriptor], [], [], 0.1)[0]:
            found += os.read(descriptor, 1000)
    return found


@pytest.mark.slow
def test_exercise_ae01(tmp_path: Path) -> None:
    with started(tmp_path, ".sh") as terminal:
        server = ("--bootstrap-server", terminal.bootstrap)
        name = ("--topic", "test-topic", "--partitions", "1", "--replication-factor", "1")
        created = terminal.run("kafka-topics.sh", "--create", *name, *server)
        assert created == "Created topic test-topic.\n"
        producer = KafkaProducer(
            bootstrap_servers=terminal.bootstrap,
            value_serializer=lambda value: json.dumps(value).encode(),
        )
        consumer = KafkaConsumer(
            "test-topic",
            bootstrap_servers=terminal.bootstrap,
            auto_offset_reset="earliest",
            consumer_timeout_ms=WAIT_S * 1000,
            value_deserializer=json.loads,
        )
        for number in range(5):
            producer.send("test-topic", {"number": number}).get(WAIT_S)
            assert next(consumer).value == {"number": number}
        producer.close()
        consumer.close()


@pytest.mark.parametrize("name", NAMES)
def test_names_with_and_without_sh_p09(name: str) -> None:
    script, with_suffix = ROOT / "bin" / name, ROOT / "bin" / f"{name}.sh"
    assert with_suffix.resolve() == script
    assert os.access(with_suffix, os.X_OK)


@pytest.mark.parametrize("suffix", ["", ".sh"])
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("zookeeper-server-start -daemon config/zookeeper.properties", "kafka-server-start"),
        ("zookeeper-server-stop", "kafka-server-stop"),
        ("zkServer start", "entrepot cluster start"),
        ("zkServer --config /etc stop", "kafka-server-stop"),
        ("zkServer stop", "nothing was stopped"),
        ("zkServer status", "entrepot cluster status"),
        ("zkServer", "entrepot status"),
    ],
)
def test_the_commands_of_zookeeper_say_what_replaces_them_p10(
    tmp_path: Path, command: str, said: str, suffix: str
) -> None:
    """They succeed, so that a script that starts it before Kafka goes on."""
    name, *arguments = command.split()
    heard = Terminal(tmp_path, suffix).run(name + suffix, *arguments)
    assert "no ZooKeeper any more" in heard
    assert said in heard


def test_what_zkserver_cannot_do_is_refused(tmp_path: Path) -> None:
    ran = Terminal(tmp_path, "").open("zkServer", "dance")
    assert "neither start, stop" in ran.communicate(timeout=WAIT_S)[1]
    assert ran.returncode == 2


def test_the_scripts_work_through_links_and_from_anywhere(tmp_path: Path) -> None:
    link = tmp_path / "topics"
    link.symlink_to(ROOT / "bin" / "kafka-topics.sh")
    environment = Terminal(tmp_path, "").environment
    ran = subprocess.run(
        [link, "--help"], cwd="/", env=environment, capture_output=True, text=True, check=True
    )
    assert "Usage: entrepot kafka-topics" in ran.stdout


def test_a_daemon_p01(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "")
    data = tmp_path / "logs"
    arguments = (str(ROOT / "config" / "server.properties"), "--override", f"log.dirs={data}")
    free = ("--override", "listeners=PLAINTEXT://localhost:0", "--override", "num.io.threads=8")
    said = terminal.run("kafka-server-start", "-daemon", *arguments, *free)
    assert said.startswith("ready, process ")
    try:
        again = terminal.open("kafka-server-start", "-daemon", *arguments, *free)
        assert "another broker is using it" in again.communicate(timeout=WAIT_S)[1]
        assert again.returncode == 1
    finally:
        stopped = terminal.run("kafka-server-stop", "--data-dir", str(data))
    assert stopped.split()[-1] == said.split(",")[1].split()[-1]
    output = (data / "server.out").read_text()
    assert "num.io.threads is not a setting of this broker: ignored" in output
    none = terminal.open("kafka-server-stop", "--data-dir", str(data))
    assert "no broker to stop" in none.communicate(timeout=WAIT_S)[1]
    assert none.returncode == 1
