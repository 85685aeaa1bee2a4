"""A partition in good times: offsets, rolling, the watermark, reading, looking up times."""

import asyncio
from random import Random

import pytest

from entrepot.core import batch, limits
from entrepot.core.errors import OffsetOutOfRange, StaleEpoch, StorageError, UnknownEpoch
from entrepot.log.files import FilePool
from entrepot.log.partition import Partition, Waiter
from entrepot.log.policy import Durability, Policy
from entrepot.log.segment import Segment
from sim.clock import SimClock
from tests.unit.log.bed import Bed, headed, identity, make, simulated

ONE = len(make(b"x"))  # Bytes of a batch with one small record.
OS = Policy(durability=Durability.OS)

# --- appending


@simulated
async def test_an_append_gives_the_next_offsets(bed: Bed) -> None:
    await bed.start("t")
    assert bed.append("t", make(b"a", b"b", b"c")) == 0
    assert bed.append("t", make(b"d"), make(b"e", b"f")) == 3
    assert bed["t"].offset_end == 6
    await bed.committed()
    assert [record.offset for record in bed.records("t")] == [0, 1, 2, 3, 4, 5]
    assert bed.values("t") == [b"a", b"b", b"c", b"d", b"e", b"f"]


@simulated
async def test_a_batch_is_kept_but_for_offset_and_epoch(bed: Bed) -> None:
    await bed.start("t")
    bed["t"].leader_epoch = 3
    bed.append("t", make(b"first"))
    sent = bytearray(make(b"second", codec=batch.Codec.LZ4))
    bed.append("t", bytes(sent))
    stored = bed.read_file(bed["t"].segments[0].path)[len(make(b"first")) :]
    batch.stamp(sent, 1, 3)
    assert stored == sent


@simulated
async def test_nothing_is_created_before_the_first_append(bed: Bed) -> None:
    await bed.start("t")
    assert bed.disk.names("partitions") == []
    assert (bed["t"].offset_start, bed["t"].high_watermark, bed["t"].offset_end) == (0, 0, 0)
    assert bed["t"].read(0, 100) is None
    assert bed["t"].offset_for_time(0) is None
    assert bed["t"].latest_time() is None
    assert bed["t"].available(0) == 0


# --- rolling


@simulated
async def test_a_segment_is_rolled_when_the_next_batch_does_not_fit(bed: Bed) -> None:
    await bed.start("t", policy=Policy(segment_bytes=3 * ONE))
    await bed.write("t", *(b"x" for _ in range(7)))
    assert [segment.offset_base for segment in bed["t"].segments] == [0, 3, 6]
    assert len(bed.values("t")) == 7


@simulated
async def test_batches_of_one_append_stay_together(bed: Bed) -> None:
    await bed.start("t", policy=Policy(segment_bytes=3 * ONE))
    bed.append("t", make(b"x"), make(b"x"))
    bed.append("t", make(b"x"), make(b"x"))
    assert [segment.offset_end for segment in bed["t"].segments] == [2, 4]


@simulated
async def test_a_batch_larger_than_a_segment_has_one_of_its_own(bed: Bed) -> None:
    await bed.start("t", policy=Policy(segment_bytes=ONE))
    await bed.write("t", b"x", b"y" * 1_000, b"z")
    assert [segment.offset_base for segment in bed["t"].segments] == [0, 1, 2]


@simulated
async def test_a_segment_is_rolled_when_it_is_old(bed: Bed) -> None:
    await bed.start("t", policy=Policy(segment_ms=10_000))
    await bed.write("t", b"a")
    await asyncio.sleep(9)
    await bed.write("t", b"b")
    await asyncio.sleep(2)
    await bed.write("t", b"c")
    assert [segment.offset_base for segment in bed["t"].segments] == [0, 2]


@simulated
async def test_the_age_of_a_segment_counts_from_its_first_batch(bed: Bed) -> None:
    await bed.start("t", policy=Policy(segment_ms=10_000))
    await bed.write("t", b"a")
    bed["t"].roll()
    await asyncio.sleep(60)
    await bed.write("t", b"b", b"c")
    assert [segment.offset_base for segment in bed["t"].segments] == [0, 1]


