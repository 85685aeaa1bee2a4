"""How many of a partition's offsets are markers that end transactions, not records.

The offset of each marker is remembered, up to a bound; beyond that of every second, then of
every fourth, and so on. So a count is exact where there are few, and where there are many it
is off by less than one part in a thousand. Compaction changes nothing here: an offset whose
marker is gone has no record, either.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from entrepot.core import limits


class MarkersState(NamedTuple):
    """The content of Markers, as it is saved."""

    step: int = 1
    total: int = 0
    offset_last: int = -1
    offsets: Sequence[int] = ()


class Markers:
    def __init__(self, state: MarkersState | None = None) -> None:
        state = state or MarkersState()
        self._step = state.step
        self._count = state.total  # Of all that were noted and not forgotten.
        self._offset_last = state.offset_last
        # Of the first marker, and of each that comes `step` after the one before; ascending.
        self._offsets = array("q", state.offsets)

    def note(self, offset: int) -> None:
        """Note that a marker was appended."""
        if self._count % self._step == 0:
            self._offsets.append(offset)
        self._count += 1
        self._offset_last = offset
        if len(self._offsets) > limits.MARKERS_PER_PARTITION_MAX:
            del self._offsets[1::2]
            self._step *= 2

    def forget_before(self, offset_start: int) -> None:
        """Forget the markers that are below the log's start."""
        if offset_start > self._offset_last:
            self._offsets, self._count, self._step = array("q"), 0, 1
        else:
            gone = max(0, self._below(offset_start) // self._step)
            del self._offsets[:gone]
            self._count -= gone * self._step

    def between(self, offset: int, offset_end: int) -> int:
        """Return how many offsets of this range are markers."""
        return self._below(offset_end) - self._below(offset)

    def _below(self, offset: int) -> int:
        if offset > self._offset_last:
            return self._count
        return min(bisect_left(self._offsets, offset) * self._step, self._count)

    def state(self) -> MarkersState:
        return MarkersState(self._step, self._count, self._offset_last, list(self._offsets))
