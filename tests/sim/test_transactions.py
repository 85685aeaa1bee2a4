"""Transactions on a node that crashes again and again, and mistakes that must be found.

Proves N-04 and N-05 on a simulated disk and network. A seed that fails elsewhere is added.
"""

from collections.abc import Callable, Iterable

import pytest

from entrepot.broker import transaction
from entrepot.log.isolation import Isolation
from entrepot.log.partition import Partition
from entrepot.log.policy import Durability
from entrepot.log.reading import Mark
from entrepot.log.view import PartitionView
from sim.history import Violation
from sim.loop import run
from sim.transaction_world import transaction_world


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2, 1_046))]
)
def test_no_transaction_is_lost_torn_or_seen_too_early(number: int) -> None:
    result = run(number, transaction_world(6.0))
    assert result.committed > 0
    assert result.reads > 0
    assert result.crashes > 0
    assert result.faults > 0


@pytest.mark.parametrize(
    "durability", [Durability.OS, pytest.param(Durability.INTERVAL, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "number",
    [
        0,
        1,
        *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 3, 102, 104, 150)),
    ],
)
def test_less_durability_shows_nothing_that_was_aborted(
    number: int, durability: Durability
) -> None:
    """Killed, it loses nothing either. Where the power fails it may: see `transaction_history`."""
    result = run(number, transaction_world(3.0, durability=durability))
    assert result.committed > 0
    assert result.reads > 0
    assert result.crashes > 0
    assert (result.losses > 0) == (number % 2 == 0)


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_many_seeds() -> None:
    for seed in range(1_000, 1_200):
        run(seed, transaction_world(6.0))


@pytest.mark.slow
def test_one_seed_gives_one_trace() -> None:
    result = run(7, transaction_world(2.0))
    assert run(7, transaction_world(2.0)) == result
    assert run(8, transaction_world(2.0)).trace != result.trace


# --- planted mistakes


def simulate(bug: str | None, seeds: Iterable[int]) -> None:
    for seed in seeds:
        run(seed, transaction_world(4.0, bug=bug))


def is_found_out(bug: str | None = None, seeds: Iterable[int] = range(5)) -> None:
    with pytest.raises(Violation):
        simulate(bug, seeds)


def test_a_partition_without_its_marker() -> None:
    is_found_out("marker-left-out")


def test_batches_that_are_seen_before_they_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which with `fsync` they cannot be, as the sync takes a while."""
    advance = Partition.advance
    folds: list[Callable[[], None]] = []

    def hasty(self: Partition, mark: Mark) -> None:
        advance(self, mark)
        while folds:
            folds.pop(0)()

    note = PartitionView.note
    monkeypatch.setattr(Partition, "advance", hasty)
    monkeypatch.setattr(PartitionView, "note", lambda *batch: folds.append(lambda: note(*batch)))
    with pytest.raises(Violation):
        run(0, transaction_world(4.0, durability=Durability.OS))


@pytest.mark.slow
def test_markers_before_the_decision_is_permanent() -> None:
    is_found_out("marker-before-decision", range(40, 140))


def test_a_disk_that_only_pretends_to_sync() -> None:
    def simulate_lies() -> None:
        for seed in range(10):
            run(seed, transaction_world(4.0, sync_is_noop=True))

    with pytest.raises(Violation):
        simulate_lies()


def test_readers_who_are_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Isolation, "last_stable", lambda self, high_watermark: high_watermark)
    is_found_out()


def test_a_marker_that_counts_before_it_is_permanent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is what the watermark's part in the last stable offset is for."""
    monkeypatch.setattr(
        Isolation, "last_stable", lambda self, high_watermark: self._oldest(high_watermark)
    )
    is_found_out()


def test_aborted_transactions_that_readers_are_not_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Isolation, "aborted", lambda self, offset, offset_end: [])
    is_found_out()


def test_fences_that_hold_nobody_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "check_owner", lambda current, producer: None)
    is_found_out()
