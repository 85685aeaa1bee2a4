"""Dividing partitions among members: pure functions, the same division every time.

*uniform* gives everybody as many as everybody else, and lets members keep what they
have as far as that allows. *range* gives a member the same numbers in every topic, so
that topics with the same keys can be joined.

Both work on small numbers in place of topics' ids, in the order of the ids: a UUID is slow to
hash and to compare, and there may be a hundred thousand partitions. Thousands of members may
want the same thousands of topics, so what is alike for all of these is looked at once: members
who want the same are one *kind*. And they work in steps, so that nobody waits for them.
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

_ROUNDS_MAX = 100  # Of levelling; a round in which nothing moves is the last anyway.

Partition = tuple[int, int]  # Its topic's place among all, and its own number.
Partitions = dict[Partition, None]  # A set with an order.


class Subscriber(NamedTuple):
    id: str
    instance_id: str | None
    topics: tuple[UUID, ...]  # Of those that there are. The same object for who wants the same.
    target: Assignment  # What it was to have so far.


class _Taker(NamedTuple):
    """A subscriber, its topics by their places."""

    id: str
    instance_id: str | None
    kind: int  # Those who want the same topics have the same.
    target: dict[int, tuple[int, ...]]


class _Work(NamedTuple):
    takers: list[_Taker]
    kinds: list[tuple[int, ...]]  # The topics of each.
    partition_counts: list[int]  # By topic.


Assignor = Callable[[Sequence[Subscriber], Mapping[UUID, int]], Steps[dict[str, Assignment]]]
Divide = Callable[[_Work], Steps[dict[str, Partitions]]]


def _assignor(divide: Divide) -> Assignor:
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
    parts = yield from _keep(work)
    taken = frozenset(chain.from_iterable(parts.values()))
    free: list[Partition] = []
    for topic in dict.fromkeys(chain.from_iterable(work.kinds)):
        numbers = range(work.partition_counts[topic])
        free += [(topic, number) for number in numbers if (topic, number) not in taken]
        yield
    if len(work.kinds) == 1:
        yield from _deal(parts, free)
    else:
        yield from _spread(work, parts, free)
    return parts


def _keep(work: _Work) -> Steps[dict[str, Partitions]]:
    """What members have and may go on having."""
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


def _deal(parts: dict[str, Partitions], free: list[Partition]) -> Steps[None]:
    """All want the same: each is due the average, rounded down, and some one more."""
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


class _Poorest:
    """Who has least of those that want a topic."""

    def __init__(self, work: _Work, parts: Mapping[str, Partitions]) -> None:
        self._parts = parts
        self._kind_of = {each.id: each.kind for each in work.takers}
        # Of each kind, who has least first. An entry is out of date when its member has more or
        # less by now.
        self._heaps: list[list[tuple[int, str]]] = [[] for _ in work.kinds]
        for each in work.takers:
            self._heaps[each.kind].append((len(parts[each.id]), each.id))
        for heap in self._heaps:
            heapq.heapify(heap)
        self._wanting: dict[int, list[list[tuple[int, str]]]] = {}  # The heaps, by topic.
        for kind, topics in enumerate(work.kinds):
            for topic in topics:
                self._wanting.setdefault(topic, []).append(self._heaps[kind])

    def demand(self, topic: int) -> int:
        return sum(map(len, self._wanting[topic]))

    def of(self, topic: int) -> str:
        return min(map(self._first, self._wanting[topic]))[1]

    def _first(self, heap: list[tuple[int, str]]) -> tuple[int, str]:
        while heap[0][0] != len(self._parts[heap[0][1]]):
            heapq.heappop(heap)
        return heap[0]

    def changed(self, member: str) -> None:
        heap = self._heaps[self._kind_of[member]]
        heapq.heappush(heap, (len(self._parts[member]), member))


def _spread(work: _Work, parts: dict[str, Partitions], free: list[Partition]) -> Steps[None]:
    """They want different things: give to whoever has least, then level."""
    poorest = _Poorest(work, parts)
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
    parts: dict[str, Partitions] = {each.id: {} for each in work.takers}
    wanting: dict[int, list[int]] = {}  # By topic: the kinds that want it.
    for kind, topics in enumerate(work.kinds):
        for topic in topics:
            wanting.setdefault(topic, []).append(kind)
        yield
    # A static member keeps its place in the order when it comes back under another id.
    takers = sorted(work.takers, key=lambda member: member.instance_id or member.id)
    members: dict[tuple[int, ...], list[str]] = {}  # By the kinds that they are of.
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
