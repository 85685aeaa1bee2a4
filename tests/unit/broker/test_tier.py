"""Segments are copied to a topic's tier, and none is removed that is not there.

Stores are simulated: they are away, lose answers, and outlive the broker.
"""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from entrepot.broker.broker import Broker
from entrepot.broker.server_settings import Defaults
from entrepot.broker.topic_config import TIER
from entrepot.core import batch
from entrepot.core.errors import Corruption, InvalidBatch, InvalidConfig, InvalidName
from entrepot.core.marker import Marker, build_marker
from entrepot.core.ports import Stores
from entrepot.core.record import Record
from entrepot.log.archive import Archive, ArchivedPartition, Entry, Heading, appended
from sim.loop import SimLoop
from sim.object_store import MemoryStore, MemoryStores
from tests.unit.broker.bed import Bed
from tests.unit.log.bed import make, simulated

HERE = "file:///archive"
SMALL = {"segment.bytes": "300", "retention.ms": "1000", "file.delete.delay.ms": "0"}


class TierBed(Bed):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.stores = MemoryStores()

    async def start(self, settings: dict[str, str] | None = None) -> None:  # type: ignore[override]
        defaults = Defaults(settings=settings or {})
        stores = Stores(self.stores.open)
        self.broker = Broker(self.disk, self.clock, self.entropy, defaults, stores=stores)
        await self.begin(self.broker.open())

    @property
    def store(self) -> MemoryStore:
        return self.stores.open(HERE)

    async def tiered(self, name: str = "t", **settings: str) -> None:
        dotted = {key.replace("_", "."): value for key, value in settings.items()}
        await self.do(self.broker.create_topic(name, 1, SMALL | {TIER: HERE} | dotted))

    async def write(self, count: int, name: str = "t") -> list[bytes]:
        end = self.served_partition(name).partition.offset_end
        values = [b"%d" % (end + number) for number in range(count)]
        for value in values:
            await self.commit(name, make(value * 10, time_ms=self.clock.now_ms()))
        return [value * 10 for value in values]

    def archived(self, name: str = "t") -> ArchivedPartition | None:
        topic = self.broker.topic(name)
        return Archive(self.store).partition(name, topic.id, 0)

    def start_offset(self) -> int:
        return self.served_partition("t").partition.offset_start

    def everything(self) -> list[bytes | None]:
        """What is in the archive, and after it what only the broker has."""
        found = list(archived_records(self.archived()))
        end = found[-1].offset + 1 if found else 0
        found += [record for record in self.records("t") if record.offset >= end]
        assert [record.offset for record in found] == list(range(len(found)))
        return [record.value for record in found]


def archived_records(archive: ArchivedPartition | None) -> Iterator[Record]:
    if archive is None:
        return
    offset = archive.offset_start
    while offset < archive.offset_end:
        run = archive.read(offset, 100)
        for position, header in batch.walk(run.batches):
            data = run.batches[position : position + header.size]
            batch.check(data)
            yield from batch.records(data)
        offset = run.offset_end


# --- the setting


@simulated
async def test_a_bad_address_is_refused(bed: TierBed) -> None:
    await bed.start()
    for bad in ("archive", "file://archive", "ftp://host/x", "s3://", "s3://a@b/c", "file:///a?b"):
        with pytest.raises(InvalidConfig, match=r"entrepot\.tier cannot be"):
            await bed.broker.create_topic("t", 1, {TIER: bad})
    bed.store.away = "nobody is there"
    with pytest.raises(InvalidConfig, match="nobody is there"):
        await bed.broker.create_topic("t", 1, {TIER: HERE})
    assert "t" not in bed.broker.topics
    await bed.create("t")
    with pytest.raises(InvalidConfig, match="nobody is there"):
        await bed.broker.alter_settings(bed.broker.topic("t"), {TIER: HERE})
    assert bed.broker.topic("t").settings == {}


@simulated
async def test_a_compacted_topic_has_no_tier(bed: TierBed) -> None:
    await bed.start()
    for policy in ("compact", "compact,delete"):
        with pytest.raises(InvalidConfig, match="compaction removes some"):
            await bed.broker.create_topic("t", 1, {TIER: HERE, "cleanup.policy": policy})
    await bed.tiered()
    with pytest.raises(InvalidConfig, match="compaction removes some"):
        await bed.broker.alter_settings(
            bed.broker.topic("t"), {TIER: HERE, "cleanup.policy": "compact"}
        )
    with pytest.raises(InvalidConfig, match="compaction removes some"):
        await bed.broker.alter_server_settings("", {"log.cleanup.policy": "compact"})


