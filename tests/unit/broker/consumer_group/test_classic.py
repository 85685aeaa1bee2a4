"""The classic protocol, scene by scene."""

from dataclasses import replace

import pytest

from entrepot.broker.consumer_group.classic import ClassicGroup, ClassicState
from entrepot.broker.consumer_group.faults import Fault
from entrepot.broker.deadlines import Deadlines
from entrepot.core import limits
from tests.unit.broker.consumer_group.stage import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    SETTINGS,
    Stage,
)

# --- coming together


def test_who_starts_together_is_divided_once() -> None:
    stage = Stage()
    assert stage.join("a") is None
    stage.wait(DELAY_MS - 1)
    assert stage.join("b") is None
    stage.wait(DELAY_MS - 1)
    assert stage.answers == {}, "b was a reason to wait a little longer"
    stage.wait(2)
    first, second = stage.joined("a"), stage.joined("b")
    assert (first.generation, second.generation) == (1, 1)
    assert first.leader == second.leader == "a"
    assert [row[0] for row in first.members] == ["a", "b"]
    assert second.members == ()


def test_a_new_group_does_not_wait_for_more_members_for_ever() -> None:
    stage = Stage(replace(SETTINGS, members_max=1_000))
    stage.join("m0", rebalance_ms=1_000)
    for number in range(1, 30):
        stage.wait(DELAY_MS - 10)
        stage.join(f"m{number}", rebalance_ms=1_000)
    assert stage.joined("m0").generation == 1
    assert stage.now_ms - 1_000 > 1_000


def test_one_is_told_its_id_before_it_counts() -> None:
    stage = Stage()
    answer = stage.join("a", id_required=True)
    assert answer is not None
    assert (answer.fault, answer.member_id) == (Fault.MEMBER_ID_REQUIRED, "a")
    assert not stage.group.roster
    assert stage.join("a", "a", id_required=True) is None
    stage.wait(DELAY_MS)
    assert stage.joined("a").fault is None


def test_an_id_that_was_never_used_is_forgotten() -> None:
    stage = Stage()
    stage.stable("a")
    stage.join("ghost", id_required=True)
    stage.wait_alive(SESSION_MS + 1_000, "a")
    assert stage.group.state is ClassicState.STABLE
    answer = stage.join("ghost", "ghost")
    assert answer is not None
    assert answer.fault is Fault.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_one_who_was_told_its_id() -> None:
    stage = Stage()
    stage.stable("a")
    stage.join("b", id_required=True)
    stage.join("a", "a")
    assert "a" not in stage.answers
    stage.join("b", "b")
    assert stage.joined("a").generation == stage.joined("b").generation == 2


def test_the_leader_divides_and_everybody_gets_a_part() -> None:
    """Proves K-05."""
    stage = Stage()
    stage.join("a")
    stage.join("b")
    stage.wait(2 * DELAY_MS)
    assert stage.sync("b") is None
    assert stage.sync("a", parts={"a": b"one", "b": b"two"}) is not None
    assert (stage.assignment("a"), stage.assignment("b")) == (b"one", b"two")
    stored = stage.stored[-1]
    assert (stored.generation, stored.leader, stored.protocol) == (1, "a", "range")
    assert [(each.id, each.assignment) for each in stored.members] == [("a", b"one"), ("b", b"two")]


def test_one_that_syncs_later_gets_its_part_at_once() -> None:
    stage = Stage()
    stage.join("a")
    stage.join("b")
    stage.wait(2 * DELAY_MS)
    stage.sync("a", parts={"a": b"one"})
    late = stage.sync("b")
    assert late is not None
    assert (late.fault, late.assignment) == (None, b"")
    again = stage.sync("a")
    assert again is not None
    assert again.assignment == b"one"


