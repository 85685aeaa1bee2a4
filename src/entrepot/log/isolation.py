"""Transactions as one partition sees them: which are open, which were aborted.

A transaction's batches are stored among those of others. It is open in this partition from its
first batch to its marker. A reader of committed records is held back at the *last stable offset*,
where the oldest open transaction begins, and is told which transactions below it were aborted.

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


class OpenTransaction(NamedTuple):
    """A transaction whose marker is not in the partition yet."""

    offset_first: int
    epoch: int


# Of an aborted transaction: producer id, first offset, marker's offset, stable offset; see
# `Isolation`.
AbortedRow = tuple[int, int, int, int]
AbortedColumns = tuple["array[int]", ...]  # The same, a column for each.


class IsolationState(NamedTuple):
    """The content of an Isolation, as it is saved."""

    ongoing: Sequence[tuple[int, OpenTransaction]] = ()
    aborted: Sequence[AbortedRow] = ()


class Isolation:
    def __init__(self, state: IsolationState | None = None) -> None:
        state = state or IsolationState()
        # By producer id; the transaction that began first comes first.
        self.open: dict[int, OpenTransaction] = dict(state.ongoing)
        # (first offset, marker's offset) of ended transactions whose marker may not be committed
        # yet. The markers ascend.
        self._ended: deque[tuple[int, int]] = deque()
        # The aborted transactions, in columns because there may be many. The markers ascend.
        self._producers = array("q", (row[0] for row in state.aborted))
        self._firsts = array("q", (row[1] for row in state.aborted))
        self._markers = array("q", (row[2] for row in state.aborted))
        # No transaction that ended after this one began below this offset.
        self._stables = array("q", (row[3] for row in state.aborted))

    # --- folding

    def begin(self, header: BatchHeader, offset_first: int) -> None:
        """Note that a transactional batch was appended."""
        if header.producer_id not in self.open:
            self.open[header.producer_id] = OpenTransaction(offset_first, header.producer_epoch)

    def end(self, marker: Marker, offset: int) -> None:
        """Note that a marker was appended. One without an open transaction changes nothing here."""
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
        """Return where the oldest open transaction begins."""
        return next(iter(self.open.values())).offset_first if self.open else default

    def forget_before(self, offset_start: int) -> None:
        """Forget the aborted transactions that are wholly below the log's start."""
        gone = bisect_left(self._markers, offset_start)
        for column in (self._producers, self._firsts, self._markers, self._stables):
            del column[:gone]

    def state(self) -> IsolationState:
        rows = zip(self._producers, self._firsts, self._markers, self._stables, strict=True)
        return IsolationState(list(self.open.items()), list(rows))

    # --- asking

    def last_stable(self, high_watermark: int) -> int:
        """Return the offset below which every transaction has ended, with a committed marker."""
        ended = self._ended
        if not ended and not self.open:  # As nearly always.
            return high_watermark
        while ended and ended[0][1] < high_watermark:
            ended.popleft()
        oldest = min((first for first, _ in ended), default=high_watermark)
        return min(high_watermark, oldest, self._oldest(high_watermark))

    def has_aborted(self, offset: int) -> bool:
        """Return whether an aborted transaction has its marker at or after this offset."""
        return bool(self._markers) and self._markers[-1] >= offset

    def aborted(self, offset: int, offset_end: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of each aborted transaction that has records in
        this range."""
        found: list[tuple[int, int]] = []
        for number in range(bisect_left(self._markers, offset), len(self._markers)):
            if self._firsts[number] < offset_end:
                found.append((self._producers[number], self._firsts[number]))
            if self._stables[number] >= offset_end:
                break
        return found

    def aborted_between(self, offset: int, offset_end: int) -> AbortedColumns:
        """Return columns with all aborted transactions that have records in this range, and perhaps
        some that have none. There may be millions, so nothing is done for each of them here."""
        first = bisect_left(self._markers, offset)
        end = bisect_left(self._stables, offset_end, first) + 1  # They ascend, too.
        columns = (self._producers, self._firsts, self._markers, self._stables)
        return tuple(column[first:end] for column in columns)

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Return whether this producer's transaction around that offset was aborted."""
        return any(
            aborted_id == producer_id and first <= offset
            for aborted_id, first in self.aborted(offset, offset + 1)
        )