@simulated
async def test_the_brokers_own_topics_have_no_tier(bed: TierBed) -> None:
    await bed.start()
    own = await bed.broker.internal_topic("__consumer_offsets", 1, {})
    with pytest.raises(InvalidName):
        await bed.broker.alter_settings(own, {TIER: HERE})


@simulated
async def test_a_topic_that_changes_while_its_address_is_checked(bed: TierBed) -> None:
    await bed.start()
    await bed.create("t")
    topic = bed.broker.topic("t")
    await bed.broker.alter_settings(topic, {"retention.ms": "5"})
    with pytest.raises(Exception, match="altered meanwhile"):
        await bed.broker.alter_settings(topic, {TIER: HERE})


# --- copying and retention


@simulated
async def test_history_of_any_age(bed: TierBed) -> None:
    await bed.start()
    await bed.tiered()
    values = await bed.write(100)
    await asyncio.sleep(120)
    await bed.write(1)
    await asyncio.sleep(120)
    assert bed.start_offset() >= 100, "the broker has let it go"
    assert bed.everything()[:100] == values
    names = bed.disk.names("partitions/t-0")
    assert len([name for name in names if name.endswith(".log")]) == 1
    copier = bed.broker.copier
    assert copier.segments_copied > 10
    assert copier.bytes_copied == sum(
        len(data) for name, data in bed.store.objects.items() if name.endswith(".log")
    )
    assert (copier.failures, copier.troubles()) == (0, [])


@simulated
async def test_without_a_tier_nothing_is_copied(bed: TierBed) -> None:
    await bed.start()
    await bed.create("t", **{key.replace(".", "_"): value for key, value in SMALL.items()})
    await bed.write(20)
    await asyncio.sleep(120)
    assert bed.stores.stores == {}
    assert bed.start_offset() == 20


@simulated
async def test_a_store_that_is_away_keeps_everything_here(bed: TierBed) -> None:
    await bed.start()
    await bed.tiered()
    bed.store.away = "the cable is out"
    values = await bed.write(50)
    await asyncio.sleep(600)
    assert bed.start_offset() == 0
    assert bed.values("t") == values
    (trouble,) = bed.broker.copier.troubles()
    assert (trouble.name, trouble.reason) == (HERE, "the cable is out")
    assert 8 < trouble.failures < 30, "it is tried again, and not all the time"
    bed.store.away = None
    await asyncio.sleep(200)
    assert bed.start_offset() == 50
    assert bed.everything() == values
    assert bed.broker.copier.troubles() == []
    assert bed.broker.copier.failures == trouble.failures


@pytest.mark.parametrize("writes", range(8))
@simulated
async def test_a_copy_that_is_cut_short(bed: TierBed, writes: int) -> None:
    """Each segment is an object, its index, and a line of the manifest. A crash between any two of
    them leaves no gap and no wrong line."""
    await bed.start()
    await bed.tiered()
    bed.store.writes_left = writes
    values = await bed.write(30)
    await asyncio.sleep(5)
    assert bed.store.away is not None
    bed.crash()
    await bed.start()
    await asyncio.sleep(100)
    assert bed.start_offset() <= len(list(archived_records(_whole(bed))))
    bed.store.away = bed.store.writes_left = None
    await asyncio.sleep(200)
    assert bed.everything() == values
    assert bed.start_offset() == 30


def _whole(bed: TierBed) -> ArchivedPartition | None:
    """The archive, although the store is away."""
    store = MemoryStore()
    store.objects = bed.store.objects
    return Archive(store).partition("t", bed.broker.topic("t").id, 0)


@simulated
async def test_an_answer_that_was_lost(bed: TierBed) -> None:
    await bed.start()
    await bed.tiered()
    values = await bed.write(5)
    await asyncio.sleep(3)
    for _ in range(9):  # Whichever write it is: of an object, an index or the manifest.
        bed.store.loses_answer = True
        values += await bed.write(2)
        await asyncio.sleep(70)
    assert bed.everything() == values
    assert bed.broker.copier.troubles() == []


@simulated
async def test_a_manifest_that_is_gone_is_not_begun_anew(bed: TierBed) -> None:
    await bed.start()
    await bed.tiered(retention_ms="-1")
    await bed.write(20)
    await asyncio.sleep(5)
    (name,) = [name for name in bed.store.objects if name.endswith("manifest")]
    kept = bed.store.objects.pop(name)
    await bed.write(20)
    await asyncio.sleep(5)
    (trouble,) = bed.broker.copier.troubles()
    assert "somebody else has changed the archive" in trouble.reason
    assert name not in bed.store.objects
    bed.store.objects[name] = kept
    await asyncio.sleep(100)
    assert bed.broker.copier.troubles() == []
    assert len(bed.everything()) == 40


