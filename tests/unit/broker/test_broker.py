"""The verbs: what is made, altered and deleted, and that all of it survives."""

import asyncio
import errno
import gc
import weakref
from uuid import UUID

import pytest

from entrepot.broker.broker import Broker
from entrepot.broker.server_settings import Defaults
from entrepot.core import limits
from entrepot.core.errors import (
    InvalidConfig,
    InvalidName,
    InvalidPartitions,
    OffsetOutOfRange,
    StorageError,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from tests.unit.broker.bed import Bed
from tests.unit.log.bed import make, simulated

CATALOG = "partitions/__catalog-0/*"


async def restart(bed: Bed, end: str) -> None:
    if end == "stop":
        await bed.stop()
    else:
        getattr(bed, end)()
    await bed.start()


ends = pytest.mark.parametrize("end", ["stop", "kill", "crash"])

# --- topics


@ends
@simulated
async def test_a_topic_survives(bed: Bed, end: str) -> None:
    await bed.start()
    await bed.create("t", 3, retention_ms="5000")
    topic, cluster_id = bed.broker.topic("t"), bed.broker.cluster_id
    await bed.commit("t", make(b"a"), 2)
    await restart(bed, end)
    assert bed.broker.topic("t") == topic
    assert bed.broker.topic_by_id(topic.id) == topic
    assert bed.values("t", 2) == [b"a"]
    assert bed.broker.cluster_id == cluster_id
    assert len(cluster_id) == 22


@simulated
async def test_what_is_not_there(bed: Bed) -> None:
    await bed.start()
    await bed.create("t")
    with pytest.raises(UnknownTopic):
        bed.broker.topic("u")
    with pytest.raises(UnknownTopicId):
        bed.broker.topic_by_id(UUID(int=5))
    for index in (-1, 1):
        with pytest.raises(UnknownTopic):
            bed.served_partition("t", index)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250, "__catalog"])
@simulated
async def test_names_that_cannot_be(bed: Bed, name: str) -> None:
    await bed.start()
    with pytest.raises(InvalidName):
        await bed.create(name)
    assert list(bed.broker.topics) == []


@simulated
async def test_made_by_two_at_once(bed: Bed, seed: int) -> None:
    await bed.start()

    async def outcome() -> str:
        try:
            return type(await bed.broker.create_topic("t")).__name__
        except TopicExists as error:
            return type(error).__name__

    made = await asyncio.gather(*(bed.do(outcome()) for _ in range(3)))
    assert sorted(made) == ["Topic", "TopicExists", "TopicExists"]


@simulated
async def test_the_longest_name_has_a_directory(bed: Bed) -> None:
    await bed.start()
    await bed.create("x" * 249)
    await bed.commit("x" * 249, make(b"a"))
    assert max(map(len, bed.disk.names("partitions"))) + 4 <= 255


@simulated
async def test_a_name_is_taken_once(bed: Bed) -> None:
    await bed.start()
    first = bed.loop.create_task(bed.create("t"))
    await asyncio.sleep(0.0001)
    with pytest.raises(TopicExists):
        await bed.create("t")
    await first


@pytest.mark.parametrize("count", [0, -1, limits.PARTITIONS_PER_TOPIC_MAX + 1])
@simulated
async def test_partition_counts_that_cannot_be(bed: Bed, count: int) -> None:
    await bed.start()
    with pytest.raises(InvalidPartitions):
        await bed.create("t", count)


