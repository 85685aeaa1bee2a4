"""CreateTopics (key 19), v2 to v7. Answered when the topics are permanent.

A partition count or replication factor of -1 means the server's default. A node alone has a
replication factor of 1, and a manual assignment must assign each partition, numbered from 0, to
it. In a cluster there are at most as many replicas as nodes. A name that comes twice in a request
is refused.

v4: counts of -1. v5: the answer has the partition count and all settings. v7: it has the topic's
id, and no settings if the client may not describe them.
"""

from collections import Counter

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.catalog import Topic
from entrepot.broker.turns import gathered
from entrepot.core.errors import InvalidConfig, PeerError
from entrepot.core.names import PartitionId
from entrepot.gateway.kafka.config_entries import topic_entries
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import Refusal, reason_of
from entrepot.gateway.kafka.topics import check_may_create

_DEFAULT = -1


async def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    times = Counter(wanted.name for wanted in request.topics)
    wanted_once = {wanted.name: wanted for wanted in request.topics}
    results = await gathered(
        _answer(context, wanted, times[name] == 1, request.validate_only)
        for name, wanted in wanted_once.items()
    )
    return CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=tuple(results))


async def _answer(
    context: Context, wanted: CreatableTopic, is_alone: bool, validate_only: bool
) -> CreatableTopicResult:
    try:
        if not is_alone:
            raise PeerError(f"topic {wanted.name!r} is in the request twice")
        check_may_create(context, wanted.name)
        count = _partition_count(context, wanted)
        settings = _settings(wanted)
        if validate_only:
            topic = context.broker.check_new_topic(wanted.name, count, settings)
        else:
            topic = await context.broker.create_topic(
                wanted.name,
                count,
                settings,
                replication=_replication(wanted),
                assignments=_assignments(wanted),
            )
    except KNOWN as error:
        return _failed(wanted.name, error)
    return _created(context, topic)


def _partition_count(context: Context, wanted: CreatableTopic) -> int | None:
    """Return how many partitions are wanted; None means: the default. Raises Refusal if more than
    one copy, or another node, is wanted."""
    if wanted.assignments:
        _check_assignments(context, wanted)
        return len(wanted.assignments)
    if context.broker.cluster is None and wanted.replication_factor not in (1, _DEFAULT):
        raise Refusal(
            ErrorCode.invalid_replication_factor,
            f"replication factor {wanted.replication_factor}; there is one node, so it is 1",
        )
    return None if wanted.num_partitions == _DEFAULT else wanted.num_partitions


def _check_assignments(context: Context, wanted: CreatableTopic) -> None:
    if (wanted.num_partitions, wanted.replication_factor) != (_DEFAULT, _DEFAULT):
        raise PeerError("with a manual assignment, partition count and replication factor are -1")
    indexes = sorted(each.partition_index for each in wanted.assignments)
    if indexes != list(range(len(indexes))):
        raise Refusal(
            ErrorCode.invalid_replica_assignment,
            "a manual assignment names every partition once, from 0 on",
        )
    if context.broker.cluster is not None:
        return
    if any(each.broker_ids != (context.node_id,) for each in wanted.assignments):
        raise Refusal(
            ErrorCode.invalid_replica_assignment,
            f"the only node there is to assign partitions to is {context.node_id}",
        )


def _replication(wanted: CreatableTopic) -> int | None:
    """Return how many replicas are wanted; None means: the default."""
    return None if wanted.replication_factor == _DEFAULT else int(wanted.replication_factor)


def _assignments(wanted: CreatableTopic) -> list[list[int]] | None:
    """Return the nodes that each partition is assigned to, if the client says so."""
    if not wanted.assignments:
        return None
    ordered = sorted(wanted.assignments, key=lambda each: each.partition_index)
    return [[int(node) for node in each.broker_ids] for each in ordered]


def _settings(wanted: CreatableTopic) -> dict[str, str]:
    settings = {}
    for each in wanted.configs:
        if each.value is None:
            raise InvalidConfig(f"{each.name} has no value")
        settings[each.name] = each.value
    return settings


def _failed(name: TopicName, error: Exception) -> CreatableTopicResult:
    code, text = reason_of(error)
    return CreatableTopicResult(
        name=name, topic_id=None, error_code=code, error_message=text, configs=None
    )


def _created(context: Context, topic: Topic) -> CreatableTopicResult:
    if not context.allows(Operation.DESCRIBE_CONFIGS, ResourceKind.TOPIC, topic.name):
        return CreatableTopicResult(
            name=TopicName(topic.name),
            topic_id=topic.id,
            error_code=ErrorCode.none,
            error_message=None,
            topic_config_error_code=i16(ErrorCode.topic_authorization_failed),
            configs=None,
        )
    layers = context.broker.server_settings.layers()
    return CreatableTopicResult(
        name=TopicName(topic.name),
        topic_id=topic.id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=i32(topic.partition_count),
        replication_factor=i16(_factor(context, topic)),
        configs=tuple(
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.values[0].text,
                read_only=entry.is_read_only,
                config_source=i8(entry.values[0].source),
                is_sensitive=False,
            )
            for entry in topic_entries(topic.settings, layers)
        ),
    )


def _factor(context: Context, topic: Topic) -> int:
    cluster = context.broker.cluster
    holders = None if cluster is None else cluster.holders(PartitionId(topic.id, 0))
    return 1 if holders is None else len(holders.replicas)
