"""Dividing partitions among members: pure functions, the same division every time.

*uniform* gives everybody as many as everybody else, and lets members keep what they
have as far as that allows. *range* gives a member the same numbers in every topic, so
that topics with the same keys can be joined.

Both work on small numbers in place of topics' ids, in the order of the ids: a UUID is slow to
hash and to compare, and there may be a hundred thousand partitions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from entrepot.broker.consumer_group.records import Assignment

_ROUNDS_MAX = 100  # Of levelling; a round in which nothing moves is the last anyway.

Partition = tuple[int, int]  # Its topic's place among all, and its own number.
Partitions = dict[Partition, None]  # A set with an order.


class Subscriber(NamedTuple):
    id: str
    instance_id: str | None
    topics: tuple[UUID, ...]  # Of those that there are.
    target: Assignment  # What it was to have so far.


class _Taker(NamedTuple):
    """A subscriber, its topics by their places."""

    id: str
    instance_id: str | None
    topics: tuple[int, ...]
    target: dict[int, tuple[int, ...]]


Assignor = Callable[[Sequence[Subscriber], Mapping[UUID, int]], dict[str, Assignment]]
Divide = Callable[[Sequence[_Taker], Sequence[int]], dict[str, Partitions]]


def _assignor(divide: Divide) -> Assignor:
    def assign(
        subscribers: Sequence[Subscriber], partition_counts: Mapping[UUID, int]
    ) -> dict[str, Assignment]:
        ids = sorted(partition_counts, key=attrgetter("int"))
        places = {topic: place for place, topic in enumerate(ids)}
        topics = {each.topics: tuple([places[t] for t in each.topics]) for each in subscribers}
        takers = [
            _Taker(
                each.id,
                each.instance_id,
                topics[each.topics],
                {places[t]: numbers for t, numbers in each.target.items() if t in places},
            )
            for each in subscribers
        ]
        parts = divide(takers, [partition_counts[topic] for topic in ids])
        return {member: _as_assignment(part, ids) for member, part in parts.items()}

    return assign


def _uniform(
    subscribers: Sequence[_Taker], partition_counts: Sequence[int]
) -> dict[str, Partitions]:
    parts = _keep(subscribers, partition_counts)
    taken = dict.fromkeys(chain.from_iterable(parts.values()))
    wanted = dict.fromkeys(chain.from_iterable(each.topics for each in subscribers))
    free = [
        (topic, number)
        for topic in wanted
        for number in range(partition_counts[topic])
        if (topic, number) not in taken
    ]
    if len({each.topics for each in subscribers}) == 1:
        _deal(parts, free)
    else:
        _spread(subscribers, parts, free)
    return parts


def _keep(subscribers: Sequence[_Taker], partition_counts: Sequence[int]) -> dict[str, Partitions]:
    """What members have and may go on having."""
    wanted = {each.topics: frozenset(each.topics) for each in subscribers}
    return {
        each.id: {
            (topic, number): None
            for topic, numbers in each.target.items()
            if topic in wanted[each.topics]
            for number in numbers
            if number < partition_counts[topic]
        }
        for each in subscribers
    }


def _deal(parts: dict[str, Partitions], free: list[Partition]) -> None:
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
    free.sort(reverse=True)
    for part in parts.values():
        while len(part) < quota:
            part[free.pop()] = None
    for part in parts.values():
        if free and len(part) == quota:
            part[free.pop()] = None
    assert not free


def _spread(
    subscribers: Sequence[_Taker], parts: dict[str, Partitions], free: list[Partition]
) -> None:
    """They want different things: give to whoever has least, then level."""
    queues: dict[int, list[tuple[int, str]]] = {}  # A topic's takers, who has least first.
    topics = {each.id: each.topics for each in subscribers}
    for each in subscribers:
        for topic in each.topics:
            queues.setdefault(topic, []).append((len(parts[each.id]), each.id))
    for queue in queues.values():
        heapq.heapify(queue)

    def poorest(topic: int) -> str:
        """An entry is out of date when its member has more or less by now."""
        queue = queues[topic]
        while queue[0][0] != len(parts[queue[0][1]]):
            heapq.heappop(queue)
        return queue[0][1]

    def changed(member: str) -> None:
        for topic in topics[member]:
            heapq.heappush(queues[topic], (len(parts[member]), member))

    for partition in sorted(free, key=lambda each: len(queues[each[0]])):
        taker = poorest(partition[0])
        parts[taker][partition] = None
        changed(taker)
    for _ in range(_ROUNDS_MAX):
        moved = False
        for giver in sorted(parts, key=lambda member: -len(parts[member])):
            for partition in list(parts[giver]):
                taker = poorest(partition[0])
                if len(parts[giver]) - len(parts[taker]) > 1:
                    del parts[giver][partition]
                    parts[taker][partition] = None
                    changed(giver)
                    changed(taker)
                    moved = True
        if not moved:
            return


def _by_range(
    subscribers: Sequence[_Taker], partition_counts: Sequence[int]
) -> dict[str, Partitions]:
    parts: dict[str, Partitions] = {each.id: {} for each in subscribers}
    takers: dict[int, list[str]] = {}
    # A static member keeps its place in the order when it comes back under another id.
    for each in sorted(subscribers, key=lambda member: member.instance_id or member.id):
        for topic in each.topics:
            takers.setdefault(topic, []).append(each.id)
    for topic, members in takers.items():
        size, larger = divmod(partition_counts[topic], len(members))
        first = 0
        for place, member in enumerate(members):
            end = first + size + (place < larger)
            parts[member].update(((topic, number), None) for number in range(first, end))
            first = end
    return parts


def _as_assignment(partitions: Partitions, ids: Sequence[UUID]) -> Assignment:
    found: dict[int, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return {ids[topic]: tuple(numbers) for topic, numbers in found.items()}


uniform, by_range = _assignor(_uniform), _assignor(_by_range)


# By name; the first is the default.
ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": by_range}
