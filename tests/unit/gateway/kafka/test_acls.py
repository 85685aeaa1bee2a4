"""CreateAcls, DescribeAcls and DeleteAcls, which are one thing seen from three sides."""

from dataclasses import replace

import pytest
from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult
from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import DescribeAclsResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.acls import Acl, Pattern, PermissionType, acl_record
from entrepot.core import limits
from entrepot.core.steps import finish
from entrepot.gateway.kafka import create_acls, delete_acls, describe_acls
from tests.unit.gateway.kafka.node import Node, on_node

TOPIC, CLUSTER, TOKEN = i8(2), i8(4), i8(6)
ANY, MATCH, LITERAL, PREFIXED = i8(1), i8(2), i8(3), i8(4)
ALL, READ, WRITE, CREATE_TOKENS = i8(2), i8(3), i8(4), i8(13)
DENY, ALLOW = i8(2), i8(3)

GOOD = AclCreation(
    resource_type=TOPIC,
    resource_name="orders",
    resource_pattern_type=LITERAL,
    principal="User:ana",
    host="*",
    operation=READ,
    permission_type=ALLOW,
)
EVERYTHING = DeleteAclsFilter(
    resource_type_filter=ANY,
    resource_name_filter=None,
    pattern_type_filter=ANY,
    principal_filter=None,
    host_filter=None,
    operation=ANY,
    permission_type=ANY,
)


async def create(node: Node, *creations: AclCreation) -> list[AclCreationResult]:
    answer = await create_acls.handle(node.context, CreateAclsRequest(creations=creations))
    return list(answer.results)


async def delete(node: Node, *filters: DeleteAclsFilter) -> list[DeleteAclsFilterResult]:
    answer = await delete_acls.handle(node.context, DeleteAclsRequest(filters=filters))
    return list(answer.filter_results)


def describe(node: Node, wanted: DeleteAclsFilter = EVERYTHING) -> DescribeAclsResponse:
    fields = {name: getattr(wanted, name) for name in DescribeAclsRequest.__slots__}
    return finish(describe_acls.handle(node.context, DescribeAclsRequest(**fields)))


def names(answer: DescribeAclsResponse) -> list[str]:
    return [resource.resource_name for resource in answer.resources]


def enforce(node: Node) -> None:
    """From now on ACLs count, and the test is a super user."""
    node.context.broker.access.is_enforced = True
    node.context.broker.access._super_users = frozenset([node.context.principal.user])


@on_node()
async def test_an_entry_comes_and_goes_for_good(node: Node) -> None:
    enforce(node)
    assert [each.error_code for each in await create(node, GOOD, GOOD)] == [ErrorCode.none] * 2
    assert (await create(node, GOOD))[0].error_code is ErrorCode.none
    answer = describe(node)
    assert answer.error_code is ErrorCode.none
    (resource,) = answer.resources
    assert (resource.resource_type, resource.resource_name) == (TOPIC, "orders")
    (described,) = resource.acls
    assert (described.principal, described.host) == ("User:ana", "*")
    assert (described.operation, described.permission_type) == (READ, ALLOW)
    await node.power_fails()
    enforce(node)
    expected = Acl(
        ResourceKind.TOPIC,
        Pattern.LITERAL,
        "orders",
        "ana",
        "*",
        Operation.READ,
        PermissionType.ALLOW,
    )
    assert list(node.context.broker.acls.entries) == [expected]
    (result,) = await delete(node, EVERYTHING)
    (gone,) = result.matching_acls
    assert (gone.resource_name, gone.operation, gone.error_code) == ("orders", READ, ErrorCode.none)
    await node.power_fails()
    assert list(node.context.broker.acls.entries) == []


@pytest.mark.parametrize(
    "bad",
    [
        replace(GOOD, resource_type=i8(0)),
        replace(GOOD, resource_type=ANY),
        replace(GOOD, resource_type=TOKEN),
        replace(GOOD, resource_pattern_type=ANY),
        replace(GOOD, resource_pattern_type=MATCH),
        replace(GOOD, resource_name=""),
        replace(GOOD, resource_type=CLUSTER, resource_name="another"),
        replace(GOOD, operation=i8(0)),
        replace(GOOD, operation=ANY),
        replace(GOOD, operation=CREATE_TOKENS),
        replace(GOOD, permission_type=ANY),
        replace(GOOD, principal="ana"),
        replace(GOOD, principal="User:"),
        replace(GOOD, principal="Group:sales"),
        replace(GOOD, host=""),
    ],
)
@on_node()
async def test_what_is_no_entry(node: Node, bad: AclCreation) -> None:
    enforce(node)
    good, refused = await create(node, GOOD, bad)
    assert good.error_code is ErrorCode.none
    assert refused.error_code is ErrorCode.invalid_request
    assert refused.error_message
    assert len(node.context.broker.acls.entries) == 1


