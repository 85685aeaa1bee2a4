"""DeleteAcls (key 31), v1 to v3: delete the entries that filters match.

Answered, with the deleted entries, when the deletion is permanent. v3: users as resources, which
are not supported.
"""

from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v3.response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.broker.acls import Acl, acl_deleted_record
from entrepot.core.errors import PeerError
from entrepot.gateway.kafka.acl_codes import check_authorization_is_on, codes_of, matching
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.principals import principal_of
from entrepot.gateway.kafka.refusal import check_on_cluster, reason_of


async def handle(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    try:
        check_on_cluster(context, Operation.ALTER)
        check_authorization_is_on(context)
        gone: dict[Acl, None] = {}
        results = [_match(context, wanted, gone) for wanted in request.filters]
        await context.broker.change_security(*map(acl_deleted_record, gone))
    except KNOWN as error:
        results = [_failed(error)] * len(request.filters)
    return DeleteAclsResponse(throttle_time=NO_THROTTLE, filter_results=tuple(results))


def _match(
    context: Context, wanted: DeleteAclsFilter, gone: dict[Acl, None]
) -> DeleteAclsFilterResult:
    try:
        found = matching(wanted, context.broker.acls.entries)
    except PeerError as error:
        return _failed(error)
    gone.update(dict.fromkeys(found))
    return DeleteAclsFilterResult(
        error_code=ErrorCode.none,
        error_message=None,
        matching_acls=tuple(_deleted(acl) for acl in found),
    )


def _failed(error: Exception) -> DeleteAclsFilterResult:
    code, text = reason_of(error)
    return DeleteAclsFilterResult(error_code=code, error_message=text, matching_acls=())


def _deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    codes = codes_of(acl)
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.none,
        error_message=None,
        resource_type=codes.kind,
        resource_name=acl.name,
        pattern_type=codes.pattern,
        principal=principal_of(acl.user),
        host=acl.host,
        operation=codes.operation,
        permission_type=codes.permission,
    )
