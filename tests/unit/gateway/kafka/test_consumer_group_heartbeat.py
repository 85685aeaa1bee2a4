import asyncio
import errno
from datetime import timedelta

from kio.schema.errors import ErrorCode

from tests.unit.gateway.kafka.group_requests import beat, deny_everything
from tests.unit.gateway.kafka.node import Node, on_node


@on_node()
async def test_a_member_is_told_its_partitions(node: Node) -> None:
    topic = await node.context.broker.create_topic("t", 2)
    first = await beat(node, "g", "m")
    assert (first.error_code, first.error_message) == (ErrorCode.none, None)
    assert (first.member_id, first.member_epoch) == ("m", 1)
    assert first.heartbeat_interval == timedelta(seconds=5)
    assert first.assignment is not None
    (given,) = first.assignment.topic_partitions
    assert (given.topic_id, given.partitions) == (topic.id, (0, 1))
    idle = await beat(node, "g", "m", 1, owned={topic.id: (0, 1)})
    assert (idle.member_epoch, idle.assignment) == (1, None)


@on_node()
async def test_the_first_members_may_come_at_any_moment(node: Node) -> None:
    """While the topic that keeps groups is made, and when it just has been."""
    await node.context.broker.create_topic("t", 1)
    coming = [asyncio.ensure_future(beat(node, "g", "m"))]
    await asyncio.sleep(0)
    await node.context.broker.internal_topic("__consumer_offsets", 8, {})
    for turn in range(5):
        coming.append(asyncio.ensure_future(beat(node, f"g{turn}", "m")))
        await asyncio.sleep(0)
    for answer in await asyncio.gather(*coming):
        assert (answer.error_code, answer.member_epoch) == (ErrorCode.none, 1)


@on_node()
async def test_before_v1_the_broker_makes_the_id(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    made = await beat(node, "g", "", version=0)
    assert made.error_code is ErrorCode.none
    assert made.member_id
    refused = await beat(node, "g", "", version=1)
    assert refused.error_code is ErrorCode.invalid_request


@on_node()
async def test_refusals(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    await beat(node, "g", "m")
    cases = [
        (("g", "m", 9), {}, ErrorCode.fenced_member_epoch),
        (("g", "nobody", 1), {}, ErrorCode.unknown_member_id),
        (("none", "m", 1), {}, ErrorCode.group_id_not_found),
        (("", "m", 0), {}, ErrorCode.invalid_request),
        (("g", "m", -9), {}, ErrorCode.invalid_request),
        (("g", "n", 0), {"assignor": "x"}, ErrorCode.unsupported_assignor),
        (("g", "n", 0), {"regex": "("}, ErrorCode.invalid_regular_expression),
    ]
    for arguments, options, code in cases:
        answer = await beat(node, *arguments, **options)
        assert (answer.error_code, answer.assignment) == (code, None)
        assert answer.error_message
    node.disk.fail_next("write", errno.ENOSPC, "partitions/__consumer_offsets*")
    late = await beat(node, "g", "n")
    assert late.error_code is ErrorCode.coordinator_not_available


@on_node()
async def test_who_may_not(node: Node) -> None:
    deny_everything(node)
    assert (await beat(node, "g", "m")).error_code is ErrorCode.group_authorization_failed
