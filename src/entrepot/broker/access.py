"""Authorises requests, by the same rules for every protocol.

A gateway keeps the `Principal` of each connection and asks it: may this user, from this host, do
this operation on this resource? This module alone decides which rules answer:

- With authorisation off, everybody may do everything; super users always may.
- Topics, consumer groups, transactional ids and the cluster: access control lists (`acls.py`).
- Virtual hosts, and the queues and exchanges in them: the permissions of the user in that virtual
  host, which are regular expressions (`permissions.py`).

A durable queue of the first virtual host can be used as a queue and as a topic. Each use has its
own rules, and a right to the one is no right to the other. A new protocol chooses by what it
does: consuming messages, so that others do not get them, is reading a queue; reading them and
leaving them is reading a topic.

A client that has not logged in is the user ANONYMOUS, for whom there can be entries as for others.

Answers are cached until a rule changes, because requests ask the same few questions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from entrepot.core import limits

log = logging.getLogger("entrepot.access")

ANONYMOUS = "ANONYMOUS"
NODE = "__node"  # Another node of the cluster, which knows its secret.


class Operation(Enum):
    """What a request does. Values are persisted: never change one."""

    ALL = "all"  # In ACL entries only.
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
    ENTER = "enter"  # To use a virtual host at all. In no ACL entry.


class ResourceKind(Enum):
    """What a request is about. Values are persisted: never change one."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"  # There is one, and it needs no name.
    TRANSACTIONAL_ID = "transactional_id"
    # In no ACL entry: rights to these are the permissions of the virtual host.
    QUEUE = "queue"
    EXCHANGE = "exchange"  # The default exchange has the empty name.
    VIRTUAL_HOST = "virtual_host"  # Named by `Question.vhost`; `name` is empty.


_AS_NODE = Operation.CLUSTER_ACTION  # Python 3.11 finds members of an enumeration slowly.


class Question(NamedTuple):
    user: str
    host: str
    operation: Operation
    kind: ResourceKind
    name: str | None  # None asks for any resource of this kind.
    vhost: str
    client: str = ""  # What the client calls itself, where its protocol has that and rules ask.


# By question. The key is looked up as a plain tuple: it equals a Question and is made faster.
Answers = dict[tuple[str, str, Operation, ResourceKind, str | None, str, str], bool]


class Rules(Protocol):
    """One set of rules: the ACLs, or the permissions of virtual hosts."""

    @property
    def answers(self) -> Answers:
        """Return the cache of answers. The rules clear it when they change."""

    @property
    def asks_clients(self) -> bool:
        """Return whether an answer may depend on what the client calls itself."""

    def allows(self, question: Question) -> bool: ...


@dataclass(frozen=True, slots=True)
class AccessSettings:
    is_enforced: bool = False
    super_users: Iterable[str] = ()
    has_nodes: bool = False  # Nodes log in as NODE, and nobody else may act as one.
    default_exchange_name: str = "(default)"  # Matched in place of its empty name.


class Access:
    def __init__(self, settings: AccessSettings, acls: Rules, permissions: Rules) -> None:
        self.is_enforced = settings.is_enforced
        nodes = (NODE,) if settings.has_nodes else ()
        self._super_users = frozenset((*settings.super_users, *nodes))
        self._has_nodes = settings.has_nodes
        self._default_exchange_name = settings.default_exchange_name
        self._acls = acls
        self._permissions = permissions

    def principal(self, user: str, host: str) -> Principal:
        """Make the principal of a user who has logged in. Checks nothing."""
        return Principal(self, user, host)

    def is_unlimited(self, user: str) -> bool:
        """Return whether the user may do everything."""
        return not self.is_enforced or user in self._super_users

    def allows(
        self,
        user: str,
        host: str,
        operation: Operation,
        kind: ResourceKind,
        name: str | None,
        vhost: str = "",
        client: str = "",
    ) -> bool:
        """Return whether the operation is allowed. The arguments are those of `Question`."""
        if operation is _AS_NODE and self._has_nodes:
            return user == NODE
        if self.is_unlimited(user):
            return True
        rules = self._acls
        if kind in _IN_VIRTUAL_HOSTS:
            # Permissions do not depend on the host, so the answer is cached once for all hosts.
            rules, host = self._permissions, ""
            name = self._default_exchange_name if name == "" else name
        if not rules.asks_clients:
            client = ""  # The answer is cached once for all clients.
        answer = rules.answers.get((user, host, operation, kind, name, vhost, client))
        if answer is None:
            question = Question(user, host, operation, kind, name, vhost, client)
            answer = rules.allows(question)
            if len(rules.answers) >= limits.ACCESS_ANSWERS_MAX:
                rules.answers.clear()
            rules.answers[question] = answer
            if not answer:
                log.debug("denied: %s", question)
        return answer


_IN_VIRTUAL_HOSTS = (ResourceKind.QUEUE, ResourceKind.EXCHANGE, ResourceKind.VIRTUAL_HOST)


class Principal:
    """The user of a connection and the host it comes from. Gateways ask it for rights."""

    __slots__ = ("_access", "client", "host", "is_unlimited", "user")

    def __init__(self, access: Access, user: str, host: str, client: str = "") -> None:
        self._access = access
        self.user = user
        self.host = host
        self.client = client  # What the client calls itself; empty if it does not.
        self.is_unlimited = access.is_unlimited(user)  # Whether the user may do everything.

    def named(self, client: str) -> Principal:
        """Return the principal of a client that calls itself so."""
        return Principal(self._access, self.user, self.host, client)

    def may(
        self, operation: Operation, kind: ResourceKind, name: str = "", vhost: str = ""
    ) -> bool:
        """Return whether the user may do this. `vhost` is given for queues, exchanges and virtual
        hosts only."""
        access = self._access
        return not access.is_enforced or access.allows(
            self.user, self.host, operation, kind, name, vhost, self.client
        )

    @property
    def may_all(self) -> bool:
        """Return whether nothing is ever refused: there are no rules."""
        return not self._access.is_enforced

    def may_with_some(self, operation: Operation, kind: ResourceKind, vhost: str = "") -> bool:
        """Return whether the user may do this to any resource of the kind, existing or not."""
        access = self._access
        return access.allows(self.user, self.host, operation, kind, None, vhost, self.client)

    def may_enter(self, vhost: str) -> bool:
        """Return whether the user may use the virtual host at all."""
        return self.may(Operation.ENTER, ResourceKind.VIRTUAL_HOST, vhost=vhost)

    @property
    def is_administrator(self) -> bool:
        """Return whether the user may change users, rules and virtual hosts."""
        return self.may(Operation.ALTER, ResourceKind.CLUSTER)
