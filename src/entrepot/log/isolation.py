"""Transactions as one partition sees them: which are open, which were aborted.

A transaction's batches stand among everybody's. It is open here from its first batch to
its marker. Who reads only what is committed is held back at the *last stable offset*,
where the oldest open transaction begins, and is told which below it were aborted.

A marker counts once it is permanent: until the watermark has passed it, its transaction
still holds readers back. This is a view: folded from batch headers and markers, saved
with each new segment.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from entrepot.core.batch import BatchHeader
from entrepot.core.marker import Marker


class Open(NamedTuple):
    """A transaction without its marker."""

    offset_first: int
    epoch: int


class State(NamedTuple):
    """What is saved."""

    ongoing: Sequence[tuple[int, Open]] = ()
    aborted: Sequence[tuple[int, int, int, int]] = ()  # As the columns of `Isolation`.


class Isolation:
    def __init__(self, state: State | None = None) -> None:
        state = state or State()
        # By producer id, the one that began first coming first.
        self.open: dict[int, Open] = dict(state.ongoing)
        # First offset and marker of those that ended; the markers ascend.
        self._ended: deque[tuple[int, int]] = deque()
        # The aborted ones, in columns because there may be many. The markers ascend.
        self._producers = array("q", (row[0] for row in state.aborted))
        self._firsts = array("q", (row[1] for row in state.aborted))
        self._markers = array("q", (row[2] for row in state.aborted))
        # No transaction that ended after this one began below that.
        self._stables = array("q", (row[3] for row in state.aborted))

    # --- folding

    def begin(self, header: BatchHeader, offset_first: int) -> None:
        """A transactional batch was appended."""
        if header.producer_id not in self.open:
            self.open[header.producer_id] = Open(offset_first, header.producer_epoch)

    def end(self, marker: Marker, offset: int) -> None:
        """A marker was appended. One without a transaction only speaks of epochs."""
        ended = self.open.pop(marker.producer_id, None)
        if ended is None:
            return
        self._ended.append((ended.offset_first, offset))
        if not marker.committed:
            self._producers.append(marker.producer_id)
            self._firsts.append(ended.offset_first)
            self._markers.append(offset)
            self._stables.append(self._oldest(offset + 1))

    def _oldest(self, default: int) -> int:
        return next(iter(self.open.values())).offset_first if self.open else default

    def forget_before(self, offset_start: int) -> None:
        """What lies wholly below the log's start was deleted."""
        gone = bisect_left(self._markers, offset_start)
        for column in (self._producers, self._firsts, self._markers, self._stables):
            del column[:gone]

    def state(self) -> State:
        rows = zip(self._producers, self._firsts, self._markers, self._stables, strict=True)
        return State(list(self.open.items()), list(rows))

    # --- asking

    def last_stable(self, high_watermark: int) -> int:
        """Below it, everything is decided, and the decision is permanent."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()
        oldest = min((first for first, _ in ended), default=high_watermark)
        return min(high_watermark, oldest, self._oldest(high_watermark))

    def has_aborted(self, offset: int) -> bool:
        """Whether there is any that somebody who reads from there on must know."""
        return bool(self._markers) and self._markers[-1] >= offset

    def aborted(self, offset: int, offset_end: int) -> list[tuple[int, int]]:
        """Producer id and first offset of those that have to do with these offsets."""
        found: list[tuple[int, int]] = []
        for number in range(bisect_left(self._markers, offset), len(self._markers)):
            if self._firsts[number] < offset_end:
                found.append((self._producers[number], self._firsts[number]))
            if self._stables[number] >= offset_end:
                break
        return found

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Whether what this producer wrote there in a transaction was taken back."""
        return any(
            aborted_id == producer_id and first <= offset
            for aborted_id, first in self.aborted(offset, offset + 1)
        )
