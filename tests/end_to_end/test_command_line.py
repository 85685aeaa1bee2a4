"""The commands against a real broker, and the broker as a process."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from entrepot.cli import main
from entrepot.testing import Broker, broker

WAIT_S = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started


def invoke(server: Broker, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments], env={"ENTREPOT_BOOTSTRAP": server.bootstrap})


def output(server: Broker, *arguments: str) -> str:
    """What a command that succeeds prints."""
    result = invoke(server, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def produce(server: Broker, directory: Path, topic: str, text: str, *options: str) -> None:
    path = directory / "input"
    path.write_text(text)
    output(server, "produce", topic, str(path), *options)


# --- topics


def test_the_life_of_a_topic(server: Broker) -> None:
    create = ("topics", "create", "life", "-p", "2", "--set", "retention.ms=60000")
    assert output(server, *create) == "created life\n"
    assert "life\n" in output(server, "topics", "list")
    assert output(server, "topics", "alter", "life", "-p", "3", "--set", "flush.ms=5") != ""
    assert output(server, "topics", "alter", "life", "--unset", "retention.ms") != ""
    described = json.loads(output(server, "topics", "describe", "life", "--json"))
    assert described["settings"] == {"flush.ms": "5"}
    assert [part["partition"] for part in described["partitions"]] == [0, 1, 2]
    assert "flush.ms = 5" in output(server, "topics", "describe", "life")
    assert output(server, "topics", "delete", "life") == "deleted life\n"
    assert "life\n" not in output(server, "topics", "list")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topics", "create", "there"], "already exists (TOPIC_ALREADY_EXISTS)"),
        (["topics", "create", "a/b"], "(INVALID_TOPIC_EXCEPTION)"),
        (["topics", "create", "new", "--set", "no.such=1"], "(INVALID_CONFIG)"),
        (["topics", "delete", "nosuch"], "(UNKNOWN_TOPIC_OR_PARTITION)"),
        (["topics", "describe", "nosuch"], "(UNKNOWN_TOPIC_OR_PARTITION)"),
        (["topics", "alter", "there", "-p", "1"], "(INVALID_PARTITIONS)"),
        (["consume", "nosuch"], "(UNKNOWN_TOPIC_OR_PARTITION)"),
        (["consume", "there", "-p", "7"], "has partitions 0 to 0 only"),
        (["consume", "there", "--offset", "99"], "has offsets 0 to 0, not 99"),
    ],
)
def test_refusals_are_one_line(server: Broker, arguments: list[str], said: str) -> None:
    output(server, "topics", "create", "there", "--if-not-exists")
    result = invoke(server, *arguments)
    assert (result.exit_code, said in result.stderr) == (1, True), result.output
    assert len(result.stderr.splitlines()) == 1


def test_fine_when_it_is_so_already(server: Broker) -> None:
    output(server, "topics", "create", "twice")
    assert output(server, "topics", "create", "twice", "--if-not-exists") == ""
    output(server, "topics", "delete", "twice")
    assert output(server, "topics", "delete", "twice", "--if-exists") == ""


# --- records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_goes_in_comes_out(server: Broker, tmp_path: Path, codec: str) -> None:
    topic = f"in-{codec}"
    text = "".join(f"key{number % 7}:value {number}\n" for number in range(5_000))
    options = ("-K", ":", "-H", "colour=blue", "--compression", codec)
    produce(server, tmp_path, topic, text, *options)
    printed = output(server, "consume", topic, "--format", "%k:%v")
    assert printed == text
    first = json.loads(output(server, "consume", topic, "--json", "-n", "1"))
    assert (first["key"], first["value"]) == ("key0", "value 0")
    assert first["headers"] == [["colour", "blue"]]
    assert abs(first["timestamp"] / 1000 - time.time()) < 300


def test_where_to_begin(server: Broker, tmp_path: Path) -> None:
    produce(server, tmp_path, "begin", "a\nb\n")
    middle = json.loads(output(server, "consume", "begin", "--json", "--offset", "1"))["timestamp"]
    time.sleep(0.01)
    produce(server, tmp_path, "begin", "c\nd\n")
    assert output(server, "consume", "begin") == "a\nb\nc\nd\n"
    assert output(server, "consume", "begin", "--offset", "1", "-n", "2") == "b\nc\n"
    assert output(server, "consume", "begin", "--from-time", str(middle + 1)) == "c\nd\n"
    assert output(server, "consume", "begin", "--from-time", "2100-01-01T00:00:00Z") == ""
    assert output(server, "consume", "begin", "--from-end") == ""


def test_a_partition_can_be_chosen(server: Broker, tmp_path: Path) -> None:
    output(server, "topics", "create", "parts", "-p", "3")
    produce(server, tmp_path, "parts", "x\n", "-p", "2")
    assert output(server, "consume", "parts", "-p", "2") == "x\n"
    assert output(server, "consume", "parts", "-p", "1") == ""
    assert invoke(server, "consume", "parts", "--offset", "0").exit_code == 2


def test_a_line_without_its_key_stops_it(server: Broker, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text("k:v\noops\n")
    result = invoke(server, "produce", "keyed", str(path), "-K", ":")
    assert result.exit_code == 1
    assert "line 2 has no ':': 'oops'" in result.stderr


def start(server: Broker, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "entrepot.cli", *arguments],
        env={**os.environ, "ENTREPOT_BOOTSTRAP": server.bootstrap},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
def test_follow_prints_as_it_is_typed_also_from_new_partitions(server: Broker) -> None:
    output(server, "topics", "create", "live")
    reader, writer = start(server, "consume", "live", "--follow"), start(server, "produce", "live")
    assert reader.stdout is not None
    assert writer.stdin is not None
    for number in range(3):
        writer.stdin.write(b"line %d\n" % number)
        writer.stdin.flush()
        assert reader.stdout.readline() == b"line %d\n" % number
    writer.stdin.close()
    assert writer.wait(WAIT_S) == 0
    output(server, "topics", "alter", "live", "-p", "2")
    late = start(server, "produce", "live", "-p", "1")
    late.communicate(b"from the new one\n", WAIT_S)
    assert reader.stdout.readline() == b"from the new one\n"
    reader.send_signal(signal.SIGINT)
    _, errors = reader.communicate(timeout=WAIT_S)
    assert (reader.returncode, errors) == (130, b"")


# --- the log


def test_verify_and_dump(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as server:
        produce(server, tmp_path, "kept", "one\ntwo\n", "-k", "key")
    directory = str(tmp_path / "data")
    assert "good" in output(server, "log", "verify", directory)
    lines = output(server, "log", "dump", directory, "-t", "kept", "-r", "--json").splitlines()
    batch, first, second = map(json.loads, lines)
    assert (batch["offset_first"], batch["offset_last"], batch["codec"]) == (0, 1, "none")
    assert (first["key"], first["value"], second["value"]) == ("key", "one", "two")
    (segment,) = Path(directory).glob("partitions/kept-0/*.log")
    damaged = bytearray(segment.read_bytes())
    damaged[-3] ^= 1
    segment.write_bytes(damaged)
    result = invoke(server, "log", "verify", directory)
    assert result.exit_code == 1
    assert "partitions/kept-0/" in result.stdout
    assert "corrupt" in result.stdout
    result = invoke(server, "log", "dump", directory, "-t", "kept")
    assert result.exit_code == 1
    assert "the checksum does not match" in result.stderr


# --- the server


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A server that should not start."""
    command = [sys.executable, "-m", "entrepot.cli", "serve", "--log-level", "error", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def test_ready_says_where(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "entrepot.cli", "serve"]
    ports = ["--kafka-port", "0", "--amqp-port", "off", "--mqtt-port", "off", "--http-port", "off"]
    ports += ["--stomp-port", "off", "--sqs-port", "off"]
    flags = ["--data-dir", str(tmp_path), *ports, "--log-format", "json"]
    process = subprocess.Popen(
        command + flags, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = list(iter(process.stdout.readline, "ready\n"))
    endpoints = json.loads((tmp_path / "endpoints.json").read_text())
    address = f"{endpoints['kafka']['host']}:{endpoints['kafka']['port']}"
    assert lines[-1].split() == ["kafka", address]
    socket.create_connection((endpoints["kafka"]["host"], endpoints["kafka"]["port"])).close()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert not (tmp_path / "endpoints.json").exists()
    assert [json.loads(line)["level"] for line in errors.splitlines()]


def test_off_opens_nothing(tmp_path: Path) -> None:
    ports = {
        "ports.kafka": "off",
        "ports.amqp": "off",
        "ports.http": "off",
        "ports.stomp": "off",
        "ports.mqtt": "off",
    }
    with_settings = broker(tmp_path / "data", settings=ports)
    with with_settings as started:
        assert started.endpoints == {}


def test_what_keeps_a_server_from_starting(server: Broker, tmp_path: Path) -> None:
    port = server.endpoints["kafka"][1]
    blocked = tmp_path / "file"
    blocked.touch()
    for arguments, said in (
        (["--data-dir", str(server.data_dir)], "another broker is using it"),
        (["--data-dir", str(tmp_path / "a"), "--kafka-port", str(port)], "Address already in use"),
        (["--data-dir", str(blocked / "b")], "Not a directory"),
        (["--config", str(tmp_path / "nosuch.toml")], "cannot be read"),
        (["--set", "topics.retention=1"], 'unknown key "topics.retention"'),
    ):
        ran = serve(*arguments)
        assert (ran.returncode, ran.stdout) == (1, ""), ran
        assert said in ran.stderr
        assert len(ran.stderr.splitlines()) == 1, ran.stderr


def test_a_killed_broker_comes_back_with_its_data(tmp_path: Path) -> None:
    with broker() as server:
        produce(server, tmp_path, "kept", "a\nb\n")
        address = server.bootstrap
        server.kill()
        server.start()
        assert server.bootstrap == address
        assert output(server, "consume", "kept") == "a\nb\n"
        server.restart()
        assert output(server, "consume", "kept") == "a\nb\n"


def test_the_fixture(entrepot_broker: Broker) -> None:
    assert output(entrepot_broker, "topics", "list") == ""


def test_a_broker_in_an_async_test() -> None:
    async def work() -> None:
        async with broker(settings={"topics.num_partitions": 4}) as server:
            pid = server.pid
            assert server.bootstrap.startswith("localhost:")
            result = await asyncio.to_thread(output, server, "produce", "four", os.devnull)
            assert result == ""
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    asyncio.run(work())


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="unknown key"):
        broker(tmp_path, settings={"no_such": 1}).start()
