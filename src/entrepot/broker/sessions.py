"""Lists the connections of clients, for the management API and the console.

Those that use queues are apart from those that use topics alone, by Kafka's protocol. An adapter
adds itself when its client has logged in and chosen a virtual host, if it has one, and removes
itself when the connection ends. Its facts are computed only when somebody asks for them. While
connections are being closed (`send_away`), each new one is closed as soon as it is added.
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
    is_active: bool = True  # False means: another is the single active consumer of the queue.
    prefetch: int = 0  # 0 means: no limit.
    priority: int = 0
    arguments: Mapping[str, object] = _NONE


class ChannelFacts(NamedTuple):
    number: int
    consumers: tuple[ConsumerFacts, ...] = ()
    unacked: int = 0  # Messages handed out and not settled, of its consumers and its gets.
    unconfirmed: int = 0  # Publishes that are not confirmed yet.
    uncommitted: int = 0  # Publishes in the open transaction.
    uncommitted_acks: int = 0  # Acknowledgements in the open transaction.
    prefetch: int = 0  # Of each new consumer. 0 means: no limit.
    prefetch_global: int = 0  # Of all consumers together.
    is_confirming: bool = False
    is_transactional: bool = False


class ConnectionFacts(NamedTuple):
    name: str  # "127.0.0.1:40022 -> 127.0.0.1:5672": the client's end and ours.
    peer: str  # Host and port, as the link has it.
    user: str
    vhost: str
    protocol: str  # And its version.
    connected_ms: int
    channels: tuple[ChannelFacts, ...] = ()
    state: str = "running"  # Or "blocked", "flow", "closing".
    is_tls: bool = False
    mechanism: str = "PLAIN"
    frame_max: int = 0
    channel_max: int = 0
    heartbeat_s: int = 0
    client_properties: Mapping[str, object] = _NONE
    owner: object = None  # The owner of its exclusive queues, to compare with theirs.


class Session(Protocol):
    """A client's connection. Implemented by the protocols' adapters."""

    def facts(self) -> ConnectionFacts: ...

    def close(self, reason: str) -> None:
        """Send the client the reason, in its protocol, and close the connection."""


class Sessions:
    def __init__(self) -> None:
        self._sessions: dict[Session, None] = {}  # In the order of connecting.
        self._sent_away_for: str | None = None

    def __iter__(self) -> Iterator[Session]:
        """Iterate over a copy: connections may end during the iteration, and are left out then."""
        return (each for each in tuple(self._sessions) if each in self._sessions)

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
        """Remove a session. Without effect if it was removed already."""
        self._sessions.pop(session, None)

    def send_away(self, reason: str) -> None:
        """Close all sessions, and each new one until `accept` is called."""
        self._sent_away_for = reason
        for session in self:
            session.close(reason)

    def accept(self) -> None:
        self._sent_away_for = None