@simulated
async def test_a_clock_set_back_rolls_nothing(bed: Bed) -> None:
    await bed.start("t", policy=Policy(segment_ms=10_000))
    await bed.write("t", b"a")
    bed.clock.jump(-3_600_000)
    await bed.write("t", b"b")
    assert len(bed["t"].segments) == 1


@simulated
async def test_a_segment_is_rolled_before_its_offsets_need_a_sign_bit(bed: Bed) -> None:
    full = Segment(bed.directory("t"), 0, bed.clock.now_ms())
    full.size, full.offset_end = 100, 2**31 - 2
    pool = FilePool(bed.disk, 9)
    bed.disk.make_directory(bed.directory("t"))
    bed.disk.open(full.path, create=True).truncate(100)
    partition = Partition(identity("t"), bed.directory("t"), Policy(), pool, bed.clock, [full])
    partition.append(headed(make(b"x")))
    assert len(partition.segments) == 1
    partition.append(headed(make(b"x")))
    assert [segment.offset_base for segment in partition.segments] == [0, 2**31 - 1]


@simulated
async def test_every_full_segment_is_sealed(bed: Bed) -> None:
    """Whether the roll finds it committed, or comes while its commit is under way."""
    await bed.start("t", policy=Policy(segment_bytes=ONE))
    await bed.write("t", b"a", b"b")
    for number in range(20):
        bed.append("t", make(b"x"))
        await asyncio.sleep(number / 4_000)
    await bed.committed()
    await bed.write("t", b"z")
    *full, active = bed["t"].segments
    assert [segment.offset_base for segment in full if not segment.sealed] == []
    assert not active.sealed
    assert [name for name in bed.names("t") if name.endswith(".index")] == [
        f"{segment.offset_base:020d}.index" for segment in full
    ]
    assert all(segment.index is None for segment in full), "indexes of full segments cost memory"
    assert len(bed.values("t")) == 23


# --- the watermark


@simulated
async def test_the_watermark_moves_with_the_commit(bed: Bed) -> None:
    await bed.start("t")
    heard: list[object] = []
    bed.append("t", make(b"a"))
    bed["t"].when_committed(1, heard.append)
    assert (bed["t"].high_watermark, bed["t"].read(0, 100), heard) == (0, None, [])
    await bed.committed()
    assert (bed["t"].high_watermark, bed["t"].offset_synced, heard) == (1, 1, [None])


@pytest.mark.parametrize("durability", [Durability.OS, Durability.INTERVAL])
@simulated
async def test_a_relaxed_watermark_moves_with_the_append(bed: Bed, durability: Durability) -> None:
    await bed.start("t", policy=Policy(durability=durability))
    bed.append("t", make(b"a"))
    assert bed["t"].high_watermark == 1
    assert bed["t"].offset_synced == 0
    assert bed.values("t") == [b"a"]


@pytest.mark.parametrize("durability", Durability)
@simulated
async def test_nobody_sees_a_batch_that_is_not_folded(bed: Bed, durability: Durability) -> None:
    """Neither those who wait for the watermark nor those it wakes."""
    await bed.start("t", policy=Policy(durability=durability, flush_messages=5))
    partition = bed["t"]
    folded: list[tuple[int, int]] = []
    seen: list[tuple[int, int]] = []
    partition.fold = lambda header, offset, data: folded.append((offset, len(data)))

    def look(_: object = None) -> None:
        seen.append((partition.high_watermark, len(folded)))

    partition.listen("here", look)
    for number in range(0, 8, 2):
        one, two = (make(each, producer=1) for each in (b"a", b"bb"))
        partition.when_committed(number + 2, look)
        bed.append("t", one, two)
        assert folded[number:] == [(number, len(one)), (number + 1, len(two))]
        await bed.committed()
    assert seen == [(end, end) for end in (2, 4, 6, 8) for _ in range(2)]


@simulated
async def test_waiters_are_called_once_and_in_order(bed: Bed) -> None:
    await bed.start("t")
    heard: list[tuple[int, object]] = []

    def hear(number: int) -> Waiter:
        return lambda error: heard.append((number, error))

    for number in range(3):
        bed.append("t", make(b"x"))
        bed["t"].when_committed(number + 1, hear(number))
    await bed.committed()
    assert heard == [(0, None), (1, None), (2, None)]
    bed["t"].when_committed(3, hear(3))
    assert heard[-1] == (3, None)
    await bed.write("t", b"y")
    assert len(heard) == 4


