"""The modern protocol, scene by scene."""

from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.consumer_group.messages import JOINS, LEAVES, LEAVES_FOR_NOW
from entrepot.broker.consumer_group.records import Assignment, Current, GroupRecordKind, Key
from tests.unit.broker.consumer_group.modern_stage import (
    REBALANCE_MS,
    SETTINGS,
    ModernStage,
    Topics,
)


@pytest.fixture
def stage() -> ModernStage:
    return ModernStage(Topics(t=4))


def fault_of(stage: ModernStage, who: str, epoch: int | None = None, **options: object) -> Fault:
    with pytest.raises(GroupError) as caught:
        stage.beat(who, epoch, **options)  # type: ignore[arg-type]
    return caught.value.fault


# --- coming


def test_the_first_one_has_everything(stage: ModernStage) -> None:
    answer = stage.join("a", "t")
    assert (answer.epoch, answer.heartbeat_ms) == (1, SETTINGS.heartbeat_ms)
    assert stage.partitions("a") == (0, 1, 2, 3)
    assert stage.group.state_name == "Stable"


def test_an_idle_heartbeat_says_and_keeps_nothing(stage: ModernStage) -> None:
    stage.join("a", "t")
    stage.follow("a")
    count = len(stage.rows)
    answer = stage.beat("a")
    assert (answer.epoch, answer.assignment) == (1, None)
    assert len(stage.rows) == count


def test_a_partition_is_given_when_its_owner_has_let_go_of_it(stage: ModernStage) -> None:
    """Proves K-05 and K-06."""
    stage.join("a", "t")
    answer = stage.join("b", "t")
    assert (answer.epoch, answer.assignment) == (2, {})
    assert stage.beat("b").assignment is None, "a has not heard of it"
    told = stage.beat("a")
    assert told.epoch == 1, "it stays where it was until it has let go"
    assert told.assignment == {stage.topics.topics["t"].id: (0, 1)}
    assert stage.beat("b").assignment is None
    assert stage.beat("a").assignment is not None, "told again, as long as it may not know"
    assert stage.beat("a", owned=told.assignment).epoch == 2
    given = stage.beat("b")
    assert given.assignment == {stage.topics.topics["t"].id: (2, 3)}
    assert given.epoch == 2


def test_one_that_keeps_what_it_was_to_let_go_of_is_out(stage: ModernStage) -> None:
    stage.join("a", "t")
    stage.join("b", "t")
    stage.beat("a")
    stage.wait(REBALANCE_MS - 1)
    everything = stage.has["a"]
    assert stage.beat("a", owned=everything).epoch == 1
    stage.wait(1)
    assert fault_of(stage, "a", owned=everything) is Fault.UNKNOWN_MEMBER_ID
    assert stage.beat("b").assignment == everything


def test_who_leaves_is_replaced_at_once(stage: ModernStage) -> None:
    stage.join("a", "t")
    stage.join("b", "t")
    stage.settle("a", "b")
    answer = stage.beat("a", LEAVES)
    assert (answer.epoch, answer.assignment) == (LEAVES, None)
    stage.follow("b")
    assert stage.partitions("b") == (0, 1, 2, 3)
    assert fault_of(stage, "a", LEAVES) is Fault.UNKNOWN_MEMBER_ID


def test_who_is_silent_is_out(stage: ModernStage) -> None:
    stage.join("a", "t")
    stage.join("b", "t")
    stage.settle("a", "b")
    stage.wait(SETTINGS.session_ms - 1)
    stage.follow("b")
    stage.wait(1)
    assert fault_of(stage, "a") is Fault.UNKNOWN_MEMBER_ID
    stage.follow("b")
    assert stage.partitions("b") == (0, 1, 2, 3)


def test_the_last_one_leaves(stage: ModernStage) -> None:
    stage.join("a", "t")
    stage.beat("a", LEAVES)
    assert stage.group.is_empty
    assert stage.group.state_name == "Empty"
    assert stage.join("b", "t").epoch == 3
    assert stage.partitions("b") == (0, 1, 2, 3)


