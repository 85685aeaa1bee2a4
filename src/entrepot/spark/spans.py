"""Messages of a queue, many at once: which lane, and which offsets of it.

As JSON they are `[[lane, first, end], …]`, always in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from entrepot.core.ranges import Ranges


class Spans:
    __slots__ = ("_lanes",)

    def __init__(self, spans: Iterable[Sequence[int]] = ()) -> None:
        self._lanes: dict[int, Ranges] = {}
        for lane, first, end in spans:
            self._lanes.setdefault(lane, Ranges()).add(first, end)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        for lane, ranges in sorted(self._lanes.items()):
            for each in ranges:
                yield lane, each.start, each.stop

    def __len__(self) -> int:
        """Return how many messages there are."""
        return sum(each.count for each in self._lanes.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spans) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Spans) -> Spans:
        return Spans([*self, *other])

    def __sub__(self, other: Spans) -> Spans:
        left = Spans(self)
        for lane, first, end in other:
            if lane in left._lanes:
                left._lanes[lane].remove(first, end)
        return left

    def __and__(self, other: Spans) -> Spans:
        return self - (self - other)

    def first(self, count: int) -> Spans:
        """Return the first messages, at most so many."""
        found = []
        for lane, first, end in self:
            if count <= 0:
                break
            found.append((lane, first, min(end, first + count)))
            count -= end - first
        return Spans(found)

    def to_json(self) -> list[list[int]]:
        return [[*each] for each in self]
