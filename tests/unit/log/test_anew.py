"""A log that begins anew at another offset: what is left, and what a crash on the way leaves."""

import asyncio
from errno import EIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.core.errors import OffsetOutOfRange, StorageError
from entrepot.log.policy import Policy
from sim.loop import SimLoop, run
from tests.unit.log.bed import Bed, make, simulated
from tests.unit.log.replicas import agree, content, copy, epochs_of, lead
from tests.unit.log.test_truncation import MANY, SMALL

TERM = st.tuples(
    st.sampled_from("ab"),  # Who leads,
    st.integers(1, 2),  # how much later its epoch is,
    st.integers(0, 9),  # how many batches it writes,
    st.integers(0, 9),  # how many batches it removes from its start,
    st.none() | st.integers(0, 4),  # and how often the other fetches; None: it hears nothing.
    st.sampled_from(["", "", "kill", "crash", "stop"]),  # Then this happens.
)


async def start(bed: Bed) -> None:
    await bed.start("a", "b", policy=SMALL)
    for name in "ab":
        bed[name].replicate(0)


async def follow(bed: Bed, leader: str, follower: str, fetches: int) -> None:
    """Agree with the leader, or begin anew where it does; then copy."""
    ours, theirs = bed[follower], bed[leader]
    try:
        await agree(bed, leader, follower)
        is_behind = ours.offset_end < theirs.offset_start
    except OffsetOutOfRange:  # It has shown what the leader has not.
        is_behind = True
    if is_behind:
        await bed.do(bed.log.begin_anew(ours, theirs.offset_start))
    copy(bed, leader, follower, fetches)


@given(st.lists(TERM, min_size=1, max_size=8))
def test_any_history_with_removals_ends_as_the_leaders(
    terms: list[tuple[str, int, int, int, int | None, str]],
) -> None:
    async def main(loop: SimLoop) -> None:
        bed, epoch = Bed(loop), 0
        await start(bed)
        for leader, later, writes, removed, fetches, end in terms:
            epoch += later
            lead(bed, leader, epoch, *(b"%s%d" % (leader.encode(), n) for n in range(writes)))
            await bed.committed()
            if fetches is not None:
                await follow(bed, leader, "ab".replace(leader, ""), fetches)
            await bed.committed()
            partition = bed[leader]
            offset = min(partition.offset_start + 2 * removed, partition.offset_end)
            bed.call(partition.show, offset)
            if partition.high_watermark >= offset:
                partition.delete_before(offset)
                await bed.sweep(leader) if partition.segments else None
            if end:
                await bed.stop() if end == "stop" else getattr(bed, end)()
                await start(bed)
            assert bed["a"].stopped is bed["b"].stopped is None
        leader, follower = terms[-1][0], "ab".replace(terms[-1][0], "")
        bed[leader].begin_epoch(epoch)
        await follow(bed, leader, follower, 1_000)
        await bed.committed()
        ours, theirs = bed[follower], bed[leader]
        assert ours.offset_end == theirs.offset_end
        assert content(ours).endswith(content(theirs)) or content(theirs).endswith(content(ours))
        if content(ours) and content(theirs):
            assert ours.epochs.last == theirs.epochs.last

    run(0, main)


@pytest.mark.parametrize("offset", [0, 10, 22, 39, 1_000])
@pytest.mark.parametrize("how", ["kill", "crash", "stop"])
def test_what_is_left_and_what_follows(offset: int, how: str) -> None:
    @simulated
    async def story(bed: Bed) -> None:
        names = [*MANY, "t"]
        await bed.start(*names, policy=SMALL)
        partition = bed["t"]
        partition.replicate(0)
        for epoch in (1, 2):
            lead(bed, "t", epoch, *(b"%d" % number for number in range(10)))
            for name in MANY:  # So that it goes through the journal.
                bed.append(name, make(b""))
            await bed.committed()
        assert bed.log.committer.rounds_journaled == 2
        waited: list[StorageError | None] = []
        partition.when_committed(40, waited.append)
        cut: list[tuple[int, bytes]] = []
        partition.on_cut = lambda offset, state: cut.append((offset, state))
        await bed.do(bed.log.begin_anew(partition, offset))
        assert isinstance(waited[0], StorageError)
        assert cut == [(offset, b"")]
        assert partition.offset_start == partition.offset_end == offset
        assert partition.high_watermark == partition.offset_durable == offset
        assert (content(partition), partition.epochs.starts) == (b"", [])
        assert "anew" not in bed.names("t")
        bed.kill()
        await bed.start(*names, policy=SMALL)
        assert (bed["t"].stopped, bed["t"].offset_end) == (None, offset)
        lead(bed, "t", 3, b"new")
        for name in MANY:
            bed.append(name, make(b""))
        await bed.committed()
        await bed.stop() if how == "stop" else getattr(bed, how)()
        await bed.start(*names, policy=SMALL)
        assert bed["t"].stopped is None
        assert bed["t"].offset_start == offset
        assert bed.values("t") == [b"new", b"new"]
        assert bed["t"].epochs.starts == [(3, offset)]

    story()


