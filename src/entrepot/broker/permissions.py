"""What a user may do in a virtual host, as RabbitMQ has it.

There is one entry per user and virtual host, with three regular expressions: for what may
be configured (made and deleted), written and read. A name is allowed when the expression is
found anywhere in it, so who means the whole name says `^` and `$`; an empty one is found in
no name. Who has no entry for a virtual host may not enter it.

Users are those of the shared store. Super users may do everything, and with authorisation
off everybody may. Entries are records of the catalog; answers are remembered until one
changes, for the same few questions come with every publish.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from entrepot.broker.access import Access
from entrepot.broker.regex import InvalidRegex, Regex
from entrepot.core import limits
from entrepot.core.errors import InvalidPermission
from entrepot.core.record import Record

DEFAULT_EXCHANGE_NAME = "amq.default"  # What expressions see of the exchange without a name.


class Right(Enum):
    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


class Permission(NamedTuple):
    """Regular expressions for names of queues and exchanges."""

    configure: str
    write: str
    read: str


class Permissions:
    def __init__(self, access: Access) -> None:
        self._access = access
        self._entries: dict[tuple[str, str], Permission] = {}  # By user and virtual host.
        self._answers: dict[tuple[str, str, Right, str], bool] = {}

    def apply(self, text: str, value: bytes | None) -> None:
        """Fold one record of the catalog."""
        user, vhost = json.loads(text)
        self._answers.clear()
        if value is None:
            self._entries.pop((user, vhost), None)
        else:
            self._entries[user, vhost] = msgspec.json.decode(value, type=Permission)

    @property
    def entries(self) -> Mapping[tuple[str, str], Permission]:
        """By user and virtual host, oldest first."""
        return self._entries

    def may_enter(self, user: str, vhost: str) -> bool:
        return self.is_unlimited(user) or (user, vhost) in self._entries

    def allows(self, user: str, vhost: str, right: Right, name: str) -> bool:
        """`name` is a queue's or an exchange's; the default exchange has the empty one."""
        if self.is_unlimited(user):
            return True
        question = (user, vhost, right, name)
        answer = self._answers.get(question)
        if answer is None:
            if len(self._answers) >= limits.ACCESS_ANSWERS_MAX:
                self._answers.clear()
            answer = self._answers[question] = self._find(*question)
        return answer

    def is_unlimited(self, user: str) -> bool:
        """Whether nothing is denied to the user."""
        return self._access.is_unlimited(f"User:{user}")

    def _find(self, user: str, vhost: str, right: Right, name: str) -> bool:
        entry = self._entries.get((user, vhost))
        if entry is None:
            return False
        pattern: str = getattr(entry, right.value)
        return search(pattern).is_within(name or DEFAULT_EXCHANGE_NAME)


def permission_record(user: str, vhost: str, permission: Permission) -> Record:
    """Raises InvalidPermission."""
    for pattern in permission:
        search(pattern)
    return Record(_key(user, vhost), msgspec.json.encode(permission))


def permission_deleted_record(user: str, vhost: str) -> Record:
    return Record(_key(user, vhost), None)


def _key(user: str, vhost: str) -> bytes:
    return b"permission:" + json.dumps([user, vhost]).encode()


def search(pattern: str) -> Regex:
    """Read an expression that is looked for in names. Raises InvalidPermission."""
    try:
        return Regex(pattern or "^$")
    except InvalidRegex as error:
        raise InvalidPermission(f"the regular expression {pattern!r}: {error}") from None
