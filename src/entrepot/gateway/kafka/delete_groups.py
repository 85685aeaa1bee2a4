"""DeleteGroups (key 42), v0 to v2: delete groups without members, and their committed offsets."""

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId

from entrepot.broker.access import Operation
from entrepot.broker.turns import gathered
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group, group_code


async def handle(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    wanted = dict.fromkeys(request.groups_names)
    results = await gathered(_delete(context, group_id) for group_id in wanted)
    return DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


async def _delete(context: Context, group_id: GroupId) -> DeletableGroupResult:
    code = ErrorCode.none
    try:
        check_group(context, Operation.DELETE, group_id)
        broker = context.broker
        kind = broker.share_groups if broker.share_groups.has(group_id) else broker.groups
        await kind.delete(group_id)
    except KNOWN as error:
        code = group_code(error)
    return DeletableGroupResult(group_id=group_id, error_code=code)
