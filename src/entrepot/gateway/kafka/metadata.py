"""Metadata (key 3), v0 to v13: the nodes, and the requested topics or all of them.

A topic that does not exist is created if the request (v4) and the server allow that. If it cannot
be created now, because a topic of that name is still being deleted or the disk fails, it is
answered with LEADER_NOT_AVAILABLE, and clients retry. A request for all topics lists those that
the client may describe.

v0: an empty list means all topics; in later versions null does. v8: on request, the operations
that the client may do on each topic, and until v10 on the cluster. v10 and v11 have topic ids in
their layout, but as in Kafka they are used from v12 on.
"""

from dataclasses import dataclass, field, replace
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v0.request import MetadataRequest as MetadataRequestV0
from kio.schema.metadata.v10.request import MetadataRequest as MetadataRequestV10
from kio.schema.metadata.v11.request import MetadataRequest as MetadataRequestV11
from kio.schema.metadata.v13.request import MetadataRequest
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.catalog import Topic
from entrepot.broker.turns import gathered
from entrepot.core.errors import StorageError, TopicExists
from entrepot.core.names import check_topic_name
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.acl_codes import NOT_TOLD, cluster_bits, operation_bits
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of
from entrepot.gateway.kafka.leadership import controller_of, leadership_of, nodes_of
from entrepot.gateway.kafka.topics import check_may_create, topic_of

Request = MetadataRequestV0 | MetadataRequestV10 | MetadataRequestV11 | MetadataRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Response(MetadataResponse):
    """The newest response with a field that only v8 to v10 have."""

    cluster_authorized_operations: i32 = field(metadata={"kafka_type": "int32"}, default=NOT_TOLD)


async def handle(context: Context, request: Request) -> MetadataResponse:
    wanted, turns = _wanted(request), context.broker.turns
    if wanted is None:
        topics = await turns.run(_all(context))
    else:
        failures = await _create_missing(context, wanted) if _may_create(context, request) else {}
        topics = await turns.run(_named(context, wanted, failures))
    if not isinstance(request, MetadataRequestV0) and request.include_topic_authorized_operations:
        topics = await turns.run(listed(_with_operations(context, topic) for topic in topics))
    return _Response(
        throttle_time=NO_THROTTLE,
        brokers=tuple(
            MetadataResponseBroker(
                node_id=BrokerId(node), host=host, port=i32(port), rack=rack or None
            )
            for node, host, port, rack, _ in nodes_of(context)
        ),
        cluster_id=context.broker.cluster_id,
        controller_id=controller_of(context),
        topics=tuple(topics),
        error_code=ErrorCode.none,
        cluster_authorized_operations=cluster_bits(context)
        if isinstance(request, MetadataRequestV10) and request.include_cluster_authorized_operations
        else NOT_TOLD,
    )


def _wanted(request: Request) -> list[str | UUID] | None:
    """Return the names and ids that are asked for, each once. None means: all topics."""
    if isinstance(request, MetadataRequest):
        if request.topics is None:
            return None
        return list(dict.fromkeys(each.topic_id or each.name or "" for each in request.topics))
    if request.topics is None or (isinstance(request, MetadataRequestV0) and not request.topics):
        return None
    return list(dict.fromkeys(each.name or "" for each in request.topics))


def _may_create(context: Context, request: Request) -> bool:
    asked = isinstance(request, MetadataRequestV0) or request.allow_auto_topic_creation
    return asked and context.broker.defaults.auto_create_topics


async def _create_missing(context: Context, wanted: list[str | UUID]) -> dict[str, ErrorCode]:
    """Create the topics that do not exist. Returns an error code for each of them."""
    topics = context.broker.topics
    missing = [
        each
        for each in wanted
        if isinstance(each, str)
        and each not in topics
        and context.allows(Operation.DESCRIBE, ResourceKind.TOPIC, each)
    ]
    codes = await gathered(_create(context, name) for name in missing)
    return dict(zip(missing, codes, strict=True))


async def _create(context: Context, name: str) -> ErrorCode:
    try:
        check_may_create(context, name)
        await context.broker.create_topic(name)
    except (TopicExists, StorageError):
        return ErrorCode.leader_not_available
    except KNOWN as error:
        return code_of(error)
    return ErrorCode.none


def _all(context: Context) -> Steps[list[MetadataResponseTopic]]:
    found = []
    for name in list(context.broker.topics):
        if context.allows(Operation.DESCRIBE, ResourceKind.TOPIC, name):
            described = yield from _found(context, name, {})
            if described.error_code is ErrorCode.none:  # It may be deleted by now.
                found.append(described)
    return found


def _named(
    context: Context, wanted: list[str | UUID], failures: dict[str, ErrorCode]
) -> Steps[list[MetadataResponseTopic]]:
    found = []
    for each in wanted:
        found.append((yield from _found(context, each, failures)))
    return found


def _found(
    context: Context, wanted: str | UUID, failures: dict[str, ErrorCode]
) -> Steps[MetadataResponseTopic]:
    try:
        if isinstance(wanted, str):
            failure = failures.get(wanted)
            if failure:
                return _missing(wanted, failure)
            check_topic_name(wanted)
        return (yield from _described(context, topic_of(context, Operation.DESCRIBE, wanted)))
    except KNOWN as error:
        return _missing(wanted, code_of(error))


def _missing(wanted: str | UUID, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name=TopicName(wanted) if isinstance(wanted, str) else None,
        topic_id=wanted if isinstance(wanted, UUID) else None,
        partitions=(),
    )


def _described(context: Context, topic: Topic) -> Steps[MetadataResponseTopic]:
    """Describe a topic. Raises UnknownTopic if it is deleted between two steps."""
    partitions = yield from listed(
        _partition(context, topic, index) for index in range(topic.partition_count)
    )
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName(topic.name),
        topic_id=topic.id,
        is_internal=context.broker.is_internal(topic.name),
        partitions=tuple(partitions),
    )


def _with_operations(context: Context, topic: MetadataResponseTopic) -> MetadataResponseTopic:
    if topic.error_code is not ErrorCode.none or topic.name is None:
        return topic
    bits = operation_bits(context, ResourceKind.TOPIC, topic.name)
    return replace(topic, topic_authorized_operations=bits)


def _partition(context: Context, topic: Topic, index: int) -> MetadataResponsePartition:
    state = leadership_of(context, context.broker.served_partition(topic, index))
    return MetadataResponsePartition(
        error_code=state.error_code,
        partition_index=i32(index),
        leader_id=state.leader_id,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.in_sync,
        offline_replicas=state.offline,
    )
