from uuid import UUID

import pytest

from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.share_group.group import ShareGroup, ShareHeartbeat, check
from entrepot.core import limits
from entrepot.core.names import TopicName

HEARTBEAT_MS = 5_000


class Topics:
    def __init__(self, **counts: int) -> None:
        self.topics: dict[str, Topic] = {}
        self.version = 0
        for name, count in counts.items():
            self.put(name, count)

    def put(self, name: str, count: int) -> None:
        identity = self.topics[name].id if name in self.topics else UUID(int=len(self.topics) + 1)
        self.topics[name] = Topic(TopicName(name), identity, count)
        self.version += 1


A, B = UUID(int=1), UUID(int=2)


def says(member: str, epoch: int = 0, *topics: str) -> ShareHeartbeat:
    return ShareHeartbeat(member, epoch, None, topics or None, "client", "/host")


def test_every_member_gets_every_partition() -> None:
    group, topics = ShareGroup("g"), Topics(a=2, b=1)
    one = group.heartbeat(says("one", 0, "a"), topics, HEARTBEAT_MS)
    assert (one.epoch, one.assignment, one.heartbeat_ms) == (1, {A: (0, 1)}, HEARTBEAT_MS)
    two = group.heartbeat(says("two", 0, "b", "a", "none"), topics, HEARTBEAT_MS)
    assert (two.epoch, two.assignment) == (2, {A: (0, 1), B: (0,)})
    idle = group.heartbeat(says("one", 1), topics, HEARTBEAT_MS)
    assert (idle.epoch, idle.assignment) == (2, None)
    assert [member.id for member in group.describe().members] == ["one", "two"]
    assert group.describe()[:2] == ("Stable", 2)


def test_topics_that_change_begin_an_epoch() -> None:
    group, topics = ShareGroup("g"), Topics(a=1)
    group.heartbeat(says("m", 0, "a", "b"), topics, HEARTBEAT_MS)
    topics.put("other", 1)
    assert group.heartbeat(says("m", 1), topics, HEARTBEAT_MS).epoch == 1
    topics.put("a", 3)
    told = group.heartbeat(says("m", 1), topics, HEARTBEAT_MS)
    assert (told.epoch, told.assignment) == (2, {A: (0, 1, 2)})
    topics.put("b", 1)
    told = group.heartbeat(says("m", 2), topics, HEARTBEAT_MS)
    assert (told.epoch, sorted(told.assignment or {})) == (3, [A, UUID(int=3)])
    told = group.heartbeat(says("m", 3, "a"), topics, HEARTBEAT_MS)
    assert (told.epoch, told.assignment) == (4, {A: (0, 1, 2)})


def test_an_answer_may_have_been_lost() -> None:
    group, topics = ShareGroup("g"), Topics(a=1)
    group.heartbeat(says("m", 0, "a"), topics, HEARTBEAT_MS)
    again = group.heartbeat(says("m", 0, "a"), topics, HEARTBEAT_MS)
    assert (again.epoch, again.assignment) == (1, {A: (0,)})
    group.heartbeat(says("other", 0, "a"), topics, HEARTBEAT_MS)
    group.heartbeat(says("m", 1), topics, HEARTBEAT_MS)
    assert group.heartbeat(says("m", 1), topics, HEARTBEAT_MS).epoch == 2
    with pytest.raises(GroupError) as refused:
        group.heartbeat(says("m", 7), topics, HEARTBEAT_MS)
    assert refused.value.fault is Fault.FENCED_MEMBER_EPOCH


def test_coming_and_going() -> None:
    group, topics = ShareGroup("g"), Topics(a=1)
    group.heartbeat(says("m", 0, "a"), topics, HEARTBEAT_MS)
    assert group.remove("m")
    assert not group.remove("m")
    assert group.describe() == ("Empty", 2, ())
    with pytest.raises(GroupError) as refused:
        group.heartbeat(says("m", 2), topics, HEARTBEAT_MS)
    assert refused.value.fault is Fault.UNKNOWN_MEMBER_ID


def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    group, topics = ShareGroup("g"), Topics(a=1)
    monkeypatch.setattr(limits, "GROUP_MEMBERS_MAX", 1)
    group.heartbeat(says("m", 0, "a"), topics, HEARTBEAT_MS)
    monkeypatch.setattr(limits, "GROUP_BYTES_MAX", 3)
    for request in (says("n", 0, "a"), says("m", 1, "abcd")):
        with pytest.raises(GroupError) as refused:
            group.heartbeat(request, topics, HEARTBEAT_MS)
        assert refused.value.fault is Fault.GROUP_MAX_SIZE_REACHED
    assert group.describe().members[0].topics == ("a",)


@pytest.mark.parametrize(
    "request_",
    [
        says("", 0, "a"),
        says("m", 0),
        says("m", -2, "a"),
        says("m", 1)._replace(rack_id=""),
    ],
)
def test_what_is_wrong_whatever_the_group(request_: ShareHeartbeat) -> None:
    with pytest.raises(GroupError) as refused:
        check(request_)
    assert refused.value.fault is Fault.INVALID_REQUEST
