"""Conservation of messages in simulated queues, also over a crash.

While the broker runs, every queue's account must add up. And what was committed and not settled
when it stopped is there when it has started again: a crash may bring back what was settled,
and never takes what was not.
"""

from __future__ import annotations

from collections.abc import Iterable

from entrepot.broker.queue.lane import Lane
from entrepot.broker.queue.queue import Queue
from entrepot.core.ranges import Ranges
from sim.history import Violation


class QueueConservation:
    def __init__(self) -> None:
        self.checks = 0
        self._kept: dict[str, list[Ranges]] = {}  # By queue and lane, when the broker stopped.

    def check(self, queues: Iterable[Queue]) -> None:
        """Raises Violation when an account does not add up."""
        for queue in queues:
            if not queue.is_gone:
                self.checks += 1
                account = queue.account()
                if account.wrong:
                    raise Violation(f"queue {queue.name}: {'; '.join(account.wrong)}; {account}")

    def stopped(self, queues: Iterable[Queue]) -> None:
        """Remember what is not settled. Those that were not opened yet, could not be read, or
        failed before what was found in them was permanent, are as they were."""
        for queue in queues:
            if all(map(_is_committed, queue.lanes)):
                self._kept[queue.name] = [_unsettled(lane) for lane in queue.lanes]

    def started(self, queues: Iterable[Queue]) -> None:
        """Raises Violation when something is gone that was not settled before."""
        opened = {queue.name: queue for queue in queues}
        for name, kept in self._kept.items():
            queue = opened.get(name)
            if queue is None:
                raise Violation(f"queue {name} is gone after a crash")
            if any(lane.unsettled() is None for lane in queue.lanes):
                continue  # It cannot be read, and serves nobody before the next start.
            lost = 0
            for lane, before in zip(queue.lanes, kept, strict=True):
                for each in _unsettled(lane):
                    before.remove(each.start, each.stop)
                lost += before.count
            account = queue.account()
            settled_since = account.settled + sum(account.dropped.values())
            if lost > settled_since:
                raise Violation(f"queue {name}: a crash took {lost} messages; {account}")


def _is_committed(lane: Lane) -> bool:
    """Return whether it can be read, and what was found at the start is permanent by now. Among
    that may be a message that nobody was told of, and that a second crash may take."""
    return lane.unsettled() is not None and lane.offset_end >= lane.offset_recovered


def _unsettled(lane: Lane) -> Ranges:
    """Committed messages that are not settled."""
    found = lane.ledger.unsettled()
    found.add(lane.ledger.offset_fresh, max(lane.offset_end, lane.offset_recovered))
    return found
