"""Stores access control lists (ACLs) for topics, groups, transactional ids and the cluster.

An entry allows or denies a user, from a host, an operation on the resources that a pattern
names. A request that any entry denies is denied; otherwise it is allowed if any entry allows it,
and denied if none does. An entry that allows to read, write, delete or alter also allows to
describe.

The name of a topic may contain `%u` and `%c`. They stand for the user who asks, and for what the
client calls itself, as one level of a subject: with the client `a`, `devices.%c.` is `devices.a.`.
Who asks chooses the second, and perhaps the first; so an entry allows nothing to those whose name
is not one level or has a wildcard in it.

Entries are stored as records of the catalog. `access.py` decides when they are consulted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from enum import Enum
from typing import NamedTuple

import msgspec

from entrepot.broker.access import ANONYMOUS, Answers, Operation, Question, ResourceKind
from entrepot.broker.subject.name import to_subject
from entrepot.core.record import Record


class Pattern(Enum):
    """How an entry's name is compared. Values are persisted: never change one."""

    LITERAL = "literal"  # The name `*` matches every name.
    PREFIXED = "prefixed"


class PermissionType(Enum):
    """Values are persisted: never change one."""

    ALLOW = "allow"
    DENY = "deny"


USER, CLIENT = "%u", "%c"  # In names of topics.
_NOT_IN_LEVEL = (".", "+", "#")  # Of a subject: the separator, and wildcards of filters.
EVERYBODY = "*"  # In place of a user.
ANY = "*"  # In place of a host, and of a name that is meant literally.
_USER_PREFIX = "User:"  # Before the user in records, so that there can be other kinds later.

# The operations of each kind of resource; `ALL` in an entry means all of these.
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
# Operation -> those which, when allowed, allow it, too. A denial of these does not deny it.
_IMPLYING = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


class Acl(NamedTuple):
    kind: ResourceKind
    pattern: Pattern
    name: str
    user: str  # Or EVERYBODY.
    host: str  # An address, or ANY.
    operation: Operation
    permission: PermissionType

    def concerns(self, question: Question) -> bool:
        """Return whether the entry applies to this user, host and operation."""
        return (
            self.user in (question.user, EVERYBODY)
            and self.host in (question.host, ANY)
            and (
                self.operation in (question.operation, Operation.ALL)
                or (
                    self.permission is PermissionType.ALLOW
                    and self.operation in _IMPLYING.get(question.operation, ())
                )
            )
        )

    @property
    def is_template(self) -> bool:
        """Return whether its name depends on who asks."""
        is_topic = self.kind is ResourceKind.TOPIC
        return is_topic and (USER in self.name or CLIENT in self.name)

    def name_for(self, question: Question) -> str | None:
        """Return the name that a template stands for; None means: it is not for who asks."""
        parts = {USER: question.user, CLIENT: question.client}
        levels = {part: to_subject(text) for part, text in parts.items() if part in self.name}
        if self.permission is PermissionType.ALLOW:
            if not all(levels.values()) or levels.get(USER) == ANONYMOUS:
                return None
            if any(each in level for level in levels.values() for each in _NOT_IN_LEVEL):
                return None
        # In one pass: a name that looks like the other part is not replaced again.
        return re.sub("%[uc]", lambda found: levels[found[0]], self.name)

    def matches(self, question: Question) -> bool:
        """Return whether a template matches the name that is asked for."""
        name = self.name_for(question)
        if name is None or question.name is None:
            return name is not None
        if self.pattern is Pattern.PREFIXED:
            return question.name.startswith(name)
        return question.name == name

    def covers(self, other: Acl) -> bool:
        """Return whether this entry's pattern matches every name that the other's matches."""
        if self.pattern is Pattern.PREFIXED:
            return other.name != ANY and other.name.startswith(self.name)
        return self.name in (ANY, other.name) and (
            self.name == ANY or other.pattern is Pattern.LITERAL
        )


class Acls:
    def __init__(self) -> None:
        self.answers: Answers = {}  # Cleared when an entry changes.
        self._entries: dict[Acl, None] = {}
        # The same entries, by resource kind, pattern and name.
        self._named: dict[tuple[ResourceKind, Pattern, str], dict[Acl, None]] = {}
        # Those of them that depend on who asks; they are not in `_named`.
        self._templates: dict[Acl, None] = {}
        self.asks_clients = False  # Whether one of these depends on the client.

    @property
    def entries(self) -> Collection[Acl]:
        """Return all entries, oldest first."""
        return self._entries.keys()

    def apply(self, text: str, value: bytes | None) -> None:
        """Fold one record of the catalog."""
        stored = msgspec.json.decode(text, type=Acl)
        acl = stored._replace(user=stored.user.removeprefix(_USER_PREFIX))
        self.answers.clear()
        if acl.is_template:
            for entries in (self._entries, self._templates):
                if value is not None:
                    entries[acl] = None
                else:
                    entries.pop(acl, None)
            self.asks_clients = any(CLIENT in each.name for each in self._templates)
            return
        place = _place(acl)
        named = self._named.setdefault(place, {})
        if value is not None:
            self._entries[acl] = named[acl] = None
        else:
            self._entries.pop(acl, None)
            named.pop(acl, None)
            if not named:
                del self._named[place]

    def allows(self, question: Question) -> bool:
        if question.name is None:
            return self._allows_some(question)
        found = [acl for acl in self._about(question.kind, question.name) if acl.concerns(question)]
        if question.kind is ResourceKind.TOPIC:
            found += [
                acl for acl in self._templates if acl.concerns(question) and acl.matches(question)
            ]
        return bool(found) and all(acl.permission is PermissionType.ALLOW for acl in found)

    def _allows_some(self, question: Question) -> bool:
        found = [
            acl for acl in self._entries if acl.kind is question.kind and acl.concerns(question)
        ]
        denied = [acl for acl in found if acl.permission is PermissionType.DENY]
        return any(
            acl.permission is PermissionType.ALLOW
            and not any(each.covers(acl) for each in denied)
            and (not acl.is_template or acl.matches(question))
            for acl in found
        )

    def _about(self, kind: ResourceKind, name: str) -> Iterator[Acl]:
        yield from self._named.get((kind, Pattern.LITERAL, name), ())
        if name != ANY:
            yield from self._named.get((kind, Pattern.LITERAL, ANY), ())
        for end in range(1, len(name) + 1):
            yield from self._named.get((kind, Pattern.PREFIXED, name[:end]), ())


def _place(acl: Acl) -> tuple[ResourceKind, Pattern, str]:
    """Return the key of the entry in the index. There is one cluster, so its name is ignored."""
    if acl.kind is ResourceKind.CLUSTER:
        return acl.kind, Pattern.LITERAL, ""
    return acl.kind, acl.pattern, acl.name


def acl_record(acl: Acl) -> Record:
    return Record(_key(acl), b"")


def acl_deleted_record(acl: Acl) -> Record:
    return Record(_key(acl), None)


def _key(acl: Acl) -> bytes:
    return b"acl:" + msgspec.json.encode(acl._replace(user=_USER_PREFIX + acl.user))
