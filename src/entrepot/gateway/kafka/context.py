"""What a Kafka request handler may use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kio.static.primitive import i32Timedelta

from entrepot.broker.access import ANONYMOUS, CLUSTER_NAME, Operation, ResourceKind
from entrepot.broker.broker import Broker
from entrepot.core.ports import Clock
from entrepot.gateway.kafka.config_entries import Fact
from entrepot.gateway.kafka.fetch_session import FetchSessions
from entrepot.gateway.kafka.login import Login

NO_THROTTLE = i32Timedelta.parse(timedelta())


@dataclass(slots=True)
class Exchange:
    """What a client said and was told: see `repeated`."""

    layout: type[Any]
    client_id: str | None
    said: bytes
    asked: Any
    told: Any = None
    body: bytes = b""  # What it was told, as it was sent. Empty: it was not told yet.


@dataclass(slots=True)
class Context:
    """One per connection. The address is what clients are told to connect to."""

    broker: Broker
    clock: Clock
    sessions: FetchSessions
    node_id: int
    host: str
    port: int
    principal: str = ANONYMOUS  # Who is behind the connection.
    peer_host: str = ""  # And where from.
    login: Login | None = None  # Until it is known who, where that is asked.
    facts: Callable[[], Sequence[Fact]] = tuple  # What the server was started with.
    # APIs and versions that were asked for. None: what they need is loaded at once.
    asked_for: dict[tuple[int, int], None] | None = None
    exchange: Exchange | None = None  # The last heartbeat.
    muted_until_s: float = 0.0  # It has used more than its quota; nothing is served before.
    at_close: dict[object, Callable[[], None]] = field(default_factory=dict)  # By what is ended.

    def allows(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return self.broker.access.allows(self.principal, self.peer_host, operation, kind, name)

    def allows_on_cluster(self, operation: Operation) -> bool:
        return self.allows(operation, ResourceKind.CLUSTER, CLUSTER_NAME)

    def allows_some(self, operation: Operation, kind: ResourceKind) -> bool:
        """Whether there may be anything of this kind that it is allowed with."""
        return self.broker.access.allows_some(self.principal, self.peer_host, operation, kind)
