import pytest
from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32

from entrepot.core.steps import finish
from entrepot.gateway.kafka.offset_for_leader_epoch import handle
from tests.unit.gateway.kafka.node import Node, on_node


def ask(
    node: Node, epoch: int, *, topic: str = "one", index: int = 0, current: int = -1
) -> tuple[ErrorCode, int, int]:
    partition = OffsetForLeaderPartition(
        partition=i32(index), current_leader_epoch=i32(current), leader_epoch=i32(epoch)
    )
    request = OffsetForLeaderEpochRequest(
        topics=(OffsetForLeaderTopic(topic=TopicName(topic), partitions=(partition,)),)
    )
    (answered,) = finish(handle(node.context, request)).topics
    (answer,) = answered.partitions
    assert (answered.topic, answer.partition) == (topic, index)
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize(("epoch", "answer"), [(0, (0, 3)), (1, (-1, -1)), (-1, (-1, -1))], ids=str)
@on_node()
async def test_the_end_of_an_epoch(node: Node, epoch: int, answer: tuple[int, int]) -> None:
    await node.context.broker.create_topic("one")
    await node.append("one", [1_000] * 3)
    assert ask(node, epoch) == (ErrorCode.none, *answer)


@on_node()
async def test_the_ends_of_many_epochs(node: Node) -> None:
    topic = await node.context.broker.create_topic("one")
    partition = node.context.broker.served_partition(topic, 0).partition
    for epoch in (2, 5):
        partition.begin_epoch(epoch)
        await node.append("one", [1_000] * 3)
    partition.begin_epoch(7)
    ends = {
        0: (0, 0),
        1: (1, 0),
        2: (2, 3),
        4: (2, 3),
        5: (5, 6),
        6: (5, 6),
        7: (7, 6),
        8: (-1, -1),
    }
    for epoch, end in ends.items():
        assert ask(node, epoch, current=7) == (ErrorCode.none, *end)


@on_node()
async def test_errors(node: Node) -> None:
    topic = await node.context.broker.create_topic("one")
    partition = node.context.broker.served_partition(topic, 0).partition
    unknown = (ErrorCode.unknown_topic_or_partition, -1, -1)
    assert ask(node, 0, topic="two") == unknown
    assert ask(node, 0, index=1) == unknown
    assert ask(node, 0, current=1) == (ErrorCode.unknown_leader_epoch, -1, -1)
    partition.leader_epoch = 2
    assert ask(node, 2, current=1) == (ErrorCode.fenced_leader_epoch, -1, -1)
    partition.refuse("damaged")
    assert ask(node, 2) == (ErrorCode.kafka_storage_error, -1, -1)