@simulated
async def test_a_waiter_above_the_commit_goes_on_waiting(bed: Bed) -> None:
    await bed.start("t")
    heard: list[object] = []
    bed["t"].when_committed(2, heard.append)
    await bed.write("t", b"a")
    assert heard == []
    await bed.write("t", b"b")
    assert heard == [None]


@simulated
async def test_a_waiter_may_append(bed: Bed) -> None:
    await bed.start("t")
    bed.append("t", make(b"a"))

    def append_more(error: StorageError | None) -> None:
        bed.append("t", make(b"b"))

    bed["t"].when_committed(1, append_more)
    await bed.committed()
    assert bed.values("t") == [b"a", b"b"]


@simulated
async def test_listeners_hear_every_move_until_they_leave(bed: Bed) -> None:
    await bed.start("t")
    heard: list[int] = []
    token = object()
    bed["t"].listen(token, lambda: heard.append(bed["t"].high_watermark))
    await bed.write("t", b"a", b"b")
    bed["t"].unlisten(token)
    bed["t"].unlisten(token)
    await bed.write("t", b"c")
    assert heard == [1, 2]


@simulated
async def test_a_listener_may_leave_when_called(bed: Bed) -> None:
    await bed.start("t")
    heard: list[str] = []
    for token in ("x", "y"):

        def leave(name: str = token) -> None:
            heard.append(name)
            bed["t"].unlisten(name)

        bed["t"].listen(token, leave)
    await bed.write("t", b"a", b"b")
    assert heard == ["x", "y"]