@on_node()
async def test_entries_are_bounded(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ACLS_MAX", 1)
    enforce(node)
    other = replace(GOOD, resource_name="other")
    assert {each.error_code for each in await create(node, GOOD, other)} == {
        ErrorCode.invalid_request
    }
    assert (await create(node, GOOD))[0].error_code is ErrorCode.none
    assert (await create(node, other))[0].error_code is ErrorCode.invalid_request
    assert (await create(node, GOOD))[0].error_code is ErrorCode.none


ENTRIES = (
    GOOD,
    replace(GOOD, resource_name="ord", resource_pattern_type=PREFIXED, operation=WRITE),
    replace(GOOD, resource_name="*", permission_type=DENY),
    replace(GOOD, resource_name="users", principal="User:*", host="10.0.0.1"),
    replace(GOOD, resource_type=CLUSTER, resource_name="kafka-cluster", operation=ALL),
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (EVERYTHING, "orders ord * users kafka-cluster"),
        (replace(EVERYTHING, resource_type_filter=TOPIC), "orders ord * users"),
        (replace(EVERYTHING, resource_type_filter=TOKEN), ""),
        (replace(EVERYTHING, pattern_type_filter=PREFIXED), "ord"),
        (replace(EVERYTHING, resource_name_filter="orders"), "orders"),
        (
            replace(EVERYTHING, resource_name_filter="orders", pattern_type_filter=MATCH),
            "orders ord *",
        ),
        (replace(EVERYTHING, resource_name_filter="ord", pattern_type_filter=LITERAL), ""),
        (replace(EVERYTHING, resource_name_filter="*", pattern_type_filter=LITERAL), "*"),
        (replace(EVERYTHING, principal_filter="User:*"), "users"),
        (replace(EVERYTHING, principal_filter="User:bob"), ""),
        (replace(EVERYTHING, host_filter="10.0.0.1"), "users"),
        (replace(EVERYTHING, operation=WRITE), "ord"),
        (replace(EVERYTHING, operation=ALL), "kafka-cluster"),
        (replace(EVERYTHING, permission_type=DENY), "*"),
    ],
)
@on_node()
async def test_filters(node: Node, wanted: DeleteAclsFilter, found: str) -> None:
    enforce(node)
    await create(node, *ENTRIES)
    assert names(describe(node, wanted)) == found.split()
    (result,) = await delete(node, wanted)
    assert [each.resource_name for each in result.matching_acls] == found.split()
    assert len(node.context.broker.acls.entries) == len(ENTRIES) - len(found.split())


@pytest.mark.parametrize(
    "bad",
    [
        replace(EVERYTHING, resource_type_filter=i8(0)),
        replace(EVERYTHING, resource_type_filter=i8(99)),
        replace(EVERYTHING, pattern_type_filter=i8(5)),
        replace(EVERYTHING, operation=i8(-1)),
        replace(EVERYTHING, permission_type=i8(4)),
    ],
)
@on_node()
async def test_a_filter_that_is_none(node: Node, bad: DeleteAclsFilter) -> None:
    enforce(node)
    await create(node, GOOD)
    answer = describe(node, bad)
    assert answer.error_code is ErrorCode.invalid_request
    assert answer.resources == ()
    results = await delete(node, bad, EVERYTHING)
    assert [each.error_code for each in results] == [ErrorCode.invalid_request, ErrorCode.none]


@on_node()
async def test_without_authorisation_there_are_none(node: Node) -> None:
    assert (await create(node, GOOD))[0].error_code is ErrorCode.security_disabled
    assert (await delete(node, EVERYTHING))[0].error_code is ErrorCode.security_disabled
    assert describe(node).error_code is ErrorCode.security_disabled


@on_node()
async def test_whoever_may_not(node: Node) -> None:
    access = node.context.broker.access
    access.is_enforced = True
    assert (await create(node, GOOD))[0].error_code is ErrorCode.cluster_authorization_failed
    assert (await delete(node, EVERYTHING))[0].error_code is ErrorCode.cluster_authorization_failed
    assert describe(node).error_code is ErrorCode.cluster_authorization_failed
    allowed = Acl(
        ResourceKind.CLUSTER,
        Pattern.LITERAL,
        "kafka-cluster",
        node.context.principal.user,
        "*",
        Operation.DESCRIBE,
        PermissionType.ALLOW,
    )
    await node.context.broker.change_security(acl_record(allowed))
    assert describe(node).error_code is ErrorCode.none
    assert (await create(node, GOOD))[0].error_code is ErrorCode.cluster_authorization_failed
