"""CreateAcls (key 30), v1 to v3. Answered when the entries are permanent.

An entry that exists already is no error. v3: users as resources, which are not supported.
"""

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.broker.acls import Acl, acl_record
from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.gateway.kafka.acl_codes import acl_of, check_authorization_is_on
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import check_on_cluster, reason_of


async def handle(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    known = context.broker.acls.entries
    results: list[tuple[ErrorCode, str | None]]
    try:
        check_on_cluster(context, Operation.ALTER)
        check_authorization_is_on(context)
        wanted: dict[Acl, None] = {}
        results = [_read(creation, wanted) for creation in request.creations]
        new = [acl for acl in wanted if acl not in known]
        if len(known) + len(new) > limits.ACLS_MAX:
            raise PeerError(f"there may be {limits.ACLS_MAX} entries")
        await context.broker.change_security(*map(acl_record, new))
    except KNOWN as error:
        results = [reason_of(error)] * len(request.creations)
    return CreateAclsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AclCreationResult(error_code=code, error_message=text) for code, text in results
        ),
    )


def _read(creation: AclCreation, wanted: dict[Acl, None]) -> tuple[ErrorCode, str | None]:
    try:
        wanted[acl_of(creation)] = None
    except PeerError as error:
        return reason_of(error)
    return ErrorCode.none, None
