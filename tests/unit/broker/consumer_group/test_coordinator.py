"""Groups on a node with a disk: what is kept, when it is answered, and what a crash leaves."""

import asyncio
import errno
from collections.abc import Sequence
from typing import Any

import pytest

from entrepot.broker.consumer_group.coordinator import Coordinator
from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.consumer_group.messages import (
    JOINS,
    LEAVES,
    GroupHeartbeat,
    HeartbeatAnswer,
    Join,
    JoinAnswer,
    Sync,
    SyncAnswer,
)
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import Assignment, CommittedOffset
from entrepot.core import limits
from entrepot.core.errors import StorageError
from tests.unit.broker.bed import Bed
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.log.bed import simulated

HERE = TopicPartition("t", 0)
DAY_MS = 24 * 3_600_000
OURS = "partitions/__consumer_offsets*"


def groups_of(node: Node) -> Coordinator:
    return node.context.broker.groups


def joining(member_id: str = "", name: str = "m", session_ms: int = 10_000) -> Join:
    words = (("range", b"\0\0\0\0\0\1\0\1t"),)
    return Join(member_id, name, None, "c", "/h", session_ms, 30_000, "consumer", words, False)


def syncing(member_id: str, generation: int, parts: dict[str, bytes] | None = None) -> Sync:
    return Sync(member_id, None, generation, None, None, parts or {})


async def alone(node: Node, group: str = "g", name: str = "m") -> JoinAnswer:
    """A group of one, stable."""
    groups = groups_of(node)
    joined = await groups.join(group, joining(name=name))
    synced = await groups.sync(group, syncing(name, joined.generation, {name: b"all"}))
    assert (joined.fault, synced.fault, synced.assignment) == (None, None, b"all")
    return joined


def beating(
    member_id: str, epoch: int = JOINS, *, owned: Assignment | None = None, topic: str = "t"
) -> GroupHeartbeat:
    if epoch != JOINS:
        return GroupHeartbeat(member_id, epoch, None, None, -1, None, None, None, owned, "c", "/h")
    return GroupHeartbeat(member_id, JOINS, None, None, 5_000, (topic,), None, None, {}, "c", "/h")


async def beat(node: Node, group: str, heartbeat: GroupHeartbeat) -> HeartbeatAnswer:
    answer = groups_of(node).heartbeat_modern(group, heartbeat)
    return answer if isinstance(answer, HeartbeatAnswer) else await answer


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", -1)


async def commit(node: Node, group: str, offset: int, place: TopicPartition = HERE) -> None:
    assert await groups_of(node).commit_offsets(group, "", -1, {place: at(offset)}) == {}


def offset_of(node: Node, group: str, place: TopicPartition = HERE) -> int | None:
    found = groups_of(node).fetch_offsets(group, [place])[place]
    return found.offset if isinstance(found, CommittedOffset) else None


def fault_in(caught: pytest.ExceptionInfo[GroupError]) -> Fault:
    return caught.value.fault


# --- over crashes


@on_node()
async def test_offsets_survive(node: Node) -> None:
    """Proves K-02 and K-03."""
    await node.context.broker.create_topic("t", 2)
    await commit(node, "g", 5)
    await commit(node, "h", 7)
    await commit(node, "g", 6)
    await node.power_fails()
    assert (offset_of(node, "g"), offset_of(node, "h")) == (6, 7)
    told = sorted((each.group_id, each.state) for each in groups_of(node).list())
    assert told == [("g", "Empty"), ("h", "Empty")]


@on_node()
async def test_members_survive(node: Node) -> None:
    joined = await alone(node)
    await node.power_fails()
    groups = groups_of(node)
    assert groups.heartbeat("g", "m", None, joined.generation) is None
    again = await groups.sync("g", syncing("m", joined.generation))
    assert again.assignment == b"all"
    await asyncio.sleep(11)
    assert groups.heartbeat("g", "m", None, joined.generation) is Fault.UNKNOWN_MEMBER_ID
    await node.power_fails()
    assert groups_of(node).describe("g").state == "Empty"


