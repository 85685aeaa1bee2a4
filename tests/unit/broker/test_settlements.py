"""Settlements survive a restart, also when compaction kept only the newest records."""

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker import attempts, settlements
from entrepot.broker.ledger import Lease, Ledger
from entrepot.broker.settlements import Settlements, lane_of
from entrepot.core import limits
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
            released = self.ledger.release(range(numbers[0], sum(numbers)), "ana")
            self.settlements.note_attempts(released, self.ledger.attempts)
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


def tried_in(ledger: Ledger) -> dict[int, int]:
    return {each: count for each in range(END) if (count := ledger.attempts(each))}


def tried_records(queue: Queue) -> list[bytes | None]:
    """Of pages that say how often messages were tried."""
    return [value for key, value in queue.topic.items() if key[0] == 4]


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlements, "PAGE", 8)
    monkeypatch.setattr(attempts, "PAGE", 8)


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
    assert tried_in(after) == tried_in(queue.ledger)
    assert all(each < after.offset_fresh for each in tried_in(after))
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


def test_where_nothing_comes_back_nothing_is_said_of_attempts() -> None:
    queue = Queue()
    for step in (("take", 20), ("tick",), ("settle", 5, 9), ("tick",), ("discard", 6), ("tick",)):
        queue.do(*step)
    assert tried_records(queue) == []


def test_messages_that_were_tried_equally_often_are_one_stretch() -> None:
    queue = Queue()
    queue.do("take", 20)
    queue.do("release", 1, 5)
    queue.tick()
    assert tried_records(queue) == [bytes((0, 1, 0, 5, 0, 0, 0, 1))]
    queue.do("take", 4)
    queue.do("release", 2, 1)
    queue.tick()
    stretches = (0, 1, 0, 1, 0, 0, 0, 1, 0, 2, 0, 2, 0, 0, 0, 2, 0, 3, 0, 5, 0, 0, 0, 1)
    assert tried_records(queue) == [bytes(stretches)]


def test_what_came_back_and_is_settled_in_one_tick_is_not_counted() -> None:
    queue = Queue()
    queue.do("take", 20)
    queue.do("release", 1, 5)
    queue.do("take", 5)
    queue.do("settle", 0, 20)
    queue.tick()
    assert tried_records(queue) == []


def test_attempts_are_forgotten_with_the_last_message_of_their_page() -> None:
    """Until then a page is not recorded again, whatever is settled in it."""
    queue = Queue()
    queue.do("take", 20)
    queue.do("release", 9, 3)
    queue.tick()
    recorded = tried_records(queue)
    queue.do("take", 3)
    queue.do("settle", 9, 2)
    assert [
        each for each in queue.settlements.take_records() if each.key and each.key[0] == 4
    ] == []
    assert tried_records(queue) == recorded
    queue.do("settle", 11, 1)
    queue.tick()
    assert tried_records(queue) == [None]


def test_a_settled_message_that_is_had_again_was_never_tried() -> None:
    """Its page still says that it was: nothing was recorded of it when it was settled."""
    queue = Queue()
    queue.do("take", 20)
    queue.do("release", 9, 3)
    queue.tick()
    queue.do("take", 2)
    queue.do("settle", 9, 2)
    queue.tick()
    queue.do("rewind", 9)
    queue.tick()
    assert tried_in(queue.fold()[1]) == {}


def test_attempts_that_are_too_many_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LANE_ATTEMPTS_MAX", 3)
    queue = Queue()
    queue.do("take", 20)
    queue.do("release", 9, 5)
    queue.do("take", 5)
    queue.do("release", 11, 2)
    queue.tick()
    assert tried_in(queue.ledger) == {9: 1, 10: 1, 11: 2, 12: 2, 13: 1}
    assert tried_in(queue.fold()[1]) == {9: 1, 10: 1, 11: 2}
    queue.do("settle", 9, 1)
    queue.do("release", 13, 1)
    queue.tick()
    assert tried_in(queue.fold()[1]) == {10: 1, 11: 2, 13: 2}


@pytest.mark.parametrize("end", [0, 3, 8, 11, 12, 20, 40])
def test_what_is_beyond_the_end_is_taken_back(end: int) -> None:
    """It stays taken back, also when the queue grows over it and there is another crash."""
    queue = Queue()
    queue.do("defer", 30, 100)
    queue.do("take", 25)
    queue.do("release", 5, 18)
    queue.do("take", 18)
    for first, count in ((0, 2), (9, 3), (17, 4)):
        queue.do("settle", first, count)
    queue.tick()
    settled, tried = settled_in(queue.ledger), tried_in(queue.ledger)
    queue.settlements, _ = queue.fold()
    queue.ledger = queue.settlements.ledger(0, end)
    assert settled_in(queue.ledger) == [each for each in settled if each < end]
    queue.tick()
    _, after = queue.fold()
    assert settled_in(after) == [each for each in settled if each < end]
    assert after.deferred == ({30: 100} if end == 40 else {})
    assert tried_in(after) == {each: count for each, count in tried.items() if each < end}


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
