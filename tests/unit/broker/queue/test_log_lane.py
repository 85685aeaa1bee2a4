"""A lane in the log: what was appended is there, what was settled does not come again."""

import errno

import pytest

from entrepot.broker.queue.log_lane import LogLane
from entrepot.broker.queue.message import Run
from entrepot.core import limits
from entrepot.core.errors import Corruption, StorageError
from entrepot.core.message import Envelope
from entrepot.core.neutral import NEUTRAL
from tests.unit.broker.queue.lane_bed import LaneBed, bodies, flat, head, run, take
from tests.unit.log.bed import simulated

MIB = limits.MIB


def read_all(lane: LogLane) -> list[bytes]:
    return bodies(lane.read(range(lane.offset_start, lane.offset_end)))


@simulated
async def test_what_is_appended_is_read_as_it_was(bed: LaneBed) -> None:
    await bed.start("a")
    one = Envelope("", "k", head(b"p"), NEUTRAL)
    other = Envelope("y", "l", head(b"q" * 300), NEUTRAL)
    runs = [
        run(b"1", b"", b"333"),
        run(b"4" * 5_000, key="other", time_ms=900),
        Run(2_000_000, [(one, b"5"), (other, memoryview(b"666")), (one, b"7")]),
    ]
    assert await bed.publish("a", *runs) == 7
    expected = flat([(range(3), runs[0]), (range(3, 4), runs[1]), (range(4, 7), runs[2])])
    assert flat(bed.lanes["a"].read(range(7))) == expected
    bed.kill()
    await bed.start("a")
    assert bed.cache.size == 0
    assert flat(bed.lanes["a"].read(range(7))) == expected
    assert flat(bed.lanes["a"].read(range(2, 5))) == expected[2:5]
    assert bed.lanes["a"].offset_recovered == 7


@simulated
async def test_nothing_is_seen_before_it_is_committed(bed: LaneBed) -> None:
    await bed.start("a")
    bed.append("a", run(b"1", b"2"))
    assert bed.lanes["a"].offset_end == 0
    with pytest.raises(StorageError, match="not committed"):
        bed.lanes["a"].read(range(2))
    await bed.publish("a", run(b"3"))
    assert read_all(bed.lanes["a"]) == [b"1", b"2", b"3"]


@simulated
async def test_runs_of_one_place_and_time_are_one(bed: LaneBed) -> None:
    await bed.start("a")
    await bed.publish("a", run(b"1"), run(b"2"), run(b"3", time_ms=1_001), run(b"4", key="o"))
    assert [len(offsets) for offsets, _ in bed.lanes["a"].read(range(4))] == [2, 1, 1]
    bed.kill()
    await bed.start("a")
    assert [len(offsets) for offsets, _ in bed.lanes["a"].read(range(4))] == [2, 1, 1]


@simulated
async def test_batches_have_a_size(bed: LaneBed) -> None:
    await bed.start("a", cache_bytes=64 * MIB)
    large = [bytes([number]) * 300_000 for number in range(10)]
    await bed.publish("a", run(*large), run(b"x" * 3 * MIB, b"y"))
    stored = list(bed.served_partitions["a"].partition.batches())
    assert [len(each) > MIB for each in stored] == [False, False, False, False, True, False]
    bed.kill()
    await bed.start("a")
    assert read_all(bed.lanes["a"]) == [*large, b"x" * 3 * MIB, b"y"]


