"""DescribeTopicPartitions (key 75), v0: topics and their partitions, a page at a time.

Topics are sorted by name; a request without topics asks for all. If there are more partitions
than the limit, the answer has a cursor, the first partition that is not in it, from which the
next request continues. The topic of a cursor may be deleted meanwhile.
"""

from bisect import bisect_left

from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.catalog import Topic
from entrepot.core.errors import PeerError
from entrepot.core.names import check_topic_name
from entrepot.core.steps import Steps
from entrepot.gateway.kafka.acl_codes import operation_bits
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of
from entrepot.gateway.kafka.leadership import leadership_of
from entrepot.gateway.kafka.topics import topic_of

ResponseTopic = DescribeTopicPartitionsResponseTopic

_PARTITIONS_PER_PAGE_MAX = 2_000


def handle(
    context: Context, request: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    try:
        names, first = _names(context, request)
    except PeerError as error:
        topics = [_missing(topic.name, code_of(error)) for topic in request.topics]
        return _response(topics, None)
    room = max(1, min(request.response_partition_limit, _PARTITIONS_PER_PAGE_MAX))
    topics = []
    for name in names:
        yield
        if room == 0:
            return _response(topics, _cursor(name, 0))
        start, first = first, 0
        try:
            check_topic_name(name)
            topic = topic_of(context, Operation.DESCRIBE, name)
        except KNOWN as error:
            topics.append(_missing(name, code_of(error)))
            continue
        end = min(topic.partition_count, start + room)
        topics.append(_described(context, topic, start, end))
        if end < topic.partition_count:
            return _response(topics, _cursor(name, end))
        room -= max(0, end - start)
    return _response(topics, None)


def _names(context: Context, request: DescribeTopicPartitionsRequest) -> tuple[list[str], int]:
    """Return the topics from the cursor on, and the partition of the first one to begin with."""
    asked = {topic.name for topic in request.topics}
    names = sorted(asked or _visible(context))
    cursor = request.cursor
    if cursor is None:
        return names, 0
    if cursor.partition_index < 0 or (asked and cursor.topic_name not in asked):
        raise PeerError("the cursor is not at a topic of the request")
    names = names[bisect_left(names, cursor.topic_name) :]
    is_there = names[:1] == [cursor.topic_name]
    return names, cursor.partition_index if is_there else 0


def _visible(context: Context) -> list[str]:
    """Return the names of all topics that the client may describe."""
    return [
        name
        for name in context.broker.topics
        if context.allows(Operation.DESCRIBE, ResourceKind.TOPIC, name)
    ]


def _response(
    topics: list[ResponseTopic], cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        throttle_time=NO_THROTTLE, topics=tuple(topics), next_cursor=cursor
    )


def _cursor(name: str, index: int) -> Cursor:
    return Cursor(topic_name=TopicName(name), partition_index=i32(index))


def _missing(name: str, error: ErrorCode) -> ResponseTopic:
    return ResponseTopic(error_code=error, name=TopicName(name), topic_id=None, partitions=())


def _described(context: Context, topic: Topic, first: int, end: int) -> ResponseTopic:
    return ResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName(topic.name),
        topic_id=topic.id,
        is_internal=context.broker.is_internal(topic.name),
        partitions=tuple(_partition(context, topic, index) for index in range(first, end)),
        topic_authorized_operations=operation_bits(context, ResourceKind.TOPIC, topic.name),
    )


def _partition(
    context: Context, topic: Topic, index: int
) -> DescribeTopicPartitionsResponsePartition:
    state = leadership_of(context, context.broker.served_partition(topic, index))
    return DescribeTopicPartitionsResponsePartition(
        error_code=state.error_code,
        partition_index=i32(index),
        leader_id=state.leader_id,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.in_sync,
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=state.offline,
    )
