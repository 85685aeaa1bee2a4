"""Static members of the classic protocol, scene by scene."""

from entrepot.broker.consumer_group.classic import ClassicState
from entrepot.broker.consumer_group.faults import Fault
from tests.unit.broker.consumer_group.stage import DELAY_MS, REBALANCE_MS, Stage


def test_a_static_member_that_comes_back_keeps_its_part() -> None:
    stage = Stage()
    stage.join("a1", instance="i")
    stage.join("b")
    stage.wait(2 * DELAY_MS)
    stage.sync("b")
    stage.sync("a1", instance="i", parts={"a1": b"mine", "b": b"yours"})
    answer = stage.join("a2", instance="i")
    assert answer is not None
    assert (answer.fault, answer.generation, answer.member_id) == (None, 1, "a2")
    assert (answer.leader, answer.skip_assignment, len(answer.members)) == ("a2", True, 2)
    assert stage.group.state is ClassicState.STABLE
    assert stage.stored[-1].members[0].id == "a2"
    assert stage.heartbeat("b") is None
    mine = stage.sync("a2", instance="i")
    assert mine is not None
    assert mine.assignment == b"mine"


def test_a_leader_that_cannot_skip_is_told_that_another_leads() -> None:
    stage = Stage()
    stage.join("a1", instance="i")
    stage.wait(DELAY_MS)
    stage.sync("a1", instance="i", parts={"a1": b"mine"})
    answer = stage.join("a2", instance="i", can_skip=False)
    assert answer is not None
    assert (answer.leader, answer.skip_assignment, answer.members) == ("a1", False, ())


def test_the_past_of_a_static_member_is_fenced() -> None:
    stage = Stage()
    stage.join("a1", instance="i")
    stage.wait(DELAY_MS)
    stage.sync("a1", instance="i", parts={"a1": b"mine"})
    stage.join("a2", instance="i")
    join, sync = stage.join("a1", "a1", instance="i"), stage.sync("a1", instance="i")
    assert join is not None
    assert sync is not None
    faults = [join.fault, sync.fault, stage.heartbeat("a1", 1, "i"), stage.commit("a1", 1, "i")]
    assert faults == [Fault.FENCED_INSTANCE_ID] * 4
    assert stage.leave(("a1", "i")) == [Fault.FENCED_INSTANCE_ID]
    assert stage.heartbeat("a2", 1, "i") is None


def test_one_that_waits_is_fenced_by_its_successor() -> None:
    stage = Stage()
    stage.join("a1", instance="i")
    stage.join("a2", instance="i")
    assert stage.fault("a1") is Fault.FENCED_INSTANCE_ID
    stage.wait(2 * DELAY_MS)
    assert stage.joined("a2").generation == 1
    stage.join("b")
    stage.join("a2", "a2", instance="i")
    stage.sync("b")
    stage.join("a3", instance="i")
    assert stage.fault("b") is Fault.REBALANCE_IN_PROGRESS, "the leader knows only a2"


def test_a_static_member_that_changes_its_mind_is_another_round() -> None:
    stage = Stage()
    both = (("range", b""), ("sticky", b""))
    stage.join("a1", instance="i", protocols=both)
    stage.wait(DELAY_MS)
    stage.sync("a1", instance="i", parts={"a1": b"mine"})
    stage.join("a2", instance="i", protocols=both[::-1])
    assert stage.joined("a2").generation == 2
    assert stage.joined("a2").protocol == "sticky"


def test_a_static_member_may_be_away_as_long_as_its_session() -> None:
    """Others come and go meanwhile, and its place stays."""
    stage = Stage()
    stage.join("a1", instance="i", session_ms=10 * REBALANCE_MS)
    stage.stable("b")
    stage.join("c")
    stage.join("b", "b")
    stage.wait_alive(REBALANCE_MS + 1_000, "b", "c")
    assert [row[0] for row in stage.joined("b").members] == ["a1", "b", "c"]
    stage.wait_alive(3 * REBALANCE_MS, "b", "c")
    assert "a1" in stage.group.roster


def test_only_static_members_and_none_of_them_there() -> None:
    stage = Stage()
    stage.join("a1", instance="i")
    stage.wait(DELAY_MS)
    stage.sync("a1", instance="i", parts={"a1": b"mine"})
    stage.join("b")
    stage.leave(("b", None))
    stage.wait(REBALANCE_MS + 1)
    assert stage.group.is_empty, "its session was over long before"


def test_a_tool_removes_static_members_by_instance() -> None:
    stage = Stage()
    stage.join("a1", instance="i")
    stage.wait(DELAY_MS)
    assert stage.leave(("", "i"), ("", "j")) == [None, Fault.UNKNOWN_MEMBER_ID]
    assert stage.group.is_empty
