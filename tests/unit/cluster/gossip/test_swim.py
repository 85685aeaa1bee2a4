"""Members: joined, probed, suspected, refuted, dead, back again."""

from typing import Any

import pytest

from entrepot.cluster.gossip.swim import MemberState, Settings, Swim
from entrepot.lab.timed import Cluster
from entrepot.lab.world import SeededEntropy, Timeline
from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import Ack, MemberList, MemberUpdate, Ping, PingRequest

ALIVE, SUSPECT, DEAD, LEFT = MemberState


def update(node: int, state: MemberState = ALIVE, incarnation: int = 0) -> MemberUpdate:
    return MemberUpdate(node, "h", node + 1, incarnation, state)


def node(me: int, *known: int, **settings: Any) -> Swim:
    return Swim(
        update(me), SeededEntropy(me), Settings(**settings), known=[update(n) for n in known]
    )


def states(machine: Swim) -> dict[int, MemberState]:
    return {member.node: member.state for member in machine.members()}


def test_a_node_that_joins_is_known_to_all() -> None:
    entropy = SeededEntropy(1)
    world = Timeline(entropy.random, lambda *_: 0.001)
    machines = [Swim(update(n), entropy) for n in range(20)]
    for number, machine in enumerate(machines):
        world.add(number, machine)
        if number:  # Each knows the address of the first only.
            world.send(number, [(0, machine.join())])
    world.run_until(20)
    for machine in machines:
        assert states(machine) == dict.fromkeys(range(20), ALIVE)


def test_who_answers_is_not_suspected() -> None:
    one, other = node(0, 1), node(1, 0)
    for tick in range(50):
        for _, message in one.tick(tick / 10):
            for _, answer in other.receive(0, message, tick / 10):
                one.receive(1, answer, tick / 10)
    assert states(one)[1] is ALIVE


def test_without_an_answer_others_are_asked_then_it_is_suspected_then_dead() -> None:
    told: list[tuple[int, MemberState]] = []
    machine = Swim(
        update(0),
        SeededEntropy(1),
        known=[update(1), update(2)],
        changed=lambda member: told.append((member.node, member.state)),
    )
    ((target, ping),) = machine.tick(0.0)
    assert isinstance(ping, Ping)
    other = 3 - target
    assert list(machine.tick(0.1)) == []
    ((asked, request),) = machine.tick(0.35)
    assert asked == other
    assert isinstance(request, PingRequest)
    assert request.node == target
    now = 1.0
    while (target, DEAD) not in told:
        for peer, message in machine.tick(now):
            if peer == other and isinstance(message, Ping):
                machine.receive(other, Ack(message.number, other, ()), now)
        assert told[0] == (target, SUSPECT)
        now += 0.1
    assert told == [(target, SUSPECT), (target, DEAD)]
    assert now == pytest.approx(1.0 + machine.suspicion_s, abs=0.2)
    assert machine.peers == [other]


def test_a_probe_by_way_of_another_counts() -> None:
    machine = node(0, 1, 2)
    ((target, _),) = machine.tick(0.0)
    ((helper_node, request),) = machine.tick(0.35)
    helper = node(helper_node, 0, target)
    ((peer, ping),) = helper.receive(0, request, 0.4)
    assert peer == target
    probed = node(target, 0, helper_node)
    ((_, ack),) = probed.receive(helper_node, ping, 0.4)
    ((back, passed_on),) = helper.receive(target, ack, 0.5)
    assert back == 0
    machine.receive(helper_node, passed_on, 0.5)
    machine.tick(1.0)
    assert states(machine)[target] is ALIVE


