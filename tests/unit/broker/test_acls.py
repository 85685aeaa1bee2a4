"""Named entries: their rules one by one."""

import pytest

from entrepot.broker.access import Operation, Question, ResourceKind
from entrepot.broker.acls import (
    Acl,
    Acls,
    Pattern,
    PermissionType,
    acl_deleted_record,
    acl_record,
)
from entrepot.core.record import Record
from tests.unit.gateway.kafka.node import Node, on_node

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
ANA, BOB = "ana", "bob"
HOST = "10.0.0.1"


def acl(
    name: str = "orders",
    operation: Operation = Operation.READ,
    *,
    kind: ResourceKind = TOPIC,
    pattern: Pattern = Pattern.LITERAL,
    user: str = ANA,
    host: str = "*",
    permission: PermissionType = ALLOW,
) -> Acl:
    return Acl(kind, pattern, name, user, host, operation, permission)


def fold(acls: Acls, record: Record) -> None:
    assert record.key is not None
    acls.apply(record.key.decode().removeprefix("acl:"), record.value)


def folded(*entries: Acl) -> Acls:
    acls = Acls()
    for each in entries:
        fold(acls, acl_record(each))
    return acls


def allows(
    acls: Acls, operation: Operation, name: str | None = "orders", kind: ResourceKind = TOPIC
) -> bool:
    return acls.allows(Question(ANA, HOST, operation, kind, name, ""))


PREFIX = acl("ord", pattern=Pattern.PREFIXED)


@pytest.mark.parametrize(
    ("entries", "operation", "is_allowed"),
    [
        ([], Operation.READ, False),
        ([acl()], Operation.READ, True),
        ([acl()], Operation.WRITE, False),
        ([acl(user=BOB)], Operation.READ, False),
        ([acl(user="*")], Operation.READ, True),
        ([acl(user="an")], Operation.READ, False),
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
        ([acl(), acl(permission=DENY, user="*", host=HOST)], Operation.READ, False),
        ([acl(), acl(permission=DENY, operation=Operation.ALL)], Operation.READ, False),
        ([acl(), acl(permission=DENY, user=BOB)], Operation.READ, True),
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
    assert allows(folded(*entries), operation) is is_allowed


@pytest.mark.parametrize("pattern", Pattern)
def test_the_cluster_is_one_thing(pattern: Pattern) -> None:
    acls = folded(acl("any name", Operation.ALTER, kind=CLUSTER, pattern=pattern))
    assert allows(acls, Operation.ALTER, "", CLUSTER)
    assert allows(acls, Operation.DESCRIBE, "", CLUSTER)
    assert not allows(acls, Operation.CREATE, "", CLUSTER)
    denied = acl("any name", Operation.ALTER, kind=CLUSTER, permission=DENY)
    fold(acls, acl_record(denied))
    assert not allows(acls, Operation.ALTER, "", CLUSTER)


def test_entries_come_and_go() -> None:
    acls = folded()
    assert not allows(acls, Operation.READ)
    for record in (acl_record(acl()), acl_record(acl())):  # Twice is once.
        fold(acls, record)
        assert allows(acls, Operation.READ)
    for record in (acl_deleted_record(acl()), acl_deleted_record(acl())):  # Gone already.
        fold(acls, record)
        assert not allows(acls, Operation.READ)
    assert list(acls.entries) == []


def test_the_bytes_of_the_records() -> None:
    key = b'acl:["topic","literal","orders","User:ana","*","read","allow"]'
    assert acl_record(acl()) == Record(key, b"")
    assert acl_deleted_record(acl()) == Record(key, None)


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
    assert allows(folded(*entries), Operation.READ, None) is is_allowed


@on_node()
async def test_entries_survive_a_power_failure(node: Node) -> None:
    kept = acl("a:b", user='"quoted"', pattern=Pattern.PREFIXED)
    gone = acl("gone")
    await node.context.broker.change_security(acl_record(kept), acl_record(gone))
    await node.context.broker.change_security(acl_deleted_record(gone))
    await node.power_fails()
    assert list(node.context.broker.acls.entries) == [kept]
