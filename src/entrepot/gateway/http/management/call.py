"""One call of the API: the request, its user, and what the functions need of the broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

from entrepot.broker.access import Operation, Principal, ResourceKind
from entrepot.broker.broker import Broker
from entrepot.broker.login import LoginPolicy
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core import limits
from entrepot.core.errors import UnknownVhost
from entrepot.core.measures import MessageCount, Pulse, Traffic
from entrepot.core.ports import Clock, Space
from entrepot.core.steps import finish, listed
from entrepot.gateway.http.console.logins import Logins
from entrepot.gateway.http.management.fields import Fields
from entrepot.gateway.http.management.metrics_text import LabelTexts
from entrepot.gateway.rabbitmq.rights import refusal, vhost_refusal
from entrepot.wire.http.request import HttpError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of metrics that only the server has. Protocols have the names of their ports."""

    traffic: Callable[[], Mapping[str, Traffic]] = dict
    messages: Mapping[str, MessageCount] = field(default_factory=dict)
    unfinished_bytes: Callable[[], int] = int
    # Of a kind that are listed: partitions, queues, and partitions that groups read.
    rows_max: int = limits.METRICS_ROWS_MAX
    unfinished_bytes_max: int = limits.UNFINISHED_BYTES_MAX
    pulse: Pulse = field(default_factory=Pulse)
    space: Callable[[], Awaitable[Space]] | None = None  # Of the disk. None means: not known.


class Setting(NamedTuple):
    """One of the settings that the server was started with."""

    name: str
    value: str
    default: str
    origin: str  # Where it was given: "default", a file, "command line", "environment".


@dataclass(frozen=True, slots=True)
class Context:
    """What the API uses of the broker. One for all connections of an endpoint."""

    broker: Broker
    clock: Clock
    login: LoginPolicy
    version: str
    node: str  # As RabbitMQ names nodes: `entrepot@host`.
    started_ms: int
    listeners: Callable[[], Mapping[str, tuple[str, int]]]  # Protocol -> (host, port).
    message_bytes_max: int = limits.MESSAGE_BYTES
    sources: Sources = field(default_factory=Sources)
    logins: Logins | None = None  # None means: there is no console.
    settings: Callable[[], list[Setting]] = list
    label_texts: LabelTexts = field(default_factory=LabelTexts)


@dataclass(frozen=True)
class Call:
    context: Context
    principal: Principal
    path: Mapping[str, str]  # The named parts of the path.
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    # The fields of a long body, which was decoded in turns before.
    long_fields: Fields | None = None

    @cached_property
    def fields(self) -> Fields:
        """Return the fields of the body. Raises HttpError."""
        if self.long_fields is not None:
            return self.long_fields
        return finish(Fields.read(self.body))

    @property
    def broker(self) -> Broker:
        return self.context.broker

    async def in_turns(self, rows: Iterable[T]) -> list[T]:
        """Make a list in turns, however long it is.

        The rows must not be taken from a collection that may change meanwhile.
        """
        return await self.broker.turns.run(listed(rows))

    # What the path names.

    @cached_property
    def vhost(self) -> VirtualHost:
        """Return the virtual host of the path. Raises UnknownVhost, or HttpError without access
        to it."""
        found = self.broker.vhosts.get(self.path["vhost"])
        if not self.may_see(found.name):
            raise denied(vhost_refusal(found.name, self.user))
        return found

    @property
    def vhosts(self) -> list[VirtualHost]:
        """Return the virtual host of the path, or all that the user has access to."""
        if "vhost" in self.path:
            return [self.vhost]
        found = []
        for name in self.broker.vhosts.names:
            with suppress(UnknownVhost):  # It may be about to be deleted.
                if self.may_see(name):
                    found.append(self.broker.vhosts.get(name))
        return found

    # What the user may do.

    @property
    def user(self) -> str:
        return self.principal.user

    def require_administrator(self) -> None:
        if not self.principal.is_administrator:
            raise denied("Not administrator user")

    @cached_property
    def sees_all(self) -> bool:
        """Return whether the user may see everything there is, though not change it."""
        principal = self.principal
        may_describe = principal.may(Operation.DESCRIBE, ResourceKind.CLUSTER)
        return may_describe or principal.is_administrator

    def may_see(self, vhost: str) -> bool:
        return self.sees_all or self.principal.may_enter(vhost)

    def require(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        """Raise HttpError unless the user may do this, as over AMQP and in the same words."""
        vhost = self.vhost.name
        if not self.principal.may(operation, kind, name, vhost):
            raise denied(refusal(operation, kind, name, vhost, self.user))


def denied(reason: str) -> HttpError:
    return HttpError(403, reason)
