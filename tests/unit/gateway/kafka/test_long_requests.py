"""Requests about much: in how many turns they are served, and that nothing else changes."""

import asyncio
from collections.abc import Callable

import pytest

from bench import wide
from entrepot.broker.catalog import CATALOG_ID
from entrepot.broker.turns import Turns
from entrepot.core import batch, limits
from entrepot.core.errors import InvalidPartitions, MalformedFrame
from entrepot.core.record import Record
from entrepot.gateway.kafka import apis
from entrepot.wire.kafka.frames import read_request_header
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.serving import Answer

MANY = 600
TOPICS = [("many", MANY)]
NAMES = [f"name-{number:020}" for number in range(MANY)]

BATCH = batch.build([Record(b"key", b"value")], now_ms=1_000)

READING: dict[str, Callable[[], bytes]] = {
    "Metadata, all": lambda: wide.metadata(None),
    "Metadata, by name": lambda: wide.metadata(NAMES),
    "ListOffsets": lambda: wide.list_offsets(TOPICS),
    "Fetch": lambda: wide.fetch(TOPICS, 0),
    "Fetch, waiting": lambda: wide.fetch(TOPICS, 10),
    "DescribeLogDirs": wide.describe_log_dirs,
    "DescribeConfigs": lambda: wide.describe_configs(NAMES),
    "DescribeTopicPartitions": lambda: wide.describe_topic_partitions(NAMES),
    "FindCoordinator": lambda: wide.find_coordinators(NAMES),
    "DescribeGroups": lambda: wide.describe_groups(NAMES),
    "OffsetFetch": lambda: wide.offset_fetch("group", TOPICS),
    "OffsetFetch, all": lambda: wide.offset_fetch("group", None),
}
CHANGING: dict[str, Callable[[], bytes]] = {
    "OffsetCommit": lambda: wide.offset_commit("group", TOPICS),
    "OffsetDelete": lambda: wide.offset_delete("group", TOPICS),
    "AlterShareGroupOffsets": lambda: wide.alter_share_group_offsets("share", TOPICS),
    "Produce": lambda: wide.produce([("many", index, BATCH) for index in range(MANY)]),
    "ConsumerGroupHeartbeat": lambda: wide.join_by_names("modern", NAMES + NAMES),
    "CreatePartitions": lambda: wide.create_partitions([("many", 2 * MANY)]),
    "CreateTopics": lambda: wide.create_topics([("more", MANY)]),
    "DeleteTopics": lambda: wide.delete_topics(["many"]),
}


async def ask(node: Node, request: bytes) -> bytes:
    frame = memoryview(bytearray(request))[4:]
    header, position = read_request_header(frame)
    serve = apis.find(header.api_key, header.version)
    assert serve is not None
    answer = Answer()
    pending = serve(node.context, header, frame, position, answer)  # type: ignore[arg-type]
    if pending is not None:
        await pending
    await answer.sent.wait()
    assert answer.body is not None
    return answer.body


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[Turns]:
    """Every step is a turn of its own, and here is one entry for each that was waited for."""
    taken: list[Turns] = []
    wait = Turns.next

    def counting(self: Turns) -> object:
        taken.append(self)
        return wait(self)

    monkeypatch.setattr(Turns, "next", counting)
    monkeypatch.setattr(limits, "TURN_MS", 0)
    return taken


async def until(turns: list[Turns], count: int) -> None:
    for _ in range(100 * count):
        if len(turns) >= count:
            return
        await asyncio.sleep(0)
    raise AssertionError(len(turns))


@pytest.mark.parametrize("name", READING)
@on_node()
async def test_what_is_read_is_the_same_in_many_turns(
    node: Node, name: str, turns: list[Turns], monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.context.broker.create_topic("many", MANY)
    await ask(node, wide.offset_commit("group", TOPICS))
    turns.clear()
    in_turns = await ask(node, READING[name]())
    assert len(turns) >= MANY
    monkeypatch.setattr(limits, "TURN_MS", 1_000)
    assert await ask(node, READING[name]()) == in_turns


@pytest.mark.parametrize("name", CHANGING)
@on_node()
async def test_what_changes_much_takes_many_turns(
    node: Node, name: str, turns: list[Turns]
) -> None:
    await node.context.broker.create_topic("many", MANY)
    await ask(node, wide.offset_commit("group", TOPICS))
    turns.clear()
    answer = await ask(node, CHANGING[name]())
    assert len(turns) >= MANY
    assert b"\xff\xff\xff" not in answer[:20]  # No code of an unknown error.


@on_node()
async def test_offsets_are_committed_some_at_a_time(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OFFSETS_AT_ONCE_MAX", 250)
    await node.context.broker.create_topic("many", MANY)
    await ask(node, wide.offset_commit("group", TOPICS))
    groups = node.context.broker.groups
    kept = groups.fetch_offsets("group", None)
    assert len(kept) == MANY
    await ask(node, wide.offset_delete("group", TOPICS))
    assert groups.fetch_offsets("group", None) == {}


@on_node()
async def test_a_topic_that_grows_and_is_altered_meanwhile_has_both(
    node: Node, turns: list[Turns]
) -> None:
    broker = node.context.broker
    await broker.create_topic("many", 1)
    growing = asyncio.ensure_future(broker.create_partitions(broker.topic("many"), MANY))
    await until(turns, 100)
    assert broker.topic("many").partition_count == 1
    await broker.alter_settings(broker.topic("many"), {"retention.ms": "1000"})
    await growing
    topic = broker.topic("many")
    assert (topic.partition_count, topic.settings) == (MANY, {"retention.ms": "1000"})
    assert broker.stream(topic, MANY - 1).partition.policy.retention_ms == 1_000


@on_node()
async def test_a_topic_is_deleted_when_it_has_grown(node: Node, turns: list[Turns]) -> None:
    broker = node.context.broker
    await broker.create_topic("many", 1)
    growing = asyncio.ensure_future(broker.create_partitions(broker.topic("many"), MANY))
    await until(turns, 100)
    await broker.delete_topic(broker.topic("many"))
    assert growing.done()
    assert "many" not in broker.topics
    assert not broker._log.partitions.keys() - {CATALOG_ID}


@on_node()
async def test_partitions_that_are_coming_count(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PARTITIONS_MAX", 15)
    broker = node.context.broker
    first = asyncio.ensure_future(broker.create_topic("one", 10))
    await asyncio.sleep(0)
    with pytest.raises(InvalidPartitions):
        await broker.create_topic("two", 10)
    await first


@on_node()
async def test_a_long_request_that_is_not_one(node: Node) -> None:
    request = bytearray(wide.list_offsets(TOPICS))
    del request[-5:]
    with pytest.raises(MalformedFrame):
        await ask(node, bytes(request))
