import errno
from datetime import timedelta

from kio.schema.errors import ErrorCode

from tests.unit.gateway.kafka.group_requests import deny_everything
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.sharing import Member, append, beat, configure


@on_node()
async def test_a_member_is_told_its_partitions(node: Node) -> None:
    topic = await node.context.broker.create_topic("t", 2)
    first = await beat(node, topics=("t",))
    assert (first.error_code, first.error_message) == (ErrorCode.none, None)
    assert (first.member_id, first.member_epoch) == ("m", 1)
    assert first.heartbeat_interval == timedelta(seconds=5)
    assert first.assignment is not None
    (given,) = first.assignment.topic_partitions
    assert (given.topic_id, given.partitions) == (topic.id, (0, 1))
    idle = await beat(node, epoch=1)
    assert (idle.member_epoch, idle.assignment) == (1, None)
    gone = await beat(node, epoch=-1)
    assert (gone.error_code, gone.member_epoch) == (ErrorCode.none, -1)


@on_node()
async def test_what_is_set_on_the_group_counts(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    await configure(node, share_heartbeat_interval_ms="700")
    told = await beat(node, topics=("t",))
    assert told.heartbeat_interval == timedelta(milliseconds=700)


@on_node()
async def test_a_member_comes_back_after_a_restart(node: Node) -> None:
    """To where its group was."""
    await node.context.broker.create_topic("t", 1)
    await beat(node, topics=("t",))
    await append(node, 1)
    await node.power_fails()
    assert (await beat(node, epoch=1)).error_code is ErrorCode.unknown_member_id
    assert (await beat(node, topics=("t",))).member_epoch == 1
    assert await Member(node).get() == [(0, 0, 1)]


@on_node()
async def test_refusals(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    await beat(node, topics=("t",))
    cases = [
        (("g", "m", 9, None), ErrorCode.fenced_member_epoch),
        (("g", "nobody", 1, None), ErrorCode.unknown_member_id),
        (("none", "m", 1, None), ErrorCode.group_id_not_found),
        (("", "m", 0, ("t",)), ErrorCode.invalid_request),
        (("g", "", 0, ("t",)), ErrorCode.invalid_request),
        (("g", "n", 0, None), ErrorCode.invalid_request),
    ]
    for arguments, code in cases:
        answer = await beat(node, *arguments)
        assert (answer.error_code, answer.assignment) == (code, None)
        assert answer.error_message


@on_node()
async def test_what_cannot_be_kept_is_tried_again(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    await beat(node, "other", topics=("t",))
    node.disk.fail_next("write", errno.ENOSPC, "partitions/__share_group_state*")
    assert (await beat(node, topics=("t",))).error_code is ErrorCode.coordinator_not_available
    assert (await beat(node, topics=("t",))).error_code is ErrorCode.none


@on_node()
async def test_who_may_not(node: Node) -> None:
    deny_everything(node)
    answer = await beat(node, topics=("t",))
    assert answer.error_code is ErrorCode.group_authorization_failed
