"""Stores the permissions of users in virtual hosts.

A permission belongs to a user and a virtual host. It has three regular expressions for the names
of queues and exchanges that the user may configure (create, alter and delete), write and read. An
expression allows a name if it matches any part of it; `^` and `$` make it match the whole name.
An empty expression matches no name. A user whom any of the three allows a name may see that the
queue or exchange exists. A user without a permission may not enter the virtual host.

Permissions are stored as records of the catalog. `access.py` decides when they are consulted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from entrepot.broker.access import Answers, Operation, Question
from entrepot.broker.regex import InvalidRegex, Regex
from entrepot.core.errors import InvalidPermission
from entrepot.core.record import Record


class Permission(NamedTuple):
    """Regular expressions for names of queues and exchanges."""

    configure: str
    write: str
    read: str

    def expressions(self, operation: Operation) -> tuple[str, ...]:
        """Return the expressions of which one must match the name; empty means: denied."""
        match operation:
            case Operation.READ:
                return (self.read,)
            case Operation.WRITE:
                return (self.write,)
            case Operation.CREATE | Operation.ALTER | Operation.DELETE:
                return (self.configure,)
            case Operation.DESCRIBE:
                return (self.configure, self.write, self.read)
        return ()


class Permissions:
    def __init__(self) -> None:
        self.answers: Answers = {}  # Cleared when a permission changes.
        self._entries: dict[tuple[str, str], Permission] = {}  # By user and virtual host.

    @property
    def asks_clients(self) -> bool:
        return False

    def apply(self, text: str, value: bytes | None) -> None:
        """Fold one record of the catalog."""
        user, vhost = json.loads(text)
        self.answers.clear()
        if value is None:
            self._entries.pop((user, vhost), None)
        else:
            self._entries[user, vhost] = msgspec.json.decode(value, type=Permission)

    @property
    def entries(self) -> Mapping[tuple[str, str], Permission]:
        """Return all permissions by user and virtual host, oldest first."""
        return self._entries

    def allows(self, question: Question) -> bool:
        entry = self._entries.get((question.user, question.vhost))
        if entry is None:
            return False
        if question.operation is Operation.ENTER:
            return True
        expressions = entry.expressions(question.operation)
        if question.name is None:
            return any(expressions)
        return any(search(expression).is_within(question.name) for expression in expressions)


def permission_record(user: str, vhost: str, permission: Permission) -> Record:
    """Return the record of a permission. Raises InvalidPermission."""
    for pattern in permission:
        search(pattern)
    return Record(_key(user, vhost), msgspec.json.encode(permission))


def permission_deleted_record(user: str, vhost: str) -> Record:
    return Record(_key(user, vhost), None)


def _key(user: str, vhost: str) -> bytes:
    return b"permission:" + json.dumps([user, vhost]).encode()


def search(pattern: str) -> Regex:
    """Compile an expression of a permission. Raises InvalidPermission."""
    try:
        return Regex(pattern or "^$")
    except InvalidRegex as error:
        raise InvalidPermission(f"the regular expression {pattern!r}: {error}") from None