def test_there_is_room_for_so_many(stage: ModernStage) -> None:
    for number in range(SETTINGS.members_max):
        stage.join(f"m{number}", "t")
    assert (
        fault_of(stage, "more", JOINS, owned={}, topics=("t",), rebalance_ms=1)
        is Fault.GROUP_MAX_SIZE_REACHED
    )
    stage.join("m0", "t")


# --- wishes and topics


def test_a_member_that_wants_other_topics() -> None:
    stage = ModernStage(Topics(t=2, u=2))
    stage.join("a", "t")
    answer = stage.beat("a", topics=("t", "u"))
    assert answer.epoch == 2
    stage.epochs["a"], stage.has["a"] = answer.epoch, answer.assignment or {}
    assert (stage.partitions("a"), stage.partitions("a", "u")) == ((0, 1), (0, 1))
    assert stage.group.is_subscribed("u")
    assert not stage.group.is_subscribed("v")


def test_topics_that_come_grow_and_go() -> None:
    stage = ModernStage(Topics(t=2))
    stage.join("a", "t", "later")
    stage.topics.set("other", 9)
    assert stage.beat("a").epoch == 1, "nobody wants that one"
    stage.topics.set("later", 1)
    stage.follow("a")
    assert (stage.epochs["a"], stage.partitions("a", "later")) == (2, (0,))
    stage.topics.set("t", 3)
    stage.follow("a")
    assert (stage.epochs["a"], stage.partitions("a")) == (3, (0, 1, 2))
    gone = stage.topics.topics["t"].id
    stage.topics.delete("t")
    stage.follow("a")
    stage.follow("a")
    assert gone not in stage.has["a"]


def test_regular_expressions() -> None:
    stage = ModernStage(Topics(t1=1, t2=1, x=1, secret=1))

    def may_see(name: str) -> bool:
        return name != "secret"

    answer = stage.beat("a", JOINS, owned={}, regex="t.*|s.*", rebalance_ms=1, may_see=may_see)
    topics = stage.topics.topics
    assert answer.assignment == {topics["t1"].id: (0,), topics["t2"].id: (0,)}
    assert stage.group.is_subscribed("t1")
    stage.topics.set("t3", 1)
    stage.epochs["a"] = answer.epoch
    later = stage.beat("a", owned=answer.assignment, may_see=may_see)
    assert set(later.assignment or {}) == {topics[name].id for name in ("t1", "t2", "t3")}
    stage.epochs["a"] = later.epoch
    assert stage.beat("a", regex="", topics=("x",), owned=later.assignment).assignment == {}
    assert stage.group.is_subscribed("x")
    assert not stage.group.is_subscribed("t1")


def test_the_assignor_most_ask_for() -> None:
    stage = ModernStage(Topics(t=2, u=2))
    assert stage.group.assignor == "uniform"
    stage.join("a", "t", "u", assignor="range")
    stage.join("b", "t", "u", assignor="range")
    stage.join("c", "t", assignor="uniform")
    assert stage.group.assignor == "range"
    stage.beat("c", LEAVES)
    stage.settle("a", "b")
    assert stage.partitions("a") == stage.partitions("a", "u")


# --- epochs


def test_an_epoch_that_is_not_the_members_is_fenced(stage: ModernStage) -> None:
    stage.join("a", "t")
    stage.join("b", "t")
    stage.settle("a", "b")
    own = stage.has["a"]
    assert fault_of(stage, "a", 3, owned=own) is Fault.FENCED_MEMBER_EPOCH
    assert fault_of(stage, "a", 99) is Fault.FENCED_MEMBER_EPOCH
    assert fault_of(stage, "x", 2) is Fault.UNKNOWN_MEMBER_ID


def test_an_answer_that_got_lost(stage: ModernStage) -> None:
    """The epoch before is fine from one that has no more than it should."""
    stage.join("a", "t")
    stage.join("b", "t")
    everything = stage.has["a"]
    told = stage.beat("a")
    assert stage.beat("a", owned=told.assignment).epoch == 2
    again = stage.beat("a", 1, owned=told.assignment, topics=("t",), rebalance_ms=REBALANCE_MS)
    assert (again.epoch, again.assignment) == (2, told.assignment)
    assert fault_of(stage, "a", 1, owned=everything) is Fault.FENCED_MEMBER_EPOCH
    assert fault_of(stage, "a", 1) is Fault.FENCED_MEMBER_EPOCH


