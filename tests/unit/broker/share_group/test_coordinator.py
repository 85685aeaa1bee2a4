import asyncio

import pytest

from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.consumer_group.messages import Join
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import CommittedOffset
from entrepot.broker.share_group.share_partition import AcknowledgeType
from entrepot.core import limits
from entrepot.core.errors import InvalidConfig, UnknownTopic
from tests.unit.broker.share_group.stage import Stage
from tests.unit.log.bed import make, simulated

ONE = object()


async def refused(work: object) -> Fault:
    with pytest.raises(GroupError) as raised:
        await work  # type: ignore[misc]
    return raised.value.fault


# --- where a group begins


@simulated
async def test_a_group_begins_with_what_comes_next(bed: Stage) -> None:
    """From its subscription on, not from its first fetch."""
    await bed.start()
    await bed.create("t")
    await bed.fill(3)
    await bed.beat(topics=("t",))
    await bed.fill(2)
    await bed.restart()
    assert bed.acquire(ONE) == [(range(3, 5), 1)]


@simulated
async def test_or_from_some_time_ago(bed: Stage) -> None:
    await bed.start()
    await bed.create("t")
    await bed.fill(2)
    await asyncio.sleep(120)
    await bed.commit("t", _stamped(bed))
    await bed.configure(share_auto_offset_reset="by_duration:PT1M")
    await bed.beat(topics=("t",))
    assert bed.acquire(ONE) == [(range(2, 3), 1)]
    await bed.beat("h", topics=("t",))
    assert bed.share(group="h").ledger.offset_low == 3


def _stamped(bed: Stage) -> bytes:
    return make(b"late", time_ms=bed.clock.now_ms())


@simulated
async def test_new_partitions_are_read_whole(bed: Stage) -> None:
    await bed.start()
    await bed.create("t")
    await bed.beat(topics=("t",))
    await bed.do(bed.broker.create_partitions(bed.broker.topic("t"), 2))
    await bed.commit("t", _stamped(bed), 1)
    with pytest.raises(UnknownTopic):
        bed.share(index=1)
    told = await bed.beat(epoch=1)
    assert told.assignment == {bed.broker.topic("t").id: (0, 1)}
    assert bed.share(index=1).lag == 1
    await bed.restart()
    assert bed.share(index=1).lag == 1


@simulated
async def test_so_are_topics_that_are_younger_than_the_subscription(bed: Stage) -> None:
    await bed.start()
    await bed.create("u")
    await bed.beat(topics=("t", "u"))
    await bed.create("t")
    await bed.fill(2)
    await bed.beat(epoch=1)
    assert bed.acquire(ONE) == [(range(2), 1)]


# --- members


@simulated
async def test_a_member_that_is_silent_is_gone_with_its_locks(bed: Stage) -> None:
    await bed.open("t", share_session_timeout_ms="6000", share_record_lock_duration_ms="60000")
    await bed.fill(1)
    session = bed.groups.sessions.open("g", "m", None)
    assert session is not None
    bed.acquire(session)
    session.locked[bed.broker.topic("t").id, 0] = None
    await asyncio.sleep(5)
    await bed.beat(epoch=1)
    await asyncio.sleep(5)
    assert bed.groups.describe("g").members
    await asyncio.sleep(2)
    assert bed.groups.describe("g").state == "Empty"
    assert bed.acquire(ONE) == [(range(1), 2)]
    assert bed.groups.sessions.find("g", "m") is None


@simulated
async def test_leaving(bed: Stage) -> None:
    await bed.open("t")
    told = await bed.beat(epoch=-1)
    assert (told.epoch, told.assignment) == (-1, None)
    assert await refused(bed.beat(epoch=-1)) is Fault.UNKNOWN_MEMBER_ID
    assert bed.groups.listed() == [("g", "share", "Empty", "share")]


@simulated
async def test_a_group_without_members_and_topics_is_none(bed: Stage) -> None:
    await bed.start()
    await bed.beat(topics=("nothing",))
    await bed.beat(epoch=-1)
    assert bed.groups.listed() == []
    assert await refused(bed.beat(epoch=1)) is Fault.GROUP_ID_NOT_FOUND
    assert await refused(bed.beat("", topics=("t",))) is Fault.INVALID_REQUEST


