"""ACLs: Kafka's rules, one by one, and the memory of answers."""

import pytest

from entrepot.broker.access import (
    ANONYMOUS,
    CLUSTER_NAME,
    Access,
    Acl,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
    acl_deleted_record,
    acl_record,
)
from entrepot.core import limits
from entrepot.core.record import Record
from tests.unit.gateway.kafka.node import Node, on_node

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ANA, BOB = "User:ana", "User:bob"
HOST = "10.0.0.1"


def acl(
    name: str = "orders",
    operation: Operation = Operation.READ,
    *,
    kind: ResourceKind = TOPIC,
    pattern: Pattern = Pattern.LITERAL,
    principal: str = ANA,
    host: str = "*",
    permission: Permission = ALLOW,
) -> Acl:
    return Acl(kind, pattern, name, principal, host, operation, permission)


def fold(access: Access, record: Record) -> None:
    assert record.key is not None
    access.apply(record.key.decode().removeprefix("acl:"), record.value)


def enforced(*acls: Acl) -> Access:
    access = Access(is_enforced=True, super_users=["User:root"])
    for each in acls:
        fold(access, acl_record(each))
    return access


def allows(
    access: Access,
    operation: Operation,
    name: str = "orders",
    *,
    kind: ResourceKind = TOPIC,
    principal: str = ANA,
    host: str = HOST,
) -> bool:
    first = access.allows(principal, host, operation, kind, name)
    assert access.allows(principal, host, operation, kind, name) is first, "remembered wrong"
    return first


PREFIX = acl("ord", pattern=Pattern.PREFIXED)


@pytest.mark.parametrize(
    ("entries", "operation", "is_allowed"),
    [
        ([], Operation.READ, False),
        ([acl()], Operation.READ, True),
        ([acl()], Operation.WRITE, False),
        ([acl(principal=BOB)], Operation.READ, False),
        ([acl(principal="User:*")], Operation.READ, True),
        ([acl(principal="User:an")], Operation.READ, False),
        ([acl(host=HOST)], Operation.READ, True),
        ([acl(host="10.0.0.2")], Operation.READ, False),
        ([acl("order")], Operation.READ, False),
        ([acl("*")], Operation.READ, True),
        ([PREFIX], Operation.READ, True),
        ([acl("orders", pattern=Pattern.PREFIXED)], Operation.READ, True),
        ([acl("orders2", pattern=Pattern.PREFIXED)], Operation.READ, False),
        ([acl(kind=GROUP)], Operation.READ, False),
        ([acl(operation=Operation.ALL)], Operation.ALTER_CONFIGS, True),
        # What is denied is denied, whatever allows it.
        ([acl(), acl(permission=DENY)], Operation.READ, False),
        ([acl(), acl("*", permission=DENY)], Operation.READ, False),
        ([acl(), PREFIX._replace(permission=DENY)], Operation.READ, False),
        ([acl(), acl(permission=DENY, principal="User:*", host=HOST)], Operation.READ, False),
        ([acl(), acl(permission=DENY, operation=Operation.ALL)], Operation.READ, False),
        ([acl(), acl(permission=DENY, principal=BOB)], Operation.READ, True),
        ([acl(permission=DENY)], Operation.WRITE, False),
        # Allowing some operations allows describing; denying them does not deny it.
        ([acl(operation=Operation.READ)], Operation.DESCRIBE, True),
        ([acl(operation=Operation.WRITE)], Operation.DESCRIBE, True),
        ([acl(operation=Operation.DELETE)], Operation.DESCRIBE, True),
        ([acl(operation=Operation.ALTER)], Operation.DESCRIBE, True),
        ([acl(operation=Operation.CREATE)], Operation.DESCRIBE, False),
        ([acl(operation=Operation.DESCRIBE)], Operation.READ, False),
        ([acl(operation=Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS, True),
        ([acl(operation=Operation.READ)], Operation.DESCRIBE_CONFIGS, False),
        (
            [acl(operation=Operation.DESCRIBE), acl(permission=DENY, operation=Operation.READ)],
            Operation.DESCRIBE,
            True,
        ),
    ],
)
def test_rules(entries: list[Acl], operation: Operation, is_allowed: bool) -> None:
    assert allows(enforced(*entries), operation) is is_allowed


def test_off_everybody_may_do_everything() -> None:
    access = Access()
    fold(access, acl_record(acl(permission=DENY)))
    assert allows(access, Operation.READ)
    assert access.allows_some(ANONYMOUS, HOST, Operation.WRITE, TOPIC)


def test_super_users_may_do_everything() -> None:
    access = enforced(acl(permission=DENY, principal="User:*", operation=Operation.ALL))
    assert allows(access, Operation.READ, principal="User:root")
    assert access.allows_some("User:root", HOST, Operation.WRITE, TOPIC)
    assert not allows(access, Operation.READ, principal="User:toor")


def test_the_cluster_is_one_thing() -> None:
    access = enforced(acl(CLUSTER_NAME, Operation.ALTER, kind=CLUSTER))
    assert allows(access, Operation.ALTER, CLUSTER_NAME, kind=CLUSTER)
    assert not allows(access, Operation.CREATE, CLUSTER_NAME, kind=CLUSTER)


def test_an_answer_lasts_until_the_entries_change() -> None:
    access = enforced()
    assert not allows(access, Operation.READ)
    fold(access, acl_record(acl()))
    assert allows(access, Operation.READ)
    fold(access, acl_record(acl()))  # Twice is once.
    fold(access, acl_deleted_record(acl()))
    assert not allows(access, Operation.READ)
    assert list(access.acls) == []
    fold(access, acl_deleted_record(acl()))  # Gone already.


def test_answers_are_bounded() -> None:
    access = enforced(acl("*"))
    for number in range(limits.ACCESS_ANSWERS_MAX + 10):
        assert access.allows(ANA, HOST, Operation.READ, TOPIC, str(number))
    assert len(access._answers) <= limits.ACCESS_ANSWERS_MAX


@pytest.mark.parametrize(
    ("entries", "is_allowed"),
    [
        ([], False),
        ([acl()], True),
        ([acl(kind=GROUP)], False),
        ([acl(operation=Operation.WRITE)], False),
        ([acl("*"), acl("*", permission=DENY)], False),
        ([acl("*"), acl("orders", permission=DENY)], True),
        ([acl("*"), PREFIX._replace(permission=DENY)], True),
        ([acl("orders"), acl("orders", permission=DENY)], False),
        ([acl("orders"), PREFIX._replace(permission=DENY)], False),
        ([acl("orders"), acl("*", permission=DENY)], False),
        ([PREFIX, PREFIX._replace(permission=DENY)], False),
        ([PREFIX, PREFIX._replace(permission=DENY, name="orders")], True),
        ([PREFIX, acl("ord", permission=DENY)], True),
        ([PREFIX, acl("*", permission=DENY)], False),
        ([acl("a"), acl("b"), acl("a", permission=DENY)], True),
    ],
)
def test_whether_anything_is_allowed(entries: list[Acl], is_allowed: bool) -> None:
    access = enforced(*entries)
    for _ in range(2):
        assert access.allows_some(ANA, HOST, Operation.READ, TOPIC) is is_allowed


@on_node()
async def test_entries_survive_a_power_failure(node: Node) -> None:
    kept = acl("a:b", principal='User:"quoted"', pattern=Pattern.PREFIXED)
    gone = acl("gone")
    await node.context.broker.change_security(acl_record(kept), acl_record(gone))
    await node.context.broker.change_security(acl_deleted_record(gone))
    await node.power_fails()
    assert list(node.context.broker.access.acls) == [kept]
