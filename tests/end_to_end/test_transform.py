"""Formats and rules added to a running broker, and consumers that do not notice."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import copy
from pathlib import Path
from typing import Any

import fastavro
import pika
import pytest
from click.testing import CliRunner
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from entrepot.cli import main
from entrepot.client.errors import ClientError
from entrepot.client.messaging.client import AsyncClient
from entrepot.testing import Broker, broker
from entrepot.transform.refusal import Refused
from entrepot.transform.repository import TOPIC, Repository
from entrepot.transform.running import Overtaken, Runner
from tests.end_to_end.test_stomp import Client as StompClient

WAIT_S = 120.0  # On a busy machine; what is waited for comes in seconds.
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "number", "type": "int"}, {"name": "price", "type": "double"}],
}


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


def flags(server: Broker) -> list[str]:
    host, port = server.endpoints["amqp"]
    return ["-b", server.bootstrap, "--amqp", f"{host}:{port}"]


def transform(server: Broker, *arguments: str) -> str:
    command = [sys.executable, "-m", "entrepot.cli", "transform", *arguments, *flags(server)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def start_runner(server: Broker) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "entrepot.cli", "transform", "run", *flags(server)]
    return subprocess.Popen(command)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def put(server: Broker, queue: str, *bodies: bytes) -> None:
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        for number, body in enumerate(bodies):
            properties = pika.BasicProperties(
                content_type="application/json",
                correlation_id=f"c-{number}",
                delivery_mode=2,
                headers={"shop": "Rome"},
            )
            channel.basic_publish("", queue, body, properties)


def read(server: Broker, topic: str, count: int, *, is_all: bool = False) -> list[Any]:
    reader = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message)
    more = reader.poll(1.0) if is_all else None
    assert more is None or more.error() is not None, more.value()
    reader.close()
    return found


@pytest.mark.slow
def test_a_consumer_does_not_notice(server: Broker, tmp_path: Path) -> None:
    """JSON by AMQP is read as XML by STOMP; the rule is added while everything runs."""
    xml = tmp_path / "xml.json"
    xml.write_text(json.dumps({"root": "order", "fields": {"number": "integer"}}))
    runner = start_runner(server)
    try:
        consumer = StompClient(server).connect()
        consumer.subscribe("/queue/erp")
        transform(server, "add-format", "shop", "json")
        transform(server, "add-format", "erp", "xml", "--schema", str(xml))
        said = transform(
            server, "add-rule", "to-erp", "queue:web", "shop", "queue:erp", "erp",
            "--rename", "nr=number",
        )  # fmt: skip
        assert said == "added rule to-erp\n"
        put(server, "web", b'{"nr":1,"city":"Roma"}', b"no JSON", b'{"nr":2,"city":"Oslo"}')
        first, second = consumer.next(), consumer.next()
        assert first.body == "<order><number>1</number><city>Roma</city></order>"
        assert second.body == "<order><number>2</number><city>Oslo</city></order>"
        assert first.headers["content-type"] == "application/xml"
        assert (first.headers["correlation-id"], first.headers["shop"]) == ("c-0", "Rome")
        consumer.subscribe("/queue/erp.rejected", id="2")
        rejected = consumer.next()
        assert (rejected.body, rejected.headers["correlation-id"]) == ("no JSON", "c-1")
        assert "not JSON" in rejected.headers["transform-error"]
        consumer.close()
        listed = [json.loads(line) for line in transform(server, "list", "--json").splitlines()]
        assert [each.get("format", each.get("rule")) for each in listed] == [
            "shop",
            "erp",
            "to-erp",
        ]
    finally:
        end(runner)


def test_a_runner_begins_anew_when_it_has_lost_the_broker(
    server: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Runner] = []

    async def run(runner: Runner) -> None:
        begun.append(runner)
        if len(begun) == 1:
            raise ClientError("connection lost")

    monkeypatch.setattr(Runner, "run", run)
    done = CliRunner().invoke(main, ["transform", "run", *flags(server)])
    assert (done.exit_code, done.stderr) == (0, "connection lost; again in 1 s\n")
    assert len(begun) == 2


@pytest.mark.slow
def test_what_a_killed_runner_has_left_open_is_ended(server: Broker) -> None:
    transform(server, "add-format", "left", "json")
    transform(server, "add-rule", "left", "topic:left-in", "left", "topic:left-out", "left")
    at = {"bootstrap.servers": server.bootstrap}
    name = "entrepot.transform.left"
    plain, killed = Producer(at), Producer({**at, "transactional.id": name})
    plain.produce("left-in", '{"n":1}')
    plain.flush(WAIT_S)
    killed.init_transactions(WAIT_S)
    killed.begin_transaction()
    killed.produce("left-out", "from a runner that is killed")
    reader = Consumer({**at, "group.id": name})
    reader.commit(offsets=[TopicPartition("left-in", 0, 0)], asynchronous=False)
    killed.send_offsets_to_transaction(
        [TopicPartition("left-in", 0, 1)], reader.consumer_group_metadata(), WAIT_S
    )
    killed.flush(WAIT_S)
    runner = start_runner(server)
    try:
        (found,) = read(server, "left-out", 1)
        assert json.loads(found.value()) == {"n": 1}
    finally:
        end(runner)
        transform(server, "remove-rule", "left")
        reader.close()


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_record_once_although_a_runner_and_the_broker_are_killed(tmp_path: Path) -> None:
    """JSON of one topic is Avro in another, by whichever runner is left."""
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(AVRO))
    with broker() as server:
        transform(server, "add-format", "text", "json")
        transform(server, "add-format", "small", "avro", "--schema", str(schema))
        transform(server, "add-rule", "small", "topic:orders", "text", "topic:small", "small")
        runners = [start_runner(server)]
        try:
            producer = Producer({"bootstrap.servers": server.bootstrap})

            def produce(numbers: range) -> None:
                for number in numbers:
                    value = json.dumps({"number": number, "price": f"{number}.5"})
                    producer.produce("orders", value, key=str(number))
                    producer.flush(WAIT_S)

            produce(range(50))
            read(server, "small", 10)
            runners.append(start_runner(server))
            produce(range(50, 100))
            end(runners[0])
            produce(range(100, 150))
            server.kill()
            server.start()
            produce(range(150, 200))
            found = read(server, "small", 200, is_all=True)
        finally:
            for runner in runners:
                end(runner)
    values = [fastavro.schemaless_reader(io.BytesIO(each.value()), AVRO, None) for each in found]
    assert values == [{"number": number, "price": number + 0.5} for number in range(200)]
    assert [each.key() for each in found] == [b"%d" % number for number in range(200)]
    assert dict(found[0].headers())["content-type"] == b"avro/binary"


def test_the_repository() -> None:
    async def check(server: Broker) -> None:
        host, port = server.endpoints["amqp"]
        async with AsyncClient(f"{host}:{port}", server.bootstrap) as client:
            one, other = Repository(client), Repository(client)
            await one.start()
            await other.start()
            await one.add_format("a", "json", {})
            rule = {"from": "topic:x", "from_format": "a", "to": "topic:y", "to_format": "a"}
            for wrong, said in (
                ({**rule, "to_format": "b"}, "no format b"),
                ({**rule, "to": "topic:x"}, "somewhere else"),
                ({**rule, "to": "queue:y"}, "topic to topic"),
                ({**rule, "to": "y"}, "neither topic:NAME"),
                ({"from": "topic:x"}, "no rule"),
            ):
                with pytest.raises(Refused, match=said):
                    await one.add_rule("r", wrong)
            await one.add_rule("r", rule)
            await one.add_rule("s", {**rule, "from": "topic:y", "to": "topic:z"})
            with pytest.raises(Refused, match="circle"):
                await one.add_rule("t", {**rule, "from": "topic:z", "to": "topic:x"})
            with pytest.raises(Refused, match="needs format a"):
                await one.remove_format("a")
            with pytest.raises(Refused, match="no name"):
                await one.add_format("a b", "json", {})
            with pytest.raises(Refused, match="more than"):
                await one.add_format("large", "csv", {"columns": ["x" * 70_000]})
            # Somebody writes what makes no sense: nothing changes, and nobody falls over.
            topic = await client.topic(TOPIC)
            for key, body in (
                ("format/a", b"{"), ("format/a", b'{"kind":"avro","schema":{"type":"R"}}'),
                ("rule/r", b"[1]"), ("rule/r", b'{"from":1}'), ("other", b"x"), ("format/", b"{}"),
            ):  # fmt: skip
                await topic.append(body, key=key)
            await one.remove_rule("s")
            await one.remove_rule("r")
            await one.add_format("last", "json", {})
            deadline = time.monotonic() + WAIT_S
            while "last" not in other.formats:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            assert [*other.formats] == ["a", "last"]
            assert (other.formats["a"].kind, other.rules) == ("json", {})

    with broker() as server:
        asyncio.run(check(server))


def test_a_runner_that_was_overtaken_converts_nothing_twice() -> None:
    """It has read before the other one's transaction was there, and comes after it."""

    async def check(server: Broker) -> None:
        host, port = server.endpoints["amqp"]
        async with AsyncClient(f"{host}:{port}", server.bootstrap) as client:
            slow, quick = Runner(client), Runner(client)
            await slow.repository.start()
            await slow.repository.add_format("a", "json", {})
            said = {"from": "topic:x", "from_format": "a", "to": "topic:y", "to_format": "a"}
            rule = await slow.repository.add_rule("r", said)
            conversion = slow.repository.conversion(rule)
            source = await client.topic("x", partitions=1)
            for number in range(3):
                await source.append({"n": number})
            between = asyncio.Event()
            go_on = asyncio.Event()
            take = client.topic_transaction

            @asynccontextmanager
            async def late(id: str) -> AsyncIterator[Any]:
                if not between.is_set():
                    between.set()
                    await go_on.wait()
                async with take(id) as transaction:
                    yield transaction

            slow._client = copy(client)
            slow._client.topic_transaction = late
            one = asyncio.create_task(slow._topics(conversion))
            await between.wait()
            other = asyncio.create_task(quick._topics(conversion))
            target = await client.topic("y", partitions=1)
            reader = await target.read()
            found: list[Any] = []
            while len(found) < 3:
                found += await reader.poll(1)
            go_on.set()
            with pytest.raises(Overtaken):
                await one
            found += await reader.poll(1)
            assert [each.value["n"] for each in found] == [0, 1, 2]
            other.cancel()
            await asyncio.wait([other])

    with broker() as server:
        asyncio.run(check(server))
