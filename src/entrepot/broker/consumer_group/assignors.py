"""Assigning partitions to members: pure functions, the same assignment every time.

*uniform* gives all members equally many partitions, and lets them keep those they have as far
as that allows. *range* gives a member the same partition numbers in every topic, so that
topics with the same keys can be joined.

Both use a topic's index among the sorted ids in place of its id: a UUID is slow to hash and to
compare, and there may be a hundred thousand partitions. Thousands of members may subscribe to
the same thousands of topics; members with equal subscriptions are one *kind* and handled
together. The work is done in steps, so that other requests do not wait for it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from entrepot.broker.consumer_group.records import Assignment
from entrepot.core.steps import Steps

_ROUNDS_MAX = 100  # Rounds of levelling, at most; a round in which nothing moves is the last.

Partition = tuple[int, int]  # (topic's index among all topics, partition number).
Partitions = dict[Partition, None]  # A set with an order.


class Subscriber(NamedTuple):
    id: str
    instance_id: str | None
    # Existing topics. Members with equal subscriptions have the same object.
    topics: tuple[UUID, ...]
    target: Assignment  # Its target assignment so far.


class _Taker(NamedTuple):
    """A subscriber, with topics by index."""

    id: str
    instance_id: str | None
    kind: int  # Members with equal subscriptions have the same kind.
    target: dict[int, tuple[int, ...]]


class _Work(NamedTuple):
    takers: list[_Taker]
    kinds: list[tuple[int, ...]]  # The topics of each kind.
    partition_counts: list[int]  # By topic.


Assignor = Callable[[Sequence[Subscriber], Mapping[UUID, int]], Steps[dict[str, Assignment]]]
Divide = Callable[[_Work], Steps[dict[str, Partitions]]]


def _assignor(divide: Divide) -> Assignor:
    """Make an assignor for topic ids out of one for topic indexes."""

    def assign(
        subscribers: Sequence[Subscriber], partition_counts: Mapping[UUID, int]
    ) -> Steps[dict[str, Assignment]]:
        ids = sorted(partition_counts, key=attrgetter("int"))
        parts = yield from divide((yield from _work(subscribers, partition_counts, ids)))
        found: dict[str, Assignment] = {}
        for member, part in parts.items():
            found[member] = yield from _as_assignment(part, ids)
        return found

    return assign


def _work(
    subscribers: Sequence[Subscriber], partition_counts: Mapping[UUID, int], ids: Sequence[UUID]
) -> Steps[_Work]:
    places = {topic: place for place, topic in enumerate(ids)}
    kinds: dict[tuple[int, ...], int] = {}
    known: dict[int, int] = {}  # By the identity of a subscriber's topics.
    takers: list[_Taker] = []
    for each in subscribers:
        if id(each.topics) not in known:
            topics = tuple([places[topic] for topic in each.topics])
            known[id(each.topics)] = kinds.setdefault(topics, len(kinds))
        target = {places[t]: numbers for t, numbers in each.target.items() if t in places}
        takers.append(_Taker(each.id, each.instance_id, known[id(each.topics)], target))
        yield
    return _Work(takers, list(kinds), [partition_counts[topic] for topic in ids])


def _uniform(work: _Work) -> Steps[dict[str, Partitions]]:
    """Assign equally many partitions to each member; move as few as possible."""
    parts = yield from _keep(work)
    taken = frozenset(chain.from_iterable(parts.values()))
    free: list[Partition] = []
    for topic in dict.fromkeys(chain.from_iterable(work.kinds)):
        numbers = range(work.partition_counts[topic])
        free += [(topic, number) for number in numbers if (topic, number) not in taken]
        yield
    if len(work.kinds) == 1:
        yield from _assign_equally(parts, free)
    else:
        yield from _assign_to_poorest(work, parts, free)
    return parts


def _keep(work: _Work) -> Steps[dict[str, Partitions]]:
    """Return the partitions of each member's target that it still subscribes to and that exist."""
    wanted = [frozenset(topics) for topics in work.kinds]
    parts: dict[str, Partitions] = {}
    for each in work.takers:
        parts[each.id] = {
            (topic, number): None
            for topic, numbers in each.target.items()
            if topic in wanted[each.kind]
            for number in numbers
            if number < work.partition_counts[topic]
        }
        yield
    return parts


