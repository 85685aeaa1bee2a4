import errno

from kio.schema.errors import ErrorCode
from kio.schema.share_acknowledge.v2.response import ShareAcknowledgeResponse

from entrepot.wire.kafka.api import Api, response_class
from entrepot.wire.kafka.layout import encode
from tests.unit.gateway.kafka.group_requests import deny_everything
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.sharing import ACCEPT, RENEW, Member, opened
from tests.unit.wire.kafka.oracle import kio_read


def codes(answer: ShareAcknowledgeResponse) -> list[ErrorCode]:
    assert answer.error_code is ErrorCode.none
    return [each.error_code for topic in answer.responses for each in topic.partitions]


@on_node()
async def test_what_is_said_is_permanent(node: Node) -> None:
    member = await opened(node, records=4)
    await member.fetch()
    answer = await member.acknowledge({0: [(1, 2, ACCEPT)]})
    assert codes(answer) == [ErrorCode.none]
    assert answer.acquisition_lock_timeout.total_seconds() == 30
    assert answer.responses[0].topic_id == member.topic_id
    await node.power_fails()
    assert await Member(node).get() == [(0, 0, 1), (3, 3, 1)]


@on_node()
async def test_what_cannot_be_kept_is_said(node: Node) -> None:
    member = await opened(node, records=1)
    await member.fetch()
    node.disk.fail_next("write", errno.ENOSPC, "partitions/__share_group_state*")
    assert codes(await member.acknowledge({0: [(0, 0, ACCEPT)]})) == [ErrorCode.kafka_storage_error]


@on_node()
async def test_a_lock_is_renewed_when_the_request_says_so(node: Node) -> None:
    member = await opened(node, records=1)
    await member.fetch()
    renewal = {0: [(0, 0, RENEW)]}
    assert codes(await member.acknowledge(renewal)) == [ErrorCode.invalid_request]
    assert codes(await member.acknowledge(renewal, renews=True)) == [ErrorCode.none]


@on_node()
async def test_the_end_of_a_session(node: Node) -> None:
    member = await opened(node, records=2)
    await member.fetch()
    assert codes(await member.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=-1)) == [ErrorCode.none]
    assert await Member(node, "other").get() == [(1, 1, 2)]
    gone = await member.acknowledge({})
    assert (gone.error_code, gone.responses) == (ErrorCode.share_session_not_found, ())
    assert not member.context.at_close


@on_node()
async def test_refusals(node: Node) -> None:
    member = await opened(node, records=1)
    answer = await member.acknowledge({}, epoch=0)
    assert answer.error_code is ErrorCode.invalid_share_session_epoch
    member.epoch = 0
    await member.fetch()
    assert codes(await member.acknowledge({7: [(0, 0, ACCEPT)]})) == [
        ErrorCode.unknown_topic_or_partition
    ]
    assert codes(await member.acknowledge({0: [(-1, 0, ACCEPT)]})) == [ErrorCode.invalid_request]
    both = await member.acknowledge({7: [(0, 0, ACCEPT)], 0: [(0, 0, ACCEPT)]})
    assert codes(both) == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    assert len(both.responses) == 1
    wrong = await member.acknowledge({}, epoch=9)
    assert wrong.error_code is ErrorCode.invalid_share_session_epoch
    deny_everything(node)
    denied = await member.acknowledge({})
    assert denied.error_code is ErrorCode.group_authorization_failed


@on_node()
async def test_before_v2_no_time_is_told(node: Node) -> None:
    member = await opened(node)
    await member.fetch()
    layout = response_class(Api.SHARE_ACKNOWLEDGE, 1)
    read = kio_read(layout, encode(await member.acknowledge({}), layout))
    assert not hasattr(read, "acquisition_lock_timeout")