@pytest.mark.parametrize(
    ("votes", "elected"),
    [
        ((("x", "y"), ("x", "y"), ("y", "x")), "x"),
        ((("x", "y"), ("y", "x"), ("y", "x")), "y"),
        ((("x", "y"), ("y",)), "y"),
        ((("y", "x"), ("x", "z", "y"), ("z", "x")), "x"),
    ],
)
def test_the_protocol_is_what_most_like_best_of_what_all_speak(
    votes: tuple[tuple[str, ...], ...], elected: str
) -> None:
    stage = Stage()
    for number, names in enumerate(votes):
        stage.join(f"m{number}", protocols=tuple((name, name.encode()) for name in names))
    stage.wait(3 * DELAY_MS)
    answer = stage.joined("m0")
    assert answer.protocol == elected
    assert {metadata for _, _, metadata in answer.members} == {elected.encode()}


# --- being refused


def test_who_speaks_nothing_that_all_speak_stays_outside() -> None:
    stage = Stage()
    stage.stable("a")
    for request in (
        stage.join("b", protocols=(("roundrobin", b""),)),
        stage.join("b", protocol_type="connect"),
        stage.join("b", protocols=()),
    ):
        assert request is not None
        assert request.fault is Fault.INCONSISTENT_GROUP_PROTOCOL
    assert stage.group.state is ClassicState.STABLE
    nothing = Stage().join("a", protocols=())
    assert nothing is not None
    assert nothing.fault is Fault.INCONSISTENT_GROUP_PROTOCOL


def test_strangers() -> None:
    stage = Stage()
    stage.stable("a")
    join, sync = stage.join("x", "x"), stage.sync("x")
    assert join is not None
    assert sync is not None
    faults = [join.fault, sync.fault, stage.heartbeat("x"), stage.commit("x", 1)]
    assert faults == [Fault.UNKNOWN_MEMBER_ID] * 4
    assert stage.leave(("x", None), ("", None), ("", "nobody")) == [Fault.UNKNOWN_MEMBER_ID] * 3
    assert stage.group.state is ClassicState.STABLE


@pytest.mark.parametrize("generation", [-1, 0, 2, 1_000])
def test_another_generation_than_the_present_one(generation: int) -> None:
    stage = Stage()
    stage.stable("a")
    sync = stage.sync("a", generation)
    assert sync is not None
    faults = [sync.fault, stage.heartbeat("a", generation), stage.commit("a", generation)]
    assert faults == [Fault.ILLEGAL_GENERATION] * 3


def test_a_sync_in_another_protocol() -> None:
    stage = Stage()
    stage.stable("a")
    answer = stage.sync("a", protocol="roundrobin")
    assert answer is not None
    assert answer.fault is Fault.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_has_room_for_so_many() -> None:
    stage = Stage()
    stage.stable("a", "b", "c")
    stage.join("promised", id_required=True)
    assert stage.join("d") is None
    answer = stage.join("e")
    assert answer is not None
    assert answer.fault is Fault.GROUP_MAX_SIZE_REACHED
    assert stage.join("promised", "promised") is None, "its place was kept"
    assert stage.join("a", "a") is None, "who is in stays in"