@simulated
async def test_a_group_is_of_one_kind(bed: Stage) -> None:
    await bed.open("t")
    groups = bed.broker.groups
    join = Join("", "fresh", None, "c", "/h", 10_000, 10_000, "consumer", (("range", b""),))
    assert await refused(bed.do(groups.join("g", join))) is Fault.INCONSISTENT_GROUP_PROTOCOL
    offsets = {TopicPartition("t", 0): CommittedOffset(1, -1, "", 1)}
    commit = groups.commit_offsets("g", "", -1, offsets)
    assert await refused(bed.do(commit)) is Fault.GROUP_ID_NOT_FOUND
    await bed.do(groups.commit_offsets("other", "", -1, offsets))
    assert await refused(bed.beat("other", topics=("t",))) is Fault.GROUP_ID_NOT_FOUND
    alter = bed.groups.alter_offsets("other", [])
    assert await refused(bed.do(alter)) is Fault.GROUP_ID_NOT_FOUND


@simulated
async def test_there_are_bounds(bed: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await bed.open("t")
    await bed.create("u", 2)
    monkeypatch.setattr(limits, "SHARE_PARTITIONS_MAX", 2)
    assert await refused(bed.beat(epoch=1, topics=("u",))) is Fault.GROUP_MAX_SIZE_REACHED
    monkeypatch.setattr(limits, "SHARE_GROUPS_MAX", 1)
    assert await refused(bed.beat("h", topics=("t",))) is Fault.GROUP_MAX_SIZE_REACHED
    monkeypatch.setattr(limits, "GROUPS_MAX", 1)
    with pytest.raises(InvalidConfig):
        await bed.configure("h", share_auto_offset_reset="earliest")
    with pytest.raises(InvalidConfig):
        await bed.configure("")


# --- topics that go


@simulated
async def test_a_deleted_topic_is_forgotten(bed: Stage) -> None:
    await bed.open("t", "u")
    await bed.delete("t")
    assert [topic.name for topic in bed.groups.topics("g")] == ["u"]
    await bed.restart()
    assert [topic.name for topic in bed.groups.topics("g")] == ["u"]
    await bed.delete("u")
    await bed.restart()  # Before anybody looked.
    assert bed.groups.listed() == []
    await bed.create("t")
    await bed.beat(topics=("t",))
    assert bed.share().ledger.offset_low == 0


# --- tools


@simulated
async def test_offsets_are_altered(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(5)
    topic = bed.broker.topic("t")
    alter = bed.groups.alter_offsets
    assert await refused(bed.do(alter("g", [(topic, {0: 1})]))) is Fault.NON_EMPTY_GROUP
    bed.acquire(ONE)
    await bed.settle(ONE, AcknowledgeType.ACCEPT, range(5))
    await bed.beat(epoch=-1)
    faults = await bed.do(alter("g", [(topic, {0: 2, 7: 0})]))
    assert [(*key, type(error)) for key, error in faults.items()] == [("t", 7, UnknownTopic)]
    assert list(await bed.do(alter("g", [(topic, {0: 99})]))) == [("t", 0)]
    await bed.restart()
    assert bed.acquire(ONE) == [(range(2, 5), 1)]
    await bed.do(bed.groups.alter_offsets("new", [(topic, {0: 3})]))
    assert bed.share(group="new").ledger.offset_low == 3


@simulated
async def test_topics_and_groups_are_deleted(bed: Stage) -> None:
    await bed.open("t", "u")
    topics = [bed.broker.topic("t")]
    assert await refused(bed.do(bed.groups.delete_offsets("g", topics))) is Fault.NON_EMPTY_GROUP
    assert await refused(bed.do(bed.groups.delete("g"))) is Fault.NON_EMPTY_GROUP
    await bed.beat(epoch=-1)
    await bed.do(bed.groups.delete_offsets("g", topics))
    await bed.restart()
    assert [topic.name for topic in bed.groups.topics("g")] == ["u"]
    await bed.do(bed.groups.delete("g"))
    await bed.restart()
    assert await refused(bed.do(bed.groups.delete("g"))) is Fault.GROUP_ID_NOT_FOUND
    assert bed.groups.settings.of("g").reset == "earliest"  # As in Kafka, settings stay.


@simulated
async def test_what_is_settled_outlives_a_start_that_could_not_read_the_topic(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(4)
    bed.acquire(ONE, 2)
    await bed.settle(ONE, AcknowledgeType.ACCEPT, range(2))
    await asyncio.sleep(20)  # It is noted by then how far it is permanent.
    path = bed.served_partition("t").partition.segments[0].path
    bed.crash()
    bed.disk.rename(path, "aside")
    await bed.start()
    assert bed.served_partition("t").partition.refused
    await asyncio.sleep(1)
    bed.crash()
    bed.disk.rename("aside", path)
    await bed.start()
    assert bed.acquire(ONE) == [(range(2, 4), 1)]
