"""CreatePartitions (key 37), v0 to v3: add partitions to a topic. They cannot be removed.

A manual assignment must assign each new partition to this node. A topic that is named twice in a
request is refused.
"""

from collections import Counter

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.broker.turns import gathered
from entrepot.core.errors import PeerError
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import Refusal, reason_of
from entrepot.gateway.kafka.topics import topic_of


async def handle(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    times = Counter(wanted.name for wanted in request.topics)
    wanted_once = {wanted.name: wanted for wanted in request.topics}
    results = await gathered(
        _answer(context, wanted, times[name] == 1, request.validate_only)
        for name, wanted in wanted_once.items()
    )
    return CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


async def _answer(
    context: Context, wanted: CreatePartitionsTopic, is_alone: bool, validate_only: bool
) -> CreatePartitionsTopicResult:
    try:
        if not is_alone:
            raise PeerError(f"topic {wanted.name!r} is in the request twice")
        topic = topic_of(context, Operation.ALTER, wanted.name)
        context.broker.check_partition_count(topic, wanted.count)
        if wanted.assignments:
            _check_assignments(context, wanted, wanted.count - topic.partition_count)
        if not validate_only:
            await context.broker.create_partitions(topic, wanted.count, _assigned(wanted))
    except KNOWN as error:
        code, text = reason_of(error)
        return CreatePartitionsTopicResult(name=wanted.name, error_code=code, error_message=text)
    return CreatePartitionsTopicResult(name=wanted.name, error_code=ErrorCode.none)


def _check_assignments(context: Context, wanted: CreatePartitionsTopic, added: int) -> None:
    assert wanted.assignments is not None
    if len(wanted.assignments) != added:
        raise Refusal(
            ErrorCode.invalid_replica_assignment,
            f"{len(wanted.assignments)} assignments for {added} new partitions",
        )
    if context.broker.cluster is not None:
        return
    if any(each.broker_ids != (context.node_id,) for each in wanted.assignments):
        raise Refusal(
            ErrorCode.invalid_replica_assignment,
            f"the only node there is to assign partitions to is {context.node_id}",
        )


def _assigned(wanted: CreatePartitionsTopic) -> list[list[int]] | None:
    """Return the nodes of each new partition, if the client says so."""
    if not wanted.assignments:
        return None
    return [[int(node) for node in each.broker_ids] for each in wanted.assignments]
