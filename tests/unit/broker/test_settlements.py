"""Settlements survive a restart, also when compaction kept only the newest records."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker import settlements
from entrepot.broker.ledger import Lease, Ledger
from entrepot.broker.settlements import Settlements, queue_of

QUEUE = UUID(int=7)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 12)),
        st.tuples(st.just("settle"), st.integers(0, 30), st.integers(1, 6)),
        st.tuples(st.just("release"), st.integers(0, 30), st.integers(1, 6)),
        st.tuples(st.just("discard"), st.integers(1, 6)),
        st.tuples(st.just("rewind"), st.integers(0, 30)),
        st.tuples(st.just("tick")),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)
END = 40


class Queue:
    def __init__(self) -> None:
        self.ledger, self.settlements = Ledger(), Settlements(QUEUE)
        self.topic: dict[bytes, bytes | None] = {}  # Compacted all the time.

    def do(self, verb: str, *numbers: int) -> None:
        if verb == "take":
            self.ledger.take(numbers[0], END, Lease("ana"))
        elif verb == "release":
            self.ledger.release(range(numbers[0], sum(numbers)), "ana")
        elif verb == "rewind":
            self.ledger.rewind(numbers[0])
            self.settlements.rewound(numbers[0])
        elif verb == "settle":
            settled = self.ledger.settle(range(numbers[0], sum(numbers)), "ana")
            self.settlements.note(settled, self.ledger.offset_low)
        elif verb == "discard":
            settled = self.ledger.discard(numbers[0], END)
            self.settlements.note(settled, self.ledger.offset_low)
        else:
            self.tick()
            if verb == "restart":
                self.settlements, self.ledger = self.fold()

    def tick(self) -> None:
        for record in self.settlements.take_records():
            assert record.key is not None
            assert queue_of(record.key) == QUEUE
            self.topic.pop(record.key, None)
            self.topic[record.key] = record.value

    def fold(self) -> tuple[Settlements, Ledger]:
        fresh = Settlements(QUEUE)
        for key, value in self.topic.items():
            fresh.apply(key, value)
        return fresh, fresh.ledger()


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
