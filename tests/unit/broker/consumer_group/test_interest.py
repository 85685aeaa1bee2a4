from dataclasses import dataclass, field
from uuid import UUID

import pytest

from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.consumer_group.interest import Interest, compile_regex, hash_of
from entrepot.broker.consumer_group.records import Subscription
from entrepot.core.names import TopicName


@dataclass
class Topics:
    topics: dict[str, Topic] = field(default_factory=dict)
    version: int = 0

    def add(self, name: str, partitions: int = 1) -> None:
        self.version += 1
        self.topics[name] = Topic(TopicName(name), UUID(int=len(self.topics) + 1), partitions)


def wants(*names: str, regex: str | None = None) -> Subscription:
    return Subscription(None, None, "", "", names, regex, 1_000, None)


def names_of(interest: Interest, topics: Topics, *wanted: Subscription) -> list[list[str]]:
    members = {str(number): each for number, each in enumerate(wanted)}
    found = interest.wanted(members, topics, lambda name: name != "secret")
    return [[topic.name for topic in each] for each in found.values()]


def test_by_name_and_by_regular_expression() -> None:
    topics, interest = Topics(), Interest()
    for name in ("a1", "a2", "b", "__consumer_offsets", "secret"):
        topics.add(name)
    assert names_of(interest, topics, wants("b", "gone"), wants("b", regex="a.")) == [
        ["b"],
        ["a1", "a2", "b"],
    ]
    assert names_of(interest, topics, wants(regex=".*")) == [["a1", "a2", "b"]]
    assert interest.covers(wants(regex=".*"), "a1")
    assert not interest.covers(wants("b"), "a1")
    topics.add("a3")
    assert names_of(interest, topics, wants(regex="a.")) == [["a1", "a2", "a3"]]


def test_the_hash_tells_what_matters() -> None:
    topics = Topics()
    topics.add("a")
    topics.add("b", 2)
    one, two = topics.topics.values()
    assert hash_of([one, two]) == hash_of([two, one])
    assert hash_of([one]) != hash_of([one, two])
    topics.add("b", 3)
    assert hash_of([one, two]) != hash_of(topics.topics.values())


def test_a_bad_expression_is_a_fault() -> None:
    with pytest.raises(GroupError) as caught:
        compile_regex("(")
    assert caught.value.fault is Fault.INVALID_REGULAR_EXPRESSION
