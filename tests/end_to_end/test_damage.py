"""A broker on damaged files: what clients are told, and whoever looks after it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pika.exceptions import ChannelClosedByBroker

from entrepot.cli import main
from entrepot.testing import Broker, broker
from tests.crash.full_house import EVENTS, GROUPS, QUEUE, furnish

OFFSETS = "partitions/__consumer_offsets-{}"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """It was stopped; then a bit changed in a queue, in a group's offsets, and in a topic."""
    directory = tmp_path_factory.mktemp("damaged") / "data"
    furnish(directory, stops=True)
    for partition, position in ((f"{QUEUE}-0", -30), (f"{EVENTS}-0", 6), (_home(directory), 100)):
        path = min((directory / "partitions" / partition).glob("*.log"))
        data = bytearray(path.read_bytes())
        data[position] ^= 0x10
        path.write_bytes(data)
    with broker(directory, settings={"ports.http": 0}) as started:
        yield started


def _home(directory: Path) -> str:
    """Where the first group is kept."""
    for path in sorted(directory.glob(OFFSETS.format("*") + "/*.log")):
        if GROUPS[0].encode() in path.read_bytes():
            return path.parent.name
    raise AssertionError(GROUPS[0])


def consumer(server: Broker, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def test_a_queue_is_down(damaged: Broker) -> None:
    host, port = damaged.endpoints["amqp"]
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
    for use in ("basic_get", "queue_purge"):
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBroker) as closed:
            getattr(channel, use)(QUEUE)
        assert closed.value.reply_code == 404
        assert f"queue '{QUEUE}' in vhost '/' is down: partitions/" in closed.value.reply_text
    connection.close()


def test_a_group_is_not_told_that_it_has_committed_nothing(damaged: Broker) -> None:
    place = TopicPartition(EVENTS, 0)
    whole = consumer(damaged, next(each for each in GROUPS if _is_whole(damaged, each)))
    assert whole.committed([place], 10)[0].offset == 27
    whole.close()
    refused = consumer(damaged, GROUPS[0])
    with pytest.raises(KafkaException):
        refused.committed([place], 2)
    refused.close()


def _is_whole(damaged: Broker, group: str) -> bool:
    home = damaged.data_dir / "partitions" / _home(damaged.data_dir)
    return group.encode() not in b"".join(path.read_bytes() for path in home.glob("*.log"))


def test_a_consumer_is_told_of_a_bad_batch(damaged: Broker) -> None:
    reader = consumer(damaged, "a-new-one")
    reader.assign([TopicPartition(EVENTS, 0, 0)])
    message = reader.poll(10)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError.INVALID_MSG
    reader.close()


def status(server: Broker, *options: str) -> Result:
    return CliRunner().invoke(main, ["status", "--data-dir", str(server.data_dir), *options])


def test_the_status_says_what_and_why(damaged: Broker) -> None:
    result = status(damaged)
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"running on {damaged.data_dir}, process ")
    assert f"  http       {damaged.http_address}" in lines
    for name in (f"{QUEUE}-0", _home(damaged.data_dir)):
        path = f"partitions/{name}/{0:020d}.log"
        reason = f"{path}: the checksum does not match at byte "
        assert f"partition partitions/{name} is refused: {reason}" in result.stdout
    assert any(line.startswith(f"queue {QUEUE} in vhost / is down: ") for line in lines)
    told = json.loads(status(damaged, "--json").stdout)
    assert told["running"]
    assert {"kafka", "amqp", "http"} <= set(told["endpoints"])
    assert "queue" in [fault["kind"] for fault in told["faults"]]
    queues = CliRunner(env={"ENTREPOT_HTTP": damaged.http_address}).invoke(
        main, ["queues", "show", QUEUE]
    )
    assert "  down: partitions/" in queues.stdout


def test_the_status_of_others(server: Broker, tmp_path: Path) -> None:
    running = status(server)
    assert (running.exit_code, running.stdout.splitlines()[-1]) == (
        0,
        "its HTTP port is off: what cannot be used is told in its log",
    )
    nothing = CliRunner().invoke(main, ["status", "--data-dir", str(tmp_path)])
    assert (nothing.exit_code, nothing.stderr) == (1, f"Error: {tmp_path} is no data directory\n")
    (tmp_path / "partitions").mkdir()
    stopped = CliRunner().invoke(main, ["status", "--data-dir", str(tmp_path)])
    assert stopped.exit_code == 1
    assert "killed, or it could not stop cleanly" in stopped.stdout
    (tmp_path / "clean.checkpoint").touch()
    stopped = CliRunner().invoke(main, ["status", "--data-dir", str(tmp_path), "--json"])
    assert json.loads(stopped.stdout) == {"running": False, "stopped_cleanly": True, "faults": None}
