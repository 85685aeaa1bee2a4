"""Queues on a node that crashes again and again, and mistakes that must be found.

A seed that fails elsewhere is added.
"""

import pytest

from entrepot.broker.attempts import Attempts
from entrepot.broker.ledger import Ledger
from entrepot.broker.ledger_store import LedgerStore
from entrepot.broker.queue.conservation import DEAD_LETTERED
from entrepot.broker.queue.dead_letter import DeadLetters
from entrepot.broker.queue.front import Front, Popped
from entrepot.broker.queue.log_lane import LogLane
from entrepot.broker.queue.message import Publication
from entrepot.broker.queue.queue import Queue
from entrepot.broker.settlements import Settlements
from entrepot.core.record import Record
from entrepot.log.policy import Durability
from sim.history import Violation
from sim.loop import SimLoop, run
from sim.queue_world import QueueWorld, queue_world

PAGE = 2  # The first byte of such a record's key.


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))]
)
def test_what_is_confirmed_comes_out_and_what_is_settled_does_not_come_again(number: int) -> None:
    result = run(number, queue_world(6.0))
    assert result.confirmed > 0
    assert result.deliveries > 0
    assert result.finished > 0
    assert result.crashes > 0
    assert result.faults > 0


@pytest.mark.parametrize(
    "durability", [Durability.OS, pytest.param(Durability.INTERVAL, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))]
)
def test_kills_with_less_durability(number: int, durability: Durability) -> None:
    result = run(number, queue_world(2.5, durability=durability))
    assert result.confirmed > 0
    assert result.finished > 0
    assert result.crashes > 0


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_many_seeds() -> None:
    for seed in range(1_000, 1_100):
        run(seed, queue_world(6.0))


def test_one_seed_gives_one_trace() -> None:
    result = run(7, queue_world(2.0))
    assert run(7, queue_world(2.0)) == result
    assert run(8, queue_world(2.0)).trace != result.trace


def test_every_step_is_accounted_for() -> None:
    worlds: list[QueueWorld] = []

    async def main(loop: SimLoop) -> None:
        worlds.append(QueueWorld(loop, seconds=2.0, durability=Durability.FSYNC))
        await worlds[0].run()

    run(3, main)
    assert worlds[0].conservation.checks > 500


# --- planted mistakes


def is_found_out(text: str | None = None, seeds: int = 20, *, sync_is_noop: bool = False) -> None:
    def simulate() -> None:
        for seed in range(seeds):
            run(seed, queue_world(4.0, sync_is_noop=sync_is_noop))

    with pytest.raises(Violation, match=text):
        simulate()


def test_a_disk_that_only_pretends_to_sync() -> None:
    is_found_out(sync_is_noop=True)


def test_messages_that_are_confirmed_before_they_are_permanent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LogLane, "when_committed", lambda self, offset_end, waiter: waiter(None))
    is_found_out("never came out")


def test_settlements_that_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LedgerStore, "_append", lambda self: self._unwritten.clear())
    is_found_out("comes again|is forgotten")


@pytest.mark.slow
def test_settlements_that_count_before_they_are_permanent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LedgerStore, "when_committed", lambda self, waiter: waiter(None))
    is_found_out("comes again|is forgotten", seeds=40)


@pytest.mark.slow
def test_attempts_that_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempts, "note", lambda self, came_back, attempts: None)
    is_found_out("that it came back was permanent, and is forgotten")


@pytest.mark.slow
def test_attempts_that_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    count = Ledger.attempts
    monkeypatch.setattr(Ledger, "attempts", lambda self, offset: min(1, count(self, offset)))
    is_found_out("came back, and this is not counted")


def test_a_page_of_a_ledger_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    take_records = Settlements.take_records

    def forgetful(self: Settlements) -> list[Record]:
        return [each for each in take_records(self) if each.key is None or each.key[0] != PAGE]

    monkeypatch.setattr(Settlements, "take_records", forgetful)
    is_found_out("comes again|is forgotten")


def test_messages_that_are_handed_back_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Queue, "requeue", lambda self, owner, lane, offsets, **_: self.settle(owner, lane, offsets)
    )
    is_found_out("never came out|nobody did")


@pytest.mark.slow
def test_dead_letters_that_are_settled_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Queue, lane: int, offsets: range, letters: DeadLetters, reason: str) -> None:
        self._end_dying(lane, offsets, DEAD_LETTERED)
        publication = Publication(None)
        self._publish_dead_letters(self, letters.run, letters.avoided, publication)

    monkeypatch.setattr(Queue, "_send", hasty)
    is_found_out("never came out|nobody did", 30)


def test_a_message_that_is_taken_out_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    pop_overdue = Front.pop_overdue

    def one_more(self: Front, now_ms: int) -> tuple[Popped, int]:
        popped, again_ms = pop_overdue(self, now_ms)
        if popped.size:
            self.ledger.pop(1, self.lane.offset_end)
        return popped, again_ms

    monkeypatch.setattr(Front, "pop_overdue", one_more)
    is_found_out("missing: 1 message")


def test_a_crash_that_takes_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Settlements.ledger

    def forgetful(self: Settlements, offset_start: int, offset_end: int) -> Ledger:
        ledger = found(self, offset_start, offset_end)
        if ledger.ready_count(offset_end):
            ledger.note_settled(range(ledger.offset_low, ledger.offset_low + 1))
            self.note([], ledger.offset_low)
        return ledger

    monkeypatch.setattr(Settlements, "ledger", forgetful)
    is_found_out("a crash took 1 messages")


def test_messages_that_are_not_said_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "attempts", lambda self, offset: 0)
    is_found_out("was delivered before|after what was sent later")


@pytest.mark.slow
def test_messages_that_come_back_with_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range with a step, as it is dealt to several, taken for one without."""
    drop = Ledger._drop

    def careless(self: Ledger, offsets: range, owner: object) -> list[range]:
        found = drop(self, offsets, owner)
        return [offsets] if len(offsets) == 1 and found else found

    monkeypatch.setattr(Ledger, "_drop", careless)
    is_found_out()