def test_a_suspected_node_is_told_and_refutes_with_a_higher_incarnation() -> None:
    one, other = node(0, 1), node(1, 0)
    one.receive(9, MemberList((update(1, SUSPECT),)), 0.0)
    assert states(one)[1] is SUSPECT
    ((_, ping),) = one.tick(0.0)
    assert ping.updates[0] == update(1, SUSPECT)
    ((_, ack),) = other.receive(0, ping, 0.0)
    assert ack.updates == (update(1, ALIVE, 1),)
    one.receive(1, ack, 0.0)
    assert states(one)[1] is ALIVE
    one.receive(9, MemberList((update(1, SUSPECT),)), 0.0)  # Old news.
    assert states(one)[1] is ALIVE


def test_a_dead_node_that_comes_back_hears_of_it() -> None:
    one, other = node(0, 1), node(1, 0)
    one.receive(9, MemberList((update(1, DEAD),)), 0.0)
    assert one.peers == []
    ((_, ping),) = other.tick(0.0)
    ((_, ack),) = one.receive(1, ping, 0.0)
    assert ack.updates[0] == update(1, DEAD)
    other.receive(0, ack, 0.0)
    ((_, ping),) = other.tick(1.0)
    one.receive(1, ping, 1.0)
    assert states(one)[1] is ALIVE
    assert one.peers == [1]


def test_who_leaves_is_not_missed_and_not_refuted() -> None:
    one, other = node(0, 1), node(1, 0)
    for peer, message in other.leave():
        assert peer == 0
        one.receive(1, message, 0.0)
    assert states(one)[1] is LEFT
    other.receive(0, MemberList((update(1, DEAD),)), 0.0)
    assert other.me.state is LEFT


def test_a_node_that_was_stopped_judges_nobody() -> None:
    machine = node(0, 1)
    machine.tick(0.0)
    machine.receive(9, MemberList((update(2, SUSPECT),)), 0.1)
    machine.tick(60.0)  # SIGCONT.
    assert states(machine) == {0: ALIVE, 1: ALIVE, 2: SUSPECT}


def test_another_address_is_refuted_too() -> None:
    """It was restarted elsewhere, and others still believe what they knew."""
    machine = node(1, 0)
    machine.receive(0, MemberList((MemberUpdate(1, "old", 7, 3, ALIVE),)), 0.0)
    assert machine.me == update(1, ALIVE, 4)


def test_the_table_is_bounded_and_the_dead_make_room() -> None:
    machine = node(0)
    many = [update(n) for n in range(1, limits.MEMBERS_MAX + 50)]
    machine.receive(1, MemberList(tuple(many)), 0.0)
    assert len(machine.members()) == limits.MEMBERS_MAX + 1
    machine.receive(1, MemberList((update(7, DEAD), update(9_999))), 0.0)
    assert 9_999 in states(machine)
    assert 7 not in states(machine)


def test_the_dead_are_forgotten_after_a_while() -> None:
    machine = node(0, 1, forget_s=10.0)
    machine.receive(1, MemberList((update(1, DEAD),)), 0.0)
    machine.tick(5.0)
    assert 1 in states(machine)
    machine.tick(10.5)
    assert 1 not in states(machine)


def test_a_partition_heals() -> None:
    """Both sides declare the other dead; when they hear each other again, all are alive."""
    cluster = Cluster(8, 1, Settings())
    is_parted = [True]
    cluster.world._loses = lambda a, b, _: is_parted[0] and (a < 4) != (b < 4)
    cluster.world.run_until(30)
    assert [states(m)[7 - n] for n, m in enumerate(cluster.machines)] == [DEAD] * 8
    is_parted[0] = False
    cluster.world.run_until(90)
    for machine in cluster.machines:
        assert states(machine) == dict.fromkeys(range(8), ALIVE)


def test_everybody_hears_of_a_death_and_only_of_that() -> None:
    cluster = Cluster(24, 3, Settings())
    cluster.world.run_until(5)
    cluster.world.down[0] = None
    cluster.world.run_until(30)
    died = [(observer, about) for _, observer, about, what in cluster.believed if what is DEAD]
    assert sorted(died) == [(observer, 0) for observer in range(1, 24)]