def test_an_old_heartbeat_lets_go_of_nothing() -> None:
    """It speaks of what the member had then, not of what it is now asked to give back."""
    stage = ModernStage(Topics(t=6))
    stage.join("a", "t")
    stage.join("b", "t")
    half = stage.beat("a").assignment
    stage.join("c", "t")
    third = stage.beat("a", owned=half)
    assert third.epoch == 2, "there is more to let go of"
    late = stage.beat("a", 1, owned={}, topics=("t",), rebalance_ms=REBALANCE_MS)
    assert (late.epoch, late.assignment) == (2, third.assignment)
    stage.epochs["a"] = 2
    assert stage.beat("a", owned=half).epoch == 2
    assert stage.beat("a", owned=third.assignment).epoch == 3


def test_who_lost_an_answer_hears_it_again_before_it_is_asked_for_more(
    stage: ModernStage,
) -> None:
    """Or else it is asked to let go of what it never had, and does not answer that."""
    stage.join("a", "t")
    stage.join("b", "t")
    stage.settle("a", "b")
    half = stage.has["a"]
    stage.beat("b", LEAVES)
    everything = stage.beat("a")
    assert (everything.epoch, stage.epochs["a"]) == (3, 2), "which it does not hear"
    stage.join("c", "t")
    again = stage.beat("a", 2, owned=half)
    assert (again.epoch, again.assignment) == (3, everything.assignment)
    told = stage.beat("a", 3, owned=everything.assignment)
    assert (told.epoch, told.assignment) == (3, half)
    assert stage.beat("a", 3, owned=half).epoch == 4


def test_joining_again_brings_back_what_it_had(stage: ModernStage) -> None:
    stage.join("a", "t")
    count = len(stage.rows)
    answer = stage.join("a", "t")
    assert (answer.epoch, stage.partitions("a")) == (1, (0, 1, 2, 3))
    assert len(stage.rows) == count


def test_commits_and_looks_are_for_the_present_epoch(stage: ModernStage) -> None:
    group = stage.group

    def commit(who: str, epoch: int) -> Fault | None:
        return group.commit(who, None, epoch, stage.now_ms, transactional=False)

    assert commit("", -1) is None
    stage.join("a", "t")
    assert commit("a", 1) is None
    assert commit("a", 0) is Fault.STALE_MEMBER_EPOCH
    assert commit("b", 1) is Fault.UNKNOWN_MEMBER_ID
    assert commit("", -1) is Fault.UNKNOWN_MEMBER_ID
    assert group.check_epoch("a", 2) is Fault.STALE_MEMBER_EPOCH


# --- static members


def test_a_static_member_that_comes_back_has_what_it_had(stage: ModernStage) -> None:
    stage.join("a", "t", instance="i")
    stage.join("b", "t")
    for _ in range(4):
        stage.follow("a", instance="i")
        stage.follow("b")
    epoch, mine = stage.epochs["a"], stage.has["a"]
    assert stage.beat("a", LEAVES_FOR_NOW, instance="i").epoch == LEAVES_FOR_NOW
    stage.follow("b")
    assert stage.partitions("b") == (2, 3), "its place is kept"
    answer = stage.join("a2", "t", instance="i")
    assert (answer.epoch, answer.assignment) == (epoch, mine)
    assert fault_of(stage, "a", epoch, instance="i") is Fault.FENCED_INSTANCE_ID
    assert fault_of(stage, "a", epoch) is Fault.UNKNOWN_MEMBER_ID


