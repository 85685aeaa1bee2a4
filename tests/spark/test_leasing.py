"""The driver's lease, on a queue that forgets and fails as it is told to."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from entrepot.client.errors import BadAnswer, Unreachable
from entrepot.client.queue_leases import Leased, LeaseGone, Span
from entrepot.spark import leasing
from entrepot.spark.leasing import Leaseholder, StillHeld
from entrepot.spark.spans import Spans

WAIT_S = 10.0


class FakeQueue:
    """Ten messages of one lane; takes the place of `QueueLeases`."""

    def __init__(self) -> None:
        self.ready = Spans([(0, 0, 10)])
        self.leases: dict[str, Spans] = {}
        self.others = Spans()
        self.dying = Spans()
        self.settled = Spans()
        self.failures: list[Exception] = []  # Of the next requests.
        self.story: list[str] = []
        self.idle: list[int] = []  # What is told of a lease, one after the other.
        self.renewed = threading.Event()

    def facts(self) -> dict[str, Any]:
        self._ask("facts")
        return {}

    def lease(self, count: int, seconds: int) -> Leased:
        self._ask("lease")
        return self._made(self.ready.first(count), Spans())

    def lease_again(self, spans: Iterable[Span], seconds: int) -> Leased:
        self._ask("lease again")
        wanted = Spans(spans)
        held = sum(self.leases.values(), self.others)
        return self._made(wanted & self.ready, wanted & held)

    def settle(self, lease: str, spans: Iterable[Span]) -> None:
        self._ask("settle")
        self.settled += self._of(lease) & Spans(spans)
        self.leases[lease] -= Spans(spans)

    def release(self, lease: str, spans: Iterable[Span], *, failed: bool) -> None:
        self._ask(f"release, failed={failed}")
        self.ready += self._of(lease) & Spans(spans)

    def reject(self, lease: str, spans: Iterable[Span]) -> None:
        self._ask("reject")

    def renew(self, lease: str, seconds: int) -> None:
        self._ask("renew")
        self._of(lease)
        self.renewed.set()

    def idle_ms(self, lease: str) -> int:
        self._of(lease)
        return self.idle.pop(0)

    def take_over(self, lease: str, release: Iterable[Span], seconds: int) -> str:
        self._ask("take over")
        held = self._of(lease)
        del self.leases[lease]
        self.ready += held & Spans(release)
        self.leases["taken over"] = held - Spans(release)
        return "taken over"

    def close(self) -> None:
        self.story.append("closed")

    def forget(self) -> None:
        """As a restart does."""
        self.ready = sum(self.leases.values(), self.ready)
        self.leases.clear()

    def _ask(self, what: str) -> None:
        self.story.append(what)
        if self.failures:
            raise self.failures.pop(0)

    def _of(self, lease: str) -> Spans:
        if lease not in self.leases:
            raise LeaseGone("gone")
        return self.leases[lease]

    def _made(self, spans: Spans, others: Spans) -> Leased:
        self.ready -= spans
        if not spans:
            return Leased(None, [], [*others], [*self.dying])
        name = f"lease {len(self.story)}"
        self.leases[name] = spans
        return Leased(name, [*spans], [*others], [*self.dying])


@pytest.fixture
def queue() -> FakeQueue:
    return FakeQueue()


@pytest.fixture
def holder(queue: FakeQueue, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(leasing, "PAUSE_S", 0.001)
    monkeypatch.setattr(leasing, "RENEW_S_MAX", 1_000.0)
    made = Leaseholder(queue, 5_000)  # type: ignore[arg-type]
    yield made
    made.close()


def test_taken_and_settled(queue: FakeQueue, holder: Leaseholder) -> None:
    rows = holder.take(4)
    assert rows.to_json() == [[0, 0, 4]]
    assert holder.settle(rows) == Spans()
    assert queue.settled == rows
    assert queue.story == ["lease", "settle"]
    assert holder.lease is None


@pytest.mark.parametrize("failures", [1, 3])
def test_what_a_restart_forgot_is_leased_and_settled(
    queue: FakeQueue, holder: Leaseholder, failures: int
) -> None:
    rows = holder.take(4)
    queue.forget()
    queue.failures = [Unreachable("down")] * failures
    assert holder.settle(rows) == Spans()
    assert queue.settled == rows


def test_a_lease_that_is_forgotten_between_two_requests(
    queue: FakeQueue, holder: Leaseholder
) -> None:
    rows = holder.take(4)
    queue.forget()
    queue.failures = [LeaseGone("gone"), None, LeaseGone("gone")]  # type: ignore[list-item]
    queue._ask = lambda what: _skip(queue, what)  # type: ignore[method-assign]
    assert holder.settle(rows) == Spans([(0, 0, 4)])  # Our own lost lease has them.
    queue.forget()
    assert holder.settle(rows) == Spans()
    assert queue.settled == rows


def _skip(queue: FakeQueue, what: str) -> None:
    queue.story.append(what)
    failure = queue.failures.pop(0) if queue.failures else None
    if failure is not None:
        raise failure


def test_what_others_have_is_not_settled(queue: FakeQueue, holder: Leaseholder) -> None:
    rows = holder.take(4)
    queue.forget()
    queue.others = Spans([(0, 1, 2)])
    queue.ready -= queue.others
    assert holder.settle(rows).to_json() == [[0, 1, 2]]
    assert queue.settled.to_json() == [[0, 0, 1], [0, 2, 4]]


def test_a_predecessors_lease_is_taken_over(queue: FakeQueue, holder: Leaseholder) -> None:
    name, *_ = queue.lease(5, 1)
    rows, rest = Spans([(0, 0, 4)]), Spans([(0, 4, 5)])
    assert name is not None
    assert holder.resume(name, rows, rest) == Spans()
    assert holder.lease == "taken over"
    assert queue.ready.to_json() == [[0, 4, 10]]
    queue.forget()
    queue.ready -= Spans([(0, 0, 3)])  # One is dead, or settled by somebody,
    queue.others, queue.dying = Spans([(0, 1, 3)]), Spans([(0, 2, 3)])
    assert holder.resume(name, rows, rest).to_json() == [[0, 0, 1], [0, 2, 3]]
    assert holder.settle(rows) == queue.others
    assert queue.settled.to_json() == [[0, 3, 4]]


def test_a_predecessor_that_is_alive_is_waited_for(
    queue: FakeQueue, holder: Leaseholder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leasing, "LOOK_S", 0.001)
    name, *_ = queue.lease(1, 1)
    assert name is not None
    queue.idle = [900, 10, 2_999, 3_001, 0]
    assert holder.wait_for_predecessor(name)
    assert queue.idle == [0]
    queue.idle = [0] * leasing.LOOKS
    with pytest.raises(StillHeld):
        holder.wait_for_predecessor(name)
    queue.forget()
    assert not holder.wait_for_predecessor(name)


def test_who_was_taken_for_dead_finds_out(queue: FakeQueue, holder: Leaseholder) -> None:
    holder.take(1)
    assert holder.renew()
    queue.forget()
    assert holder.renew()  # A restart took nothing away.
    assert holder.lease is not None
    queue.take_over(holder.lease, [], 1)
    assert not holder.renew()
    holder.give_back(failed=True)
    assert queue.leases["taken over"].to_json() == [[0, 0, 1]]


def test_a_part_is_settled_and_the_rest_given_back(queue: FakeQueue, holder: Leaseholder) -> None:
    holder.take(4)
    assert holder.settle_part(Spans([(0, 0, 1)]))
    holder.give_back(failed=True)
    holder.give_back(failed=True)  # Nothing is left.
    assert queue.story == ["lease", "settle", "release, failed=True"]
    assert queue.ready.to_json() == [[0, 1, 10]]
    holder.take(1)
    queue.forget()
    assert not holder.settle_part(Spans([(0, 1, 2)]))


def test_a_lease_is_kept_alive(queue: FakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasing, "RENEW_S_MAX", 0.005)
    holder = Leaseholder(queue, 5_000)  # type: ignore[arg-type]
    try:
        rows = holder.take(4)
        assert queue.renewed.wait(WAIT_S)
        queue.failures = [Unreachable("down")]
        queue.forget()
        wait_until(lambda: "lease again" in queue.story)
        queue.renewed.clear()
        assert queue.renewed.wait(WAIT_S)
        assert holder.settle(rows) == Spans()
        assert queue.settled == rows
    finally:
        holder.close()
    assert queue.story[-1] == "closed"


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_what_no_waiting_helps(queue: FakeQueue, holder: Leaseholder) -> None:
    queue.failures = [BadAnswer("no broker")]
    with pytest.raises(BadAnswer):
        holder.take(1)
    queue.failures = [Unreachable("down")] * leasing.ATTEMPTS
    with pytest.raises(Unreachable):
        holder.facts()