@on_node()
async def test_modern_groups_survive(node: Node) -> None:
    topic = await node.context.broker.create_topic("t", 2)
    first = await beat(node, "g", beating("a"))
    assert first.assignment == {topic.id: (0, 1)}
    await beat(node, "g", beating("b"))
    before = groups_of(node).describe_modern("g")
    await node.power_fails()
    assert groups_of(node).describe_modern("g") == before
    told = await beat(node, "g", beating("a", first.epoch))
    assert told.assignment == {topic.id: (0,)}
    await asyncio.sleep(46)
    assert groups_of(node).describe_modern("g").state == "Empty"


@on_node()
async def test_a_group_that_was_deleted_stays_deleted(node: Node) -> None:
    await node.context.broker.create_topic("t")
    await commit(node, "simple", 5)
    await alone(node, "classic")
    groups_of(node).leave("classic", [("m", None)])
    await beat(node, "modern", beating("a"))
    await beat(node, "modern", beating("a", LEAVES))
    for group in ("simple", "classic", "modern"):
        await groups_of(node).delete(group)
    await node.power_fails()
    assert groups_of(node).list() == []
    assert offset_of(node, "simple") is None


# --- answers


@on_node()
async def test_a_commit_counts_when_it_is_permanent(node: Node) -> None:
    await node.context.broker.create_topic("t")
    await commit(node, "g", 1)
    committing = asyncio.ensure_future(groups_of(node).commit_offsets("g", "", -1, {HERE: at(2)}))
    await asyncio.sleep(1e-6)
    assert offset_of(node, "g") == 1
    await committing
    assert offset_of(node, "g") == 2


@on_node()
async def test_a_commit_happens_although_nobody_waits_for_it(node: Node) -> None:
    await node.context.broker.create_topic("t")
    await groups_of(node).prepare()
    committing = asyncio.ensure_future(groups_of(node).commit_offsets("g", "", -1, {HERE: at(2)}))
    await asyncio.sleep(1e-6)  # It is appended, and not permanent yet.
    committing.cancel()
    await asyncio.sleep(1)
    assert offset_of(node, "g") == 2


@on_node()
async def test_a_commit_that_cannot_be_kept_does_not_count(node: Node) -> None:
    await node.context.broker.create_topic("t")
    await commit(node, "g", 1)
    node.disk.fail_next("write", errno.ENOSPC, OURS)
    with pytest.raises(StorageError):
        await commit(node, "g", 2)
    assert offset_of(node, "g") == 1
    await commit(node, "g", 3)
    node.disk.fail_next("sync", errno.EIO, count=20)
    with pytest.raises(StorageError):
        await commit(node, "g", 4)
    assert offset_of(node, "g") == 3


@on_node()
async def test_a_division_that_cannot_be_kept_is_made_anew(node: Node) -> None:
    groups = groups_of(node)
    joined = await groups.join("g", joining())
    node.disk.fail_next("write", errno.ENOSPC, OURS)
    failed = await groups.sync("g", syncing("m", joined.generation, {"m": b"all"}))
    assert failed.fault is Fault.COORDINATOR_NOT_AVAILABLE
    assert groups.heartbeat("g", "m", None, joined.generation) is Fault.REBALANCE_IN_PROGRESS
    again = await groups.join("g", joining("m"))
    assert again.generation == joined.generation + 1
    done = await groups.sync("g", syncing("m", again.generation, {"m": b"all"}))
    assert done == SyncAnswer(None, "consumer", "range", b"all")


def at_once(answered: Sequence[asyncio.Future[Any]]) -> list[int]:
    """Return a list that will have how many are answered in each iteration of the loop, from the
    first answer to the last."""
    told: list[int] = []
    left = len(answered)
    loop = asyncio.get_running_loop()

    def next_iteration() -> None:
        told.append(0)
        if left:
            loop.call_soon(next_iteration)

    def count(_: asyncio.Future[Any]) -> None:
        nonlocal left
        if not told:
            next_iteration()
        told[-1] += 1
        left -= 1

    for each in answered:
        each.add_done_callback(count)
    return told