def test_members_may_not_say_any_amount_of_things() -> None:
    stage = Stage()
    stage.join("a", protocols=(("range", bytes(limits.GROUP_BYTES_MAX // 2)),))
    answer = stage.join("b", protocols=(("range", bytes(limits.GROUP_BYTES_MAX // 2)),))
    assert answer is not None
    assert answer.fault is Fault.GROUP_MAX_SIZE_REACHED


# --- another round


def test_a_new_member_is_a_new_generation() -> None:
    """Proves K-06."""
    stage = Stage()
    stage.stable("a")
    stage.join("b")
    assert stage.heartbeat("a") is Fault.REBALANCE_IN_PROGRESS
    assert stage.commit("a", 1) is None, "what was read so far may still be committed"
    stage.join("a", "a")
    assert stage.joined("a").generation == stage.joined("b").generation == 2
    assert stage.joined("a").leader == "a"
    stage.stable("a", "b")


def test_who_does_not_come_back_in_time_is_out() -> None:
    stage = Stage()
    stage.stable("a", "b")
    stage.join("c")
    stage.join("b", "b")
    stage.wait_alive(REBALANCE_MS - 1_000, "a")
    assert "b" not in stage.answers
    stage.wait_alive(2_000, "a")
    assert stage.joined("b").generation == 2
    assert stage.joined("b").leader == "b", "the old leader is gone"
    assert stage.heartbeat("a", 2) is Fault.UNKNOWN_MEMBER_ID


def test_who_is_silent_is_out() -> None:
    """Proves K-06."""
    stage = Stage()
    stage.stable("a", "b")
    stage.wait_alive(SESSION_MS - 1_000, "b")
    assert stage.heartbeat("b") is None
    stage.wait_alive(2_000, "b")
    assert stage.heartbeat("a") is Fault.UNKNOWN_MEMBER_ID
    assert stage.heartbeat("b") is Fault.REBALANCE_IN_PROGRESS
    stage.join("b", "b")
    assert stage.joined("b").generation == 2


def test_a_commit_shows_that_its_member_lives() -> None:
    stage = Stage()
    stage.stable("a")
    for _ in range(20):
        stage.wait(SESSION_MS - 1)
        assert stage.commit("a", 1) is None


def test_who_waits_for_an_answer_is_not_silent() -> None:
    stage = Stage()
    stage.stable("a", "b")
    stage.join("a", "a")
    stage.wait_alive(REBALANCE_MS - 1_000, "b")
    stage.join("b", "b")
    assert stage.joined("a").generation == 2
    stage.sync("b")
    stage.wait_alive(REBALANCE_MS - 1_000, "a")
    stage.sync("a", parts={"b": b"mine"})
    assert stage.assignment("b") == b"mine"


def test_the_last_one_leaves() -> None:
    stage = Stage()
    stage.stable("a")
    assert stage.leave(("a", None)) == [None]
    assert stage.group.is_empty
    stored = stage.stored[-1]
    assert (stored.generation, stored.protocol, stored.members) == (2, None, ())
    stage.stable("b")
    assert stage.group.generation == 3


def test_one_leaves_while_others_wait_for_it() -> None:
    stage = Stage()
    stage.stable("a", "b")
    stage.join("a", "a")
    assert "a" not in stage.answers
    stage.leave(("b", None))
    assert stage.joined("a").generation == 2


def test_several_leave_at_once_and_the_answers_are_each_their_own() -> None:
    stage = Stage()
    stage.stable("a", "b", "c")
    faults = stage.leave(("a", None), ("x", None), ("b", None))
    assert faults == [None, Fault.UNKNOWN_MEMBER_ID, None]
    assert [each.id for each in stage.group.roster] == ["c"]
    assert stage.heartbeat("c") is Fault.REBALANCE_IN_PROGRESS


def test_one_that_stops_between_join_and_sync_is_out() -> None:
    stage = Stage()
    stage.join("a")
    stage.join("b")
    stage.wait(2 * DELAY_MS)
    stage.sync("b")
    stage.wait_alive(REBALANCE_MS + 1_000, "a", "b")
    assert stage.fault("b") is Fault.REBALANCE_IN_PROGRESS
    assert [each.id for each in stage.group.roster] == ["b"], "the leader never divided"
    stage.join("b", "b")
    assert stage.joined("b").leader == "b"


def test_a_join_while_the_leader_divides_is_another_round() -> None:
    stage = Stage()
    stage.join("a")
    stage.join("b")
    stage.wait(2 * DELAY_MS)
    stage.sync("b")
    stage.join("c")
    assert stage.fault("b") is Fault.REBALANCE_IN_PROGRESS
    late = stage.sync("a", 1, {"a": b"old"})
    assert late is not None
    assert late.fault is Fault.REBALANCE_IN_PROGRESS
    assert stage.commit("a", 1) is None


def test_no_commits_between_join_and_sync() -> None:
    stage = Stage()
    stage.join("a")
    stage.wait(DELAY_MS)
    assert stage.commit("a", 1) is Fault.REBALANCE_IN_PROGRESS
    assert stage.commit("a", 1, transactional=True) is None


def test_the_leader_may_ask_for_another_round() -> None:
    stage = Stage()
    stage.stable("a", "b")
    same = stage.join("b", "b")
    assert same is not None
    assert (same.fault, same.generation, stage.group.state) == (None, 1, ClassicState.STABLE)
    assert stage.join("a", "a") is None
    assert stage.heartbeat("b") is Fault.REBALANCE_IN_PROGRESS


def test_other_words_are_another_round() -> None:
    stage = Stage()
    stage.stable("a", "b")
    assert stage.join("b", "b", protocols=(("range", b"new topics"),)) is None
    assert stage.group.state is ClassicState.PREPARING_REBALANCE


def test_one_that_missed_its_answer_gets_it_again() -> None:
    stage = Stage()
    stage.join("a")
    stage.join("b")
    stage.wait(2 * DELAY_MS)
    again = stage.join("a", "a")
    assert again is not None
    assert (again.generation, again.leader, len(again.members)) == (1, "a", 2)


def test_of_two_joins_the_later_one_counts() -> None:
    stage = Stage()
    stage.stable("a", "b")
    stage.join("b", "b", protocols=(("range", b"1"),))
    stage.join("b, second connection", "b", protocols=(("range", b"1"),))
    assert stage.fault("b") is Fault.REBALANCE_IN_PROGRESS
    stage.join("a", "a")
    assert stage.joined("b, second connection").generation == 2


# --- committing without members


def test_anybody_commits_to_an_empty_group() -> None:
    stage = Stage()
    assert stage.commit("", -1) is None
    assert stage.commit("", 0) is Fault.UNKNOWN_MEMBER_ID
    stage.stable("a")
    assert stage.commit("", -1) is Fault.UNKNOWN_MEMBER_ID
    assert stage.commit("", -1, transactional=True) is None
    assert stage.commit("a", -1) is Fault.ILLEGAL_GENERATION


# --- over restarts


def test_members_of_the_past_go_on_where_they_were() -> None:
    stage = Stage()
    stage.stable("a", "b")
    again = Stage()
    again.group.restore(stage.stored[-1], again.now_ms)
    assert again.group.state is ClassicState.STABLE
    assert again.heartbeat("a") is None
    part = again.sync("b")
    assert part is not None
    assert part.assignment == b"b"
    again.wait_alive(SESSION_MS + 1_000, "a")
    assert [each.id for each in again.group.roster] == ["a"]
    again.join("a", "a")
    assert again.joined("a").generation == 2


def test_a_generation_that_could_not_be_kept_is_left() -> None:
    stage = Stage()
    stage.stable("a")
    stage.group.rebalance(stage.now_ms)
    assert stage.heartbeat("a") is Fault.REBALANCE_IN_PROGRESS
    empty = ClassicGroup("g", SETTINGS, Deadlines())
    empty.rebalance(0)
    assert empty.is_empty


# --- looking


def test_what_is_told_of_a_group() -> None:
    """Proves K-10."""
    stage = Stage()
    stage.stable("a", "b")
    told = stage.group.describe()
    assert (told.state, told.protocol_type, told.protocol) == ("Stable", "consumer", "range")
    assert [(m.id, m.client_id, m.subscription, m.assignment) for m in told.members] == [
        ("a", "client of a", b"r", b"a"),
        ("b", "client of b", b"r", b"b"),
    ]
    stage.join("c")
    told = stage.group.describe()
    assert (told.state, told.protocol) == ("PreparingRebalance", "")
    assert [each.subscription for each in told.members] == [b"", b"", b""]


def test_which_topics_its_consumers_read() -> None:
    stage = Stage()
    assert not stage.group.is_subscribed("t")
    stage.join("a", protocols=(("range", b"\0\0\0\0\0\1\0\1t"),))
    stage.wait(DELAY_MS)
    assert stage.group.is_subscribed("t")
    assert not stage.group.is_subscribed("u")
    strange = Stage()
    strange.stable("a")
    assert strange.group.is_subscribed("t"), "nobody knows what it reads"
