from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from entrepot.gateway.kafka.context import NO_THROTTLE
from entrepot.gateway.kafka.delete_records import handle
from tests.unit.gateway.kafka.node import Node, on_node


async def delete(node: Node, *wanted: tuple[str, int, int]) -> list[tuple[int, int, ErrorCode]]:
    request = DeleteRecordsRequest(
        topics=tuple(
            DeleteRecordsTopic(
                name=TopicName(name),
                partitions=(
                    DeleteRecordsPartition(partition_index=i32(index), offset=i64(offset)),
                ),
            )
            for name, index, offset in wanted
        ),
        timeout=NO_THROTTLE,
    )
    topics = (await handle(node.context, request)).topics
    assert [topic.name for topic in topics] == [name for name, _, _ in wanted]
    return [
        (each.partition_index, each.low_watermark, each.error_code)
        for topic in topics
        for each in topic.partitions
    ]


async def with_records(node: Node) -> None:
    await node.context.broker.create_topic("one", 2)
    await node.append("one", [1_000] * 5, 1)


@on_node()
async def test_the_log_begins_later_also_after_a_crash(node: Node) -> None:
    await with_records(node)
    assert await delete(node, ("one", 1, 3)) == [(1, 3, ErrorCode.none)]
    await node.power_fails()
    served = node.context.broker.served_partition(node.context.broker.topic("one"), 1)
    assert (served.partition.offset_start, served.partition.offset_end) == (3, 5)


@on_node()
async def test_minus_one_is_everything(node: Node) -> None:
    await with_records(node)
    wanted = [("one", 1, -1), ("one", 0, -1)]
    assert await delete(node, *wanted) == [(1, 5, ErrorCode.none), (0, 0, ErrorCode.none)]


@on_node()
async def test_below_the_start_nothing_changes(node: Node) -> None:
    await with_records(node)
    await delete(node, ("one", 1, 3))
    assert await delete(node, ("one", 1, 2)) == [(1, 3, ErrorCode.none)]


@on_node()
async def test_refuses(node: Node) -> None:
    await with_records(node)
    for wanted, code in (
        (("one", 1, 6), ErrorCode.offset_out_of_range),
        (("one", 1, -2), ErrorCode.offset_out_of_range),
        (("one", 2, 0), ErrorCode.unknown_topic_or_partition),
        (("two", 0, 0), ErrorCode.unknown_topic_or_partition),
    ):
        assert await delete(node, wanted) == [(wanted[1], -1, code)]
    served = node.context.broker.served_partition(node.context.broker.topic("one"), 1)
    assert served.partition.offset_start == 0
    served.partition.refuse("damaged")
    assert await delete(node, ("one", 1, 3)) == [(1, -1, ErrorCode.kafka_storage_error)]
