"""A log that is cut: what is left, and what a crash at any moment leaves."""

import asyncio
from errno import EIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.core import limits
from entrepot.core.errors import OffsetOutOfRange, StorageError
from entrepot.log.policy import Policy
from sim.loop import SimLoop, run
from tests.unit.log.bed import Bed, make, simulated
from tests.unit.log.replicas import agree, content, copy, epochs_of, lead

SMALL = Policy(segment_bytes=400)
MANY = [f"t{number}" for number in range(limits.SEGMENTS_SYNCED_DIRECTLY_MAX + 1)]
TERM = st.tuples(
    st.sampled_from("ab"),  # Who leads,
    st.integers(1, 3),  # how much later its epoch is,
    st.integers(0, 9),  # how many batches it writes,
    st.none() | st.integers(0, 4),  # and how often the other fetches; None: it hears nothing.
    st.sampled_from(["", "", "kill", "crash", "stop"]),  # Then this happens.
)


@given(st.lists(TERM, min_size=1, max_size=8))
def test_any_divergent_history_ends_as_the_leaders(
    terms: list[tuple[str, int, int, int | None, str]],
) -> None:
    async def main(loop: SimLoop) -> None:
        bed, epoch = Bed(loop), 0
        await start(bed)
        for leader, later, writes, fetches, end in terms:
            epoch += later
            lead(bed, leader, epoch, *(b"%s%d" % (leader.encode(), n) for n in range(writes)))
            if fetches is not None:
                follower = "ab".replace(leader, "")
                await agree(bed, leader, follower)
                copy(bed, leader, follower, fetches)
            await bed.committed()
            if end:
                await bed.stop() if end == "stop" else getattr(bed, end)()
                await start(bed)
        leader, follower = terms[-1][0], "ab".replace(terms[-1][0], "")
        bed[leader].begin_epoch(epoch)
        await agree(bed, leader, follower)
        copy(bed, leader, follower, 1_000)
        await bed.committed()
        assert content(bed[follower]) == content(bed[leader])
        for name in "ab":
            assert bed[name].epochs.starts == epochs_of(content(bed[name]))
            assert bed[name].offset_durable == bed[name].offset_end

    run(0, main)


async def start(bed: Bed) -> None:
    await bed.start("a", "b", policy=SMALL)
    for name in "ab":
        bed[name].replicate(0)


@simulated
async def test_what_is_left_and_what_follows(bed: Bed) -> None:
    await bed.start("t", policy=SMALL)
    partition = bed["t"]
    partition.replicate(0)
    lead(bed, "t", 1, *(b"%d" % number for number in range(20)))
    lead(bed, "t", 2, *(b"%d" % number for number in range(20)))
    await bed.committed()
    assert len(partition.segments) > 5
    before = content(partition)
    waited: list[StorageError | None] = []
    bed.call(partition.show, 10)
    partition.when_committed(22, waited.append)
    partition.when_committed(30, waited.append)
    folded: list[tuple[int, bytes]] = []
    partition.on_cut = lambda offset, state: folded.append((offset, state))
    await bed.do(bed.log.truncate(partition, 23))  # In a batch of two.
    assert partition.offset_end == partition.offset_durable == 22
    assert before.startswith(content(partition))
    assert partition.epochs.starts == [(1, 0)]
    assert isinstance(waited[0], StorageError)
    assert len(waited) == 1
    assert 0 < folded[0][0] <= 22
    assert partition.high_watermark == 10
    assert len(bed.values("t")) == 10
    assert all(int(name[:20]) <= 22 for name in bed.names("t") if name[0] == "0")
    await bed.do(bed.log.truncate(partition, 22))  # Nothing is there.
    with pytest.raises(OffsetOutOfRange):
        await bed.do(bed.log.truncate(partition, 9))
    lead(bed, "t", 3, b"new")
    await bed.committed()
    bed.call(partition.show, 24)
    assert waited == [waited[0], None]
    assert bed.values("t")[-3:] == [b"10", b"new", b"new"]
    for end in ("kill", "crash", "stop"):
        await bed.stop() if end == "stop" else getattr(bed, end)()
        await bed.start("t", policy=SMALL)
        assert bed["t"].stopped is None
        assert bed.values("t")[-3:] == [b"10", b"new", b"new"]
        assert bed["t"].epochs.starts == [(1, 0), (3, 22)]


