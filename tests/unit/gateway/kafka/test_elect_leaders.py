"""ElectLeaders: the one node leads what there is."""

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32

from entrepot.gateway.kafka.context import NO_THROTTLE
from entrepot.gateway.kafka.elect_leaders import handle
from tests.unit.gateway.kafka.node import Node, on_node


def wanted(**topics: tuple[int, ...]) -> ElectLeadersRequest:
    rows = tuple(
        TopicPartitions(topic=TopicName(name), partitions=tuple(map(i32, indexes)))
        for name, indexes in topics.items()
    )
    return ElectLeadersRequest(
        election_type=i8(0), topic_partitions=rows or None, timeout=NO_THROTTLE
    )


@on_node()
async def test_no_election_is_needed(node: Node) -> None:
    await node.context.broker.create_topic("one", 2)
    answer = await handle(node.context, wanted(one=(0, 1, 2), two=(0,)))
    assert answer.error_code is ErrorCode.none
    assert [
        (topic.topic, [each.error_code for each in topic.partition_result])
        for topic in answer.replica_election_results
    ] == [
        (
            "one",
            [
                ErrorCode.election_not_needed,
                ErrorCode.election_not_needed,
                ErrorCode.unknown_topic_or_partition,
            ],
        ),
        ("two", [ErrorCode.unknown_topic_or_partition]),
    ]


@on_node()
async def test_of_all_there_is_nothing_to_say(node: Node) -> None:
    await node.context.broker.create_topic("one", 2)
    answer = await handle(node.context, wanted())
    assert answer.replica_election_results == ()


@on_node()
async def test_whoever_may_not(node: Node) -> None:
    await node.context.broker.create_topic("one", 1)
    node.context.broker.access.is_enforced = True
    answer = await handle(node.context, wanted(one=(0,)))
    assert answer.error_code is ErrorCode.cluster_authorization_failed
    (topic,) = answer.replica_election_results
    assert topic.partition_result[0].error_code is ErrorCode.cluster_authorization_failed