def _assign_equally(parts: dict[str, Partitions], free: list[Partition]) -> Steps[None]:
    """Assign the free partitions when all subscribe to the same topics.

    Each gets the average, rounded down, and some get one more.
    """
    total = len(free) + sum(map(len, parts.values()))
    quota, one_more = divmod(total, len(parts))
    for part in parts.values():
        due = quota
        if len(part) > quota and one_more:
            one_more -= 1
            due += 1
        while len(part) > due:
            free.append(part.popitem()[0])
        yield
    free.sort(reverse=True)
    for part in parts.values():
        while len(part) < quota:
            part[free.pop()] = None
        yield
    for part in parts.values():
        if free and len(part) == quota:
            part[free.pop()] = None
    assert not free


class _FewestPartitions:
    """Finds the member with the fewest partitions among those subscribed to a topic."""

    def __init__(self, work: _Work, parts: Mapping[str, Partitions]) -> None:
        self._parts = parts
        self._kind_of = {each.id: each.kind for each in work.takers}
        # For each kind a heap of (number of partitions, member). An entry is out of date when the
        # member has another number of partitions by now.
        self._heaps: list[list[tuple[int, str]]] = [[] for _ in work.kinds]
        for each in work.takers:
            self._heaps[each.kind].append((len(parts[each.id]), each.id))
        for heap in self._heaps:
            heapq.heapify(heap)
        # Topic -> the heaps of the kinds that subscribe to it.
        self._wanting: dict[int, list[list[tuple[int, str]]]] = {}
        for kind, topics in enumerate(work.kinds):
            for topic in topics:
                self._wanting.setdefault(topic, []).append(self._heaps[kind])

    def demand(self, topic: int) -> int:
        """Return how many heap entries there are for a topic: about how many members want it."""
        return sum(map(len, self._wanting[topic]))

    def of(self, topic: int) -> str:
        """Return the subscriber of the topic with the fewest partitions."""
        return min(map(self._first, self._wanting[topic]))[1]

    def _first(self, heap: list[tuple[int, str]]) -> tuple[int, str]:
        """Return the first entry of a heap that is up to date."""
        while heap[0][0] != len(self._parts[heap[0][1]]):
            heapq.heappop(heap)
        return heap[0]

    def changed(self, member: str) -> None:
        """Note that the member has another number of partitions now."""
        heap = self._heaps[self._kind_of[member]]
        heapq.heappush(heap, (len(self._parts[member]), member))


def _assign_to_poorest(
    work: _Work, parts: dict[str, Partitions], free: list[Partition]
) -> Steps[None]:
    """Assign the free partitions when subscriptions differ.

    Each goes to the subscriber with the fewest; then partitions are moved until they are level.
    """
    poorest = _FewestPartitions(work, parts)
    yield
    demands = {topic: poorest.demand(topic) for topic, _ in free}
    for partition in sorted(free, key=lambda each: demands[each[0]]):
        taker = poorest.of(partition[0])
        parts[taker][partition] = None
        poorest.changed(taker)
        yield
    for _ in range(_ROUNDS_MAX):
        moved = False
        for giver in sorted(parts, key=lambda member: -len(parts[member])):
            for partition in list(parts[giver]):
                yield
                taker = poorest.of(partition[0])
                if len(parts[giver]) - len(parts[taker]) > 1:
                    del parts[giver][partition]
                    parts[taker][partition] = None
                    poorest.changed(giver)
                    poorest.changed(taker)
                    moved = True
        if not moved:
            return


def _by_range(work: _Work) -> Steps[dict[str, Partitions]]:
    """Assign the same range of partition numbers in every topic to each member."""
    parts: dict[str, Partitions] = {each.id: {} for each in work.takers}
    wanting: dict[int, list[int]] = {}  # Topic -> the kinds that subscribe to it.
    for kind, topics in enumerate(work.kinds):
        for topic in topics:
            wanting.setdefault(topic, []).append(kind)
        yield
    # A static member keeps its position when it comes back under another member id.
    takers = sorted(work.takers, key=lambda member: member.instance_id or member.id)
    members: dict[tuple[int, ...], list[str]] = {}  # The members of each combination of kinds.
    for topic, among in wanting.items():
        kinds = tuple(among)
        if kinds not in members:
            known = frozenset(kinds)
            members[kinds] = [each.id for each in takers if each.kind in known]
        size, larger = divmod(work.partition_counts[topic], len(members[kinds]))
        first = 0
        for place, member in enumerate(members[kinds] if size else members[kinds][:larger]):
            end = first + size + (place < larger)
            parts[member].update(((topic, number), None) for number in range(first, end))
            first = end
        yield
    return parts


def _as_assignment(partitions: Partitions, ids: Sequence[UUID]) -> Steps[Assignment]:
    found: dict[int, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    yield
    return {ids[topic]: tuple(numbers) for topic, numbers in found.items()}


uniform, by_range = _assignor(_uniform), _assignor(_by_range)


# By name; the first is the default.
ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": by_range}
