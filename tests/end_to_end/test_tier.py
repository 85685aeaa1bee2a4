"""A topic's tier, set with the commands that people use, on a real broker."""

import json
import os
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from entrepot.cli import main
from entrepot.core import batch
from entrepot.log.read_only import open_archive
from entrepot.testing import Broker, broker
from tests.end_to_end.mqtt_peers import Client

WAIT_S = 30.0
S3 = os.environ.get("ENTREPOT_S3", "")
SMALL = ("--set", "segment.bytes=1000", "--set", "retention.ms=-1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker(tmp_path_factory.mktemp("data"), settings={"ports.http": 0}) as started:
        yield started


@pytest.fixture
def archive(tmp_path: Path) -> str:
    (tmp_path / "archive").mkdir()
    return (tmp_path / "archive").as_uri()


def invoke(server: Broker, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments], env={"ENTREPOT_BOOTSTRAP": server.bootstrap})


def fill(server: Broker, topic: str, count: int = 1_000) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "batch.num.messages": 20})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(WAIT_S) == 0


def copied_end(address: str, topic: str) -> int:
    archive = open_archive(address)
    found = [archive.partition(topic, each, 0) for each in archive.ids(topic)]
    return max((each.offset_end for each in found if each is not None), default=0)


def wait_until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def metrics(server: Broker) -> dict[str, float]:
    request = urllib.request.Request(f"http://{server.http_address}/metrics")
    request.add_header("Authorization", "Basic " + b64encode(b"guest:guest").decode())
    with urllib.request.urlopen(request) as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("entrepot")
    }


def test_the_setting(server: Broker, archive: str) -> None:
    created = invoke(server, "topics", "create", "one", *SMALL, "--tier", archive)
    assert created.output == "created one\n"
    described = invoke(server, "topics", "describe", "one", "--json")
    assert json.loads(described.output)["settings"]["entrepot.tier"] == archive
    assert invoke(server, "topics", "alter", "one", "--unset", "entrepot.tier").exit_code == 0
    assert invoke(server, "topics", "alter", "one", "--tier", archive).exit_code == 0
    shown = invoke(
        server, "kafka-configs", "--bootstrap-server", server.bootstrap,
        "--describe", "--entity-type", "topics", "--entity-name", "one",
    )  # fmt: skip
    assert f"entrepot.tier={archive}" in shown.output
    kafka = ("kafka-configs", "--bootstrap-server", server.bootstrap, "--alter")
    named = ("--entity-type", "topics", "--entity-name", "one")
    put = invoke(server, *kafka, *named, "--add-config", f"entrepot.tier={archive}")
    assert put.exit_code == 0, put.output


def test_what_is_refused(server: Broker, archive: str, tmp_path: Path) -> None:
    for address, why in (
        ("/archive", "is neither a directory nor a bucket"),
        ("file://archive", "with three slashes"),
        ((tmp_path / "nowhere").as_uri(), "there is no directory"),
        ("ftp://host/x", "write file:///directory or s3://bucket/prefix"),
    ):
        said = invoke(server, "topics", "create", "refused", "--tier", address)
        assert said.exit_code == 1
        assert why in said.output
    compact = ("--set", "cleanup.policy=compact", "--tier", archive)
    said = invoke(server, "topics", "create", "refused", *compact)
    assert "compaction removes some" in said.output
    assert "refused\n" not in invoke(server, "topics", "list").output
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    entry = ConfigEntry("entrepot.tier", archive, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("broker", "1", incremental_configs=[entry])
    with pytest.raises(Exception, match="Cannot update these configs dynamically"):
        admin.incremental_alter_configs([resource])[resource].result()


def test_segments_go_there_and_consumers_notice_nothing(server: Broker, archive: str) -> None:
    invoke(server, "topics", "create", "busy", *SMALL, "--tier", archive)
    before = metrics(server)["entrepot_tier_segments_copied_total"]
    fill(server, "busy")
    wait_until(lambda: copied_end(archive, "busy") > 700)
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "busy",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["busy"])
    found: list[bytes | None] = []
    wait_until(lambda: _take(consumer, found) == 1_000)
    consumer.close()
    assert found == [str(number).encode() for number in range(1_000)]
    after = metrics(server)
    assert after["entrepot_tier_segments_copied_total"] > before
    assert after["entrepot_tiers_away"] == 0