@simulated
async def test_a_log_may_be_cut_to_nothing(bed: Bed) -> None:
    await bed.start("t", policy=SMALL)
    bed["t"].replicate(0)
    lead(bed, "t", 1, *(b"%d" % number for number in range(20)))
    await bed.committed()
    await bed.do(bed.log.truncate(bed["t"], 0))
    assert (bed["t"].offset_end, content(bed["t"]), bed["t"].epochs.starts) == (0, b"", [])
    bed.crash()
    await bed.start("t", policy=SMALL)
    assert (bed["t"].stopped, bed["t"].offset_end) == (None, 0)


@simulated
async def test_a_commit_that_is_under_way_is_of_no_account(bed: Bed, seed: int) -> None:
    await bed.start("t", policy=SMALL)
    partition = bed["t"]
    partition.replicate(0)
    lead(bed, "t", 1, *(b"%d" % number for number in range(20)))
    cutting = asyncio.ensure_future(bed.do(bed.log.truncate(partition, 10)))
    await bed.sleep_up_to(0.05)
    if partition.offset_end > 10:
        lead(bed, "t", 1, b"too late")  # Its offset is above the cut, so it is cut off, too.
    await cutting
    await bed.committed()
    assert partition.offset_end == partition.offset_durable == partition.offset_synced == 10
    lead(bed, "t", 2, b"new")
    assert partition.offset_durable == 10
    await bed.committed()
    assert partition.offset_end == partition.offset_durable == partition.offset_synced == 12
    bed.crash()
    await bed.start("t", policy=SMALL)
    assert (bed["t"].stopped, bed.values("t")[-2:]) == (None, [b"new", b"new"])


@simulated
async def test_power_failures_on_the_way(bed: Bed, seed: int) -> None:
    """What is there afterwards is the old log, or a part of it that begins the same; cut again, it
    takes what the leader has, and keeps it."""
    names, chance = [*MANY, "t"], bed.loop.random("test")
    await bed.start(*names, policy=SMALL)
    bed["t"].replicate(0)
    for epoch in range(1, chance.randrange(2, 6)):
        for name in MANY if chance.random() < 0.5 else ():  # Then it goes through the journal.
            bed.append(name, make(b""))
        lead(bed, "t", epoch, *(b"%d" % number for number in range(chance.randrange(12))))
        if chance.random() < 0.7:
            await bed.committed()
    before, end = content(bed["t"]), bed["t"].offset_end
    durable = bed["t"].offset_durable
    offset = chance.randrange(end + 1) // 2 * 2
    for _ in range(3):
        cutting = asyncio.ensure_future(bed.do(bed.log.truncate(bed["t"], offset)))
        await bed.sleep_up_to(0.1)
        is_cut = cutting.done()
        bed.crash() if chance.random() < 0.8 else bed.kill()
        await bed.start(*names, policy=SMALL)
        left = content(bed["t"])
        assert bed["t"].stopped is None
        assert before.startswith(left)
        assert bed["t"].offset_end >= min(offset, durable)
        assert bed["t"].epochs.starts == epochs_of(left)
        bed["t"].replicate(0)
        if is_cut:
            assert bed["t"].offset_end <= offset
    offset = min(offset, bed["t"].offset_end)
    await bed.do(bed.log.truncate(bed["t"], offset))
    lead(bed, "t", 50, *(b"new %d" % number for number in range(chance.randrange(1, 9))))
    for name in MANY if chance.random() < 0.5 else ():
        bed.append(name, make(b""))
    await bed.committed()
    after = content(bed["t"])
    bed.crash()
    await bed.start(*names, policy=SMALL)
    assert bed["t"].stopped is None
    assert content(bed["t"]) == after
    assert bed["t"].epochs.starts == epochs_of(after)


@pytest.mark.parametrize(
    ("operation", "pattern"),
    [
        ("sync", "recovery.checkpoint*"),
        ("sync", "journal*"),
        ("remove", "*.log"),
        ("truncate", "*.log"),
        ("sync", "*.log"),
        ("sync", "*/epochs*"),
    ],
)
def test_a_disk_that_fails_stops_the_partition(operation: str, pattern: str) -> None:
    @simulated
    async def story(bed: Bed) -> None:
        await bed.start("t", policy=SMALL)
        bed["t"].replicate(0)
        for epoch in (1, 2):
            lead(bed, "t", epoch, *(b"%d" % number for number in range(12)))
            await bed.committed()
        before = content(bed["t"])
        bed.disk.fail_next(operation, EIO, pattern)
        with pytest.raises(StorageError):
            await bed.do(bed.log.truncate(bed["t"], 20))
        assert bed["t"].stopped is not None
        bed.kill()
        await bed.start("t", policy=SMALL)
        assert bed["t"].stopped is None
        assert before.startswith(content(bed["t"]))
        assert bed["t"].offset_end >= 20

    story()