@simulated
async def test_partitions_are_bounded_in_all(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PARTITIONS_MAX", 5)
    await bed.start()
    await bed.create("t", 3)
    with pytest.raises(InvalidPartitions):
        await bed.create("u", 3)
    with pytest.raises(InvalidPartitions):
        await bed.do(bed.broker.create_partitions(bed.broker.topic("t"), 6))
    await bed.create("u", 2)


@simulated
async def test_defaults(bed: Bed) -> None:
    with pytest.raises(InvalidConfig):
        Broker(bed.disk, bed.clock, bed.entropy, Defaults(settings={"segment.bytes": "x"}))
    await bed.start({"retention.ms": "77"})
    await bed.create("t")
    await bed.create("u", retention_ms="88")
    for name, expected in (("t", 77), ("u", 88)):
        assert bed.served_partition(name).partition.policy.retention_ms == expected
    assert bed.broker.topic("t").settings == {}


@ends
@simulated
async def test_more_partitions(bed: Bed, end: str) -> None:
    await bed.start()
    await bed.create("t", 2)
    for count in (1, 2):
        with pytest.raises(InvalidPartitions):
            await bed.do(bed.broker.create_partitions(bed.broker.topic("t"), count))
    await bed.do(bed.broker.create_partitions(bed.broker.topic("t"), 4))
    await bed.commit("t", make(b"a"), 3)
    await restart(bed, end)
    assert bed.broker.topic("t").partition_count == 4
    assert bed.values("t", 3) == [b"a"]


@ends
@simulated
async def test_settings(bed: Bed, end: str) -> None:
    await bed.start()
    await bed.create("t", 2, retention_ms="1", segment_ms="2")
    with pytest.raises(InvalidConfig, match="unknown"):
        await bed.do(bed.broker.alter_settings(bed.broker.topic("t"), {"no.such": "1"}))
    await bed.do(bed.broker.alter_settings(bed.broker.topic("t"), {"segment.ms": "3"}))
    await restart(bed, end)
    assert bed.broker.topic("t").settings == {"segment.ms": "3"}
    for index in (0, 1):
        policy = bed.served_partition("t", index).partition.policy
        assert (policy.segment_ms, policy.retention_ms) == (3, 7 * 24 * 3_600_000)


# --- deleting


@ends
@simulated
async def test_a_deleted_topic_stays_deleted(bed: Bed, end: str) -> None:
    await bed.start()
    await bed.create("t", 2)
    await bed.commit("t", make(b"a"), 1)
    topic = bed.broker.topic("t")
    served = bed.served_partition("t", 1)
    await bed.delete("t")
    with pytest.raises(StorageError, match="deleted"):
        bed.call(served.append, make(b"b"))
    await restart(bed, end)
    with pytest.raises(UnknownTopic):
        bed.broker.topic("t")
    with pytest.raises(UnknownTopicId):
        bed.broker.topic_by_id(topic.id)
    await asyncio.sleep(61)
    assert bed.disk.names("partitions") == ["__catalog-0"]
    assert bed.disk.names("deleted") == []


@simulated
async def test_a_topic_made_anew_is_another(bed: Bed, seed: int) -> None:
    """Under the same name, and whatever the power loss leaves of the first."""
    await bed.start()
    await bed.create("t", segment_bytes="100")
    first = bed.broker.topic("t")
    for value in (b"old", b"older"):
        await bed.commit("t", make(value))
    await bed.delete("t")
    await bed.create("t", segment_bytes="100")
    assert bed.broker.topic("t").id != first.id
    bed.crash()
    await bed.start()
    assert bed.broker.topic("t").id != first.id
    assert bed.values("t") == []
    await bed.commit("t", make(b"new"))
    bed.crash()
    await bed.start()
    assert bed.values("t") == [b"new"]
    with pytest.raises(UnknownTopicId):
        bed.broker.topic_by_id(first.id)


@simulated
async def test_again_and_again_under_one_name(bed: Bed, seed: int) -> None:
    await bed.start()
    for number in range(6):
        await bed.create("t", 2)
        await bed.commit("t", make(b"%d" % number), number % 2)
        assert bed.values("t", number % 2) == [b"%d" % number]
        assert bed.values("t", 1 - number % 2) == []
        deleting = bed.loop.create_task(bed.delete("t"))
        await bed.sleep_up_to(0.02)
        if number % 2:
            deleting.cancel()
            bed.crash()
            await bed.start()
            if "t" in bed.broker.topics:
                await bed.delete("t")
        else:
            await deleting


@simulated
async def test_a_deleted_topic_needs_no_collector(bed: Bed) -> None:
    """A full collection of garbage holds everybody up, by seconds where there is much."""
    await bed.start()
    await bed.create("t", 3)
    topic = bed.broker.topic("t")
    await bed.commit("t", make(b"a"), 2)
    partitions = [weakref.ref(each.partition) for each in bed.broker.served_partitions(topic)]
    gc.collect()
    gc.disable()
    try:
        await bed.do(bed.broker.delete_topic(topic))
        await asyncio.sleep(100)
        assert [each() for each in partitions] == [None] * 3
    finally:
        gc.enable()


@simulated
async def test_a_name_is_not_free_while_its_topic_is_deleted(bed: Bed) -> None:
    await bed.start()
    await bed.create("t")
    await bed.commit("t", make(b"a"))
    deleting = bed.loop.create_task(bed.delete("t"))
    await asyncio.sleep(0)
    for _ in range(100):
        if "t" not in bed.broker.topics:
            break
        await asyncio.sleep(0)
    with pytest.raises(TopicExists):
        await bed.create("t")
    await deleting
    await bed.create("t")


# --- deleting records


@ends
@simulated
async def test_deleted_records_stay_deleted(bed: Bed, end: str) -> None:
    await bed.start()
    await bed.create("t")
    for value in (b"a", b"b", b"c"):
        await bed.commit("t", make(value))
    assert await bed.do(bed.broker.delete_records(bed.served_partition("t"), 2)) == 2
    assert await bed.do(bed.broker.delete_records(bed.served_partition("t"), 1)) == 2, "never back"
    await restart(bed, end)
    assert bed.values("t") == [b"c"]
    assert bed.served_partition("t").partition.offset_start == 2


@simulated
async def test_all_records(bed: Bed, seed: int) -> None:
    await bed.start()
    await bed.create("t", segment_bytes="100", file_delete_delay_ms="0")
    for value in (b"a", b"b", b"c"):
        await bed.commit("t", make(value))
    assert await bed.do(bed.broker.delete_records(bed.served_partition("t"), -1)) == 3
    await bed.sleep_up_to(100)
    bed.crash()
    await bed.start()
    assert bed.values("t") == []
    assert (await bed.commit("t", make(b"d"))).offset_first == 3


@simulated
async def test_records_that_are_not_there(bed: Bed) -> None:
    await bed.start()
    await bed.create("t")
    await bed.commit("t", make(b"a"))
    for offset in (2, -2):
        with pytest.raises(OffsetOutOfRange):
            await bed.do(bed.broker.delete_records(bed.served_partition("t"), offset))


@simulated
async def test_a_deletion_never_hides_what_comes_after_it(bed: Bed, seed: int) -> None:
    """A relaxed topic may lose its end, but not the offsets that a deletion spoke of."""
    await bed.start({"durability": "os"})
    await bed.create("t")
    for value in (b"a", b"b", b"c"):
        bed.append("t", make(value))
    await bed.do(bed.broker.delete_records(bed.served_partition("t"), 3))
    bed.crash()
    await bed.start({"durability": "os"})
    for value in (b"d", b"e"):
        bed.append("t", make(value))
    bed.kill()
    await bed.start({"durability": "os"})
    assert bed.values("t") == [b"d", b"e"]


# --- producer ids


@simulated
async def test_a_producer_id_is_given_once(
    bed: Bed, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entrepot.broker.broker._PRODUCER_IDS_PER_BLOCK", 10)
    given: list[int] = []

    async def ask() -> None:
        given.append(await bed.broker.new_producer_id())

    for life in range(5):
        await bed.start()
        for _ in range(4):
            for _ in range(13):
                bed.loop.create_task(bed.do(ask()))
            await bed.sleep_up_to(0.01)
        bed.kill() if life % 2 else bed.crash()
    assert len(given) > 20
    assert len(set(given)) == len(given)


@simulated
async def test_a_full_disk_gives_no_id_twice(bed: Bed) -> None:
    """The reservation fails; the ids after it must not be given without one."""
    await bed.start()
    bed.disk.fail_next("write", errno.ENOSPC, CATALOG)
    with pytest.raises(StorageError):
        await bed.do(bed.broker.new_producer_id())
    given = [await bed.do(bed.broker.new_producer_id()) for _ in range(3)]
    bed.crash()
    await bed.start()
    given += [await bed.do(bed.broker.new_producer_id()) for _ in range(3)]
    assert len(set(given)) == 6


# --- a catalog that fails


@simulated
async def test_a_full_disk_makes_no_topic(bed: Bed) -> None:
    await bed.start()
    bed.disk.fail_next("write", errno.ENOSPC, CATALOG)
    with pytest.raises(StorageError, match="No space"):
        await bed.create("t")
    assert list(bed.broker.topics) == []
    await bed.create("t")
    bed.disk.fail_next("write", errno.ENOSPC, CATALOG)
    with pytest.raises(StorageError):
        await bed.delete("t")
    await bed.commit("t", make(b"a"))
    await bed.delete("t")
    await bed.create("t")


@simulated
async def test_a_catalog_that_cannot_be_synced_answers_nothing(bed: Bed) -> None:
    await bed.start()
    await bed.create("t")
    await bed.commit("t", make(b"a"))
    bed.disk.fail_next("sync", errno.EIO, CATALOG)
    with pytest.raises(StorageError, match="sync failed"):
        await bed.create("u")
    with pytest.raises(StorageError, match="sync failed"):
        await bed.do(bed.broker.new_producer_id())
    await bed.commit("t", make(b"b"))
    bed.crash()
    await bed.start()
    assert bed.values("t") == [b"a", b"b"]


@pytest.mark.parametrize("is_clean", [True, False])
@simulated
async def test_a_damaged_catalog_stops_the_start_and_nothing_is_removed(
    bed: Bed, is_clean: bool
) -> None:
    await bed.start()
    await bed.create("t")
    await bed.commit("t", make(b"a"))
    await asyncio.sleep(10)
    if is_clean:
        await bed.stop()
    else:
        bed.kill()
    path = f"partitions/__catalog-0/{0:020d}.log"
    bed.flip(path, 30)
    reason = f"the catalog cannot be read: {path}: the checksum does not match at byte 0, .*backup"
    for _ in range(2):
        with pytest.raises(StorageError, match=reason):
            await bed.start()
        bed.kill()
    assert bed.disk.names("partitions") == ["__catalog-0", "t-0"]


@simulated
async def test_a_record_that_is_cut_off_the_catalog_does_not_take_its_topic_along(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """After a kill, a bad last record cannot be told from a write that never finished."""
    await bed.start()
    await bed.create("old")
    await bed.commit("old", make(b"a"))
    await bed.delete("old")
    await bed.create("new")
    await bed.commit("new", make(b"a"))
    bed.kill()
    bed.flip(f"partitions/__catalog-0/{0:020d}.log", -3)
    await bed.start()
    assert list(bed.broker.topics) == []
    assert "partitions/new-0 stays: no topic owns it, and none ever did" in caplog.text
    assert bed.disk.names("partitions") == ["__catalog-0", "new-0"]


@pytest.mark.parametrize("with_checkpoint", [True, False])
@simulated
async def test_a_lost_catalog_does_not_take_the_topics_along(
    bed: Bed, with_checkpoint: bool
) -> None:
    await bed.start()
    await bed.create("t")
    await bed.commit("t", make(b"a"))
    await asyncio.sleep(10)
    bed.kill()
    bed.disk.remove_directory("partitions/__catalog-0")
    if not with_checkpoint:
        bed.disk.remove("recovery.checkpoint")
    for _ in range(2):
        with pytest.raises(StorageError, match="catalog"):
            await bed.start()
        bed.kill()
    assert "t-0" in bed.disk.names("partitions")


@simulated
async def test_one_damaged_partition_does_not_stop_the_others(bed: Bed) -> None:
    await bed.start()
    await bed.create("t")
    await bed.create("u")
    await bed.commit("t", make(b"a"))
    await bed.commit("u", make(b"b"))
    await asyncio.sleep(10)
    bed.kill()
    bed.flip(f"partitions/t-0/{0:020d}.log", 30)
    await bed.start()
    assert bed.served_partition("t").partition.refused
    with pytest.raises(StorageError, match="was permanent"):
        bed.append("t", make(b"c"))
    assert bed.values("u") == [b"b"]
    await bed.delete("t")
    await bed.create("t")
    await bed.commit("t", make(b"new"))
    await restart(bed, "stop")
    assert bed.values("t") == [b"new"]


@simulated
async def test_the_first_start_may_be_cut_short(bed: Bed, seed: int) -> None:
    for _ in range(4):
        starting = bed.loop.create_task(bed.start())
        await bed.sleep_up_to(0.05)
        starting.cancel()
        bed.crash()
    await bed.start()
    await bed.create("t")
    assert bed.broker.cluster_id
