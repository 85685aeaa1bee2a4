"""The one answer to who may do what: the table of decisions over both sets of rules."""

from typing import NamedTuple

import pytest

from entrepot.broker.access import (
    ANONYMOUS,
    Access,
    AccessSettings,
    Operation,
    Principal,
    ResourceKind,
)
from entrepot.broker.acls import Acl, Acls, Pattern, acl_deleted_record, acl_record
from entrepot.broker.acls import PermissionType as Verdict
from entrepot.broker.permissions import (
    Permission,
    Permissions,
    permission_deleted_record,
    permission_record,
)
from entrepot.core import limits
from entrepot.core.record import Record

HOST = "10.0.0.1"
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, QUEUE, EXCHANGE, VIRTUAL_HOST = ResourceKind
READ, WRITE, DESCRIBE, ALTER = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER
CREATE, DELETE, ENTER = Operation.CREATE, Operation.DELETE, Operation.ENTER
# A use of the name `work`: as a log, in a virtual host, or of something else of that name.
USES = [
    *[(operation, TOPIC) for operation in (READ, WRITE, DESCRIBE, CREATE, DELETE)],
    *[(operation, QUEUE) for operation in (READ, WRITE, DESCRIBE, CREATE, DELETE)],
    *[(operation, EXCHANGE) for operation in (READ, WRITE, DESCRIBE, CREATE, DELETE)],
    (READ, GROUP),
    (WRITE, TRANSACTIONAL_ID),
    (ALTER, CLUSTER),
    (ENTER, VIRTUAL_HOST),
]


class House:
    """The authoriser with both sets of rules."""

    def __init__(self, *records: Record, is_enforced: bool = True) -> None:
        self.acls, self.permissions = Acls(), Permissions()
        settings = AccessSettings(is_enforced, ["root"], default_exchange_name="(none)")
        self.access = Access(settings, self.acls, self.permissions)
        self.fold(*records)

    def fold(self, *records: Record) -> None:
        for record in records:
            view, _, text = (record.key or b"").decode().partition(":")
            rules: Acls | Permissions = self.acls if view == "acl" else self.permissions
            rules.apply(text, record.value)

    def principal(self, user: str = "ana") -> Principal:
        return self.access.principal(user, HOST)


def allowed(house: House, user: str = "ana", vhost: str = "/") -> set[str]:
    """Which uses of `work` the user may make; each is asked twice."""
    principal = house.principal(user)
    found = set()
    for operation, kind in USES:
        name = "" if kind in (CLUSTER, VIRTUAL_HOST) else "work"
        place = vhost if kind in (QUEUE, EXCHANGE, VIRTUAL_HOST) else ""
        answers = {principal.may(operation, kind, name, place) for _ in range(2)}
        assert len(answers) == 1, "remembered wrong"
        if answers == {True}:
            found.add(f"{operation.value} {kind.value}")
    return found


def acl(operation: Operation, verdict: Verdict = Verdict.ALLOW, kind: ResourceKind = TOPIC) -> Acl:
    return Acl(kind, Pattern.LITERAL, "work", "ana", "*", operation, verdict)


def named(operation: Operation, verdict: Verdict = Verdict.ALLOW) -> Record:
    return acl_record(acl(operation, verdict))


def expressions(configure: str, write: str, read: str, vhost: str = "/") -> Record:
    return permission_record("ana", vhost, Permission(configure, write, read))


EVERYTHING_NAMED = named(Operation.ALL)
NOTHING_NAMED = named(Operation.ALL, Verdict.DENY)
EVERY_EXPRESSION = expressions(".*", ".*", ".*")
NO_EXPRESSION = expressions("", "", "")
ENTERING = {"enter virtual_host"}


def as_topic(*operations: str) -> set[str]:
    return {f"{each} topic" for each in operations}


def in_vhost(*operations: str) -> set[str]:
    return ENTERING | {f"{each} {kind}" for each in operations for kind in ("queue", "exchange")}


AS_TOPIC = as_topic("read", "write", "describe", "create", "delete")
IN_VHOST = in_vhost("read", "write", "describe", "create", "delete")


class Case(NamedTuple):
    entries: tuple[Record, ...]
    may: set[str]