@pytest.mark.parametrize("end", ["joined", "not kept", "led elsewhere"])
@on_node()
async def test_many_who_wait_are_answered_some_at_a_time(node: Node, end: str) -> None:
    """Each of them asks again, and others have their turn in between."""
    groups, count = groups_of(node), 4 * limits.CHANGES_AT_ONCE_MAX
    joins = [asyncio.ensure_future(groups.join("g", joining(name=f"{i}"))) for i in range(count)]
    answered: list[asyncio.Future[JoinAnswer]] | list[asyncio.Future[SyncAnswer]] = joins
    if end == "not kept":
        generation = (await joins[-1]).generation
        leader = groups.describe("g").members[0].id
        others = [f"{i}" for i in range(count) if f"{i}" != leader]
        syncs = [groups.sync("g", syncing(each, generation)) for each in others]
        answered = [asyncio.ensure_future(each) for each in syncs]
        await asyncio.sleep(0.02)
        node.disk.fail_next("write", errno.ENOSPC, OURS)
        answered.append(asyncio.ensure_future(groups.sync("g", syncing(leader, generation))))
    told = at_once(answered)
    if end == "led elsewhere":
        await asyncio.sleep(0.02)
        groups.ended_to_lead(groups.partition_of("g"))
    await asyncio.wait(answered)
    assert sum(told) == count
    # The simulated loop shuffles what is ready, so two parts may be counted as one.
    assert max(told) <= 2 * limits.CHANGES_AT_ONCE_MAX
    faults = {each.result().fault for each in answered}
    expected = {
        "joined": None,
        "not kept": Fault.COORDINATOR_NOT_AVAILABLE,
        "led elsewhere": Fault.NOT_COORDINATOR,
    }
    assert faults == {expected[end]}


@on_node()
async def test_a_modern_heartbeat_that_cannot_be_kept_changes_nothing(node: Node) -> None:
    await node.context.broker.create_topic("t", 2)
    first = await beat(node, "g", beating("a"))
    node.disk.fail_next("write", errno.ENOSPC, OURS)
    with pytest.raises(StorageError):
        await beat(node, "g", beating("b"))
    assert [each.id for each in groups_of(node).describe_modern("g").members] == ["a"]
    assert (await beat(node, "g", beating("a", first.epoch))).epoch == first.epoch


@on_node()
async def test_one_whose_time_is_up_goes_when_that_can_be_kept(node: Node) -> None:
    await node.context.broker.create_topic("t", 2)
    await beat(node, "g", beating("a"))
    node.disk.fail_next("write", errno.ENOSPC, OURS, count=2)
    await asyncio.sleep(46)
    assert groups_of(node).describe_modern("g").state == "Stable"
    await asyncio.sleep(3)
    assert groups_of(node).describe_modern("g").state == "Empty"


@on_node()
async def test_idle_members_are_answered_at_once(node: Node) -> None:
    await node.context.broker.create_topic("t", 2)
    first = await beat(node, "g", beating("a"))
    answer = groups_of(node).heartbeat_modern("g", beating("a", first.epoch))
    assert isinstance(answer, HeartbeatAnswer)


# --- which group is whose


