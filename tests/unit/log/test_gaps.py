"""A copy of a log that was compacted: where its leader has nothing, it says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.core import batch
from entrepot.core.errors import InvalidBatch
from entrepot.core.record import Record
from entrepot.log.gaps import filled
from entrepot.log.policy import Policy
from sim.loop import SimLoop, run
from tests.unit.log.bed import Bed, headed, make, simulated
from tests.unit.log.replicas import agree, content, copy, kept, lead

COMPACT = Policy(
    segment_bytes=400, compacts=True, expires=False, tombstone_ms=1_000, dirty_ratio_min=0.1
)
KEYS = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=12)
TERM = st.tuples(
    st.sampled_from("ab"),  # Who leads,
    st.integers(0, 2),  # how much later its epoch is,
    KEYS,  # what it writes, a batch for each,
    st.booleans(),  # whether it compacts then,
    st.integers(0, 30),  # and how often the other fetches; it compacts,
    st.booleans(),  # or not.
    st.sampled_from(["", "", "kill", "crash", "stop"]),  # Then this happens.
)


def keyed(key: bytes, value: bytes | None) -> bytes:
    return batch.build([Record(key, value)], now_ms=1)


async def clean(bed: Bed, name: str) -> None:
    await bed.committed()
    await bed.do(bed.log.cleaner.clean(bed[name]))


@given(st.lists(TERM, min_size=1, max_size=8))
def test_any_history_of_compacted_logs_ends_as_the_leaders(
    terms: list[tuple[str, int, list[bytes], bool, int, bool, str]],
) -> None:
    """Nothing is acknowledged here but what both have: only that is compacted."""

    async def main(loop: SimLoop) -> None:
        bed, epoch, last = Bed(loop), 1, dict[bytes, bytes]()
        await bed.start("a", "b", policy=COMPACT)
        number = 0
        for leader, later, keys, cleans, fetches, follower_cleans, end in terms:
            epoch += later
            follower = "ab".replace(leader, "")
            bed[leader].begin_epoch(epoch)
            for key in keys:
                number += 1
                last[key] = b"%d" % number
                bed.append(leader, keyed(key, last[key]))
            if cleans:
                await clean(bed, leader)
            copy(bed, leader, follower, fetches)
            await bed.committed()
            if follower_cleans:
                await clean(bed, follower)
            if end:
                await bed.stop() if end == "stop" else getattr(bed, end)()
                await bed.start("a", "b", policy=COMPACT)
            copy(bed, leader, follower, 1_000)  # The next one to lead has all.
            await bed.committed()
            assert bed[follower].offset_end == bed[leader].offset_end
        for name in "ab":
            assert bed[name].stopped is None
            found = {record.key: record.value for record in records(bed, name)}
            assert found == last
            await clean(bed, name)
            assert {record.key: record.value for record in records(bed, name)} == last

    run(0, main)


def records(bed: Bed, name: str) -> list[Record]:
    data = content(bed[name])
    return [
        record
        for at, header in batch.walk(data)
        for record in batch.records(data[at : at + header.size])
    ]


@pytest.mark.parametrize("how", ["kill", "crash", "stop"])
def test_a_copy_of_what_was_compacted(how: str) -> None:
    @simulated
    async def story(bed: Bed) -> None:
        await bed.start("a", "b", "c", policy=COMPACT)
        bed["a"].begin_epoch(3)
        for n in range(40):
            bed.append("a", keyed(b"k%d" % (n % 3), b"v%d" % n))
        await clean(bed, "a")
        assert bed["a"].segments[0].compacted
        copy(bed, "a", "b", 100)
        await bed.committed()
        assert bed["b"].offset_end == bed["a"].offset_end == 40
        assert kept(bed["b"]) == kept(bed["a"])
        assert bed["b"].epochs.starts == bed["a"].epochs.starts == [(3, 0)]
        assert not any(segment.compacted for segment in bed["b"].segments)
        await bed.stop() if how == "stop" else getattr(bed, how)()
        await bed.start("a", "b", "c", policy=COMPACT, check_all=True)
        assert bed["b"].stopped is None
        assert (bed["b"].offset_end, kept(bed["b"])) == (40, kept(bed["a"]))
        copy(bed, "b", "c", 100)  # A copy of the copy.
        await clean(bed, "b")
        assert kept(bed["c"]) == kept(bed["b"]) == kept(bed["a"])
        assert len(content(bed["b"])) < len(content(bed["c"])), "what says so goes, too"

    story()


@simulated
async def test_a_leader_whose_keys_are_all_gone_is_copied_to_its_end(bed: Bed) -> None:
    await bed.start("a", "b", policy=COMPACT)
    bed.append("a", *(keyed(b"k", None) for _ in range(12)))
    await clean(bed, "a")
    bed.clock.jump(2_000)
    bed.append("a", *(keyed(b"k", None) for _ in range(12)))
    await clean(bed, "a")
    assert len(records(bed, "a")) < 24
    copy(bed, "a", "b", 100)
    await bed.committed()
    assert bed["b"].offset_end == bed["a"].offset_end == 24
    last = bed["a"].segments[0]
    assert last.compacted
    part = bed["a"].read(last.offset_end - 1, 1)
    assert part is not None
    header = batch.read_header(part.file.read(part.position, part.size))
    assert header.offset_end == last.offset_end, "a reader gets to the end of the segment"


@simulated
async def test_an_epoch_that_began_in_a_gap_begins_there(bed: Bed) -> None:
    await bed.start("a", "b", "c", policy=COMPACT)
    lead(bed, "a", 1, b"x")
    copy(bed, "a", "c", 10)
    lead(bed, "c", 1, b"only c has this")
    for epoch in (2, 3):
        bed["a"].begin_epoch(epoch)
        for n in range(12):
            bed.append("a", keyed(b"k", b"%d" % n))
    await clean(bed, "a")
    copy(bed, "a", "b", 100)
    await bed.committed()
    starts = bed["b"].epochs.starts
    assert starts[0] == (1, 0)
    assert starts[1][1] == 2, "never later than it did"
    bed["c"].replicate(0)
    await agree(bed, "b", "c")
    assert bed["c"].offset_end == 2
    copy(bed, "b", "c", 100)
    await bed.committed()
    assert kept(bed["b"]) == kept(bed["a"])
    assert [each for each in records(bed, "c") if each.offset > 1] == records(bed, "b")[1:]


def test_what_compaction_does_not_leave_is_refused() -> None:
    far = bytearray(make(b"a"))
    far[:8] = (2**40).to_bytes(8, "big")
    with pytest.raises(InvalidBatch):
        filled(headed(bytes(far)), 0)
    assert filled(headed(bytes(far)), 2**40) == headed(bytes(far))
    ((header, data), _) = filled(headed(bytes(far)), 2**40 - 2**31 + 1)
    assert batch.check(bytes(data), allow_gaps=True).offset_end == 2**40  # type: ignore[arg-type]
    with pytest.raises(InvalidBatch):
        batch.check(bytes(data))  # type: ignore[arg-type]
    assert (header.count, list(batch.records(bytes(data)))) == (0, [])  # type: ignore[arg-type]


@simulated
async def test_a_missing_offset_is_still_noticed(bed: Bed) -> None:
    """No leader said that there is nothing."""
    await bed.start("a", "b", policy=COMPACT)
    for n in range(6):
        bed.append("a", keyed(b"k", b"v%d" % n))
    await bed.committed()
    copy(bed, "a", "b", 100)
    await bed.committed()
    data = content(bed["b"])
    bounds = [at for at, _ in batch.walk(data)]
    bed.kill()
    file = bed.disk.open(f"{bed.directory('b')}/{0:020d}.log")
    file.write(bounds[2], [(3).to_bytes(8, "big")])
    await bed.start("a", "b", policy=COMPACT, check_all=True)
    assert bed["b"].stopped is not None
    assert "where 2 should follow" in bed["b"].stopped
