"""A name is one thing: queues as topics that can be read, topics as streams to publish to."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from entrepot.broker.catalog import Topic
from entrepot.core.errors import (
    InvalidName,
    PeerError,
    QueueHasConsumers,
    QueueLocked,
    QueueMismatch,
    QueueNotEmpty,
    TopicExists,
    UnknownQueue,
)
from entrepot.gateway.rabbitmq.queue_arguments import QueueDeclaration
from tests.unit.broker.virtual_host.bed import Host
from tests.unit.log.bed import make, simulated

ends = pytest.mark.parametrize("end", ["stop", "kill", "crash"])

# --- queues as topics


@ends
@simulated
async def test_a_queue_can_be_read_as_a_topic(bed: Host, end: str) -> None:
    await bed.start()
    await bed.queue("work", max_priority=2)
    await bed.publish("", "work", b"a", b"b")
    assert bed.values("work", 0) == [b"a", b"b"]
    assert bed.bodies("work") == [b"a", b"b"]
    await asyncio.sleep(0.1)
    await bed.restart(end)
    topic = bed.broker.topic("work")
    assert (topic.partition_count, topic.is_queue) == (3, True)
    assert bed.values("work", 0) == [b"a", b"b"]
    assert bed.vhost.stream("work") is None


@simulated
async def test_but_not_written_or_changed(bed: Host) -> None:
    await bed.start()
    await bed.queue("work")
    broker, topic = bed.broker, bed.broker.topic("work")
    with pytest.raises(InvalidName, match="'work' is a queue: as a topic it can be read"):
        broker.check_foreign("work")
    for change in (
        broker.delete_topic(topic),
        broker.create_partitions(topic, 2),
        broker.alter_settings(topic, {}),
        broker.delete_records(bed.served_partition("work"), -1),
    ):
        with pytest.raises(InvalidName):
            await bed.do(change)
    with pytest.raises(TopicExists):
        await bed.create("work")


@simulated
async def test_a_name_is_one_thing(bed: Host) -> None:
    await bed.start()
    await bed.declare("here", durable=False)
    with pytest.raises(TopicExists, match="there is a queue 'here'"):
        await bed.create("here")
    await bed.create("orders")
    with pytest.raises(QueueMismatch, match="inequivalent arg 'x-queue-type' for queue 'orders'"):
        await bed.declare("orders")


@simulated
async def test_a_queue_and_a_topic_made_at_once(bed: Host, seed: int) -> None:
    await bed.start()

    async def outcome(work: Coroutine[Any, Any, object]) -> str:
        try:
            return type(await work).__name__
        except PeerError as error:
            return type(error).__name__

    declaring = bed.vhost.declare_queue(QueueDeclaration("/", "new"), None)
    creating = bed.broker.create_topic("new")
    made = await asyncio.gather(bed.do(outcome(declaring)), bed.do(outcome(creating)))
    assert made in (["Queue", "TopicExists"], ["QueueMismatch", "Topic"])


@pytest.mark.parametrize("name", ["with space", "amq.gen-x"])
@simulated
async def test_what_no_topic_could_be_called_is_hidden(bed: Host, name: str) -> None:
    await bed.start()
    made = (await bed.queue(name)).name
    assert made not in bed.broker.topics
    (directory,) = [n for n in bed.disk.names("partitions") if n.startswith("$queue-")] or [""]
    await bed.publish("", made, b"a")
    (directory,) = [n for n in bed.disk.names("partitions") if n.startswith("$queue-")]
    assert directory.endswith("-0")


# --- topics as streams


@ends
@simulated
async def test_a_stream_is_a_topic(bed: Host, end: str) -> None:
    await bed.start()
    made = await bed.declare("orders", queue_type="stream", max_age="1h", max_length_bytes=9_000)
    assert isinstance(made, Topic)
    assert made.settings["retention.ms"] == "3600000"
    assert made.settings["retention.bytes"] == "9000"
    await bed.publish("", "orders", b"a")
    await bed.commit("orders", make(b"b"))
    await bed.restart(end)
    assert bed.values("orders") == [b"a", b"b"]
    again = {"queue_type": "stream", "max_age": "60m", "max_length_bytes": 9_000}
    assert await bed.declare("orders", **again) == bed.vhost.stream("orders")
    with pytest.raises(QueueMismatch, match="received '5h' but current is '3600s'"):
        await bed.declare("orders", queue_type="stream", max_age="5h")


@simulated
async def test_a_topic_is_a_stream(bed: Host) -> None:
    await bed.start()
    await bed.create("orders", 3)
    assert await bed.declare("orders", queue_type="stream") == bed.broker.topic("orders")
    with pytest.raises(QueueMismatch, match="'x-max-age'"):
        await bed.declare("orders", queue_type="stream", max_age="5h")
    with pytest.raises(QueueLocked):
        await bed.declare("orders", queue_type="stream", exclusive=True)
    with pytest.raises(UnknownQueue):
        bed.vhost.queue("orders")
    assert bed.vhost.stream("__consumer_offsets") is None


@ends
@simulated
async def test_a_stream_that_is_no_topic_for_everybody(bed: Host, end: str) -> None:
    await bed.start()
    made = await bed.declare("my stream", queue_type="stream", max_age="1h")
    assert isinstance(made, Topic)
    assert made.is_hidden
    await bed.bind("amq.fanout", "my stream")
    await bed.publish("amq.fanout", "", b"a")
    await bed.restart(end)
    again = await bed.declare("my stream", queue_type="stream", max_age="1h")
    assert again == made == bed.vhost.stream("my stream")
    assert list(bed.broker.topics) == ["__queue_ledgers"]
    with pytest.raises(QueueMismatch):
        await bed.declare("my stream", queue_type="stream")
    assert bed.broker.served_partition(made, 0).partition.offset_end == 1
    with pytest.raises(QueueNotEmpty):
        await bed.delete_queue("my stream", if_empty=True)
    await bed.delete_queue("my stream")
    await bed.restart(end)
    assert bed.vhost.stream("my stream") is None
    assert [n for n in bed.disk.names("partitions") if not n.startswith("__")] == []


@ends
@simulated
async def test_a_topic_that_goes_is_unbound(bed: Host, end: str) -> None:
    await bed.start()
    await bed.create("orders")
    await bed.bind("amq.fanout", "orders")
    await bed.restart(end)
    assert await bed.publish("amq.fanout", "", b"a") == []
    assert bed.values("orders") == [b"a"]
    await (bed.delete("orders") if end == "kill" else bed.delete_queue("orders"))
    assert await bed.publish("amq.fanout", "", b"b") == [b"b"]
    await bed.restart(end)
    await bed.create("orders")
    assert await bed.publish("amq.fanout", "", b"c") == [b"c"]


@simulated
async def test_who_reads_a_stream_is_told_when_it_goes(bed: Host) -> None:
    await bed.start()
    await bed.create("orders")
    told: list[str] = []
    for name in ("ana", "ben", "eve"):
        bed.vhost.watch_stream("orders", name, partial(told.append, name))
    bed.vhost.unwatch_stream("orders", "eve")
    bed.vhost.unwatch_stream("orders", "eve")
    assert bed.vhost.reader_count("orders") == 2
    with pytest.raises(QueueHasConsumers):
        await bed.delete_queue("orders", if_unused=True)
    await bed.delete("orders")
    assert told == ["ana", "ben"]
    assert bed.vhost.reader_count("orders") == 0
