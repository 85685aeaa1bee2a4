"""Translates ACL entries and filters from and to the numbers of Kafka's requests.

In a filter, the number 1 (ANY) matches everything; the pattern type 2 (MATCH) matches entries
whose pattern covers the name. 0 (UNKNOWN) is refused. Delegation tokens and their owners, which
Kafka has and this broker does not, have no entries.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i32

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.acls import ANY, OPERATIONS, Acl, Pattern, PermissionType
from entrepot.core.errors import PeerError
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.principals import principal_of, user_of
from entrepot.gateway.kafka.refusal import Refusal

CLUSTER_NAME = "kafka-cluster"

KINDS = {
    ResourceKind.TOPIC: i8(2),
    ResourceKind.GROUP: i8(3),
    ResourceKind.CLUSTER: i8(4),
    ResourceKind.TRANSACTIONAL_ID: i8(5),
}
PATTERNS = {Pattern.LITERAL: i8(3), Pattern.PREFIXED: i8(4)}
OPERATION_CODES = {
    Operation.ALL: i8(2),
    Operation.READ: i8(3),
    Operation.WRITE: i8(4),
    Operation.CREATE: i8(5),
    Operation.DELETE: i8(6),
    Operation.ALTER: i8(7),
    Operation.DESCRIBE: i8(8),
    Operation.CLUSTER_ACTION: i8(9),
    Operation.DESCRIBE_CONFIGS: i8(10),
    Operation.ALTER_CONFIGS: i8(11),
    Operation.IDEMPOTENT_WRITE: i8(12),
}
PERMISSIONS = {PermissionType.DENY: i8(2), PermissionType.ALLOW: i8(3)}

NOT_TOLD = i32(-(2**31))  # In place of the bits, when the request did not ask for them.

_ANYTHING = 1
_MATCH = 2
# The largest number that Kafka defines, supported here or not.
_KIND_LAST, _PATTERN_LAST, _OPERATION_LAST, _PERMISSION_LAST = 7, 4, 15, 3

_KIND_OF = {code: kind for kind, code in KINDS.items()}
_PATTERN_OF = {code: pattern for pattern, code in PATTERNS.items()}
_OPERATION_OF = {code: operation for operation, code in OPERATION_CODES.items()}
_PERMISSION_OF = {code: permission for permission, code in PERMISSIONS.items()}


class Creation(Protocol):
    """An entry as CreateAcls has it."""

    @property
    def resource_type(self) -> i8: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def resource_pattern_type(self) -> i8: ...
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> i8: ...
    @property
    def permission_type(self) -> i8: ...


class Filter(Protocol):
    """A filter as DescribeAcls and DeleteAcls have it."""

    @property
    def resource_type_filter(self) -> i8: ...
    @property
    def resource_name_filter(self) -> str | None: ...
    @property
    def pattern_type_filter(self) -> i8: ...
    @property
    def principal_filter(self) -> str | None: ...
    @property
    def host_filter(self) -> str | None: ...
    @property
    def operation(self) -> i8: ...
    @property
    def permission_type(self) -> i8: ...


class Codes(NamedTuple):
    kind: i8
    pattern: i8
    operation: i8
    permission: i8


def codes_of(acl: Acl) -> Codes:
    return Codes(
        KINDS[acl.kind],
        PATTERNS[acl.pattern],
        OPERATION_CODES[acl.operation],
        PERMISSIONS[acl.permission],
    )


def acl_of(wanted: Creation) -> Acl:
    """Return the entry. Raises PeerError if it is invalid or could never have an effect."""
    kind = _KIND_OF.get(wanted.resource_type)
    pattern = _PATTERN_OF.get(wanted.resource_pattern_type)
    operation = _OPERATION_OF.get(wanted.operation)
    permission = _PERMISSION_OF.get(wanted.permission_type)
    if kind is None:
        raise PeerError(f"there are no entries for resource type {wanted.resource_type}")
    if pattern is None:
        raise PeerError(f"an entry's pattern is not of type {wanted.resource_pattern_type}")
    if operation is None:
        raise PeerError(f"there are no entries for operation {wanted.operation}")
    if permission is None:
        raise PeerError(f"an entry's permission is not {wanted.permission_type}")
    name = wanted.resource_name
    if not name:
        raise PeerError("the resource has no name")
    if kind is ResourceKind.CLUSTER and name != CLUSTER_NAME:
        raise PeerError(f"the cluster's name is {CLUSTER_NAME}")
    user = user_of(wanted.principal)
    if not wanted.host:
        raise PeerError("an entry has a host, or * for all of them")
    return Acl(kind, pattern, name, user, wanted.host, operation, permission)


def matching(wanted: Filter, acls: Iterable[Acl]) -> list[Acl]:
    """Return the entries that a filter matches. Raises PeerError for unknown numbers."""
    for code, last in (
        (wanted.resource_type_filter, _KIND_LAST),
        (wanted.pattern_type_filter, _PATTERN_LAST),
        (wanted.operation, _OPERATION_LAST),
        (wanted.permission_type, _PERMISSION_LAST),
    ):
        if not _ANYTHING <= code <= last:
            raise PeerError("the filter has a part that is not known")
    return [acl for acl in acls if _matches(wanted, acl)]


def _matches(wanted: Filter, acl: Acl) -> bool:
    codes = codes_of(acl)
    return (
        wanted.resource_type_filter in (_ANYTHING, codes.kind)
        and wanted.operation in (_ANYTHING, codes.operation)
        and wanted.permission_type in (_ANYTHING, codes.permission)
        and wanted.principal_filter in (None, principal_of(acl.user))
        and wanted.host_filter in (None, acl.host)
        and wanted.pattern_type_filter in (_ANYTHING, _MATCH, codes.pattern)
        and _names(wanted, acl)
    )


def _names(wanted: Filter, acl: Acl) -> bool:
    name = wanted.resource_name_filter
    if name is None:
        return True
    if wanted.pattern_type_filter != _MATCH:
        return acl.name == name
    if acl.pattern is Pattern.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, ANY)


def operation_bits(context: Context, kind: ResourceKind, name: str) -> i32:
    """Return what the peer may do to a resource, one bit for each operation."""
    bits = 0
    for operation in OPERATIONS[kind]:
        if context.allows(operation, kind, name):
            bits |= 1 << OPERATION_CODES[operation]
    return i32(bits)


def cluster_bits(context: Context) -> i32:
    if not context.allows_on_cluster(Operation.DESCRIBE):
        return i32(0)
    return operation_bits(context, ResourceKind.CLUSTER, "")


def check_authorization_is_on(context: Context) -> None:
    """Raise Refusal if authorisation is off: entries would have no effect, and so mislead."""
    if not context.broker.access.is_enforced:
        raise Refusal(ErrorCode.security_disabled, "authorisation is off: there are no ACLs")
