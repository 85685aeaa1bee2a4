"""Settlements survive a restart, also when compaction kept only the newest records."""

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker import settlements
from entrepot.broker.ledger import Lease, Ledger
from entrepot.broker.settlements import Settlements, lane_of
from entrepot.core.names import PartitionId

LANE = PartitionId(UUID(int=7), 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 12)),
        st.tuples(st.just("settle"), st.integers(0, 30), st.integers(1, 6)),
        st.tuples(st.just("deal"), st.integers(1, 9), st.integers(1, 3)),
        st.tuples(st.just("defer"), st.integers(0, 30), st.integers(1, 9)),
        st.tuples(st.just("wait"), st.integers(1, 9)),
        st.tuples(st.just("release"), st.integers(0, 30), st.integers(1, 6)),
        st.tuples(st.just("discard"), st.integers(1, 6)),
        st.tuples(st.just("rewind"), st.integers(0, 30)),
        st.tuples(st.just("reset"), st.integers(0, 30)),
        st.tuples(st.just("tick")),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)
END = 40


class Queue:
    def __init__(self) -> None:
        self.ledger, self.settlements = Ledger(), Settlements(LANE)
        self.topic: dict[bytes, bytes | None] = {}  # Compacted all the time.

    def do(self, verb: str, *numbers: int) -> None:
        if verb == "take":
            for each in self.ledger.pop(numbers[0], END):
                self.ledger.lease(each, Lease("ana"))
        elif verb == "release":
            self.ledger.release(range(numbers[0], sum(numbers)), "ana")
        elif verb == "rewind":
            self.ledger.rewind(numbers[0])
            self.settlements.rewound(numbers[0], self.ledger.offset_low)
        elif verb == "reset":
            self.ledger.reset(numbers[0])
            self.settlements.rewound(numbers[0], numbers[0])
        elif verb == "settle":
            settled = self.ledger.settle(range(numbers[0], sum(numbers)), "ana")
            self.settlements.note(settled, self.ledger.offset_low)
        elif verb == "deal":
            self.deal(*numbers)
        elif verb == "defer":
            self.defer(*numbers)
        elif verb == "wait":
            for each in self.ledger.expire(numbers[0]):
                for offset in each:
                    self.settlements.defer(offset, None)
        elif verb == "discard":
            settled = self.ledger.discard(numbers[0], END)
            self.settlements.note(settled, self.ledger.offset_low)
        else:
            self.tick()
            if verb == "restart":
                self.settlements, self.ledger = self.fold()

    def deal(self, count: int, step: int) -> None:
        """Each so-manieth is settled at once, the others are leased."""
        popped = self.ledger.pop(count, END)
        for each in popped:
            for first in range(1, step):
                self.ledger.lease(each[first::step], Lease("ana"))
        for each in popped:
            self.ledger.settle_popped(each[::step])
        self.settlements.note([each[::step] for each in popped], self.ledger.offset_low)

    def defer(self, offset: int, until_ms: int) -> None:
        ready = [each for row in self.ledger.ready(END, END) for each in row]
        if offset in ready or offset in self.ledger.deferred:
            self.ledger.defer(offset, until_ms)
            self.settlements.defer(offset, until_ms)

    def tick(self) -> None:
        for record in self.settlements.take_records():
            assert record.key is not None
            assert lane_of(record.key) == LANE
            self.topic.pop(record.key, None)
            self.topic[record.key] = record.value

    def fold(self) -> tuple[Settlements, Ledger]:
        fresh = Settlements(LANE)
        for key, value in self.topic.items():
            fresh.apply(key, value)
        return fresh, fresh.ledger(0, END)


def settled_in(ledger: Ledger) -> list[int]:
    unsettled = ledger.unsettled()
    return [o for o in range(END) if o < ledger.offset_fresh and o not in unsettled]


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlements, "PAGE", 8)


@given(STEPS)
def test_what_was_settled_is_settled_after_a_restart(steps: list[tuple[str, int]]) -> None:
    queue = Queue()
    for step in steps:
        queue.do(*step)
    queue.tick()
    _, after = queue.fold()
    assert settled_in(after) == settled_in(queue.ledger)
    assert after.offset_low <= queue.ledger.offset_low
    assert after.deferred == queue.ledger.deferred
    assert all(value is None or len(value) > 0 for value in queue.topic.values())


def test_in_order_there_is_one_record_a_tick() -> None:
    queue = Queue()
    for _ in range(5):
        queue.do("take", 5)
        queue.do("settle", 0, 40)
        queue.tick()
    assert len(queue.topic) == 1


def test_a_page_that_was_passed_is_deleted() -> None:
    queue = Queue()
    queue.do("take", 20)
    queue.do("settle", 3, 1)
    queue.tick()
    assert len(queue.topic) == 1
    queue.do("settle", 0, 20)
    queue.tick()
    assert sorted(value is None for value in queue.topic.values()) == [False, True]


def test_a_deferred_message_that_is_settled_out_of_turn_is_forgotten() -> None:
    queue = Queue()
    queue.do("defer", 5, 100)
    queue.tick()
    queue.ledger.note_settled(range(5, 6))
    queue.settlements.note([range(5, 6)], queue.ledger.offset_low)
    queue.tick()
    _, after = queue.fold()
    assert (settled_in(after), after.deferred) == ([5], {})
    assert after.ready_count(END) == END - 1


@pytest.mark.parametrize("end", [0, 3, 8, 11, 12, 20, 40])
def test_what_is_beyond_the_end_is_taken_back(end: int) -> None:
    """It stays taken back, also when the queue grows over it and there is another crash."""
    queue = Queue()
    queue.do("defer", 30, 100)
    queue.do("take", 25)
    for first, count in ((0, 2), (9, 3), (17, 4)):
        queue.do("settle", first, count)
    queue.tick()
    settled = settled_in(queue.ledger)
    queue.settlements, _ = queue.fold()
    queue.ledger = queue.settlements.ledger(0, end)
    assert settled_in(queue.ledger) == [each for each in settled if each < end]
    queue.tick()
    _, after = queue.fold()
    assert settled_in(after) == [each for each in settled if each < end]
    assert after.deferred == ({30: 100} if end == 40 else {})


@pytest.mark.parametrize("start", [0, 1, 2, 5, 10, 20])
def test_what_is_gone_is_settled(start: int) -> None:
    queue = Queue()
    queue.do("take", 12)
    queue.do("settle", 0, 2)
    queue.do("settle", 9, 1)
    queue.tick()
    fresh, _ = queue.fold()
    ledger = fresh.ledger(start, END)
    assert ledger.offset_low == max(2, start)
    assert ledger.ready_count(END) == len([o for o in range(max(2, start), END) if o != 9])


@given(STEPS)
def test_when_it_is_deleted_nothing_is_left(steps: Sequence[tuple[str, int]]) -> None:
    queue = Queue()
    for step in steps:
        queue.do(*step)
    for record in queue.settlements.take_deletions():
        assert record.key is not None
        queue.topic[record.key] = record.value
    assert set(queue.topic.values()) == {None}
    assert queue.fold()[0].is_empty
    assert queue.settlements.take_records()[1:] == []
