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


def asks(
    acls: Acls, name: str | None, *, user: str = ANA, client: str = "", kind: ResourceKind = TOPIC
) -> bool:
    return acls.allows(Question(user, HOST, Operation.READ, kind, name, "", client))


@pytest.mark.parametrize(
    ("client", "name", "is_allowed"),
    [
        ("a", "devices.a.heat", True),
        ("a", "devices.a.#", True),  # A filter of MQTT.
        ("a", "devices.b.heat", False),
        ("a", "devices.ab.heat", False),
        ("a", "devices.+.heat", False),
        ("a", "devices.#", False),
        ("a", "devices.%c.heat", False),
        ("a.b", "devices.a/b.heat", True),  # One level of MQTT, `a.b`.
        ("a.b", "devices.a.b.heat", False),
        ("", "devices..heat", False),
        ("+", "devices.+.heat", False),
        ("#", "devices.#.heat", False),
        ("a/b", "devices.a.b.heat", False),
        ("a/#", "devices.a.#.heat", False),
        ("%u", "devices.ana.heat", False),
        ("%u", "devices.%u.heat", True),
        ("*", "devices.a.heat", False),
    ],
)
def test_a_prefix_with_the_name_of_the_client(client: str, name: str, is_allowed: bool) -> None:
    acls = folded(acl("devices.%c.", pattern=Pattern.PREFIXED, user="*"))
    assert acls.asks_clients
    assert asks(acls, name, client=client) is is_allowed


@pytest.mark.parametrize(
    ("user", "name", "is_allowed"),
    [
        ("ana", "inbox.ana", True),
        ("ana", "inbox.ana.more", False),
        ("bob", "inbox.ana", False),
        ("ana", "inbox.%u", False),
        ("+", "inbox.+", False),
        ("a/b", "inbox.a.b", False),
        ("ANONYMOUS", "inbox.ANONYMOUS", False),
        ("CN=ana,O=x.org", "inbox.CN=ana,O=x/org", True),
    ],
)
def test_a_name_with_the_user(user: str, name: str, is_allowed: bool) -> None:
    acls = folded(acl("inbox.%u", user="*"))
    assert not acls.asks_clients
    assert asks(acls, name, user=user) is is_allowed


def test_a_lone_template_is_not_everything() -> None:
    acls = folded(acl("%c", user="*"), acl("%u", user="*", pattern=Pattern.PREFIXED))
    assert not asks(acls, "orders", client="*", user="*")
    assert not asks(acls, "orders", client="", user="")
    assert asks(acls, "ana.orders", user=ANA)


def test_templates_are_for_topics_only() -> None:
    acls = folded(acl("%u", kind=GROUP, user="*"))
    assert not asks(acls, ANA, kind=GROUP)
    assert asks(acls, "%u", kind=GROUP)


def test_a_denial_counts_whatever_the_client_calls_itself() -> None:
    acls = folded(
        acl("*", user="*"),
        acl("devices.%c.", user="*", pattern=Pattern.PREFIXED, permission=DENY),
    )
    assert not asks(acls, "devices.a.heat", client="a")
    assert not asks(acls, "devices.+.heat", client="+")
    assert not asks(acls, "devices.a.b.heat", client="a/b")
    assert asks(acls, "devices.b.heat", client="a")


def test_a_template_is_deleted() -> None:
    entry = acl("devices.%c.", user="*", pattern=Pattern.PREFIXED)
    acls = folded(entry)
    assert asks(acls, None, client="a")
    assert not asks(acls, None, client="+")
    fold(acls, acl_deleted_record(entry))
    assert not acls.asks_clients
    assert not asks(acls, "devices.a.x", client="a")
    assert [*acls.entries] == []
