from entrepot.broker.consumer_group.offsets import Offsets, TopicPartition
from entrepot.broker.consumer_group.records import CommittedOffset

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


def at(offset: int, record_offset: int, commit_ms: int = 0) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", commit_ms, record_offset)


def test_groups_are_strangers() -> None:
    """Proves K-07."""
    offsets = Offsets()
    offsets.commit("g", HERE, at(5, 1))
    offsets.commit("h", HERE, at(7, 2))
    offsets.commit("g", HERE, at(6, 3))
    assert offsets.get("g", HERE) == at(6, 3)
    assert offsets.get("h", HERE) == at(7, 2)
    assert offsets.get("g", THERE) is None
    assert list(offsets.groups()) == ["g", "h"]


def test_a_transaction_counts_when_it_has_ended_well() -> None:
    offsets = Offsets()
    offsets.commit("g", HERE, at(5, 1))
    offsets.commit_pending(9, "g", HERE, at(8, 2))
    offsets.commit_pending(10, "g", THERE, at(3, 3))
    assert offsets.get("g", HERE) == at(5, 1)
    assert offsets.is_pending("g", HERE)
    offsets.end_transaction(10, committed=False)
    assert offsets.get("g", THERE) is None
    assert not offsets.is_pending("g", THERE)
    offsets.end_transaction(9, committed=True)
    assert offsets.get("g", HERE) == at(8, 2)
    assert not offsets.has_pending("g")
    offsets.end_transaction(9, committed=True)  # Once more changes nothing.
    assert offsets.get("g", HERE) == at(8, 2)


def test_a_plain_commit_after_a_pending_one_stays() -> None:
    offsets = Offsets()
    offsets.commit_pending(9, "g", HERE, at(8, 1))
    offsets.commit("g", HERE, at(4, 2))
    offsets.end_transaction(9, committed=True)
    assert offsets.get("g", HERE) == at(4, 2)


def test_what_is_forgotten_does_not_come_back_with_its_transaction() -> None:
    offsets = Offsets()
    offsets.commit("g", HERE, at(5, 1))
    offsets.commit_pending(9, "g", HERE, at(8, 2))
    assert offsets.places_of("g") == [HERE]
    offsets.forget("g", HERE)
    offsets.end_transaction(9, committed=True)
    assert offsets.places_of("g") == []
    assert list(offsets.groups()) == []


def test_what_expires() -> None:
    """With members, by its commit; without, by when the last one left or committed."""
    offsets = Offsets()
    offsets.commit("g", HERE, at(5, 1, commit_ms=100))
    offsets.commit("g", THERE, at(5, 2, commit_ms=200))
    assert offsets.expired("g", None, 150) == [HERE]
    assert offsets.expired("g", None, 250) == [HERE, THERE]
    assert offsets.expired("g", 180, 150) == []
    assert offsets.expired("g", 180, 190) == [HERE]
    offsets.commit_pending(9, "g", HERE, at(8, 3))
    assert offsets.expired("g", None, 150) == []
