from uuid import UUID

import pytest

from entrepot.broker import catalog
from entrepot.broker.catalog import Catalog, Topic, topic_deleted_record, topic_record
from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.consumer_group.interest import Interest, compile_regex, hash_of
from entrepot.broker.consumer_group.records import Subscription
from entrepot.broker.regex import Regex
from entrepot.core.names import TopicName
from entrepot.core.steps import finish


class Topics(Catalog):
    def add(self, name: str, partitions: int = 1) -> None:
        identity = UUID(int=len(self.topics) + 1)
        self.apply(topic_record(Topic(TopicName(name), identity, partitions)))

    def delete(self, name: str) -> None:
        self.apply(topic_deleted_record(TopicName(name)))


def wants(*names: str, regex: str | None = None) -> Subscription:
    return Subscription(None, None, "", "", names, regex, 1_000, None)


def names_of(interest: Interest, topics: Topics, *wanted: Subscription) -> list[list[str]]:
    members = {str(number): each for number, each in enumerate(wanted)}
    found = finish(interest.wanted(members, topics, lambda name: name != "secret"))
    assert found is not None
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


@pytest.fixture
def matched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that an expression was held against."""
    names: list[str] = []
    matches = Regex.is_whole

    def counting(self: Regex, name: str) -> bool:
        names.append(name)
        return matches(self, name)

    monkeypatch.setattr(Regex, "is_whole", counting)
    return names


def test_only_topics_that_changed_are_looked_at_again(matched: list[str]) -> None:
    topics, interest = Topics(), Interest()
    for number in range(100):
        topics.add(f"a{number}")
    names_of(interest, topics, wants(regex="a.*"))
    assert len(matched) == 100
    topics.add("a-new")
    topics.add("b-new")
    topics.delete("a7")
    matched.clear()
    (found,) = names_of(interest, topics, wants(regex="a.*"))
    assert matched == ["b-new", "a-new"]
    assert "a-new" in found
    assert "a7" not in found
    assert len(found) == 100


def test_one_expression_at_a_time_is_held_against_all_topics(matched: list[str]) -> None:
    topics, interest = Topics(), Interest()
    topics.add("a")
    members = {str(number): wants(regex=f"a|{number}") for number in range(5)}
    for number in range(5):
        assert len(matched) == number
        found = finish(interest.wanted(members, topics, lambda name: True))
    assert found is not None
    assert all([topic.name for topic in each] == ["a"] for each in found.values())


def test_when_too_much_changed_all_topics_are_looked_at(
    matched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_CHANGES_KEPT", 2)
    topics, interest = Topics(), Interest()
    assert names_of(interest, topics, wants(regex="a.*")) == [[]]
    for number in range(3):
        topics.add(f"a{number}")
    assert names_of(interest, topics, wants(regex="a.*")) == [["a0", "a1", "a2"]]


def test_the_hash_tells_what_matters() -> None:
    topics = Topics()
    topics.add("a")
    topics.add("b", 2)
    one, two = topics.topics.values()
    assert finish(hash_of([one, two])) == finish(hash_of([two, one]))
    assert finish(hash_of([one])) != finish(hash_of([one, two]))
    topics.add("b", 3)
    assert finish(hash_of([one, two])) != finish(hash_of(topics.topics.values()))


def test_a_bad_expression_is_a_fault() -> None:
    with pytest.raises(GroupError) as caught:
        compile_regex("(")
    assert caught.value.fault is Fault.INVALID_REGULAR_EXPRESSION
