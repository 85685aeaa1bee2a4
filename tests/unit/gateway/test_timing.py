"""The time of a run from its publish to its answer, and what it must not change."""

from entrepot.broker.queue.message import Failure, Publication, Refused
from entrepot.core.measures import Latency
from entrepot.gateway.timing import timed


class Clock:
    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1_000)


def test_a_run_is_timed_until_its_last_answer() -> None:
    ended: list[Failure | None] = []
    clock, latency, outer = Clock(), Latency(), Publication(ended.append)
    inner = timed(outer, latency, clock)
    assert not latency.is_due  # The next one is not timed.
    inner.expect()  # A queue,
    inner.expect()  # and another.
    inner.arrived()  # The publisher.
    outer.arrived()
    clock.now_s += 0.002
    inner.arrived()
    assert (ended, latency.histogram.total) == ([], 0)
    clock.now_s += 0.001
    inner.arrived()
    assert ended == [None]
    assert round(latency.histogram.total, 6) == 0.003
    assert sum(latency.histogram.counts) == 1


def test_what_was_refused_is_told_as_it_is() -> None:
    ended: list[Failure | None] = []
    outer = Publication(ended.append)
    inner = timed(outer, Latency(), Clock())
    inner.expect()
    refused = Refused("full", [1, 3])
    inner.arrived(refused)
    inner.arrived()
    outer.arrived()
    assert ended == [refused]


def test_several_may_be_under_way() -> None:
    """A stall is seen as often as something was begun in it."""
    clock, latency = Clock(), Latency()
    runs = []
    for _ in range(5):
        runs.append(timed(Publication(None), latency, clock))
        latency.is_due = True  # What the timer does.
        clock.now_s += 1
    for run in runs:
        run.arrived()
    assert latency.histogram.total == 5 + 4 + 3 + 2 + 1
