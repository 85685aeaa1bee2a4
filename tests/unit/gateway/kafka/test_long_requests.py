"""Requests about much: in how many turns they are served, and that nothing else changes."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from bench import wide
from entrepot.broker.catalog import CATALOG_ID, Topic, topic_record
from entrepot.broker.consumer_group import modern
from entrepot.broker.consumer_group.watch import Watch
from entrepot.broker.turns import Turns
from entrepot.core import batch, limits
from entrepot.core.errors import InvalidPartitions, MalformedFrame
from entrepot.core.names import TopicName
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
async def test_what_was_changed_is_told_in_many_turns(
    node: Node, turns: list[Turns], monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.context.broker.create_topic("many", MANY)
    groups = node.context.broker.share_groups
    alter = groups.alter_offsets

    async def altered(*arguments: Any) -> Any:
        faults = await alter(*arguments)
        turns.clear()
        return faults

    monkeypatch.setattr(groups, "alter_offsets", altered)
    await ask(node, wide.alter_share_group_offsets("share", TOPICS))
    assert len(turns) >= 2 * MANY  # One for each row, and one to write it.


@on_node()
async def test_offsets_of_a_topic_that_is_deleted_are_deleted_in_many_turns(
    node: Node, turns: list[Turns]
) -> None:
    """They are gone when there may be a new topic of that name."""
    broker = node.context.broker
    topic = await broker.create_topic("many", MANY)
    await ask(node, wide.offset_commit("group", TOPICS))
    turns.clear()
    await broker.groups.topic_deleted("many")
    assert len(turns) >= MANY
    await ask(node, wide.offset_commit("group", TOPICS))
    assert len(broker.groups.committed("group")) == MANY
    await broker.delete_topic(topic)
    await broker.create_topic("many", MANY)
    assert len(broker.groups.committed("group")) == 0


def epoch_of(body: bytes) -> int:
    return wide.epoch_of(bytes(5) + body)  # There is no header here.


def many_topics(node: Node) -> None:
    for number, name in enumerate(NAMES):
        topic = Topic(TopicName(name), UUID(int=number + 1), 1)
        node.context.broker.catalog.apply(topic_record(topic))


@on_node()
async def test_a_group_that_wants_many_topics_is_divided_in_many_turns(
    node: Node, turns: list[Turns], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modern, "_TOPICS_PER_MS", MANY + 1)  # For each member that joins.
    many_topics(node)
    await node.context.broker.groups.prepare()
    turns.clear()
    joining = asyncio.ensure_future(ask(node, wide.join_by_regex("group", "name.*", "a")))
    await until(turns, 10)
    turns.clear()
    others = [
        asyncio.ensure_future(ask(node, wide.join_by_regex("group", "name.*", name)))
        for name in ("b", "c")
    ]
    assert epoch_of(await joining) == 1
    assert sorted([epoch_of(await each) for each in others]) == [2, 3]
    assert len(turns) >= 5 * MANY
    found = node.context.broker.groups.describe_modern("group")
    assert [len(each.target) for each in found.members] == 3 * [MANY // 3]


@on_node()
async def test_who_is_gone_before_the_group_is_divided_never_joined(
    node: Node, turns: list[Turns]
) -> None:
    many_topics(node)
    groups = node.context.broker.groups
    await groups.prepare()
    turns.clear()
    joining = asyncio.ensure_future(ask(node, wide.join_by_regex("group", "name.*", "a")))
    await until(turns, MANY)
    waiting = asyncio.ensure_future(ask(node, wide.join_by_regex("group", "name.*", "b")))
    await asyncio.sleep(0)
    assert [each.id for each in groups.describe_modern("group").members] == ["a"]
    joining.cancel()
    assert epoch_of(await waiting) == 1
    assert [each.id for each in groups.describe_modern("group").members] == ["b"]


@on_node()
async def test_nobody_is_given_up_while_a_heartbeat_is_worked_on(
    node: Node, turns: list[Turns]
) -> None:
    many_topics(node)
    groups = node.context.broker.groups
    await ask(node, wide.join_by_regex("group", "name-0+", "silent"))
    turns.clear()
    joining = asyncio.ensure_future(ask(node, wide.join_by_regex("group", "name.*", "a")))
    await until(turns, 10)
    groups._ring(("group", Watch.SESSION, "silent"))
    assert len(groups.describe_modern("group").members) == 2
    assert epoch_of(await joining) == 2
    await asyncio.sleep(0.1)
    assert [each.id for each in groups.describe_modern("group").members] == ["a"]


@on_node()
async def test_many_shared_partitions_are_fetched_and_acknowledged_in_many_turns(
    node: Node, turns: list[Turns]
) -> None:
    broker = node.context.broker
    topic = await broker.create_topic("many", MANY)
    await ask(node, wide.share_heartbeat("share", "m", ["many"]))
    await ask(node, wide.produce_to_all(TOPICS, BATCH))
    turns.clear()
    wanted = [(topic.id.bytes, [(index, ()) for index in range(MANY)])]
    await ask(node, wide.share_fetch("share", "m", 0, wanted))
    # Read, kept in the session, looked at, acquired, arranged, written.
    assert len(turns) >= 6 * MANY
    shares = [broker.share_groups.partition("share", topic, index) for index in range(MANY)]
    assert all(share.ledger.leased for share in shares)
    turns.clear()
    accepted = [(topic.id.bytes, [(index, [(0, 0, b"\1")]) for index in range(MANY)])]
    await ask(node, wide.share_acknowledge("share", "m", 1, accepted))
    assert len(turns) >= 4 * MANY
    assert not any(share.lag for share in shares)


@pytest.mark.parametrize("passed", [MANY // 2, 3 * MANY // 2, 5 * MANY // 2])
@on_node()
async def test_what_comes_while_a_share_fetch_looks_around_is_not_missed(
    node: Node, passed: int, turns: list[Turns]
) -> None:
    share_groups = node.context.broker.share_groups
    topic = await node.context.broker.create_topic("many", MANY)
    await ask(node, wide.share_heartbeat("share", "m", ["many"]))
    await ask(node, wide.produce([("many", 0, BATCH)]))
    await ask(node, wide.share_fetch("share", "other", 0, [(topic.id.bytes, [(0, ())])]))
    wanted = [(topic.id.bytes, [(index, ()) for index in range(MANY)])]
    await ask(node, wide.share_fetch("share", "m", 0, wanted))
    turns.clear()
    begun_s = node.context.clock.monotonic()
    fetching = asyncio.ensure_future(ask(node, wide.share_fetch("share", "m", 1, [], 20_000)))
    await until(turns, passed)  # It looks at all, listens to all, and looks again.
    other = share_groups.sessions.find("share", "other")
    assert other is not None
    share_groups.end_session(other)
    await fetching
    assert node.context.clock.monotonic() - begun_s < 10
    (lease,) = share_groups.partition("share", topic, 0).ledger.leased.values()
    assert lease.owner is share_groups.sessions.find("share", "m")


@on_node()
async def test_what_a_share_session_had_is_released_in_many_turns(
    node: Node, turns: list[Turns]
) -> None:
    share_groups = node.context.broker.share_groups
    topic = await node.context.broker.create_topic("many", MANY)
    await ask(node, wide.share_heartbeat("share", "m", ["many"]))
    await ask(node, wide.produce_to_all(TOPICS, BATCH))
    wanted = [(topic.id.bytes, [(index, ()) for index in range(MANY)])]
    await ask(node, wide.share_fetch("share", "m", 0, wanted))
    session = share_groups.sessions.find("share", "m")
    assert session is not None
    turns.clear()
    share_groups.end_session(session)
    shares = [share_groups.partition("share", topic, index) for index in range(MANY)]
    assert any(share.ledger.leased for share in shares)
    await until(turns, MANY - 1)
    await asyncio.sleep(0.1)
    assert not any(share.ledger.leased for share in shares)


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
    assert broker.served_partition(topic, MANY - 1).partition.policy.retention_ms == 1_000


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
    await asyncio.sleep(0.0001)  # Until it has begun; a sync takes longer.
    with pytest.raises(InvalidPartitions):
        await broker.create_topic("two", 10)
    await first


@on_node()
async def test_a_long_request_that_is_not_one(node: Node) -> None:
    request = bytearray(wide.list_offsets(TOPICS))
    del request[-5:]
    with pytest.raises(MalformedFrame):
        await ask(node, bytes(request))