@pytest.mark.parametrize(
    "case",
    [
        Case((), set()),
        # Entries that name it count for its use as a topic and for nothing else.
        Case((EVERYTHING_NAMED,), AS_TOPIC),
        Case((named(READ),), as_topic("read", "describe")),
        Case((named(WRITE),), as_topic("write", "describe")),
        Case((NOTHING_NAMED,), set()),
        # Expressions count for its use in the virtual host and for nothing else.
        Case((EVERY_EXPRESSION,), IN_VHOST),
        Case((NO_EXPRESSION,), ENTERING),
        Case((expressions("", "", "^work$"),), in_vhost("read", "describe")),
        Case((expressions("^work$", "", "other"),), in_vhost("create", "delete", "describe")),
        Case((expressions(".*", ".*", ".*", vhost="shop"),), set()),
        # Both speak of it: each use has its own rules, and none gives what the other has not.
        Case((EVERYTHING_NAMED, EVERY_EXPRESSION), AS_TOPIC | IN_VHOST),
        Case((EVERYTHING_NAMED, NO_EXPRESSION), AS_TOPIC | ENTERING),
        Case((NOTHING_NAMED, EVERY_EXPRESSION), IN_VHOST),
        Case((NOTHING_NAMED, NO_EXPRESSION), ENTERING),
        Case(
            (named(READ), expressions("", "^work$", "")),
            as_topic("read", "describe") | in_vhost("write", "describe"),
        ),
        Case(
            (acl_record(acl(READ, kind=GROUP)), acl_record(acl(WRITE, kind=TRANSACTIONAL_ID))),
            {"read group", "write transactional_id"},
        ),
        Case((acl_record(acl(ALTER, kind=CLUSTER)),), {"alter cluster"}),
    ],
)
def test_the_table_of_decisions(case: Case) -> None:
    house = House(*case.entries)
    assert allowed(house) == case.may
    assert allowed(house, "ben") == set()
    assert allowed(house, ANONYMOUS) == set()
    everything = {f"{operation.value} {kind.value}" for operation, kind in USES}
    assert allowed(house, "root") == everything
    assert allowed(House(*case.entries, is_enforced=False)) == everything
    assert allowed(House(*case.entries, is_enforced=False), ANONYMOUS) == everything


def test_the_cluster_has_no_name_in_a_question() -> None:
    house = House(acl_record(acl(ALTER, kind=CLUSTER)))
    assert house.principal().may(ALTER, CLUSTER)
    assert house.principal().is_administrator
    assert not house.principal("ben").is_administrator
    assert house.principal("root").is_administrator


def test_the_anonymous_are_a_user_like_others() -> None:
    house = House(acl_record(acl(READ)._replace(user=ANONYMOUS)))
    assert allowed(house, ANONYMOUS) == as_topic("read", "describe")
    house.fold(permission_record(ANONYMOUS, "/", Permission("", "", "")))
    assert house.principal(ANONYMOUS).may_enter("/")


def test_the_host_counts_for_entries_that_name_one() -> None:
    house = House(acl_record(acl(READ)._replace(host=HOST)), EVERY_EXPRESSION)
    elsewhere = house.access.principal("ana", "10.0.0.2")
    assert house.principal().may(READ, TOPIC, "work")
    assert not elsewhere.may(READ, TOPIC, "work")
    assert elsewhere.may(READ, QUEUE, "work", "/")


def test_the_default_exchange_has_a_name_for_expressions() -> None:
    house = House(expressions("", r"^\(none\)$", ""))
    assert house.principal().may(WRITE, EXCHANGE, "", "/")
    assert not house.principal().may(READ, EXCHANGE, "", "/")
    assert not House(NO_EXPRESSION).principal().may(WRITE, EXCHANGE, "", "/")


def test_whether_anything_is_allowed() -> None:
    house = House(named(WRITE), expressions("", "", "^work$"))
    ana, ben = house.principal(), house.principal("ben")
    assert ana.may_with_some(WRITE, TOPIC)
    assert not ana.may_with_some(READ, TOPIC)
    assert ana.may_with_some(READ, QUEUE, "/")
    assert not ana.may_with_some(WRITE, QUEUE, "/")
    assert not ben.may_with_some(WRITE, TOPIC)
    assert house.principal("root").may_with_some(WRITE, TOPIC)


def test_nothing_is_denied_to_the_unlimited() -> None:
    assert [House().principal(user).is_unlimited for user in ("root", "ana")] == [True, False]
    assert House(is_enforced=False).principal().is_unlimited


def test_an_answer_lasts_until_the_entries_change() -> None:
    house = House()
    assert allowed(house) == set()
    house.fold(named(READ))
    assert allowed(house) == as_topic("read", "describe")
    house.fold(NO_EXPRESSION)
    assert allowed(house) == as_topic("read", "describe") | ENTERING
    house.fold(acl_deleted_record(acl(READ)))
    assert allowed(house) == ENTERING
    house.fold(permission_deleted_record("ana", "/"))
    assert allowed(house) == set()


def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ACCESS_ANSWERS_MAX", 3)
    house = House(acl_record(acl(READ)._replace(name="*")), EVERY_EXPRESSION)
    for number in range(20):
        assert house.principal().may(READ, TOPIC, f"t{number}")
        assert house.principal().may(READ, QUEUE, f"q{number}", "/")
        assert len(house.acls.answers) <= 3
        assert len(house.permissions.answers) <= 3
