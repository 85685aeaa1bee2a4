"""What becomes of messages: consumed, dropped, dead, or handed back.

Every message that leaves a queue or comes back to it does so here, so that the ledger, the
lane, who watches, the dead letters and the account (see `conservation`) agree about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from entrepot.broker.ledger import Lease
from entrepot.broker.queue.burial import Burials
from entrepot.broker.queue.conservation import CONSUMED, LOST, Account, Conservation
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
        self._lease = Lease(self)  # Of those whose dead letters are on their way,
        self.dying_count = 0  # which are so many.
        self._conservation = Conservation(fronts, self)
        self._is_closed = False

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many messages policies have dropped, by reason."""
        return self._conservation.dropped

    def account(self) -> Account:
        """Say where all messages are, and what does not add up."""
        return self._conservation.account(self.dying_count)

    def settled(self, lane: int, settled: Sequence[range], reason: str) -> None:
        """The ledger has settled these."""
        if settled and not self._is_closed:
            self._conservation.settled(settled, reason)
            self._fronts[lane].lane.settled(settled)
            self._watches[lane].settled(settled, is_consumed=reason == CONSUMED)

    def finish(
        self,
        lane: int,
        popped: Popped,
        consumed: Sequence[range] = (),
        excess: Sequence[Piece] = (),
    ) -> None:
        """All that was popped and is not leased: consumed at once, too much, or not good."""
        settled = {CONSUMED: consumed}
        if popped.are_good and not excess:  # Nearly always.
            self._settle_popped(lane, settled)
            return
        settled[LOST] = [offsets for offsets, _ in popped.lost]
        dead = {EXPIRED: popped.expired, MAXLEN: excess}
        for reason, pieces in dead.items():
            offsets = [each for each, _ in pieces]
            if self._burials.are_held:  # First: what nobody has leased counts as settled.
                self._lease_dying(lane, offsets)
            else:
                settled[reason] = offsets
        self._settle_popped(lane, settled)
        if self._burials.are_held:
            for reason, pieces in dead.items():
                self._burials.bury(pieces, reason, partial(self._buried, lane))

    def _settle_popped(self, lane: int, settled: Mapping[str, Sequence[range]]) -> None:
        for ranges in settled.values():
            for offsets in ranges:
                self._fronts[lane].ledger.settle_popped(offsets)
        for reason, ranges in settled.items():
            self.settled(lane, ranges, reason)

    def _lease_dying(self, lane: int, offsets: Sequence[range]) -> None:
        for each in offsets:
            self._fronts[lane].ledger.lease(each, self._lease)
            self.dying_count += len(each)

    def kill(self, lane: int, offsets: Iterable[range], owner: object, reason: str) -> None:
        """The owner has these, and they are to be dead."""
        front = self._fronts[lane]
        for each in offsets:
            if not self._burials.are_held:
                self.settled(lane, front.ledger.settle(each, owner), reason)
                continue
            for held in front.ledger.hand_over(each, owner, self._lease):
                self.dying_count += len(held)
                try:
                    pieces = front.lane.read(held)
                except StorageError:  # The log says so itself. They come again.
                    self.release(lane, held, self)
                else:
                    for gap in gaps(held, pieces):
                        self._buried(lane, gap, LOST)
                    self._burials.bury(pieces, reason, partial(self._buried, lane))

    def release(self, lane: int, offsets: range, owner: object, *, is_attempt: bool = True) -> None:
        """The owner hands them back, to their old place."""
        front = self._fronts[lane]
        released = front.ledger.release(offsets, owner, is_attempt=is_attempt)
        if owner is self:
            self.dying_count -= sum(map(len, released))
        if is_attempt and released and not self._is_closed:
            front.lane.attempted(released)
        front.came_back(released)

    def rewind(self, lane: int, offset: int) -> None:
        """From there on everything is ready, as far as it is still kept.

        Dying messages are, too: their dead letters arrive all the same.
        """
        present = self._conservation.present_count
        try:
            self._fronts[lane].rewind(offset)
        finally:
            self._conservation.rewound(present)
            leases = (each for front in self._fronts for each in front.ledger.leased.values())
            self.dying_count = sum(lease is self._lease for lease in leases)

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

    def _buried(self, lane: int, offsets: range, reason: str) -> None:
        """Their dead letters are where they go, or dropped for that reason."""
        settled = self._fronts[lane].ledger.settle(offsets, self)
        self.dying_count -= sum(map(len, settled))
        self.settled(lane, settled, reason)