@simulated
async def test_memory_has_a_bound_for_all_lanes_together(bed: LaneBed) -> None:
    await bed.start("a", "b", cache_bytes=50_000)
    for number in range(200):
        for name in "ab":
            await bed.publish(name, run(*[b"%d" % number] * 10))
            assert bed.cache.size <= 50_000
    for name in "ab":
        assert read_all(bed.lanes[name]) == [b"%d" % (number // 10) for number in range(2_000)]
    assert bed.cache.size <= 50_000


@simulated
async def test_small_batches_are_read_a_few_at_a_time(bed: LaneBed) -> None:
    await bed.start("a")
    for number in range(500):
        await bed.publish("a", run(b"%d" % number))
    bed.kill()
    await bed.start("a")
    lane = bed.lanes["a"]
    first = bodies(lane.read(range(500), limits.QUEUE_TURN_BYTES_MAX))
    assert len(first) <= limits.QUEUE_TURN_BYTES_MAX // limits.QUEUE_READ_RUN_BYTES
    assert first + bodies(lane.read(range(len(first), 500))) == [b"%d" % n for n in range(500)]


@simulated
async def test_settled_messages_leave_memory_not_the_log(bed: LaneBed) -> None:
    await bed.start("a")
    lane = bed.lanes["a"]
    await bed.publish("a", run(b"1", b"2"))
    await bed.publish("a", run(b"3"))
    bed.settle("a", *take(lane, 2))
    assert bed.cache.size < 300
    assert read_all(lane) == [b"1", b"2", b"3"]
    bed.call(lane.drop)
    assert bed.cache.size == 0


@simulated
async def test_what_was_read_ahead_is_not_read_again(bed: LaneBed) -> None:
    await bed.start("a")
    for number in range(20):
        await bed.publish("a", run(b"%d" % number))
    bed.kill()
    await bed.start("a")
    lane = bed.lanes["a"]
    assert bodies(lane.read(range(10, 12))) == [b"10", b"11"]
    bed.disk.fail_next("read", errno.EIO, "*/a-0/*", count=10)
    assert bodies(lane.read(range(10, 20))) == [b"%d" % number for number in range(10, 20)]
    with pytest.raises(StorageError):
        lane.read(range(9, 12))


@simulated
async def test_holes_in_memory_are_filled_from_the_log(bed: LaneBed, seed: int) -> None:
    await bed.start("a", cache_bytes=1_500)  # Five or six messages.
    for number in range(6):
        await bed.publish("a", run(b"%d" % number, b"%d'" % number))
    lane = bed.lanes["a"]
    expected = read_all(lane)
    chance = bed.loop.random("ranges")
    for _ in range(100):
        first = chance.randint(0, 11)
        end = chance.randint(first, 12)
        assert bodies(lane.read(range(first, end))) == expected[first:end]


# --- what goes wrong


@simulated
async def test_what_cannot_be_written_is_not_there(bed: LaneBed) -> None:
    await bed.start("a")
    await bed.publish("a", run(b"1"))
    bed.disk.fail_next("write", errno.ENOSPC, "*/a-0/*")
    with pytest.raises(StorageError):
        bed.append("a", run(b"2"))
    assert bed.cache.size < 300
    assert await bed.publish("a", run(b"3")) == 2
    assert read_all(bed.lanes["a"]) == [b"1", b"3"]


@simulated
async def test_a_failed_sync_is_told(bed: LaneBed) -> None:
    await bed.start("a")
    bed.disk.fail_next("sync", errno.EIO, "*/a-0/*.log")
    with pytest.raises(StorageError):
        await bed.publish("a", run(b"1"))
    assert bed.lanes["a"].offset_end == 0
    with pytest.raises(StorageError):
        bed.append("a", run(b"2"))


@simulated
async def test_damage_is_not_handed_out(bed: LaneBed) -> None:
    await bed.start("a")
    await bed.publish("a", run(b"x" * 100))
    await bed.stop()
    bed.flip("partitions/a-0/00000000000000000000.log", -30)
    await bed.start("a")
    with pytest.raises(Corruption, match="checksum"):
        bed.lanes["a"].read(range(1))


# --- retention and time


@simulated
async def test_retention_takes_only_what_is_settled(bed: LaneBed) -> None:
    await bed.start("a", segment_bytes="14", retention_ms="1")
    lane, partition = bed.lanes["a"], bed.served_partitions["a"].partition
    for number in range(6):
        await bed.publish("a", run(b"%d" % number))
    offsets = take(lane, 4)
    bed.settle("a", offsets[0], offsets[1], offsets[3])
    partition.expire(10**15)
    assert lane.offset_start == 2
    assert read_all(lane) == [b"2", b"3", b"4", b"5"]
    assert flat(lane.read(range(3)))[0][0] == 2
    bed.settle("a", offsets[2])
    partition.expire(10**15)
    assert lane.offset_start == 4


@simulated
async def test_a_time_has_an_offset(bed: LaneBed) -> None:
    await bed.start("a")
    for time_ms in (1_000, 2_000, 3_000):
        await bed.publish("a", run(b"x", b"y", time_ms=time_ms))
    lane = bed.lanes["a"]
    assert [lane.offset_for_time(time) for time in (0, 1_001, 3_000, 3_001)] == [0, 2, 4, 6]
    assert lane.bytes_kept == bed.served_partitions["a"].partition.size > 0
    bed.disk.fail_next("read", errno.EIO, "*/a-0/*", count=10)
    with pytest.raises(StorageError):
        lane.offset_for_time(1_500)


@simulated
async def test_a_message_that_was_prepared_is_written_once(bed: LaneBed) -> None:
    await bed.start("a", cache_bytes=0)
    lane, large = bed.lanes["a"], run(b"x" * 3 * MIB)
    await bed.do(lane.prepare(large))
    partition = bed.served_partitions["a"].partition
    assert (partition.size, lane.offset_end) == (0, 0)
    await bed.publish("a", large)
    await bed.do(lane.prepare(run(b"never appended" * MIB)))
    await bed.publish("a", run(b"other"))
    bed.kill()
    await bed.start("a")
    assert read_all(bed.lanes["a"]) == [b"x" * 3 * MIB, b"other"]