def test_an_instance_is_one_member_at_a_time(stage: ModernStage) -> None:
    stage.join("a", "t", instance="i")
    join = {"owned": {}, "topics": ("t",), "rebalance_ms": 1, "instance": "i"}
    assert fault_of(stage, "b", JOINS, **join) is Fault.UNRELEASED_INSTANCE_ID
    assert fault_of(stage, "b", 1, instance="i") is Fault.FENCED_INSTANCE_ID
    assert fault_of(stage, "b", LEAVES, instance="i") is Fault.FENCED_INSTANCE_ID
    assert fault_of(stage, "a", 1, instance="j") is Fault.UNKNOWN_MEMBER_ID
    assert fault_of(stage, "a", LEAVES, instance="j") is Fault.UNKNOWN_MEMBER_ID
    stage.beat("a", LEAVES, instance="i")
    assert stage.join("b", "t", instance="i").assignment


def test_a_static_member_does_not_stay_away_for_ever(stage: ModernStage) -> None:
    stage.join("a", "t", instance="i")
    stage.beat("a", LEAVES_FOR_NOW, instance="i")
    stage.join("b", "t")
    stage.wait(SETTINGS.session_ms)
    stage.join("b", "t")
    assert stage.partitions("b") == (0, 1, 2, 3)


# --- bad requests


