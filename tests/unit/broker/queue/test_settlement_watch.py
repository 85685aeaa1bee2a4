"""Publishers who wait for consumers."""

from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.queue.message import Publication, Refused
from entrepot.broker.queue.settlement_watch import SettlementWatch
from tests.unit.broker.queue.bed import TroubledLane


def watched(lane: TroubledLane, offsets: range) -> tuple[SettlementWatch, list[object]]:
    watch, answers = SettlementWatch(lane), list[object]()
    watch.add(offsets, Publication(answers.append))
    return watch, answers


def test_the_last_one_counts_once_it_is_permanent() -> None:
    lane = TroubledLane(MemoryUse())
    lane.commits_late = True
    watch, answers = watched(lane, range(3))
    watch.settled([range(0, 3, 2), range(8, 9)], is_consumed=True)
    watch.settled([range(1)], is_consumed=True)
    assert len(watch) == 1
    assert lane.waiters == []
    watch.settled([range(1, 2)], is_consumed=True)
    assert answers == []
    lane.commit()
    assert answers == [None]
    watch.settled([range(3)], is_consumed=True)


def test_one_that_was_not_consumed_is_told() -> None:
    watch, answers = watched(TroubledLane(MemoryUse()), range(2))
    watch.settled([range(1)], is_consumed=False)
    assert answers == []
    watch.settled([range(1, 2)], is_consumed=True)
    assert isinstance(answers[0], Refused)


def test_the_end() -> None:
    watch, answers = watched(TroubledLane(MemoryUse()), range(4))
    watch.close()
    assert isinstance(answers[0], Refused)
    assert len(answers) == 1
    watch, answers = watched(TroubledLane(MemoryUse()), range(4))
    watch.forget(range(4))
    watch.close()
    assert answers == []
