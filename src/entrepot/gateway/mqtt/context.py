"""What all connections of an MQTT endpoint share, and what one client has agreed on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from entrepot.broker.access import Principal
from entrepot.broker.broker import Broker
from entrepot.broker.login import LoginPolicy
from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.subject.name import to_subject
from entrepot.core import limits
from entrepot.core.measures import MessageCount
from entrepot.core.message import Envelope
from entrepot.core.ports import Clock, Entropy
from entrepot.gateway.mqtt.format import MQTT
from entrepot.gateway.mqtt.ordering import Unordered
from entrepot.gateway.mqtt.outbox import Outbox
from entrepot.gateway.mqtt.rewriting import Rewriting
from entrepot.gateway.mqtt.sharing import SharedEncoding, topic_of
from entrepot.wire.mqtt.envelopes import Envelopes
from entrepot.wire.mqtt.packets import V5
from entrepot.wire.mqtt.reasons import MqttError
from entrepot.wire.mqtt.scan import Scratch

NEVER_S = 0xFFFF_FFFF  # As the expiry interval of a session: it does not end.
BRIDGE_LEAD = "$bridge/"  # Begins the client identifiers of bridges' sessions. Persisted.

# Calls something on behalf of a connection, and ends that if it fails.
Guard = Callable[..., Any]


class MqttPeer(Protocol):
    """The adapter of one connection, as those see it who publish and deliver on it."""

    outbox: Outbox
    guard: Guard

    def wake(self) -> None:
        """Schedule a turn."""

    def end(self, error: MqttError) -> None:
        """Close the connection, with this reason."""


@dataclass(slots=True, eq=False)
class Context:
    """Shared by all connections of an endpoint."""

    broker: Broker
    clock: Clock
    entropy: Entropy
    login: LoginPolicy
    host: str  # Of the endpoint, as is the port.
    port: int
    is_tls: bool = False
    message_bytes_max: int = limits.MESSAGE_BYTES
    keep_alive_s_max: int = 0  # What clients are told if they want more. 0 means: no limit.
    kept_sessions_max: int = limits.SESSIONS_MAX  # Those that outlive their connection.
    session_expiry_s_max: int = 0  # 0 means: no limit.
    messages: MessageCount = field(default_factory=MessageCount)
    rewriting: Rewriting = field(default_factory=Rewriting)
    unordered: Unordered = field(default_factory=Unordered)
    shared: SharedEncoding = field(default_factory=SharedEncoding)
    scratch: Scratch = field(default_factory=Scratch)
    envelopes: Envelopes = field(init=False)

    def __post_init__(self) -> None:
        self.envelopes = Envelopes(self.make_envelope)

    @property
    def memory(self) -> MemoryUse:
        """Return how much memory the messages take that are not on disk."""
        memory = self.broker.vhosts.memory_use
        assert memory is not None, "a broker without queues"
        return memory

    def session_expiry_ms(self, wanted_s: int) -> int | None:
        """Return how long a session is kept after its connection. None means: for ever."""
        if self.session_expiry_s_max:
            wanted_s = min(wanted_s, self.session_expiry_s_max)
        return None if wanted_s == NEVER_S else wanted_s * 1_000

    def make_envelope(self, topic: str, head: bytes) -> Envelope:
        """Return the envelope of messages that clients publish. Raises MqttError."""
        exchange = self.broker.vhosts.default.subject_exchange
        envelope = Envelope(exchange, to_subject(self.rewriting.topic(topic)), head, MQTT)
        topic_of(envelope)  # So that it is known whether it is the topic that came.
        return envelope


@dataclass(frozen=True, slots=True)
class Terms:
    """What a client and the server have agreed on."""

    version: int
    client_id: str
    principal: Principal
    mechanism: str
    keep_alive_s: int  # 0 means: the client may be silent.
    in_flight_max: int  # Messages delivered to the client and not acknowledged.
    packet_bytes_max: int | None  # That the client accepts. None means: any.
    topic_aliases_max: int  # That the client accepts.
    session_expiry_ms: int | None  # None means: never.
    has_method: bool = False  # Whether the client logged in by enhanced authentication.

    @property
    def is_5(self) -> bool:
        return self.version == V5