@pytest.mark.parametrize(
    ("who", "epoch", "options", "fault"),
    [
        ("", 0, {}, Fault.INVALID_REQUEST),
        ("a", -3, {}, Fault.INVALID_REQUEST),
        ("a", LEAVES_FOR_NOW, {}, Fault.INVALID_REQUEST),
        ("a", JOINS, {"rebalance_ms": -1}, Fault.INVALID_REQUEST),
        ("a", JOINS, {"owned": None}, Fault.INVALID_REQUEST),
        ("a", JOINS, {"owned": {UUID(int=1): (0,)}}, Fault.INVALID_REQUEST),
        ("a", JOINS, {"topics": None}, Fault.INVALID_REQUEST),
        ("a", JOINS, {"instance": ""}, Fault.INVALID_REQUEST),
        ("a", JOINS, {"assignor": "clever"}, Fault.UNSUPPORTED_ASSIGNOR),
        ("a", JOINS, {"regex": "("}, Fault.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_what_nobody_can_mean(
    stage: ModernStage, who: str, epoch: int, options: dict[str, object], fault: Fault
) -> None:
    good = {"owned": {}, "topics": ("t",), "rebalance_ms": 1}
    assert fault_of(stage, who, epoch, **{**good, **options}) is fault
    assert stage.group.is_empty


# --- keeping


def test_what_could_not_be_kept_did_not_happen(stage: ModernStage) -> None:
    stage.join("a", "t")
    before = stage.group.describe()
    request = {"owned": {}, "topics": ("t",), "rebalance_ms": 1}
    keep = stage._keep
    stage._keep = lambda: stage.group.undo(stage.now_ms)  # type: ignore[method-assign]
    stage.beat("b", JOINS, **request)  # type: ignore[arg-type]
    stage.beat("a", LEAVES)
    stage.topics.set("t", 5)
    stage.beat("a")
    assert stage.group.describe() == before
    stage._keep = keep  # type: ignore[method-assign]
    assert stage.group.take_rows() == []
    stage.follow("a")
    assert stage.partitions("a") == (0, 1, 2, 3, 4), "the topic has grown, after all"
    stage.join("b", "t")
    stage.settle("a", "b")


def test_one_whose_going_could_not_be_kept_is_missed_later(stage: ModernStage) -> None:
    stage.join("a", "t")
    keep = stage._keep
    stage._keep = lambda: stage.group.undo(stage.now_ms)  # type: ignore[method-assign]
    stage.beat("a", LEAVES)
    stage._keep = keep  # type: ignore[method-assign]
    assert not stage.group.is_empty
    stage.wait(SETTINGS.session_ms)
    assert stage.group.is_empty


def test_the_rows_are_the_group(stage: ModernStage) -> None:
    stage.join("a", "t", instance="i")
    stage.join("b", "t", regex="x.*")
    stage.beat("a", instance="i")
    again = stage.restarted()
    assert again.group.describe() == stage.group.describe()
    for _ in range(4):
        again.follow("a", instance="i")
        again.follow("b")
    assert again.partitions("a") + again.partitions("b") == (0, 1, 2, 3)
    again.wait(SETTINGS.session_ms)
    assert again.group.is_empty, "the sessions began anew, and ended"


def test_an_empty_group_is_forgotten_by_its_tombstones(stage: ModernStage) -> None:
    stage.join("a", "t")
    stage.beat("a", LEAVES)
    stage.rows += stage.group.tombstones()
    left: dict[Key, object] = {}
    for key, value in stage.rows:
        left.pop(key, None)
        if value is not None:
            left[key] = value
    assert left == {}


# --- looking


def test_what_is_told_of_a_group(stage: ModernStage) -> None:
    stage.join("a", "t", instance="i")
    stage.join("b", "t")
    told = stage.group.describe()
    assert (told.state, told.epoch, told.target_epoch) == ("Reconciling", 2, 2)
    first, second = told.members
    topic = stage.topics.topics["t"].id
    assert (first.id, first.subscription.instance_id) == ("a", "i")
    assert (first.current.assigned, first.target) == ({topic: (0, 1, 2, 3)}, {topic: (0, 1)})
    assert (second.current.assigned, second.target) == ({}, {topic: (2, 3)})
    stage.beat("a", LEAVES, instance="i")
    assert stage.group.state_name == "Assigning"


# --- any order of things


def test_no_partition_ever_has_two_owners(seed: int) -> None:
    """Members come, go, die, are slow and lose answers; everything is owned in the end."""
    random = Random(seed)
    stage = ModernStage(Topics(t=7, u=3))
    names = [f"m{number}" for number in range(4)]
    for step in range(120):
        who = random.choice(names)
        if who not in stage.has:
            stage.join(who, *random.choice((("t",), ("t", "u"))))
        elif random.random() < 0.08:
            stage.beat(who, LEAVES)
            del stage.has[who], stage.epochs[who]
        elif random.random() < 0.1:
            stage.beat(who, owned=stage.has[who])  # The answer got lost,
            answer = stage.join(who, "t")  # and it starts anew.
            assert answer.epoch > 0
        else:
            stage.follow(who)
        if random.random() < 0.02:
            stage.topics.set("u", 3 + step // 10)
        if random.random() < 0.03:
            stage = stage.restarted()
        check_owners(stage)
    for who in names:
        if who in stage.has:
            stage.wait(1)
    living = list(stage.has)
    if living:
        stage.settle(*living)
        owned = [part for who in living for part in _parts(stage.has[who])]
        assert len(owned) == len(dict.fromkeys(owned))


def check_owners(stage: ModernStage) -> None:
    """Neither as members believe, nor as the group does."""
    for has in (stage.has, _held(stage)):
        owners: dict[tuple[UUID, int], str] = {}
        for who, assignment in has.items():
            for part in _parts(assignment):
                assert owners.setdefault(part, who) == who, part


def _held(stage: ModernStage) -> dict[str, Assignment]:
    rows: dict[str, Assignment] = {}
    for key, value in stage.rows:
        if key.kind is GroupRecordKind.CURRENT:
            rows[key.name] = value.assigned if isinstance(value, Current) else {}
    return rows


def _parts(assignment: Assignment) -> list[tuple[UUID, int]]:
    return [(topic, number) for topic, numbers in assignment.items() for number in numbers]


def test_a_large_group_is_not_divided_for_everyone_who_comes() -> None:
    stage = ModernStage(Topics(t=100), replace(SETTINGS, members_max=1_000))
    for number in range(100):
        stage.join(f"m{number}", "t")
        stage.now_ms += 1
    divided = [value for key, value in stage.rows if key.kind is GroupRecordKind.TARGET_EPOCH]
    assert 10 < len(divided) < 60
    assert stage.group.state_name == "Assigning"
    stage.wait(100)
    for _ in range(6):
        for number in range(100):
            stage.follow(f"m{number}")
        stage.wait(100)
    assert stage.group.state_name == "Stable"
    assert sorted(len(stage.partitions(f"m{number}")) for number in range(100)) == [1] * 100
