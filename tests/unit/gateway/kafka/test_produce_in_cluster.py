"""An idempotent producer's batches while its partition's leadership comes and goes.

Found by the cluster's harness: a client sends several batches at a time; the first came a moment
before this node led, the second a moment after. Told of a gap, librdkafka begins a new epoch, and
sends again what other partitions may have already.
"""

import asyncio
from dataclasses import dataclass

import pytest
from kio.schema.errors import ErrorCode

from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.serving import Produced, batch_of, to

SEQUENCES = 2**31


@dataclass
class FakeRole:
    """Implements `broker.replication.Role`."""

    leads: bool = True
    in_sync_count: int = 2
    knows_end: bool = True

    def fetched(self, node: int, offset: int) -> None: ...


async def partition_with_role(node: Node) -> FakeRole:
    topic = await node.context.broker.create_topic("one", 1)
    served = node.context.broker.served_partition(topic, 0)
    served.role = role = FakeRole()  # type: ignore[assignment]
    return role


async def produce(node: Node, sequence: int, *, epoch: int = 0, producer: int = 5) -> ErrorCode:
    data = batch_of(
        b"%d" % sequence, producer_id=producer, producer_epoch=epoch, sequence_first=sequence
    )
    (result,) = await Produced(node, [to("one", data)]).done()
    return ErrorCode(result.error_code)


@pytest.mark.parametrize("first", [0, 7, SEQUENCES - 1])
@on_node()
async def test_what_follows_a_refused_batch_comes_after_it(node: Node, first: int) -> None:
    role = await partition_with_role(node)
    if first:  # The producer is known.
        assert await produce(node, first - 1) == ErrorCode.none
    role.leads = False
    assert await produce(node, first) == ErrorCode.not_leader_or_follower
    role.leads = True
    following = [(first + more) % SEQUENCES for more in (1, 2)]
    for each in following:
        assert await produce(node, each) == ErrorCode.not_enough_replicas
    for each in (first, *following):
        assert await produce(node, each) == ErrorCode.none
    # A gap of the producer's own is still one.
    gap = (first + 5) % SEQUENCES
    assert await produce(node, gap) == ErrorCode.out_of_order_sequence_number


@on_node()
async def test_too_few_in_sync_for_a_moment(node: Node) -> None:
    role = await partition_with_role(node)
    assert await produce(node, 0) == ErrorCode.none
    role.in_sync_count = 0
    assert await produce(node, 1) == ErrorCode.not_enough_replicas
    role.in_sync_count = 2
    assert await produce(node, 2) == ErrorCode.not_enough_replicas
    assert await produce(node, 0, producer=6) == ErrorCode.none, "another producer's"
    assert [await produce(node, each) for each in (1, 2)] == [ErrorCode.none] * 2


@on_node()
async def test_what_was_written_by_another_leader_meanwhile(node: Node) -> None:
    """Batches that came as a follower's count: what was refused here is there."""
    role = await partition_with_role(node)
    assert await produce(node, 0) == ErrorCode.none
    role.leads = False
    assert await produce(node, 1) == ErrorCode.not_leader_or_follower
    topic = node.context.broker.topics["one"]
    served = node.context.broker.served_partition(topic, 0)
    data = batch_of(b"1", producer_id=5, producer_epoch=0, sequence_first=1)
    served.role = None
    served.append(data)
    served.role, role.leads = role, True  # type: ignore[assignment]
    assert await produce(node, 2) == ErrorCode.none


@on_node()
async def test_who_has_given_it_up_goes_on(node: Node) -> None:
    role = await partition_with_role(node)
    role.leads = False
    assert await produce(node, 0) == ErrorCode.not_leader_or_follower
    assert await produce(node, 0, producer=6) == ErrorCode.not_leader_or_follower
    role.leads = True
    assert await produce(node, 1) == ErrorCode.not_enough_replicas
    assert await produce(node, 0, epoch=1) == ErrorCode.none, "a new epoch"
    await asyncio.sleep(121)
    assert await produce(node, 3, producer=6) == ErrorCode.none, "as if it were unknown"