@on_node()
async def test_a_group_changes_its_protocol_when_it_has_no_members(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    groups = groups_of(node)
    await alone(node)
    with pytest.raises(GroupError) as caught:
        await beat(node, "g", beating("a"))
    assert fault_in(caught) is Fault.GROUP_ID_NOT_FOUND
    groups.leave("g", [("m", None)])
    await commit(node, "g", 5)
    first = await beat(node, "g", beating("a"))
    refused = await groups.join("g", joining())
    assert refused.fault is Fault.INCONSISTENT_GROUP_PROTOCOL
    assert groups.heartbeat("g", "a", None, first.epoch) is Fault.UNKNOWN_MEMBER_ID
    assert groups.leave("g", [("a", None)]) == [Fault.UNKNOWN_MEMBER_ID]
    assert (await groups.sync("g", syncing("a", 1))).fault is Fault.UNKNOWN_MEMBER_ID
    await node.power_fails()
    assert groups_of(node).list()[0].kind == "consumer"
    await beat(node, "g", beating("a", LEAVES))
    await alone(node)
    assert offset_of(node, "g") == 5
    await node.power_fails()
    assert groups_of(node).list()[0].kind == "classic"


@on_node()
async def test_the_verbs_know_strangers(node: Node) -> None:
    groups = groups_of(node)
    assert (await groups.join("g", joining("x"))).fault is Fault.UNKNOWN_MEMBER_ID
    assert groups.heartbeat("g", "x", None, 1) is Fault.UNKNOWN_MEMBER_ID
    assert groups.heartbeat("", "x", None, 1) is Fault.INVALID_GROUP_ID
    for verb in (
        groups.join("", joining()),
        groups.sync("", syncing("x", 1)),
        groups.delete("g"),
        groups.delete_offsets("g", [HERE]),
        groups.commit_offsets("g", "x", 3, {HERE: at(1)}),
    ):
        with pytest.raises(GroupError):
            await verb
    for describe in (groups.describe, groups.describe_modern):
        with pytest.raises(GroupError) as caught:
            describe("g")
        assert fault_in(caught) is Fault.GROUP_ID_NOT_FOUND
    with pytest.raises(GroupError) as caught:
        await beat(node, "g", beating("x", 3))
    assert fault_in(caught) is Fault.GROUP_ID_NOT_FOUND
    with pytest.raises(GroupError) as caught:
        await beat(node, "", beating("x"))
    assert fault_in(caught) is Fault.INVALID_REQUEST
    assert groups.list() == []


@on_node()
async def test_sessions_have_bounds(node: Node) -> None:
    for session_ms in (0, 5_999, 1_800_001):
        answer = await groups_of(node).join("g", joining(session_ms=session_ms))
        assert answer.fault is Fault.INVALID_SESSION_TIMEOUT


@on_node()
async def test_there_are_only_so_many_groups(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.context.broker.create_topic("t")
    monkeypatch.setattr(limits, "GROUPS_MAX", 1)
    await commit(node, "g", 1)
    for verb in (commit(node, "h", 1), groups_of(node).join("h", joining())):
        with pytest.raises(GroupError) as caught:
            await verb
        assert fault_in(caught) is Fault.GROUP_MAX_SIZE_REACHED
    with pytest.raises(GroupError) as caught:
        await beat(node, "h", beating("a"))
    assert fault_in(caught) is Fault.GROUP_MAX_SIZE_REACHED


# --- offsets


@on_node()
async def test_each_offset_has_its_own_answer(node: Node) -> None:
    long = CommittedOffset(3, -1, "x" * (limits.OFFSET_METADATA_SIZE_MAX + 1), -1)
    there = TopicPartition("t", 1)
    faults = await groups_of(node).commit_offsets("g", "", -1, {HERE: long, there: at(4)})
    assert faults == {HERE: Fault.OFFSET_METADATA_TOO_LARGE}
    assert (offset_of(node, "g"), offset_of(node, "g", there)) == (None, 4)


@on_node()
async def test_offsets_in_a_transaction(node: Node) -> None:
    await node.context.broker.create_topic("t")
    groups = groups_of(node)
    await commit(node, "g", 1)
    await groups.commit_offsets("g", "", -1, {HERE: at(2)}, producer=(9, 0))
    assert offset_of(node, "g") == 1
    assert groups.fetch_offsets("g", [HERE], require_stable=True) == {
        HERE: Fault.UNSTABLE_OFFSET_COMMIT
    }
    groups.complete_transaction(9, committed=True)
    assert offset_of(node, "g") == 2
    await groups.commit_offsets("g", "", -1, {HERE: at(3)}, producer=(9, 0))
    groups.complete_transaction(9, committed=False)
    assert offset_of(node, "g") == 2
    with pytest.raises(GroupError) as caught:
        await groups.commit_offsets("none", "x", 3, {HERE: at(3)}, producer=(9, 0))
    assert fault_in(caught) is Fault.ILLEGAL_GENERATION


@on_node()
async def test_offsets_go_with_their_topic(node: Node) -> None:
    """A topic made anew under the same name is another one."""
    broker = node.context.broker
    topic = await broker.create_topic("t")
    await broker.create_topic("u")
    await commit(node, "g", 5)
    await commit(node, "g", 6, TopicPartition("u", 0))
    await broker.delete_topic(topic)
    await broker.create_topic("t")
    assert offset_of(node, "g") is None
    await node.power_fails()
    assert (offset_of(node, "g"), offset_of(node, "g", TopicPartition("u", 0))) == (None, 6)


@on_node()
async def test_offsets_are_deleted_where_nobody_reads(node: Node) -> None:
    await node.context.broker.create_topic("t")
    await node.context.broker.create_topic("u")
    groups, other = groups_of(node), TopicPartition("u", 0)
    await commit(node, "g", 5)
    await commit(node, "g", 5, other)
    await alone(node)
    assert await groups.delete_offsets("g", [HERE, other]) == {
        HERE: Fault.GROUP_SUBSCRIBED_TO_TOPIC
    }
    assert (offset_of(node, "g"), offset_of(node, "g", other)) == (5, None)
    with pytest.raises(GroupError) as caught:
        await groups.delete("g")
    assert fault_in(caught) is Fault.NON_EMPTY_GROUP


@on_node()
async def test_what_nobody_uses_for_long_is_forgotten(node: Node) -> None:
    await node.context.broker.create_topic("t")
    groups = groups_of(node)
    await commit(node, "idle", 5)
    joined = await alone(node, "left")
    await groups.commit_offsets("left", "m", joined.generation, {HERE: at(5)})
    node.clock.jump(6 * DAY_MS)
    groups.leave("left", [("m", None)])
    await commit(node, "used", 5)
    node.clock.jump(2 * DAY_MS)
    await asyncio.sleep(601)
    assert [offset_of(node, group) for group in ("idle", "left", "used")] == [None, 5, 5]
    assert [each.group_id for each in groups.list()] == ["left", "used"]
    node.clock.jump(8 * DAY_MS)
    await asyncio.sleep(601)
    assert groups.list() == []
    await node.power_fails()
    assert groups_of(node).list() == []


@pytest.mark.parametrize(
    ("durability", "end", "stays"),
    [
        ("interval", "kill", True),
        ("interval", "crash", False),  # The newest epochs may be lost, and given again.
        ("os", "crash", False),
        ("fsync", "crash", True),
    ],
)
@simulated
async def test_who_is_a_member_after_the_end_of_a_broker(
    bed: Bed, durability: str, end: str, stays: bool
) -> None:
    settings = {"durability": durability}
    await bed.start(settings)
    await bed.create("t")
    joined = await bed.do(beat_on(bed, beating("m")))
    await asyncio.sleep(100)  # By then it is on the disk, whatever the durability.
    joined = await bed.do(beat_on(bed, beating("m")))
    getattr(bed, end)()
    await bed.start(settings)
    beats = beat_on(bed, beating("m", joined.epoch))
    if stays:
        assert (await bed.do(beats)).epoch == joined.epoch
        return
    with pytest.raises(GroupError) as caught:
        await bed.do(beats)
    assert fault_in(caught) is Fault.UNKNOWN_MEMBER_ID
    again = await bed.do(beat_on(bed, beating("m")))
    assert again.assignment == joined.assignment


async def beat_on(bed: Bed, heartbeat: GroupHeartbeat) -> HeartbeatAnswer:
    await bed.broker.groups.prepare()
    answer = bed.broker.groups.heartbeat_modern("g", heartbeat)
    return answer if isinstance(answer, HeartbeatAnswer) else await answer