@simulated
async def test_the_watermark_never_goes_back(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    earlier = bed["t"].end_mark()
    await bed.write("t", b"b")
    bed["t"].listen("here", lambda: pytest.fail("it did not move"))
    bed["t"].advance(earlier)
    assert bed["t"].high_watermark == 2


@simulated
async def test_stopping_tells_those_who_wait(bed: Bed) -> None:
    await bed.start("t")
    heard: list[object] = []
    await bed.write("t", b"a")
    bed.append("t", make(b"b"))
    bed["t"].when_committed(2, heard.append)
    bed["t"].stop("the reason")
    bed["t"].stop("another one")
    bed["t"].when_committed(1, heard.append)
    assert [str(error) for error in heard] == ["the reason", "the reason"]
    with pytest.raises(StorageError, match="the reason"):
        bed.append("t", make(b"c"))
    await bed.committed()
    assert bed["t"].high_watermark == 1
    assert bed.values("t") == [b"a"], "what is committed stays readable"


# --- reading


@simulated
async def test_a_read_is_bounded_but_for_its_first_batch(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"x", b"y", b"z")
    partition = bed["t"]
    for bytes_max, size in ((0, ONE), (ONE, ONE), (ONE + 9, ONE + 9), (2 * ONE, 2 * ONE)):
        found = partition.read(0, bytes_max)
        assert found is not None
        assert (found.position, found.size) == (0, size)
    found = partition.read(1, 1_000_000)
    assert found is not None
    assert (found.position, found.size) == (ONE, 2 * ONE)


@simulated
async def test_a_read_does_not_end_in_the_middle_of_a_large_batch(bed: Bed) -> None:
    """Half of it would be sent for nothing."""
    await bed.start("t")
    large = make(bytes(3 * limits.INDEX_INTERVAL_BYTES))
    for _ in range(4):
        bed.append("t", large)
    await bed.committed()
    two, three = 2 * len(large), 3 * len(large)
    for bytes_max, size in ((two, two), (two + 9, two + 9), (three - 1, two), (three, three)):
        found = bed["t"].read(0, bytes_max)
        assert found is not None
        assert (found.position, found.size) == (0, size)
    found = bed["t"].read(1, three - 1)
    assert found is not None
    assert (found.position, found.size) == (len(large), two)
    found = bed["t"].read(1, len(large) - 1)
    assert found is not None
    assert (found.position, found.size) == (len(large), len(large)), "the first is whole"


@simulated
async def test_a_read_begins_with_the_batch_that_holds_the_offset(bed: Bed) -> None:
    await bed.start("t")
    bed.append("t", make(b"a", b"b", b"c"))
    bed.append("t", make(b"d", b"e", b"f"))
    bed.append("t", make(b"g"))
    await bed.committed()
    for offset, first in ((0, 0), (1, 0), (2, 0), (3, 3), (5, 3), (6, 6)):
        found = bed["t"].read(offset, 1)
        assert found is not None
        assert batch.read_header(found.file.read(found.position, 61)).offset_first == first


@simulated
async def test_a_read_ends_at_the_watermark(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    bed.append("t", make(b"b"))
    found = bed["t"].read(0, 1_000_000)
    assert found is not None
    assert found.size == ONE
    assert bed["t"].read(1, 1_000_000) is None
    assert bed["t"].read(2, 1_000_000) is None


@simulated
async def test_a_read_stays_in_one_segment(bed: Bed) -> None:
    await bed.start("t", policy=Policy(segment_bytes=2 * ONE))
    await bed.write("t", b"a", b"b", b"c")
    found = bed["t"].read(0, 1_000_000)
    assert found is not None
    assert found.size == 2 * ONE


@simulated
async def test_the_watermark_in_an_older_segment(bed: Bed) -> None:
    await bed.start("t", policy=Policy(segment_bytes=2 * ONE))
    await bed.write("t", b"a")
    bed.append("t", make(b"b"))
    bed.append("t", make(b"c"))
    found = bed["t"].read(0, 1_000_000)
    assert found is not None
    assert found.size == ONE
    assert bed["t"].read(1, 1) is None
    await bed.committed()
    assert bed.values("t") == [b"a", b"b", b"c"]


@simulated
async def test_out_of_range(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a", b"b", b"c")
    bed["t"].delete_before(1)
    for offset in (-1, 0, 4):
        with pytest.raises(OffsetOutOfRange, match=r"\[1, 3\]"):
            bed["t"].read(offset, 1)
    assert bed["t"].read(3, 1) is None


@simulated
async def test_a_large_segment_is_read_from_everywhere(bed: Bed) -> None:
    await bed.start("t", policy=Policy(Durability.OS, segment_bytes=300_000))
    random = Random(1)
    expected = [random.randbytes(random.randrange(1, 9_000)) for _ in range(200)]
    for value in expected:
        bed.append("t", make(value))
    assert len(bed["t"].segments) > 2
    for offset in random.sample(range(200), 60):
        found = bed["t"].read(offset, 1)
        assert found is not None
        (record,) = batch.records(found.file.read(found.position, found.size))
        assert (record.offset, record.value) == (offset, expected[offset])


@simulated
async def test_available_bytes(bed: Bed) -> None:
    await bed.start("t", policy=Policy(segment_bytes=10 * ONE))
    await bed.write("t", *(b"x" for _ in range(12)))
    partition = bed["t"]
    assert partition.available(12) == 0
    assert partition.available(11) == ONE
    assert partition.available(10) == 2 * ONE
    assert partition.available(0) == 10 * ONE
    bed.append("t", make(b"y"))
    assert partition.available(12) == 0
    assert partition.available(10) == 2 * ONE


@simulated
async def test_epochs(bed: Bed) -> None:
    await bed.start("t")
    bed["t"].leader_epoch = 4
    for good in (-1, 4):
        bed["t"].check_epoch(good)
    with pytest.raises(StaleEpoch):
        bed["t"].check_epoch(3)
    with pytest.raises(UnknownEpoch):
        bed["t"].check_epoch(5)


@simulated
async def test_a_range_outlives_its_pool_and_its_name(bed: Bed) -> None:
    """FilePool eviction and retention: whoever holds a range can still send it."""
    pool = FilePool(bed.disk, files_max=1)
    clock = SimClock(bed.loop)
    small = Policy(Durability.OS, segment_bytes=ONE)
    partition = Partition(identity("t"), bed.directory("t"), small, pool, clock)
    for value in (b"a", b"b", b"c"):
        partition.append(headed(make(value)))
    found = partition.read(0, 1)
    assert found is not None
    partition.synced(partition.end_mark())
    partition.delete_before(2)
    assert list(partition.mark_forgotten(partition.first_needed()))
    (record,) = batch.records(found.file.read(found.position, found.size))
    assert record.value == b"a"