@simulated
async def test_a_damaged_manifest_counts_for_nothing(bed: TierBed) -> None:
    await bed.start()
    await bed.tiered(retention_ms="-1")
    values = await bed.write(20)
    await asyncio.sleep(5)
    (name,) = [name for name in bed.store.objects if name.endswith("manifest")]
    kept = bed.store.objects[name]
    bed.store.objects[name] = kept[:-1]
    values += await bed.write(20)
    await asyncio.sleep(5)
    (trouble,) = bed.broker.copier.troubles()
    assert "is damaged" in trouble.reason
    topic = bed.broker.topic("t")
    await bed.broker.alter_settings(topic, topic.settings | {"retention.ms": "1000"})
    await asyncio.sleep(300)
    assert bed.start_offset() == 0, "nobody can read what was copied"
    bed.store.objects[name] = kept
    await asyncio.sleep(300)
    assert bed.start_offset() == 40
    assert bed.everything() == values


@simulated
async def test_a_damaged_segment_is_not_copied_and_stays(bed: TierBed) -> None:
    await bed.start()
    await bed.tiered()
    bed.store.away = "not yet"
    await bed.write(20)
    segment = bed.served_partition("t").partition.segments[1]
    bed.disk.open(segment.path).write(80, [b"\xff\xff"])
    bed.store.away = None
    await asyncio.sleep(200)
    (trouble,) = bed.broker.copier.troubles()
    assert trouble.name == "partitions/t-0"
    assert "damaged" in trouble.reason
    assert bed.start_offset() == segment.offset_base


@simulated
async def test_a_deleted_topic_leaves_its_archive_to_itself(bed: TierBed) -> None:
    await bed.start()
    await bed.tiered()
    first = await bed.write(20)
    await asyncio.sleep(5)
    old = bed.archived()
    await bed.delete("t")
    await bed.tiered()
    assert bed.archived() is None
    second = (await bed.write(10))[:5]
    await asyncio.sleep(5)
    assert [record.value for record in archived_records(old)] == first[
        : old.offset_end if old else 0
    ]
    assert [record.value for record in archived_records(bed.archived())][:5] == second
    assert len(Archive(bed.store).ids("t")) == 2


@simulated
async def test_another_address_is_begun_from_what_is_here(bed: TierBed) -> None:
    await bed.start()
    await bed.tiered(retention_ms="-1")
    values = await bed.write(20)
    await asyncio.sleep(5)
    topic = bed.broker.topic("t")
    await bed.broker.alter_settings(topic, topic.settings | {TIER: "file:///other"})
    await asyncio.sleep(5)
    there = Archive(bed.stores.open("file:///other")).partition("t", topic.id, 0)
    assert there is not None
    assert [record.value for record in archived_records(there)] == values[: there.offset_end]
    copied_end = bed.broker.copier.copied_end(bed.served_partition("t").partition)
    assert copied_end == there.offset_end


@simulated
async def test_records_that_were_deleted_are_a_gap(bed: TierBed) -> None:
    await bed.start()
    await bed.tiered(retention_ms="-1")
    await bed.write(20)
    await asyncio.sleep(5)
    before = bed.archived()
    assert before is not None
    bed.store.away = "for a while"
    await bed.write(20)
    await bed.do(bed.broker.delete_records(bed.served_partition("t"), 35))
    await asyncio.sleep(5)
    bed.store.away = None
    await asyncio.sleep(100)
    after = bed.archived()
    assert after is not None
    assert after.offset_end > 35
    gap = before.offset_end
    assert gap < (after.next_offset(gap) or 0) <= 35


@simulated
async def test_an_archive_that_knows_more_than_the_log(bed: TierBed) -> None:
    """As when a data directory was restored from an old backup."""
    await bed.start()
    await bed.tiered(retention_ms="-1")
    await bed.write(20)
    await asyncio.sleep(5)
    topic = bed.broker.topic("t")
    name = f"t/{topic.id}/0/manifest"
    text = bed.store.objects[name]
    bed.crash()
    entry = Entry(base=1_000, end=2_000, size=1, crc32c=0, first_ms=0, last_ms=0)
    bed.store.objects[name] = appended(text, Heading("t", topic.id, 0), entry)
    await bed.start()
    await asyncio.sleep(5)
    (trouble,) = bed.broker.copier.troubles()
    assert "the log has lost" in trouble.reason
    await bed.broker.alter_settings(topic, topic.settings | {"retention.ms": "1000"})
    await asyncio.sleep(100)
    assert bed.start_offset() == 0, "what is in the archive may be something else"


# --- transactions


