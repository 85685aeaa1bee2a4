"""What must hold of a division, over many groups."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from uuid import UUID

import pytest

from entrepot.broker.consumer_group.assignors import ASSIGNORS, Subscriber
from entrepot.broker.consumer_group.partitions import intersection
from entrepot.broker.consumer_group.records import Assignment
from entrepot.core.steps import finish

A, B, C = (UUID(int=number) for number in (1, 2, 3))
Division = dict[str, Assignment]


def divide(
    name: str, subscribers: Sequence[Subscriber], partition_counts: Mapping[UUID, int]
) -> Division:
    return finish(ASSIGNORS[name](subscribers, partition_counts))


def uniform(subscribers: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> Division:
    return divide("uniform", subscribers, partition_counts)


def by_range(subscribers: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> Division:
    return divide("range", subscribers, partition_counts)


def partitions(assignment: Assignment) -> Iterator[tuple[UUID, int]]:
    return ((topic, number) for topic, numbers in assignment.items() for number in numbers)


def member(name: str, *topics: UUID, has: Assignment | None = None) -> Subscriber:
    return Subscriber(name, None, topics, has or {})


def check_division(subscribers: list[Subscriber], counts: dict[UUID, int], found: Division) -> None:
    """Everything wanted goes to exactly one who wants it."""
    assert list(found) == [each.id for each in subscribers]
    given = [part for each in found.values() for part in partitions(each)]
    wanted = {topic for each in subscribers for topic in each.topics}
    assert sorted(given) == sorted((t, n) for t in wanted for n in range(counts[t]))
    for each in subscribers:
        assert set(found[each.id]) <= set(each.topics)


def sizes(found: Division) -> list[int]:
    return [len(list(partitions(each))) for each in found.values()]


def kept(before: Division, after: Division) -> int:
    return sum(
        len(list(partitions(finish(intersection(before[name], after[name])))))
        for name in before
        if name in after
    )


def some_group(random: Random, *, alike: bool) -> tuple[list[Subscriber], dict[UUID, int]]:
    counts = {UUID(int=number): random.randrange(0, 9) for number in range(1, 6)}
    topics = sorted(counts)
    subscribers = []
    for number in range(random.randint(1, 7)):
        wanted = topics if alike else sorted(random.sample(topics, random.randint(1, 5)))
        subscribers.append(member(f"m{number}", *wanted))
    return subscribers, counts


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("name", ASSIGNORS)
def test_every_partition_has_one_owner(name: str, alike: bool, seed: int) -> None:
    subscribers, counts = some_group(Random(seed), alike=alike)
    check_division(subscribers, counts, divide(name, subscribers, counts))


def test_uniform_is_even(seed: int) -> None:
    subscribers, counts = some_group(Random(seed), alike=True)
    found = sizes(uniform(subscribers, counts))
    assert max(found) - min(found) <= 1


def test_uniform_is_as_even_as_wishes_allow(seed: int) -> None:
    """No partition could go to somebody who has two fewer."""
    subscribers, counts = some_group(Random(seed), alike=False)
    found = uniform(subscribers, counts)
    size = dict(zip(found, sizes(found), strict=True))
    for giver in subscribers:
        for taker in subscribers:
            could = any(topic in taker.topics for topic in found[giver.id])
            assert not could or size[giver.id] - size[taker.id] <= 1


@pytest.mark.parametrize("alike", [True, False])
def test_uniform_moves_no_more_than_it_must(alike: bool, seed: int) -> None:
    """Through joins and leaves: the same again, then one more, then one fewer."""
    random = Random(seed)
    subscribers, counts = some_group(random, alike=alike)
    before = uniform(subscribers, counts)
    again = [each._replace(target=before[each.id]) for each in subscribers]
    assert uniform(again, counts) == before
    gone = random.choice(again)
    rest = [each for each in again if each is not gone]
    if rest:
        after = uniform(rest, counts)
        check_division(rest, counts, after)
        assert (
            not alike
            or kept(before, after) == sum(sizes(before)) - sizes(before)[again.index(gone)]
        )


def test_uniform_takes_only_the_share_of_the_one_who_comes() -> None:
    before = uniform([member("a", A), member("b", A)], {A: 12})
    both = [member(name, A, has=before[name]) for name in ("a", "b")]
    after = uniform([*both, member("c", A)], {A: 12})
    assert sizes(after) == [4, 4, 4]
    assert kept(before, after) == 8


def test_uniform_drops_what_is_no_more() -> None:
    """Partitions of a topic that is gone, smaller, or no longer wanted."""
    has = {A: (0, 1, 2), B: (0,), C: (0,)}
    found = uniform([member("a", A, C, has=has)], {A: 2, C: 1})
    assert found == {"a": {A: (0, 1), C: (0,)}}


def test_range_gives_the_same_numbers_of_each_topic() -> None:
    found = by_range([member("b", A, B), member("a", A, B), member("c", A)], {A: 7, B: 5})
    assert found == {
        "a": {A: (0, 1, 2), B: (0, 1, 2)},
        "b": {A: (3, 4), B: (3, 4)},
        "c": {A: (5, 6)},
    }


def test_range_knows_a_static_member_under_any_id() -> None:
    first = by_range([Subscriber("x", "1", (A,), {}), Subscriber("y", "2", (A,), {})], {A: 2})
    again = by_range([Subscriber("z", "1", (A,), {}), Subscriber("y", "2", (A,), {})], {A: 2})
    assert (first["x"], first["y"]) == (again["z"], again["y"])


def test_a_large_group_is_divided_at_once() -> None:
    """100 members, 1,000 partitions, one dies: others keep all they had."""
    members = [member(f"m{number:03}", A) for number in range(100)]
    before = uniform(members, {A: 1_000})
    assert sizes(before) == [10] * 100
    rest = [each._replace(target=before[each.id]) for each in members[1:]]
    after = uniform(rest, {A: 1_000})
    assert kept(before, after) == 990
    assert sorted(sizes(after)) == [10] * 89 + [11] * 10


def test_different_wishes_for_many_topics_are_no_more_work_than_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pushed: list[object] = []
    push = heapq.heappush

    def counting(heap: list[object], entry: object) -> None:
        pushed.append(entry)
        push(heap, entry)

    monkeypatch.setattr(heapq, "heappush", counting)
    topics = [UUID(int=number) for number in range(300)]
    found = uniform([member("a", *topics), member("b", *topics[1:])], dict.fromkeys(topics, 1))
    assert sizes(found) == [150, 150]
    assert len(pushed) <= 4 * len(topics)


def test_members_that_want_the_same_are_looked_at_together() -> None:
    topics = tuple(UUID(int=number) for number in range(300))
    counts = dict.fromkeys(topics, 1)
    members = [Subscriber(str(number), None, topics, {}) for number in range(300)]
    for name in ASSIGNORS:
        steps = sum(1 for _ in ASSIGNORS[name](members, counts))
        assert steps < 10 * len(topics), "and not topics times members"
        check_division(members, counts, divide(name, members, counts))
