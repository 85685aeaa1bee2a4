"""Who is connected to queues now: for those who list clients, close one, or all of them.

An adapter adds itself when its client has logged in and chosen a virtual host, and removes
itself at its end. It describes itself when asked and not before, so being listed costs
nothing. While clients are sent away, one that comes in is closed as soon as it is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

_NONE: Mapping[str, object] = MappingProxyType({})


class ConsumerFacts(NamedTuple):
    tag: str
    queue: str
    auto_ack: bool = False
    is_exclusive: bool = False
    is_active: bool = True  # False: it waits for its turn at a queue with one active consumer.
    prefetch: int = 0  # 0: no bound.
    priority: int = 0
    arguments: Mapping[str, object] = _NONE


class ChannelFacts(NamedTuple):
    number: int
    consumers: tuple[ConsumerFacts, ...] = ()
    unacked: int = 0  # Messages handed out and not settled, of its consumers and its gets.
    unconfirmed: int = 0  # Publishes that are not confirmed yet.
    uncommitted: int = 0  # Publishes that a transaction holds back,
    uncommitted_acks: int = 0  # and acknowledgements.
    prefetch: int = 0  # Of each new consumer; 0: no bound.
    prefetch_global: int = 0  # Of all consumers together.
    is_confirming: bool = False
    is_transactional: bool = False


class ConnectionFacts(NamedTuple):
    name: str  # "127.0.0.1:40022 -> 127.0.0.1:5672", as RabbitMQ names connections.
    peer: str  # Host and port, as the link has it.
    user: str
    vhost: str
    protocol: str  # "AMQP 0-9-1", say.
    connected_ms: int
    channels: tuple[ChannelFacts, ...] = ()
    state: str = "running"  # Or "blocked", "flow", "closing".
    is_tls: bool = False
    mechanism: str = "PLAIN"
    frame_max: int = 0
    channel_max: int = 0
    heartbeat_s: int = 0
    client_properties: Mapping[str, object] = _NONE
    owner: object = None  # Whom its exclusive queues belong to.


class Session(Protocol):
    """One client's connection, as its adapter shows it."""

    def facts(self) -> ConnectionFacts: ...

    def close(self, reason: str) -> None:
        """Tell the client why, in its protocol, and end the connection."""


class Sessions:
    def __init__(self) -> None:
        self._sessions: dict[Session, None] = {}  # In the order of their coming.
        self._sent_away_for: str | None = None

    def __iter__(self) -> Iterator[Session]:
        """Of those who are there now; they may go meanwhile."""
        return iter(tuple(self._sessions))

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def is_accepting(self) -> bool:
        return self._sent_away_for is None

    def add(self, session: Session) -> None:
        self._sessions[session] = None
        if self._sent_away_for is not None:
            session.close(self._sent_away_for)

    def remove(self, session: Session) -> None:
        """Fine when it is gone."""
        self._sessions.pop(session, None)

    def send_away(self, reason: str) -> None:
        """Close all, and whoever comes until `accept`."""
        self._sent_away_for = reason
        for session in self:
            session.close(reason)

    def accept(self) -> None:
        self._sent_away_for = None
