"""Who may do what: the one answer every gateway asks for.

The rules are Kafka's. An entry speaks of a principal, from a host, doing something to
what a pattern names. What is denied by any entry is denied; else what is allowed by any
entry is allowed; else it is denied. To allow reading, writing, deleting or altering is to
allow describing. Super users may do everything, and with authorisation off everybody may.

Entries are records of the catalog. Answers are remembered until the entries change,
because the same few questions come with every request.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

import msgspec

from entrepot.core import limits
from entrepot.core.record import Record

log = logging.getLogger("entrepot.access")


class Operation(Enum):
    """Values are persisted: never change one."""

    ALL = "all"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster_action"
    DESCRIBE_CONFIGS = "describe_configs"
    ALTER_CONFIGS = "alter_configs"
    IDEMPOTENT_WRITE = "idempotent_write"


class ResourceKind(Enum):
    """Values are persisted: never change one."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional_id"


class Pattern(Enum):
    """How an entry's name is meant. Values are persisted: never change one."""

    LITERAL = "literal"  # With the name `*`: everything.
    PREFIXED = "prefixed"


class Permission(Enum):
    """Values are persisted: never change one."""

    ALLOW = "allow"
    DENY = "deny"


CLUSTER_NAME = "kafka-cluster"
ANONYMOUS = "User:ANONYMOUS"
EVERYBODY = "User:*"
ANY = "*"

# What can be done to what; `ALL` is all of these.
OPERATIONS = {
    ResourceKind.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceKind.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceKind.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceKind.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
# To allow one of these is to allow the other, too. To deny it is not to deny the other.
_IMPLYING = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


class Acl(NamedTuple):
    """One entry."""

    kind: ResourceKind
    pattern: Pattern
    name: str
    principal: str  # `User:name`, or `User:*` for everybody.
    host: str  # An address, or `*`.
    operation: Operation
    permission: Permission

    def concerns(self, principal: str, host: str, operation: Operation) -> bool:
        return (
            self.principal in (principal, EVERYBODY)
            and self.host in (host, ANY)
            and (
                self.operation in (operation, Operation.ALL)
                or (
                    self.permission is Permission.ALLOW
                    and self.operation in _IMPLYING.get(operation, ())
                )
            )
        )

    def covers(self, other: Acl) -> bool:
        """Whether all that the other's pattern names is named by this one's, too."""
        if self.pattern is Pattern.PREFIXED:
            return other.name != ANY and other.name.startswith(self.name)
        return self.name in (ANY, other.name) and (
            self.name == ANY or other.pattern is Pattern.LITERAL
        )


class Access:
    def __init__(self, *, is_enforced: bool = False, super_users: Iterable[str] = ()) -> None:
        self.is_enforced = is_enforced
        self._super_users = frozenset(super_users)
        self._acls: dict[Acl, None] = {}
        # The same, by what they name.
        self._named: dict[tuple[ResourceKind, Pattern, str], dict[Acl, None]] = {}
        self._answers: dict[tuple[str, str, Operation, ResourceKind, str | None], bool] = {}

    @property
    def acls(self) -> Collection[Acl]:
        """Oldest first."""
        return self._acls.keys()

    def apply(self, text: str, value: bytes | None) -> None:
        """Fold one record of the catalog."""
        acl = msgspec.json.decode(text, type=Acl)
        self._answers.clear()
        named = self._named.setdefault((acl.kind, acl.pattern, acl.name), {})
        if value is not None:
            self._acls[acl] = named[acl] = None
        else:
            self._acls.pop(acl, None)
            named.pop(acl, None)
            if not named:
                del self._named[acl.kind, acl.pattern, acl.name]

    def is_unlimited(self, principal: str) -> bool:
        """Whether nothing is denied to it: nothing is to anybody, or it is a super user."""
        return not self.is_enforced or principal in self._super_users

    def allows(
        self, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str
    ) -> bool:
        if self.is_unlimited(principal):
            return True
        question = (principal, host, operation, kind, name)
        answer = self._answers.get(question)
        if answer is None:
            found = [acl for acl in self._about(kind, name) if acl.concerns(*question[:3])]
            answer = bool(found) and all(acl.permission is Permission.ALLOW for acl in found)
            self._remember(question, answer)
        return answer

    def allows_some(
        self, principal: str, host: str, operation: Operation, kind: ResourceKind
    ) -> bool:
        """Whether there may be anything of this kind that it is allowed with."""
        if self.is_unlimited(principal):
            return True
        question = (principal, host, operation, kind, None)
        answer = self._answers.get(question)
        if answer is None:
            found = [a for a in self._acls if a.kind is kind and a.concerns(*question[:3])]
            denied = [acl for acl in found if acl.permission is Permission.DENY]
            answer = any(
                acl.permission is Permission.ALLOW and not any(d.covers(acl) for d in denied)
                for acl in found
            )
            self._remember(question, answer)
        return answer

    def _about(self, kind: ResourceKind, name: str) -> Iterator[Acl]:
        yield from self._named.get((kind, Pattern.LITERAL, name), ())
        if name != ANY:
            yield from self._named.get((kind, Pattern.LITERAL, ANY), ())
        for end in range(1, len(name) + 1):
            yield from self._named.get((kind, Pattern.PREFIXED, name[:end]), ())

    def _remember(
        self, question: tuple[str, str, Operation, ResourceKind, str | None], answer: bool
    ) -> None:
        if len(self._answers) >= limits.ACCESS_ANSWERS_MAX:
            self._answers.clear()
        self._answers[question] = answer
        if not answer:
            principal, host, operation, kind, name = question
            log.debug("denied to %s from %s: %s %s %s", principal, host, operation, kind, name)


def acl_record(acl: Acl) -> Record:
    return Record(b"acl:" + msgspec.json.encode(acl), b"")


def acl_deleted_record(acl: Acl) -> Record:
    return Record(b"acl:" + msgspec.json.encode(acl), None)