@simulated
async def test_a_partition_that_never_was_may_begin_anywhere(bed: Bed) -> None:
    await bed.start("t", policy=SMALL)
    await bed.do(bed.log.begin_anew(bed["t"], 77))
    await bed.do(bed.log.begin_anew(bed["t"], 70))  # Where the leader's first batch begins.
    bed.append("t", make(b"a"))
    await bed.committed()
    bed.crash()
    await bed.start("t", policy=SMALL)
    assert (bed["t"].stopped, bed["t"].offset_start, bed.values("t")) == (None, 70, [b"a"])


@simulated
async def test_a_damaged_copy_is_copied_again(bed: Bed) -> None:
    await bed.start("a", "b", policy=SMALL)
    lead(bed, "a", 1, *(b"%d" % number for number in range(20)))
    copy(bed, "a", "b", 100)
    await bed.committed()
    bed.kill()
    bed.flip(f"{bed.directory('b')}/{0:020d}.log", 100)
    await bed.start("a", "b", policy=SMALL, check_all=True)
    assert bed["b"].refused
    with pytest.raises(StorageError):
        copy(bed, "a", "b", 1)
    await bed.do(bed.log.begin_anew(bed["b"], 0))
    copy(bed, "a", "b", 100)
    await bed.committed()
    assert content(bed["b"]) == content(bed["a"])
    bed.crash()
    await bed.start("a", "b", policy=SMALL, check_all=True)
    assert (bed["b"].stopped, content(bed["b"])) == (None, content(bed["a"]))


@simulated
async def test_power_failures_on_the_way(bed: Bed, seed: int) -> None:
    """It is the old log, whole, or it has begun anew; and then it keeps what is copied."""
    names, chance = [*MANY, "t"], bed.loop.random("test")
    await bed.start(*names, policy=SMALL)
    bed["t"].replicate(0)
    for epoch in range(1, chance.randrange(2, 6)):
        for name in MANY if chance.random() < 0.5 else ():
            bed.append(name, make(b""))
        lead(bed, "t", epoch, *(b"%d" % number for number in range(chance.randrange(12))))
        if chance.random() < 0.7:
            await bed.committed()
    before, durable = content(bed["t"]), bed["t"].offset_durable
    offset = chance.choice([0, chance.randrange(bed["t"].offset_end + 1), 10_000])
    for _ in range(3):
        beginning = asyncio.ensure_future(bed.do(bed.log.begin_anew(bed["t"], offset)))
        await bed.sleep_up_to(0.1)
        is_done = beginning.done()
        bed.crash() if chance.random() < 0.8 else bed.kill()
        await bed.start(*names, policy=SMALL)
        partition = bed["t"]
        assert partition.stopped is None
        if is_done or not content(partition):
            assert content(partition) == b""
            assert is_done is False or partition.offset_end == offset
        else:
            assert before.startswith(content(partition))
            assert partition.offset_end >= durable
        partition.replicate(0)
    await bed.do(bed.log.begin_anew(bed["t"], offset))
    lead(bed, "t", 50, *(b"new %d" % number for number in range(chance.randrange(1, 9))))
    for name in MANY if chance.random() < 0.5 else ():
        bed.append(name, make(b""))
    await bed.committed()
    after = content(bed["t"])
    for _ in range(2):
        bed.crash()
        await bed.start(*names, policy=SMALL)
        assert bed["t"].stopped is None
        assert (bed["t"].offset_start, content(bed["t"])) == (offset, after)
        assert bed["t"].epochs.starts == epochs_of(after)


@pytest.mark.parametrize(
    ("operation", "pattern"),
    [
        ("sync", "*/anew*"),
        ("sync", "partitions/t-0"),
        ("sync", "journal*"),
        ("rename", "*.log"),
        ("sync", "recovery.checkpoint*"),
        ("remove", "*/anew"),
    ],
)
def test_a_disk_that_fails_stops_the_partition(operation: str, pattern: str) -> None:
    @simulated
    async def story(bed: Bed) -> None:
        await bed.start("t", policy=SMALL)
        bed["t"].replicate(0)
        lead(bed, "t", 1, *(b"%d" % number for number in range(12)))
        await bed.committed()
        before = content(bed["t"])
        bed.disk.fail_next(operation, EIO, pattern)
        with pytest.raises(StorageError):
            await bed.do(bed.log.begin_anew(bed["t"], 100))
        assert bed["t"].stopped is not None
        with pytest.raises(StorageError):
            await bed.do(bed.log.begin_anew(bed["t"], 100))
        await bed.stop()
        await bed.start("t", policy=SMALL)
        assert bed["t"].stopped is None
        assert content(bed["t"]) in (b"", before)
        assert bed["t"].offset_end in (24, 100)

    story()


@simulated
async def test_a_damaged_file_refuses_the_partition(bed: Bed) -> None:
    await bed.start("t", policy=Policy())
    await bed.write("t", b"a")
    bed.kill()
    file = bed.disk.open(f"{bed.directory('t')}/anew", create=True)
    file.write(0, [b"not it"])
    await bed.start("t", policy=Policy())
    assert bed["t"].stopped == "partitions/t-0/anew is damaged"
