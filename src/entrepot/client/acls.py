"""Access control lists: who may do what to which topics, groups and other things.

Words are Kafka's, in capitals: TOPIC, LITERAL, READ, ALLOW.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import CreateAclsResponse
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v3.response import DeleteAclsResponse
from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import DescribeAclsResponse
from kio.static.primitive import i8

from entrepot.client.client import Client
from entrepot.client.errors import check

# As the protocol numbers them, from 0 on; the first two are UNKNOWN and ANY.
KINDS = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")
PATTERNS = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
OPERATIONS = (
    "UNKNOWN",
    "ANY",
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
)
PERMISSIONS = ("UNKNOWN", "ANY", "DENY", "ALLOW")
CLUSTER = "kafka-cluster"  # The name of the only one.


class AclResource(NamedTuple):
    """What an entry is about; in a filter a name may be None, which stands for any."""

    kind: str
    name: str | None
    pattern: str = "LITERAL"


class AclEntry(NamedTuple):
    """Who may do what; in a filter None and ANY stand for any."""

    principal: str | None
    host: str | None
    operation: str
    permission: str


ANYTHING = AclResource("ANY", None, "ANY")
ANYBODY = AclEntry(None, None, "ANY", "ANY")


class AclAdmin:
    def __init__(self, client: Client) -> None:
        self._cluster = client.cluster

    async def find(
        self, resource: AclResource, entry: AclEntry = ANYBODY
    ) -> dict[AclResource, list[AclEntry]]:
        """The entries that match, by what they are about."""
        request = DescribeAclsRequest(
            resource_type_filter=i8(KINDS.index(resource.kind)),
            resource_name_filter=resource.name,
            pattern_type_filter=i8(PATTERNS.index(resource.pattern)),
            principal_filter=entry.principal,
            host_filter=entry.host,
            operation=i8(OPERATIONS.index(entry.operation)),
            permission_type=i8(PERMISSIONS.index(entry.permission)),
        )

        async def attempt() -> dict[AclResource, list[AclEntry]]:
            answer = await self._cluster.ask(request, DescribeAclsResponse)
            check(answer.error_code, "ACLs", answer.error_message)
            return {
                AclResource(
                    _word(KINDS, each.resource_type),
                    each.resource_name,
                    _word(PATTERNS, each.pattern_type),
                ): [
                    AclEntry(
                        acl.principal,
                        acl.host,
                        _word(OPERATIONS, acl.operation),
                        _word(PERMISSIONS, acl.permission_type),
                    )
                    for acl in each.acls
                ]
                for each in answer.resources
            }

        return await self._cluster.retry(attempt)

    async def add(self, resource: AclResource, entries: Iterable[AclEntry]) -> None:
        creations = tuple(
            AclCreation(
                resource_type=i8(KINDS.index(resource.kind)),
                resource_name=resource.name or "",
                resource_pattern_type=i8(PATTERNS.index(resource.pattern)),
                principal=entry.principal or "",
                host=entry.host or "",
                operation=i8(OPERATIONS.index(entry.operation)),
                permission_type=i8(PERMISSIONS.index(entry.permission)),
            )
            for entry in entries
        )

        async def attempt() -> None:
            request = CreateAclsRequest(creations=creations)
            answer = await self._cluster.ask_controller(request, CreateAclsResponse)
            for each in answer.results:
                check(each.error_code, "ACLs", each.error_message)

        await self._cluster.retry(attempt)

    async def remove(self, resource: AclResource, entries: Iterable[AclEntry]) -> int:
        """Remove what matches; return how many entries that were."""
        filters = tuple(
            DeleteAclsFilter(
                resource_type_filter=i8(KINDS.index(resource.kind)),
                resource_name_filter=resource.name,
                pattern_type_filter=i8(PATTERNS.index(resource.pattern)),
                principal_filter=entry.principal,
                host_filter=entry.host,
                operation=i8(OPERATIONS.index(entry.operation)),
                permission_type=i8(PERMISSIONS.index(entry.permission)),
            )
            for entry in entries
        )

        async def attempt() -> int:
            request = DeleteAclsRequest(filters=filters)
            answer = await self._cluster.ask_controller(request, DeleteAclsResponse)
            for each in answer.filter_results:
                check(each.error_code, "ACLs", each.error_message)
            return sum(len(each.matching_acls) for each in answer.filter_results)

        return await self._cluster.retry(attempt)


def _word(words: tuple[str, ...], number: int) -> str:
    return words[number] if 0 <= number < len(words) else "UNKNOWN"
