"""FindCoordinator (key 10), v0 to v6: the coordinator of a group or a transactional id.

It is this node, or in a cluster the one that leads the partition in which the group, or the
transaction, is stored. A request also creates the internal topic with these partitions, if it is
missing. The coordinator of a share group's state (key
type 2), for which only brokers ask, is not supported. v4: several keys in a request.
"""

from functools import partial

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.request import (
    FindCoordinatorRequest as FindCoordinatorRequestV3,
)
from kio.schema.find_coordinator.v3.response import (
    FindCoordinatorResponse as FindCoordinatorResponseV3,
)
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.replication import Peer
from entrepot.core.steps import listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group, group_reason
from entrepot.gateway.kafka.leadership import as_reached
from entrepot.gateway.kafka.refusal import Refusal

_GROUP, _TRANSACTION = 0, 1


async def handle(
    context: Context, request: FindCoordinatorRequestV3 | FindCoordinatorRequest
) -> FindCoordinatorResponseV3 | FindCoordinatorResponse:
    if isinstance(request, FindCoordinatorRequest):
        find = partial(_find, context, request.key_type, await _prepare(context, request.key_type))
        found = await context.broker.turns.run(listed(map(find, request.coordinator_keys)))
        return FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=tuple(found))
    unprepared = await _prepare(context, request.key_type)
    only = _find(context, request.key_type, unprepared, request.key)
    return FindCoordinatorResponseV3(
        throttle_time=NO_THROTTLE,
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _prepare(context: Context, key_type: int) -> Exception | None:
    """Create the topic that has the keys if it is missing. Return the error if that fails."""
    broker = context.broker
    try:
        if key_type == _GROUP:
            await broker.groups.prepare()
        elif key_type == _TRANSACTION and broker.cluster is not None:
            await broker.transactions.prepare()
    except KNOWN as error:
        return error
    return None


def _find(context: Context, key_type: int, unprepared: Exception | None, key: str) -> Coordinator:
    try:
        _check(context, key_type, key)
        if unprepared is not None:
            raise unprepared
        node = _node(context, key_type, key)
    except KNOWN as error:
        code, text = group_reason(error)
        return Coordinator(
            key=key,
            node_id=BrokerId(-1),
            host="",
            port=i32(-1),
            error_code=code,
            error_message=text,
        )
    return Coordinator(
        key=key,
        node_id=BrokerId(node.id),
        host=node.host,
        port=i32(node.port),
        error_code=ErrorCode.none,
        error_message=None,
    )


def _node(context: Context, key_type: int, key: str) -> Peer:
    """Return the coordinator's node. Raises Refusal if nobody is it now, and StorageError."""
    broker = context.broker
    kept = broker.groups if key_type == _GROUP else broker.transactions
    if broker.cluster is None:
        kept.check_readable(key)
        return Peer(context.node_id, context.host, context.port, "")
    leader = broker.leader_of(kept.topic_name, kept.partition_of(key))
    if leader is None:
        raise Refusal(ErrorCode.coordinator_not_available, "nobody leads its partition now")
    return as_reached(context, leader)


def _check(context: Context, key_type: int, key: str) -> None:
    if key_type == _GROUP:
        check_group(context, Operation.DESCRIBE, key)
    elif key_type == _TRANSACTION:
        if not context.allows(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, key):
            raise Refusal(
                ErrorCode.transactional_id_authorization_failed,
                "not allowed to describe the transactional id",
            )
    else:
        raise Refusal(ErrorCode.invalid_request, f"there are no coordinators of type {key_type}")
