"""Who leads: what the controller decides, told what happened."""

from uuid import UUID

from entrepot.broker.catalog import Topic, topic_record
from entrepot.cluster.controller import UNCLEAN, Controller, Decision, move, settle, stay
from entrepot.cluster.state import NOBODY, Assignment, Node, encode, node_key
from entrepot.core.coordinator import Expected, Put
from entrepot.core.names import TopicName

ALL = Assignment((1, 2, 3), (1, 2, 3), 1, 5)


def test_nothing_changes_while_all_are_alive() -> None:
    assert settle(ALL, (1, 2, 3)) == ALL


def test_the_first_replica_that_is_in_sync_leads() -> None:
    assert settle(Assignment((1, 2, 3), (2, 3), 3, 5), (1, 2, 3)).leader == 2
    assert settle(Assignment((1, 2, 3), (2, 3, 1), 2, 5), (1, 2, 3)).leader == 1


def test_a_follower_that_dies_is_not_in_sync() -> None:
    assert settle(ALL, (1, 3)) == Assignment((1, 2, 3), (1, 3), 1, 5)


def test_the_next_in_sync_leads_in_a_new_epoch() -> None:
    assert settle(ALL, (2, 3)) == Assignment((1, 2, 3), (2, 3), 2, 6)
    assert settle(Assignment((1, 2, 3), (1, 3), 1, 5), (2, 3)) == Assignment((1, 2, 3), (3,), 3, 6)


def test_nobody_leads_when_none_in_sync_is_alive() -> None:
    gone = settle(Assignment((1, 2, 3), (1,), 1, 5), (2, 3))
    assert gone == Assignment((1, 2, 3), (1,), NOBODY, 6)
    assert settle(gone, (2, 3)) == gone
    assert settle(gone, (1, 2, 3)) == Assignment((1, 2, 3), (1,), 1, 7)
    # All died at once: of them the leader has everything, whoever comes back first.
    assert settle(ALL, ()) == Assignment((1, 2, 3), (1,), NOBODY, 6)


def test_decisions_expect_what_they_were_made_of() -> None:
    machine = Controller(40)
    for number in (1, 2, 3):
        machine.told(node_key(number), encode(Node(number, "host", 1)), 41)
    machine.told("partitions/t/0", encode(ALL), 42)
    machine.told("partitions/t/1", encode(Assignment((2, 3), (2, 3), 2, 0)), 43)
    assert machine.decide() == []
    machine.told(node_key(1), None, 44)
    wanted = Assignment((1, 2, 3), (2, 3), 2, 6)
    decision = Decision(
        [Expected("controller", 40), Expected("partitions/t/0", 42)],
        [Put("partitions/t/0", encode(wanted))],
    )
    assert machine.decide() == [decision]
    assert machine.decide() == []  # Until it is told something new.
    machine.told("partitions/t/0", encode(wanted), 45)
    assert machine.decide() == []
    machine.told("partitions/t/0", None, 46)
    machine.told(node_key(2), None, 47)
    (decision,) = machine.decide()
    assert decision.expected == [Expected("controller", 40), Expected("partitions/t/1", 43)]


def test_a_partition_that_moves_has_arrived_when_all_are_in_sync() -> None:
    moving = move(ALL, (4, 2))
    assert moving == Assignment((4, 2, 1, 3), (1, 2, 3), 1, 5, (4, 2), (1, 2, 3))
    assert settle(moving, (1, 2, 3, 4)) == Assignment(
        (4, 2, 1, 3), (1, 2, 3), 2, 6, (4, 2), (1, 2, 3)
    )
    copied = Assignment((4, 2, 1, 3), (1, 2, 3, 4), 2, 6, (4, 2), (1, 2, 3))
    assert settle(copied, (1, 2, 3)).target == (4, 2)  # It died on the way.
    assert settle(copied, (1, 2, 3, 4)) == Assignment((4, 2), (2, 4), 4, 7)


def test_a_move_is_changed_or_ended() -> None:
    moving = move(move(ALL, (4, 2)), (5, 6))
    assert (moving.replicas, moving.target) == ((5, 6, 1, 2, 3), (5, 6))
    assert moving.origin == (1, 2, 3)
    assert stay(moving) == ALL
    led_by_a_new_one = Assignment((4, 2, 1), (4, 1), 4, 7, (4, 2), (1,))
    assert stay(led_by_a_new_one) == Assignment((1,), (1,), 1, 8)
    assert stay(Assignment((4, 1), (4,), 4, 7, (4,), (1,))) is None


def test_a_replica_that_lacks_records_leads_only_where_that_is_allowed() -> None:
    gone = Assignment((1, 2, 3), (1,), NOBODY, 6)
    assert settle(gone, (2, 3)) == gone
    assert settle(gone, (2, 3), is_unclean=True) == Assignment((1, 2, 3), (2,), 2, 7)
    assert settle(gone, (), is_unclean=True) == gone
    identity = UUID(int=7)
    topic = Topic(TopicName("t"), identity, 1, {UNCLEAN: "true"})
    machine = Controller(40)
    machine.told(node_key(2), encode(Node(2, "host", 1)), 41)
    key = f"partitions/{identity}/0"
    machine.told(key, encode(gone), 42)
    assert machine.decide() == []
    record = topic_record(topic)
    assert record.key is not None
    machine.told(f"catalog/{record.key.decode()}", record.value, 43)
    (decision,) = machine.decide()
    assert decision.changes == [Put(key, encode(Assignment((1, 2, 3), (2,), 2, 7)))]
