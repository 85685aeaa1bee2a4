"""Deliveries of a channel or a subscription that its client has not acknowledged.

Deliveries have consecutive tags, and so do most acknowledgements. So this keeps runs: a range
of tags, the holder of the messages, and their offsets, which are a range, too. A run that
continues the one before is joined to it, and a run is cut when a part of it is acknowledged.
A client that acknowledges in order costs the same however many deliveries there are; one that
does not costs a run for every gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, Protocol

from entrepot.broker.queue.lane import Waiter
from entrepot.core.errors import PeerError


class UnknownTag(PeerError):
    """A tag that was not delivered, or is acknowledged already."""

    def __init__(self, tag: int) -> None:
        super().__init__(f"unknown delivery tag {tag}")


class Disposition(Enum):
    """How the client answered a delivery."""

    SETTLED = "settled"
    REJECTED = "rejected"
    REQUEUED = "requeued"


class Holder(Protocol):
    """What messages were delivered to: a consumer, or a request for one message."""

    def settle(self, lane: int, offsets: range) -> None: ...

    def reject(self, lane: int, offsets: range) -> None: ...

    def requeue(self, lane: int, offsets: range) -> None: ...

    def when_settled(self, waiter: Waiter) -> None:
        """Call the waiter when all that was settled so far is committed or has failed."""

    def release(self) -> None:
        """Requeue all messages that it holds."""


class Held(NamedTuple):
    """A run of unacknowledged messages of one holder, from one lane of its queue."""

    tag_first: int
    tag_end: int
    holder: Holder
    lane: int
    offsets: range  # One for each tag; with any step.

    def cut(self, tag_first: int, tag_end: int) -> Held:
        first = self.tag_first
        offsets = self.offsets[tag_first - first : tag_end - first]
        return Held(tag_first, tag_end, self.holder, self.lane, offsets)


class Unacked:
    __slots__ = ("_firsts", "_runs", "count")

    def __init__(self) -> None:
        self._runs: list[Held] = []  # In the order of their tags, which do not overlap.
        self._firsts: list[int] = []  # The first tag of each run.
        self.count = 0

    def __iter__(self) -> Iterator[Held]:
        return iter(self._runs)

    def add(self, tag_first: int, holder: Holder, lane: int, offsets: range) -> None:
        """Add a delivery. Its tags must be greater than all before."""
        self.count += len(offsets)
        added = Held(tag_first, tag_first + len(offsets), holder, lane, offsets)
        if self._runs:
            joined = _joined(self._runs[-1], added)
            if joined is not None:
                self._runs[-1] = joined
                return
        self._runs.append(added)
        self._firsts.append(tag_first)

    def take_first(self, tag: int) -> Held | None:
        """Remove and return this tag if it is the oldest; otherwise return None."""
        runs = self._runs
        if not runs or runs[0].tag_first != tag:
            return None
        self.count -= 1
        oldest = runs[0]
        if oldest.tag_end == tag + 1:
            del runs[0], self._firsts[0]
            return oldest
        runs[0] = oldest.cut(tag + 1, oldest.tag_end)
        self._firsts[0] = tag + 1
        return oldest.cut(tag, tag + 1)

    def take(self, tag_first: int, tag_end: int) -> tuple[list[Held], int]:
        """Remove the tags before the first that is unknown.

        Return their runs, and the unknown tag, or `tag_end` if all are known.
        """
        start = index = self._index(tag_first)
        tag = tag_first
        while tag < tag_end and index < len(self._runs) and self._runs[index].tag_first <= tag:
            tag = min(self._runs[index].tag_end, tag_end)
            index += 1
        return (self._cut(start, index, tag_first, tag) if index > start else []), tag

    def take_through(self, tag: int) -> list[Held]:
        """Remove and return this tag and all before it; 0 means: all. Raises UnknownTag."""
        if tag == 0:
            return self.take_all()
        index = self._index(tag)
        if index == len(self._runs) or self._runs[index].tag_first > tag:
            raise UnknownTag(tag)
        return self._cut(0, index + 1, self._firsts[0], tag + 1)

    def take_all(self) -> list[Held]:
        """Remove and return everything."""
        taken, self._runs, self._firsts, self.count = self._runs, [], [], 0
        return taken

    def take_of(self, holder: Holder) -> list[Held]:
        """Remove and return everything of a holder."""
        kept = [run for run in self._runs if run.holder is not holder]
        taken = [run for run in self._runs if run.holder is holder]
        self._runs, self._firsts = kept, [run.tag_first for run in kept]
        self.count = sum(map(_size, kept))
        return taken

    def restore(self, runs: list[Held]) -> None:
        """Add runs again that were removed."""
        merged = sorted([*self._runs, *runs], key=lambda run: run.tag_first)
        self._runs = merged
        self._firsts = [run.tag_first for run in merged]
        self.count += sum(len(run.offsets) for run in runs)

    def _index(self, tag: int) -> int:
        """Return the index of the run with this tag, or else of the run after it."""
        index = bisect_right(self._firsts, tag) - 1
        return index if index >= 0 and self._runs[index].tag_end > tag else index + 1

    def _cut(self, start: int, end: int, tag_first: int, tag_end: int) -> list[Held]:
        """Remove and return the tags, all of which are in the runs from `start` to `end`."""
        taken = self._runs[start:end]
        first, last = taken[0], taken[-1]
        rest = []
        if first.tag_first < tag_first:
            rest.append(first.cut(first.tag_first, tag_first))
        if last.tag_end > tag_end:
            rest.append(last.cut(tag_end, last.tag_end))
        if rest:
            taken[-1] = last.cut(last.tag_first, tag_end)
            first = taken[0]
            taken[0] = first.cut(max(first.tag_first, tag_first), first.tag_end)
        self._runs[start:end] = rest
        self._firsts[start:end] = [run.tag_first for run in rest]
        self.count -= tag_end - tag_first if len(taken) == 1 else sum(map(_size, taken))
        return taken


def _size(run: Held) -> int:
    return len(run.offsets)


def _joined(run: Held, added: Held) -> Held | None:
    """Return the two as one run, or None when they cannot be one."""
    if run.holder is not added.holder or run.lane != added.lane or run.tag_end != added.tag_first:
        return None
    before, after = run.offsets, added.offsets
    step = after[0] - before[-1]
    if step <= 0 or any(len(each) > 1 and each.step != step for each in (before, after)):
        return None
    offsets = range(before[0], after[-1] + 1, step)
    return Held(run.tag_first, added.tag_end, run.holder, run.lane, offsets)


def conclude(taken: list[Held], disposition: Disposition) -> None:
    """Settle, reject or requeue these deliveries."""
    for _, _, holder, lane, offsets in taken:
        if disposition is Disposition.SETTLED:
            holder.settle(lane, offsets)
        elif disposition is Disposition.REJECTED:
            holder.reject(lane, offsets)
        else:
            holder.requeue(lane, offsets)
