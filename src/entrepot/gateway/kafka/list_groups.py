"""ListGroups (key 16), v0 to v5: list the groups, classic, modern and share.

v4: only groups in given states. v5: only groups of given types: "classic", "consumer", "share".
"""

from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.types import GroupId

from entrepot.broker.access import Operation, ResourceKind
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context


def handle(context: Context, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    states = [state.lower() for state in request.states_filter]
    types = [kind.lower() for kind in request.types_filter]
    may_all = context.allows_on_cluster(Operation.DESCRIBE)
    broker = context.broker
    is_whole = broker.groups.refusal is None and broker.share_groups.refusal is None
    groups = yield from listed(
        ListedGroup(
            group_id=GroupId(group.group_id),
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.kind,
        )
        for group in (*broker.groups.list(), *broker.share_groups.listed())
        if (not states or group.state.lower() in states)
        and (not types or group.kind in types)
        and (may_all or context.allows(Operation.DESCRIBE, ResourceKind.GROUP, group.group_id))
    )
    return ListGroupsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if is_whole else ErrorCode.kafka_storage_error,
        groups=tuple(groups),
    )