def test_what_mqtt_writes_goes_there_too(server: Broker, archive: str) -> None:
    invoke(server, "topics", "create", "plant.heat", *SMALL, "--tier", archive)
    values = [f"{number} degrees".encode() for number in range(200)]
    with Client(server.mqtt_address, "device") as client:
        for value in values:
            assert client.publish("plant/heat", value, 1) == 0
    wait_until(lambda: copied_end(archive, "plant.heat") > 100)
    found = archived_values(archive, "plant.heat")
    assert found == values[: len(found)]


def archived_values(address: str, topic: str) -> list[bytes | None]:
    """All that is in the archive, checked batch by batch."""
    archive = open_archive(address)
    [identity] = archive.ids(topic)
    partition = archive.partition(topic, identity, 0)
    assert partition is not None
    values: list[bytes | None] = []
    offset = partition.offset_start
    while offset < partition.offset_end:
        run = partition.read(offset, 10_000)
        for start, header in batch.walk(run.batches):
            whole = run.batches[start : start + header.size]
            batch.check(whole)
            values += [record.value for record in batch.records(whole)]
        offset = run.offset_end
    return values


def _take(consumer: Consumer, found: list[bytes | None]) -> int:
    found += [message.value() for message in consumer.consume(500, 0.2)]
    return len(found)


def test_a_store_that_goes_away_and_comes_back(
    server: Broker, archive: str, tmp_path: Path
) -> None:
    invoke(server, "topics", "create", "away", *SMALL, "--tier", archive)
    (tmp_path / "archive").rename(tmp_path / "elsewhere")
    fill(server, "away")
    status = ("status", "--data-dir", str(server.data_dir))
    wait_until(lambda: "is away" in invoke(server, *status).output)
    said = invoke(server, *status)
    assert f"tier {archive} is away: there is no directory" in said.output
    assert "failures in a row" in said.output
    assert said.exit_code == 1
    assert metrics(server)["entrepot_tiers_away"] == 1
    assert metrics(server)["entrepot_tier_failures_total"] > 0
    (tmp_path / "elsewhere").rename(tmp_path / "archive")
    wait_until(lambda: copied_end(archive, "away") > 700)
    wait_until(lambda: "everything can be used" in invoke(server, *status).output)
    assert "copying goes on" in server.log_path.read_text()


@pytest.mark.slow
def test_a_stop_does_not_wait_for_copies(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    address = (tmp_path / "archive").as_uri()
    with broker(tmp_path / "data") as started:
        invoke(started, "topics", "create", "t", *SMALL, "--tier", address)
        fill(started, "t", 5_000)
        started.restart()
        wait_until(lambda: copied_end(address, "t") > 4_700)


@pytest.mark.skipif(not S3, reason="ENTREPOT_S3=http://host:port/bucket names a bucket")
def test_s3_holds_a_topics_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, _, bucket = S3.rpartition("/")
    access = {"ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1"}
    for key, value in (access | {"ENDPOINT_URL": endpoint}).items():
        monkeypatch.setenv(f"AWS_{key}", value)
    address = f"s3://{bucket}/{tmp_path.name}"
    with broker(tmp_path / "data") as started:
        missing = invoke(started, "topics", "create", "t", *SMALL, "--tier", "s3://no-such-bucket")
        assert missing.exit_code == 1
        assert "entrepot.tier cannot be 's3://no-such-bucket': S3: " in missing.output
        created = invoke(started, "topics", "create", "t", *SMALL, "--tier", address)
        assert created.exit_code == 0, created.output
        fill(started, "t")
        wait_until(lambda: copied_end(address, "t") > 700)
    archive = open_archive(address)
    (identity,) = archive.ids("t")
    partition = archive.partition("t", identity, 0)
    assert partition is not None
    offset, found = 0, list[bytes | None]()
    while offset < partition.offset_end:
        run = partition.read(offset, 1_000)
        for position, header in batch.walk(run.batches):
            whole = run.batches[position : position + header.size]
            found += [record.value for record in batch.records(whole)]
        offset = run.offset_end
    assert found == [str(number).encode() for number in range(partition.offset_end)]
