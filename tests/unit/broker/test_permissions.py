"""What a user may do in a virtual host, and regular expressions as RabbitMQ reads them."""

import pytest

from entrepot.broker.access import Access
from entrepot.broker.permissions import (
    Permission,
    Permissions,
    Right,
    permission_deleted_record,
    permission_record,
    search,
)
from entrepot.core import limits
from entrepot.core.errors import InvalidPermission
from entrepot.core.record import Record

EVERYTHING = Permission(".*", ".*", ".*")


def fold(permissions: Permissions, *records: Record) -> None:
    for record in records:
        kind, _, name = (record.key or b"").decode().partition(":")
        assert kind == "permission"
        permissions.apply(name, record.value)


def enforced(*records: Record) -> Permissions:
    permissions = Permissions(Access(is_enforced=True, super_users=["User:root"]))
    fold(permissions, *records)
    return permissions


def test_the_bytes_of_the_records() -> None:
    assert permission_record("ana", "/", Permission("a", "", "^c$")) == Record(
        b'permission:["ana", "/"]', b'["a","","^c$"]'
    )
    assert permission_deleted_record("ana", "/") == Record(b'permission:["ana", "/"]', None)


def test_with_authorisation_off_everybody_may_do_everything() -> None:
    permissions = Permissions(Access())
    assert permissions.may_enter("ana", "/")
    assert permissions.allows("ana", "/", Right.CONFIGURE, "q")


def test_super_users_may_do_everything() -> None:
    permissions = enforced()
    assert permissions.may_enter("root", "/")
    assert permissions.allows("root", "/", Right.WRITE, "q")
    assert not permissions.may_enter("ana", "/")
    assert not permissions.allows("ana", "/", Right.WRITE, "q")


def test_each_right_has_its_expression() -> None:
    permissions = enforced(permission_record("ana", "/", Permission("^ana-", "", ".*")))
    assert permissions.may_enter("ana", "/")
    assert not permissions.may_enter("ana", "other")
    assert not permissions.may_enter("ben", "/")
    rights = {
        right: [permissions.allows("ana", "/", right, name) for name in ("ana-1", "my-ana-1")]
        for right in Right
    }
    assert rights == {
        Right.CONFIGURE: [True, False],
        Right.WRITE: [False, False],
        Right.READ: [True, True],
    }
    assert not permissions.allows("ana", "other", Right.READ, "q")


def test_the_default_exchange_has_a_name_for_this() -> None:
    permissions = enforced(permission_record("ana", "/", Permission("", r"^amq\.default$", "")))
    assert permissions.allows("ana", "/", Right.WRITE, "")
    assert not permissions.allows("ana", "/", Right.READ, "")


def test_answers_follow_the_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ACCESS_ANSWERS_MAX", 2)
    permissions = enforced(permission_record("ana", "/", EVERYTHING))
    assert all(permissions.allows("ana", "/", Right.READ, f"q{number}") for number in range(9))
    fold(permissions, permission_record("ana", "/", Permission("", "", "q[0-4]")))
    assert list(permissions.entries) == [("ana", "/")]
    assert not permissions.allows("ana", "/", Right.READ, "q8")
    fold(permissions, permission_deleted_record("ana", "/"))
    assert not permissions.allows("ana", "/", Right.READ, "q0")
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
