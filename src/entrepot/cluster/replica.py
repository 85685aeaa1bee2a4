"""One partition's replica: what a leader knows of its followers, and where a follower has to cut.

State machines without time, files or waiting. A leader is told how far its own log is durable,
from where each follower fetches, and what the coordinator has; it says where the watermark is,
and which replicas should be in sync.

A follower fetches from the end of what is durable there, so the offset it asks for is what it
has. The watermark is the least of these ends over the in-sync set: over the one that the
coordinator has, together with whoever the leader is about to add. So while a change is on its
way, and nobody knows whether it was made, those count who are in either set. Whoever is to be
left out counts until the coordinator has left it out; before that it could be elected, and would
lack what was acknowledged without it.

A follower's log is its leader's up to where the last epoch that both have ends in one of the two.
Its watermark has no say in that: it is late, and what lies above it may be acknowledged.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from entrepot.cluster.state import Assignment
from entrepot.log.epochs import NO_EPOCH, EpochEnd, EpochIndex

UNKNOWN = -1  # As an offset: nothing is known of it in this epoch.


@dataclass(slots=True)
class Progress:
    """How far a follower is."""

    # Everything below it is durable there. It may go down: a follower may lose its disk.
    offset_end: int
    caught_up_s: float  # When it had everything, as far as known.
    asked_s: float  # When it fetched last,
    asked_end: int  # and where our log ended then.


class Leader:
    def __init__(
        self, node: int, assignment: Assignment, revision: int, offset_end: int, now_s: float
    ) -> None:
        """Begin to lead with a log that ends at `offset_end`."""
        assert assignment.leader == node, assignment
        self.node = node
        self.assignment = assignment
        self.revision = revision  # Of the assignment in the coordinator.
        self.offset_begun = offset_end  # Where our epoch begins.
        self.offset_durable = UNKNOWN
        self.proposed: tuple[int, ...] | None = None  # On its way to the coordinator.
        self._progress = {
            each: Progress(UNKNOWN, now_s, now_s, offset_end)
            for each in assignment.replicas
            if each != node
        }

    # --- what happened

    def durable(self, offset: int) -> None:
        """Note that our own log is durable below this offset."""
        self.offset_durable = offset

    def fetched(self, follower: int, offset: int, offset_end: int, now_s: float) -> None:
        """Note that a follower asks for what is at the offset; our log ends at `offset_end`."""
        known = self._progress.get(follower)
        if known is None:
            return
        if offset >= offset_end:
            known.caught_up_s = now_s
        elif offset >= known.asked_end:  # It had everything when it asked last.
            known.caught_up_s = max(known.caught_up_s, known.asked_s)
        known.offset_end, known.asked_s, known.asked_end = offset, now_s, offset_end

    def told(self, assignment: Assignment, revision: int) -> None:
        """Take in what the coordinator has: of our epoch, but perhaps another in-sync set."""
        assert assignment.leader_epoch == self.assignment.leader_epoch, assignment
        if revision <= self.revision:
            return
        for each in assignment.replicas:
            if each != self.node and each not in self._progress:
                self._progress[each] = Progress(UNKNOWN, 0.0, 0.0, 0)
        self.assignment, self.revision, self.proposed = assignment, revision, None

    def refused(self) -> None:
        """Note that the proposed set was not accepted, and will not be."""
        self.proposed = None

    # --- what follows

    @property
    def watermark(self) -> int:
        """Return below which offset everything is in all replicas that count; UNKNOWN if some of
        them have not said."""
        counted = dict.fromkeys((*self.assignment.in_sync, *(self.proposed or ())))
        ends = [self._progress[each].offset_end for each in counted if each in self._progress]
        return min((self.offset_durable, *ends))

    def propose(
        self, now_s: float, lag_s: float, offset_end: int, committed: int, alive: Container[int]
    ) -> tuple[int, ...] | None:
        """Return the in-sync set there should be; None if it is as it is, or one is on its way.

        The caller tells the coordinator, and then us what it has.
        """
        if self.proposed is not None:
            return None
        present = self.assignment.in_sync
        wanted = tuple(
            each
            for each in self.assignment.replicas
            if each == self.node
            or (
                self._keeps_up(each, now_s, lag_s, offset_end)
                if each in present
                else each in alive and self._has_caught_up(each, committed)
            )
        )
        if set(wanted) == set(present):
            return None
        self.proposed = wanted
        return wanted

    def _keeps_up(self, follower: int, now_s: float, lag_s: float, offset_end: int) -> bool:
        known = self._progress[follower]
        return known.offset_end >= offset_end or now_s - known.caught_up_s <= lag_s

    def _has_caught_up(self, follower: int, committed: int) -> bool:
        return self._progress[follower].offset_end >= max(committed, self.offset_begun)


class Follower:
    """A replica that follows a leader: first it finds out where to cut, then it fetches."""

    def __init__(self, assignment: Assignment, epochs: EpochIndex, *, is_empty: bool) -> None:
        self.leader = assignment.leader
        self.epoch = assignment.leader_epoch
        self._epochs = epochs
        # An empty log agrees with any other. One without an index is not empty: it has epoch 0.
        self.is_fetching = is_empty

    @property
    def question(self) -> int:
        """Return the epoch whose end the leader is asked for."""
        assert not self.is_fetching
        return max(self._epochs.last, 0)

    def answered(self, answer: EpochEnd, offset_end: int) -> int | None:
        """Return where to cut our log, which ends at `offset_end`. None means: ask again later.

        After the cut we fetch; or ask again, about the last epoch that is left.
        """
        if answer.epoch == NO_EPOCH:
            return None  # A leader that has not heard of its own election yet.
        offset, is_all = self._epochs.cut_for(answer, offset_end)
        self.is_fetching = is_all
        return offset

    def was_cut(self, *, is_empty: bool) -> None:
        """Note that the log was cut as `answered` said."""
        self.is_fetching = self.is_fetching or is_empty
