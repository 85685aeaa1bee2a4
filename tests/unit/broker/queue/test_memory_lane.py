"""A lane in memory, beside one in the log: the same questions, the same answers."""

import tracemalloc
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.queue.lane import Lane
from entrepot.broker.queue.memory_lane import MemoryLane
from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.queue.message import Run
from entrepot.core.errors import StorageError
from entrepot.core.message import Envelope
from entrepot.core.neutral import NEUTRAL
from sim.loop import run as simulate
from tests.unit.broker.queue.lane_bed import LEASE, OWNER, LaneBed, bodies, flat, head, run, take

BODIES = st.binary(max_size=3) | st.binary(min_size=60, max_size=300)
ENVELOPES = st.builds(
    Envelope,
    st.sampled_from(["", "x"]),
    st.sampled_from(["k", "key"]),
    st.sampled_from([head(b"p"), head(b"q" * 70)]),
    st.just(NEUTRAL),
)
RUNS = st.builds(Run, st.integers(1_000, 1_002), st.lists(st.tuples(ENVELOPES, BODIES), max_size=5))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(RUNS, min_size=1, max_size=3)),
        st.tuples(st.just("take"), st.integers(1, 9)),
        st.tuples(st.just("settle"), st.integers(0, 20), st.integers(1, 9), st.integers(1, 3)),
        st.tuples(st.just("release"), st.integers(0, 20), st.integers(1, 9), st.just(1)),
        st.tuples(st.just("discard"), st.integers(1, 9)),
        st.tuples(st.just("defer"), st.integers(0, 9)),
        st.tuples(st.just("time"), st.integers(1_000, 1_003)),
    ),
    max_size=25,
)


def do(lane: Lane, verb: str, first: object, *numbers: int) -> object:
    ledger = lane.ledger
    if verb == "append":
        assert isinstance(first, list)
        runs = [each for each in first if each.messages]
        return lane.append(first) if runs else None
    assert isinstance(first, int)
    if verb == "take":
        return take(lane, first)
    if verb == "discard":
        dropped = ledger.discard(first, lane.offset_end)
        lane.settled(dropped)
        return dropped
    if verb == "defer":
        ready = ledger.ready(first + 1, lane.offset_end)
        for offset in [each[-1] for each in ready[-1:]]:
            ledger.defer(offset, 10**15)
            lane.deferred(offset, 10**15)
        return ready
    if verb == "time":
        return [m[1] for m in flat(lane.read(range(lane.offset_for_time(first), lane.offset_end)))]
    offsets = range(first, first + numbers[0], numbers[1])
    if verb == "release":
        return ledger.release(offsets, OWNER)
    settled = ledger.settle(offsets, OWNER)
    lane.settled(settled)
    return settled


def unsettled(lane: Lane) -> list[int]:
    return [each for each in range(lane.offset_end) if not lane.ledger.is_settled(each)]


@given(STEPS)
def test_a_lane_in_memory_is_as_one_in_the_log(steps: Sequence[tuple[str, object, int]]) -> None:
    async def story(bed: LaneBed) -> None:
        await bed.start("a", cache_bytes=2_000, durability="os", segment_bytes="700")
        stored, memory = bed.lanes["a"], MemoryLane(MemoryUse())
        for verb, *arguments in steps:
            if verb == "time" and unsettled(stored) != list(range(stored.offset_end)):
                continue  # Settled messages have a time in the log alone.
            answers = [bed.call(do, lane, verb, *arguments) for lane in (stored, memory)]
            assert answers[0] == answers[1]
            assert stored.offset_end == memory.offset_end
            assert unsettled(stored) == unsettled(memory)
            found = [
                [each for each in flat(lane.read(range(lane.offset_end))) if each[0] in left]
                for lane in (stored, memory)
                for left in [unsettled(lane)]
            ]
            assert found[0] == found[1]
            assert [each[0] for each in found[0]] == unsettled(memory)
            assert memory.bytes_kept == sum(book.size for book in memory._shelf)

    simulate(0, lambda loop: story(LaneBed(loop)))


def test_commits_are_told_at_once() -> None:
    lane, told = MemoryLane(MemoryUse()), list[StorageError | None]()
    lane.when_committed(lane.append([run(b"1"), run(b"2")]), told.append)
    lane.when_settlements_committed(told.append)
    assert told == [None, None]
    assert (lane.offset_start, lane.offset_end, lane.offset_recovered) == (0, 2, 0)


def test_what_is_settled_is_let_go_of_although_something_before_is_held() -> None:
    use = MemoryUse()
    lane = MemoryLane(use)
    for number in range(100):
        lane.append([run(*[b"x" * 1_000] * 100, time_ms=number)])
    full, shared = lane.bytes_kept, 100 * len(head())  # Each run has an envelope.
    take(lane, 10_000)
    for first in range(6, 10_000, 100):  # All but the first six of each hundred.
        settled = lane.ledger.settle(range(first, first + 94), OWNER)
        lane.settled(settled)
    assert lane.ledger.offset_low == 0
    assert lane.bytes_kept == use.size == (full - shared) * 6 // 100 + shared
    assert len(bodies(lane.read(range(10_000)))) == 600
    lane.drop()
    assert (use.size, lane.bytes_kept, lane.read(range(10_000))) == (0, 0, [])


def test_a_stride_is_counted_as_what_it_is() -> None:
    lane = MemoryLane(MemoryUse())
    lane.append([run(*[b"x"] * 10)])
    lane.append([run(*[b"y"] * 10)])
    (popped,) = lane.ledger.pop(20, 20)
    lane.ledger.lease(popped[1::3], LEASE)
    for rest in (popped[::3], popped[2::3]):
        lane.ledger.settle_popped(rest)
        lane.settled([rest])
    assert [book.live for book in lane._shelf] == [3, 4]
    assert [each[0] for each in flat(lane.read(range(20))) if each[0] % 3 == 1] == [*popped[1::3]]


def test_a_rewind_goes_back_to_what_is_left() -> None:
    lane = MemoryLane(MemoryUse())
    lane.append([run(*[b"x"] * 8)])
    take(lane, 8)
    lane.settled(lane.ledger.settle(range(4, 7), OWNER))
    lane.ledger.rewind(2)
    lane.rewound(2)
    assert take(lane, 9) == [2, 3, 4, 5, 6, 7]
    assert len(bodies(lane.read(range(2, 8)))) == 6
    lane.settled(lane.ledger.settle(range(8), OWNER))
    assert (lane.bytes_kept, lane.ledger.offset_low) == (0, 8)


def test_memory_comes_back() -> None:
    """What is allocated after ten thousand messages went through is what was there before."""
    lane = MemoryLane(MemoryUse())

    def work(count: int) -> None:
        for _ in range(count):
            end = lane.append([run(*[b"x"] * 10)])
            lane.settled(lane.ledger.discard(10, end))

    work(200)
    tracemalloc.start()
    work(1_000)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 20_000
