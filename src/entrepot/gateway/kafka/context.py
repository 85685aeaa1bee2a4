"""Holds what the handlers of requests use: the broker, the clock, and the connection's state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.static.primitive import i32Timedelta

from entrepot.broker.access import Operation, Principal, ResourceKind
from entrepot.broker.broker import Broker
from entrepot.broker.served_partition import ServedPartition
from entrepot.core.measures import MessageCount
from entrepot.core.ports import Clock
from entrepot.gateway.kafka.config_entries import Fact
from entrepot.gateway.kafka.fetch_session import FetchSessions
from entrepot.gateway.kafka.login import Login
from entrepot.gateway.kafka.ports import RepeatableFetch

NO_THROTTLE = i32Timedelta.parse(timedelta())


@dataclass(slots=True)
class RepeatableRequest:
    """The last request of a kind that clients repeat unchanged, and its answer: see `repeated`."""

    layout: type[Any]
    client_id: str | None
    said: bytes
    asked: Any
    told: Any = None
    body: bytes = b""  # The encoded answer. Empty means: there is none yet.


@dataclass(slots=True)
class Context:
    """The context of one connection. Answers tell clients to connect to the host and port."""

    broker: Broker
    clock: Clock
    sessions: FetchSessions
    node_id: int
    host: str
    port: int
    principal: Principal  # The user of the connection.
    login: Login | None = None  # None once the login is done, or if none is needed.
    is_tls: bool = False
    facts: Callable[[], Sequence[Fact]] = tuple  # What the server was started with.
    # APIs and versions that were asked for. None means: import at once, in no turn of its own.
    asked_for: dict[tuple[int, int], None] | None = None
    software: tuple[str, str] = ("", "")  # The client's library and its version, if it told.
    # Partitions that the connection has produced to and may again, by topic and number. Empty if
    # that has to be looked up each time: see `produce`.
    writable: dict[tuple[str | UUID | None, int], ServedPartition] = field(default_factory=dict)
    exchange: RepeatableRequest | None = None  # The connection's last heartbeat.
    last_fetch: RepeatableFetch | None = None  # That may be repeated: see `fetch`.
    muted_until_s: float = 0.0  # Until then no request is served: a quota is exceeded.
    messages: MessageCount = field(default_factory=MessageCount)  # Of all connections.
    # Session -> a function that ends it. Called when the connection ends.
    at_close: dict[object, Callable[[], None]] = field(default_factory=dict)

    @property
    def peer_host(self) -> str:
        return self.principal.host

    def allows(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return self.principal.may(operation, kind, name)

    def allows_on_cluster(self, operation: Operation) -> bool:
        return self.principal.may(operation, ResourceKind.CLUSTER)

    def allows_some(self, operation: Operation, kind: ResourceKind) -> bool:
        """Return whether the client may do this to any resource of the kind, existing or not."""
        return self.principal.may_with_some(operation, kind)
