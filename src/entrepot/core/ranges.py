"""A set of integers that are mostly consecutive, kept as sorted ranges.

Ten million consecutive numbers take as much memory as one. A look-up is a binary search; adding
and removing also move the later ranges, which is cheap while there are thousands of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Ranges:
    __slots__ = ("_ends", "_starts", "count")

    def __init__(self, ranges: Iterable[range] = ()) -> None:
        # Ascending, with a gap between each two: starts[i] < ends[i] < starts[i + 1]. Ends are
        # exclusive.
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.count = 0  # How many numbers, not ranges.
        for each in ranges:
            self.add(each.start, each.stop)

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[range]:
        return map(range, self._starts, self._ends)

    def __contains__(self, number: int) -> bool:
        found = bisect_right(self._starts, number) - 1
        return found >= 0 and number < self._ends[found]

    @property
    def first(self) -> int:
        return self._starts[0]

    @property
    def range_count(self) -> int:
        return len(self._starts)

    def add(self, start: int, end: int) -> None:
        """Add the numbers from `start` up to `end`. Some may be in the set already."""
        if start >= end:
            return
        if not self._ends or start > self._ends[-1]:
            self._starts.append(start)
            self._ends.append(end)
            self.count += end - start
            return
        # The first range that touches the new one, or is behind it.
        left = bisect_left(self._ends, start)
        right = bisect_right(self._starts, end)
        if left < right:
            start = min(start, self._starts[left])
            end = max(end, self._ends[right - 1])
            self.count -= sum(self._ends[left:right]) - sum(self._starts[left:right])
        self._starts[left:right] = [start]
        self._ends[left:right] = [end]
        self.count += end - start

    def remove(self, start: int, end: int) -> list[range]:
        """Remove the numbers from `start` up to `end`. Return those that were in the set."""
        removed = self.within(start, end)
        if not removed:
            return []
        left = bisect_right(self._ends, start)  # The first range that ends behind the start.
        right = left + len(removed)
        first, last = self._starts[left], self._ends[right - 1]
        rest = [(first, start)] if first < start else []
        if end < last:
            rest.append((end, last))
        self._starts[left:right] = [each[0] for each in rest]
        self._ends[left:right] = [each[1] for each in rest]
        self.count -= sum(map(len, removed))
        return removed

    def within(self, start: int, end: int) -> list[range]:
        """Return the part of the set from `start` up to `end`."""
        left, right = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if start >= end:
            return []
        found = zip(self._starts[left:right], self._ends[left:right], strict=True)
        return [range(max(first, start), min(last, end)) for first, last in found]

    def pop(self, count: int) -> list[range]:
        """Remove and return the lowest numbers, at most `count`."""
        taken: list[range] = []
        whole = 0
        for start, end in zip(self._starts, self._ends, strict=True):
            if count <= 0:
                break
            stop = min(end, start + count)
            taken.append(range(start, stop))
            count -= stop - start
            if stop < end:
                self._starts[whole] = stop
                break
            whole += 1
        del self._starts[:whole], self._ends[:whole]
        self.count -= sum(map(len, taken))
        return taken