@simulated
async def test_a_segment_waits_for_the_transactions_in_it(bed: TierBed) -> None:
    await bed.start()
    await bed.tiered(retention_ms="-1")
    served = bed.served_partition("t")

    def part(producer: int, sequence: int) -> bytes:
        return batch.build(
            [Record(None, b"x" * 100)],
            now_ms=bed.clock.now_ms(),
            producer_id=producer,
            producer_epoch=0,
            sequence_first=sequence,
            transactional=True,
        )

    def end(producer: int, committed: bool) -> bytes:
        return build_marker(Marker(producer, 0, committed), bed.clock.now_ms())

    for number in range(10):
        bed.call(served.write, part(7, number))
    await asyncio.sleep(5)
    assert bed.archived() is None, "it may still be aborted"
    bed.call(served.write, end(7, False))
    for number in range(10):
        bed.call(served.write, part(8, number))
    await asyncio.sleep(5)
    archive = bed.archived()
    assert archive is not None
    assert archive.offset_end <= 11, "the second transaction is open"
    bed.call(served.write, end(8, True))
    await bed.write(10)
    await asyncio.sleep(5)
    archive = bed.archived()
    assert archive is not None
    assert archive.offset_end > 22
    for offset in range(archive.offset_end):
        expected = served.isolation.aborted(offset, offset + 1)
        assert archive.aborted(offset, offset + 1) == expected
    assert archive.aborted(0, 1) == [(7, 0)]


# --- reading


@simulated
async def test_reading_from_anywhere(bed: TierBed, seed: int) -> None:
    random = Random(seed)
    await bed.start()
    await bed.tiered(retention_ms="-1", segment_bytes=str(random.choice((100, 2_000, 25_000))))
    end = 0
    for _ in range(200):
        values = [b"%d" % (end + number) for number in range(random.randint(1, 30))]
        time_ms = random.randrange(1_000)
        await bed.commit("t", make(*values, time_ms=time_ms))
        end += len(values)
    await asyncio.sleep(10)
    archive = bed.archived()
    assert archive is not None
    partition = bed.served_partition("t").partition
    for _ in range(50):
        offset = random.randrange(archive.offset_end)
        run = archive.read(offset, random.choice((1, 1_000, 100_000)))
        first = batch.read_header(run.batches)
        assert first.offset_first <= offset <= first.offset_last
        time_ms = random.randrange(1_100)
        expected = partition.offset_for_time(time_ms)
        if expected is not None and expected[0] >= archive.offset_end:
            expected = None
        assert archive.offset_for_time(time_ms) == expected


@simulated
async def test_damage_is_seen(bed: TierBed, seed: int) -> None:
    """Whatever bit is flipped, in whatever file: somebody who reads everything is told."""
    random = Random(seed)
    await bed.start()
    await bed.tiered(retention_ms="-1")
    values = await bed.write(40)
    await asyncio.sleep(10)
    archive = bed.archived()
    assert archive is not None
    assert [record.value for record in archived_records(archive)] == values[: archive.offset_end]
    for name in [name for name in bed.store.objects if not name.endswith(".index")]:
        whole = bed.store.objects[name]
        for _ in range(8):
            damaged = bytearray(whole)
            damaged[random.randrange(len(whole))] ^= 1 << random.randrange(8)
            bed.store.objects[name] = bytes(damaged)
            with pytest.raises((Corruption, InvalidBatch)):
                list(archived_records(bed.archived()))
        bed.store.objects[name] = whole[:-1]
        with pytest.raises((Corruption, InvalidBatch)):
            list(archived_records(bed.archived()))
        del bed.store.objects[name]
        if not name.endswith("manifest"):
            with pytest.raises(Corruption, match="is missing"):
                list(archived_records(bed.archived()))
        bed.store.objects[name] = whole


# --- everything at once


@simulated
async def test_nothing_is_lost_or_doubled(bed: TierBed, seed: int) -> None:
    """Crashes, a store that comes and goes, retention: all at once."""
    random = Random(seed)
    await bed.start()
    await bed.tiered()
    written: list[bytes] = []
    for _ in range(40):
        match random.randrange(6):
            case 0:
                bed.crash() if random.random() < 0.5 else bed.kill()
                await bed.start()
            case 1:
                bed.store.away = random.choice((None, "away"))
            case 2:
                bed.store.writes_left = random.choice((None, random.randrange(20)))
            case 3:
                bed.store.loses_answer = True
            case _:
                written += await bed.write(random.randint(1, 20))
        await asyncio.sleep(random.choice((0.1, 1, 40)))
    bed.store.away = bed.store.writes_left = None
    await asyncio.sleep(400)
    assert bed.everything() == written
    assert bed.start_offset() == len(written), "all of it is in the archive alone"
