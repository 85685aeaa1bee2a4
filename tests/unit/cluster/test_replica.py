"""What a leader knows of its followers, and where a follower cuts."""

from hypothesis import given
from hypothesis import strategies as st

from entrepot.cluster.replica import UNKNOWN, Follower, Leader
from entrepot.cluster.state import Assignment
from entrepot.log.epochs import EpochEnd, EpochIndex

ALL = (1, 2, 3)
LAG_S = 10.0


def leader(in_sync: tuple[int, ...] = ALL, end: int = 0) -> Leader:
    return Leader(1, Assignment(ALL, in_sync, 1, 4), revision=7, offset_end=end, now_s=0.0)


def test_the_watermark_is_what_all_in_sync_have() -> None:
    led = leader()
    led.durable(10)
    assert led.watermark == UNKNOWN  # Of two nobody knows anything.
    led.fetched(2, 8, 10, 1.0)
    assert led.watermark == UNKNOWN
    led.fetched(3, 5, 10, 1.0)
    assert led.watermark == 5
    led.fetched(3, 10, 10, 1.1)
    assert led.watermark == 8
    led.fetched(4, 0, 10, 1.2)  # It is no replica.
    assert led.watermark == 8


def test_the_leaders_own_disk_counts_too() -> None:
    led = leader()
    led.durable(3)
    led.fetched(2, 8, 10, 1.0)
    led.fetched(3, 9, 10, 1.0)
    assert led.watermark == 3


def test_a_follower_that_lags_counts_until_the_coordinator_has_left_it_out() -> None:
    led = leader()
    led.durable(10)
    led.fetched(2, 10, 10, 11.0)
    led.fetched(3, 4, 10, 11.0)
    assert led.propose(11.0, LAG_S, 10, 4, ALL) == (1, 2)
    assert led.watermark == 4
    assert led.propose(12.0, LAG_S, 10, 4, ALL) is None  # One is on its way.
    led.told(Assignment(ALL, (1, 2), 1, 4), 8)
    assert led.watermark == 10


def test_a_follower_that_catches_up_counts_as_soon_as_it_may_be_in() -> None:
    led = leader((1, 2), end=6)
    led.durable(10)
    led.fetched(2, 10, 10, 1.0)
    led.fetched(3, 5, 10, 1.0)
    assert led.propose(1.0, LAG_S, 10, 5, ALL) is None  # It lacks what was there when we began.
    led.fetched(3, 8, 10, 1.0)
    assert led.propose(1.0, LAG_S, 10, 9, ALL) is None  # It lacks what is committed.
    assert led.propose(1.0, LAG_S, 10, 8, (1, 2)) is None  # It is not registered.
    assert led.propose(1.0, LAG_S, 10, 8, ALL) == ALL
    led.durable(12)
    led.fetched(2, 12, 12, 1.1)
    assert led.watermark == 8
    led.refused()
    assert led.watermark == 12


def test_one_that_is_always_a_little_behind_is_in_sync() -> None:
    led = leader()
    for second in range(60):
        for follower in (2, 3):
            led.fetched(follower, 10 * second, 10 * (second + 1), float(second))
        assert led.propose(float(second), LAG_S, 10 * (second + 1), 0, ALL) is None


def test_one_that_has_all_is_in_sync_however_long_nothing_is_written() -> None:
    led = leader()
    led.fetched(2, 10, 10, 1.0)
    led.fetched(3, 10, 10, 1.0)
    assert led.propose(1_000.0, LAG_S, 10, 10, ALL) is None


def test_what_is_told_late_is_not_believed() -> None:
    led = leader()
    led.told(Assignment(ALL, (1,), 1, 4), 7)
    assert led.assignment.in_sync == ALL


EVENTS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5), st.just(0)),
    st.tuples(st.just("fetch"), st.sampled_from((2, 3)), st.integers(0, 40)),
    st.tuples(st.just("propose"), st.integers(0, 30), st.just(0)),
    st.tuples(st.just("made"), st.just(0), st.just(0)),
    st.tuples(st.just("refused"), st.just(0), st.just(0)),
)


@given(st.lists(EVENTS, max_size=60))
def test_what_is_shown_is_in_every_replica_that_could_be_elected(
    events: list[tuple[str, int, int]],
) -> None:
    """Whatever is heard and decided in whatever order: below the watermark, everybody who is in
    sync as the coordinator has it, or may come to be by what is on its way, has everything."""
    led, end, now, shown, revision = leader(), 0, 0.0, 0, 7
    ends = {2: 0, 3: 0}
    for kind, first, second in events:
        before, now = led.watermark, now + 1
        if kind == "append":
            end += first
            led.durable(end)
        elif kind == "fetch":
            ends[first] = min(max(ends[first], second), end)  # A follower's log does not shrink.
            led.fetched(first, ends[first], end, now)
        elif kind == "propose":
            led.propose(now, float(first), end, shown, ALL)
        elif kind == "made" and led.proposed is not None:
            revision += 1
            led.told(Assignment(ALL, led.proposed, 1, 4), revision)
        elif kind == "refused":
            led.refused()
        shown = max(shown, led.watermark)
        electable = {*led.assignment.in_sync, *(led.proposed or ())} - {1}
        assert all(shown <= ends[each] for each in electable), (kind, before, led.watermark)
        assert shown <= end


# --- followers


def index_of(log: list[tuple[int, int]]) -> EpochIndex:
    """Return the index of a log of (epoch, number of the record)."""
    index = EpochIndex()
    for offset, (epoch, _) in enumerate(log):
        index.note(epoch, offset)
    return index


def follower(index: EpochIndex, epoch: int = 9) -> Follower:
    return Follower(Assignment(ALL, ALL, 2, epoch), index, is_empty=not index.starts)


def test_an_empty_log_is_fetched_at_once() -> None:
    assert follower(EpochIndex()).is_fetching


def test_a_leader_that_does_not_know_is_asked_again() -> None:
    state = follower(index_of([(1, 0), (1, 1), (1, 2)]))
    assert state.question == 1
    assert state.answered(EpochEnd(-1, -1), 3) is None
    assert not state.is_fetching


# Of each epoch: who leads, how much it appends, and how much of that each of the others copies.
EPOCHS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 3), st.lists(st.integers(-1, 9), min_size=3, max_size=3)
    ),
    max_size=8,
)


@given(EPOCHS)
def test_after_the_cut_the_log_is_the_leaders(epochs: list[tuple[int, int, list[int]]]) -> None:
    """Whoever leads, elected well or badly: whoever then copies has what the leader has."""
    logs: list[list[tuple[int, int]]] = [[], [], []]
    written = 0
    for epoch, (first, appended, copied) in enumerate(epochs):
        for _ in range(appended):
            logs[first].append((epoch, written))
            written += 1
        leading = logs[first]
        for node, count in enumerate(copied):
            if node == first or count < 0:
                continue
            index, mine = index_of(logs[node]), logs[node]
            state = follower(index, epoch)
            for _ in range(20):
                if state.is_fetching:
                    break
                answer = index_of(leading).end_of(state.question, epoch, len(leading))
                offset = state.answered(answer, len(mine))
                assert offset is not None
                mine = mine[:offset]
                index.cut(offset)
                state.was_cut(is_empty=not mine)
            assert state.is_fetching
            assert mine == leading[: len(mine)]
            logs[node] = mine + leading[len(mine) : len(mine) + count]
