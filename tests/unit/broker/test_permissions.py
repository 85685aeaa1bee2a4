"""Expressions: what they allow in a virtual host, and how they are read."""

import pytest

from entrepot.broker.access import Operation, Question, ResourceKind
from entrepot.broker.permissions import (
    Permission,
    Permissions,
    permission_deleted_record,
    permission_record,
    search,
)
from entrepot.core.errors import InvalidPermission
from entrepot.core.record import Record

EVERYTHING = Permission(".*", ".*", ".*")


def fold(permissions: Permissions, *records: Record) -> None:
    for record in records:
        kind, _, name = (record.key or b"").decode().partition(":")
        assert kind == "permission"
        permissions.apply(name, record.value)


def folded(*records: Record) -> Permissions:
    permissions = Permissions()
    fold(permissions, *records)
    return permissions


def allows(
    permissions: Permissions,
    operation: Operation,
    name: str | None = "q",
    *,
    user: str = "ana",
    vhost: str = "/",
) -> bool:
    kind = ResourceKind.VIRTUAL_HOST if operation is Operation.ENTER else ResourceKind.QUEUE
    return permissions.allows(Question(user, "", operation, kind, name, vhost))


def test_the_bytes_of_the_records() -> None:
    assert permission_record("ana", "/", Permission("a", "", "^c$")) == Record(
        b'permission:["ana", "/"]', b'["a","","^c$"]'
    )
    assert permission_deleted_record("ana", "/") == Record(b'permission:["ana", "/"]', None)


def test_who_has_an_entry_may_enter() -> None:
    permissions = folded(permission_record("ana", "/", Permission("", "", "")))
    assert allows(permissions, Operation.ENTER)
    assert not allows(permissions, Operation.ENTER, vhost="other")
    assert not allows(permissions, Operation.ENTER, user="ben")


@pytest.mark.parametrize(
    ("operation", "mine", "not_mine"),
    [
        (Operation.CREATE, True, False),
        (Operation.ALTER, True, False),
        (Operation.DELETE, True, False),
        (Operation.WRITE, False, False),
        (Operation.READ, True, True),
        (Operation.DESCRIBE, True, True),
        (Operation.CLUSTER_ACTION, False, False),
    ],
)
def test_each_operation_has_its_expression(
    operation: Operation, mine: bool, not_mine: bool
) -> None:
    permissions = folded(permission_record("ana", "/", Permission("^ana-", "", ".*")))
    assert allows(permissions, operation, "ana-1") is mine
    assert allows(permissions, operation, "my-ana-1") is not_mine
    assert not allows(permissions, operation, "ana-1", vhost="other")
    assert not allows(permissions, operation, "ana-1", user="ben")


def test_whether_anything_is_allowed() -> None:
    permissions = folded(permission_record("ana", "/", Permission("", "", "^one$")))
    assert allows(permissions, Operation.READ, None)
    assert allows(permissions, Operation.DESCRIBE, None)
    assert not allows(permissions, Operation.WRITE, None)
    assert not allows(permissions, Operation.READ, None, vhost="other")


def test_entries_come_and_go() -> None:
    permissions = folded(permission_record("ana", "/", EVERYTHING))
    assert allows(permissions, Operation.READ, "q8")
    fold(permissions, permission_record("ana", "/", Permission("", "", "q[0-4]")))
    assert list(permissions.entries) == [("ana", "/")]
    assert not allows(permissions, Operation.READ, "q8")
    fold(permissions, permission_deleted_record("ana", "/"))
    assert not allows(permissions, Operation.READ, "q0")
    assert not permissions.entries


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        ("", [], ["a", "amq.default"]),
        ("^$", [], ["a"]),
        (".*", ["", "a", "a\nb"], []),
        ("b", ["b", "abc"], ["ac"]),
        ("^b", ["b", "bc"], ["ab"]),
        ("b$", ["b", "ab"], ["bc"]),
        ("^b$", ["b"], ["ab", "bc", "b\n"]),
        ("^(a|b)$", ["a", "b"], ["ab", "c"]),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        ("a|", ["", "x"], []),
        (r"a\$", ["a$b"], ["a"]),
        (r"a\\$", ["xa\\"], ["a\\x", "a"]),
        (r"^amq\.gen.*|amq\.default$", ["amq.gen-1", "amq.default"], ["xamq.gen", "amqxgen"]),
        ("[$^|]x", ["$x", "|x", "^x"], ["ax"]),
        ("^[^|$]$", ["a"], ["|", "$", "ab"]),
        ("[]|]", ["]", "|"], ["a"]),
        (r"[\]|]x", ["]x", "|x"], ["ax"]),
        (r"^\d{2,3}$", ["12", "123"], ["1", "1234"]),
        ("^(?:a(b|c))+$", ["ab", "abac"], ["a", "abx"]),
        ("(^a|b)$", ["a", "xb"], ["ax", "xa"]),
        ("(?i)^a", ["A1", "a1"], ["xa"]),
    ],
)
def test_found_in_a_name(pattern: str, found: list[str], not_found: list[str]) -> None:
    expression = search(pattern)
    assert [expression.is_within(name) for name in found] == [True] * len(found)
    assert [expression.is_within(name) for name in not_found] == [False] * len(not_found)


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", "a)", "a)|(b", "(?=a)", "^(?!secret)", r"(a)\1"),
        *("*", "?", "+a", "^**", "[a", "\\", "a|\\", "x" * 1_001),
    ],
)
def test_expressions_that_cannot_be(pattern: str) -> None:
    with pytest.raises(InvalidPermission, match="regular expression"):
        permission_record("ana", "/", Permission("", pattern, ""))
