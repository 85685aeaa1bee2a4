"""What becomes of messages: consumed, dropped, dead, or handed back.

Every message that leaves a queue or comes back to it does so here, so that the ledger, the
lane, who watches and the dead letters agree about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from entrepot.broker.ledger import Lease
from entrepot.broker.queue.burial import Burials
from entrepot.broker.queue.dead_letter import EXPIRED, MAXLEN
from entrepot.broker.queue.front import Front, Popped, gaps
from entrepot.broker.queue.lane import Piece
from entrepot.broker.queue.message import Run
from entrepot.broker.queue.settlement_watch import SettlementWatch
from entrepot.core.errors import StorageError


class Outcome:
    def __init__(
        self, fronts: Sequence[Front], watches: Sequence[SettlementWatch], burials: Burials
    ) -> None:
        self._fronts = fronts
        self._watches = watches
        self._burials = burials
        self._lease = Lease(self)  # Of those whose dead letters are on their way.
        self._is_closed = False

    @property
    def dying_count(self) -> int:
        return self._burials.count

    def settled(self, lane: int, settled: Sequence[range], *, is_consumed: bool) -> None:
        """The ledger has settled these."""
        if settled and not self._is_closed:
            self._fronts[lane].lane.settled(settled)
            self._watches[lane].settled(settled, is_consumed=is_consumed)

    def finish(
        self,
        lane: int,
        popped: Popped,
        consumed: Sequence[range] = (),
        excess: Sequence[Piece] = (),
    ) -> None:
        """All that was popped and is not leased: consumed at once, too much, or not good."""
        ledger = self._fronts[lane].ledger
        is_simple = popped.are_good and not excess
        dropped = [] if is_simple else self._lease_dead(lane, popped, excess)
        for offsets in (*consumed, *dropped) if dropped else consumed:
            ledger.settle_popped(offsets)
        self.settled(lane, consumed, is_consumed=True)
        self.settled(lane, dropped, is_consumed=False)
        if not is_simple and self._burials.are_held:
            self._burials.bury(popped.expired, EXPIRED, partial(self._buried, lane))
            self._burials.bury(excess, MAXLEN, partial(self._buried, lane))

    def _lease_dead(self, lane: int, popped: Popped, excess: Sequence[Piece]) -> list[range]:
        """Before anything is settled: what is in nobody's hands counts as settled, too.

        Returns those that nothing is to become of.
        """
        lost = [offsets for offsets, _ in popped.lost]
        dead = [offsets for offsets, _ in (*popped.expired, *excess)]
        if not self._burials.are_held:
            return lost + dead
        for offsets in dead:
            self._fronts[lane].ledger.lease(offsets, self._lease)
        return lost

    def kill(self, lane: int, offsets: Iterable[range], owner: object, reason: str) -> None:
        """The owner has these, and they are to be dead."""
        front = self._fronts[lane]
        for each in offsets:
            if not self._burials.are_held:
                self.settled(lane, front.ledger.settle(each, owner), is_consumed=False)
                continue
            for held in front.ledger.hand_over(each, owner, self._lease):
                try:
                    pieces = front.lane.read(held)
                except StorageError:  # The log says so itself. They come again.
                    self.release(lane, held, self)
                else:
                    for gap in gaps(held, pieces):
                        self._buried(lane, gap)
                    self._burials.bury(pieces, reason, partial(self._buried, lane))

    def release(self, lane: int, offsets: range, owner: object, *, is_attempt: bool = True) -> None:
        """The owner hands them back, to their old place."""
        front = self._fronts[lane]
        released = front.ledger.release(offsets, owner, is_attempt=is_attempt)
        if is_attempt and released and not self._is_closed:
            front.lane.attempted(released)
        front.came_back(released)

    def refused(self, run: Run) -> None:
        """These were never in the queue."""
        if self._burials.buries_refused:
            self._burials.bury_unborn(run, MAXLEN)

    def close(self) -> None:
        """Nothing more is told to anybody."""
        self._is_closed = True
        self._burials.close()
        for watch in self._watches:
            watch.close()

    def _buried(self, lane: int, offsets: range) -> None:
        """Their dead letters are where they go."""
        settled = self._fronts[lane].ledger.settle(offsets, self)
        self.settled(lane, settled, is_consumed=False)
