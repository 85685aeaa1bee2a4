"""Open and aborted transactions of a partition, against a model that remembers everything."""

from hypothesis import given
from hypothesis import strategies as st

from entrepot.core import batch
from entrepot.core.batch import BatchHeader
from entrepot.core.marker import Marker
from entrepot.core.record import Record
from entrepot.log.isolation import Isolation, OpenTransaction


def header(producer_id: int, epoch: int = 0) -> BatchHeader:
    data = batch.build(
        [Record(None, b"")],
        now_ms=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence_first=0,
        transactional=True,
    )
    return batch.read_header(data)


def test_without_transactions_all_is_stable() -> None:
    isolation = Isolation()
    assert isolation.last_stable(10) == 10
    assert isolation.aborted(0, 10) == []
    assert not isolation.has_aborted(0)


def test_the_oldest_open_transaction_holds_readers_back() -> None:
    isolation = Isolation()
    isolation.begin(header(1), 3)
    isolation.begin(header(2), 5)
    isolation.begin(header(1), 7)
    assert isolation.last_stable(10) == 3
    assert isolation.last_stable(2) == 2
    isolation.end(Marker(1, 0, committed=True), 8)
    assert isolation.last_stable(10) == 5
    assert list(isolation.open.items()) == [(2, OpenTransaction(5, 0))]


def test_a_marker_counts_when_the_watermark_has_passed_it() -> None:
    isolation = Isolation()
    isolation.begin(header(1), 3)
    isolation.end(Marker(1, 0, committed=True), 8)
    assert isolation.last_stable(8) == 3
    assert isolation.last_stable(9) == 9


def test_a_marker_without_a_transaction_is_nothing() -> None:
    isolation = Isolation()
    isolation.end(Marker(1, 0, committed=False), 8)
    assert isolation.last_stable(8) == 8
    assert not isolation.has_aborted(0)


STEPS = st.lists(st.tuples(st.sampled_from("wwca-"), st.integers(1, 4)), max_size=40)


class Model:
    def __init__(self, steps: list[tuple[str, int]]) -> None:
        self.isolation = Isolation()
        self.open: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []  # Producer, first offset, marker.
        self.end = 0
        for verb, producer in steps:
            if verb == "w":
                self.isolation.begin(header(producer), self.end)
                self.open.setdefault(producer, self.end)
            elif verb in "ca":
                self.isolation.end(Marker(producer, 0, verb == "c"), self.end)
                first = self.open.pop(producer, None)
                if first is not None and verb == "a":
                    self.aborted.append((producer, first, self.end))
            self.end += 1


@given(STEPS)
def test_the_last_stable_offset(steps: list[tuple[str, int]]) -> None:
    model = Model(steps)
    assert model.isolation.last_stable(model.end) == min(model.open.values(), default=model.end)


@given(STEPS, st.integers(0, 40), st.integers(1, 40))
def test_the_aborted_ones(steps: list[tuple[str, int]], offset: int, size: int) -> None:
    model = Model(steps)
    expected = [
        (producer, first)
        for producer, first, marker in model.aborted
        if first < offset + size and offset <= marker
    ]
    assert model.isolation.aborted(offset, offset + size) == expected
    for producer in range(1, 5):
        is_aborted = any(p == producer and f <= offset <= m for p, f, m in model.aborted)
        assert model.isolation.is_aborted(producer, offset) is is_aborted


@given(STEPS, st.integers(0, 40))
def test_what_is_saved_is_restored_but_for_what_was_deleted(
    steps: list[tuple[str, int]], start: int
) -> None:
    model = Model(steps)
    model.isolation.forget_before(start)
    restored = Isolation(model.isolation.state())
    assert restored.last_stable(model.end) == model.isolation.last_stable(model.end)
    assert restored.state() == model.isolation.state()
    expected = [(p, f) for p, f, marker in model.aborted if marker >= start]
    assert restored.aborted(0, 100) == expected
    assert restored.has_aborted(start) is bool(expected)
