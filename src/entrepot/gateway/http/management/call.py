"""One call of the API: who asks for what, and what the functions behind the paths have at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from entrepot.broker.access import CLUSTER_NAME, Operation, ResourceKind
from entrepot.broker.broker import Broker
from entrepot.broker.permissions import Right
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core import limits
from entrepot.core.errors import UnknownVhost
from entrepot.core.ports import Clock
from entrepot.core.steps import finish, listed
from entrepot.gateway.http.management.fields import Fields
from entrepot.wire.http.request import HttpError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """What the API may use of the house. One for all connections of an endpoint."""

    broker: Broker
    clock: Clock
    version: str
    node: str  # As RabbitMQ names nodes: `entrepot@host`.
    started_ms: int
    listeners: Callable[[], Mapping[str, tuple[str, int]]]  # Host and port, by protocol.
    asks_users: bool = False
    message_bytes_max: int = limits.AMQP_MESSAGE_BYTES


@dataclass(frozen=True)
class Call:
    context: Context
    user: str
    peer_host: str
    path: Mapping[str, str]  # The parts of the path that have a name.
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    long_fields: Fields | None = None  # What is in a long body, which is read in turns before.

    @cached_property
    def fields(self) -> Fields:
        """Raises HttpError."""
        if self.long_fields is not None:
            return self.long_fields
        return finish(Fields.read(self.body))

    @property
    def broker(self) -> Broker:
        return self.context.broker

    async def in_turns(self, rows: Iterable[T]) -> list[T]:
        """A list of any length, made in turns: a broker with many queues has more to do.

        The rows must not come out of something that changes meanwhile.
        """
        return await self.broker.turns.run(listed(rows))

    # What the path names.

    @cached_property
    def vhost(self) -> VirtualHost:
        """Raises UnknownVhost, and HttpError where the user may not enter."""
        found = self.broker.vhosts.get(self.path["vhost"])
        if not self.may_see(found.name):
            raise denied(f"access to vhost '{found.name}' refused for user '{self.user}'")
        return found

    @property
    def vhosts(self) -> list[VirtualHost]:
        """The one of the path, or all that the user may enter."""
        if "vhost" in self.path:
            return [self.vhost]
        found = []
        for name in self.broker.vhosts.names:
            with suppress(UnknownVhost):  # It may be about to be deleted.
                if self.may_see(name):
                    found.append(self.broker.vhosts.get(name))
        return found

    # What the user may do.

    @cached_property
    def is_administrator(self) -> bool:
        access = self.broker.access
        principal = f"User:{self.user}"
        return access.allows(
            principal, self.peer_host, Operation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME
        )

    def require_administrator(self) -> None:
        if not self.is_administrator:
            raise denied("Not administrator user")

    def may_see(self, vhost: str) -> bool:
        return self.is_administrator or self.broker.permissions.may_enter(self.user, vhost)

    def require(self, right: Right, kind: str, name: str) -> None:
        """As over AMQP, and in the same words."""
        if not self.broker.permissions.allows(self.user, self.vhost.name, right, name):
            raise denied(
                f"{right.value} access to {kind} '{name}' in vhost '{self.vhost.name}' "
                f"refused for user '{self.user}'"
            )


def denied(reason: str) -> HttpError:
    return HttpError(403, reason)
