"""DescribeAcls (key 29), v1 to v3: the entries that a filter matches.

v3: users as resources, which are not supported.
"""

from collections.abc import Iterable

from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.acls import Acl, Pattern
from entrepot.core.errors import PeerError
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.acl_codes import (
    KINDS,
    PATTERNS,
    check_authorization_is_on,
    codes_of,
    matching,
)
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.principals import principal_of
from entrepot.gateway.kafka.refusal import check_on_cluster, reason_of


def handle(context: Context, request: DescribeAclsRequest) -> Steps[DescribeAclsResponse]:
    code, text, found = ErrorCode.none, None, list[Acl]()
    try:
        check_on_cluster(context, Operation.DESCRIBE)
        check_authorization_is_on(context)
        found = matching(request, context.broker.acls.entries)
    except PeerError as error:
        code, text = reason_of(error)
    resources = yield from listed(_resources(found))
    return DescribeAclsResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        error_message=text,
        resources=tuple(resources),
    )


def _resources(found: Iterable[Acl]) -> Iterable[DescribeAclsResource]:
    """Group the entries by resource and pattern, as the answer has them."""
    by_pattern: dict[tuple[ResourceKind, Pattern, str], list[Acl]] = {}
    for acl in found:
        by_pattern.setdefault(acl[:3], []).append(acl)
    for (kind, pattern, name), acls in by_pattern.items():
        yield DescribeAclsResource(
            resource_type=KINDS[kind],
            resource_name=name,
            pattern_type=PATTERNS[pattern],
            acls=tuple(_described(acl) for acl in acls),
        )


def _described(acl: Acl) -> AclDescription:
    codes = codes_of(acl)
    return AclDescription(
        principal=principal_of(acl.user),
        host=acl.host,
        operation=codes.operation,
        permission_type=codes.permission,
    )
