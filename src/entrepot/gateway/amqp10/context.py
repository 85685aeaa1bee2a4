"""What all AMQP 1.0 connections of an endpoint share: the broker, the clock, settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from entrepot.broker.broker import Broker
from entrepot.broker.login import LoginPolicy
from entrepot.broker.router.event import Dialect
from entrepot.core import limits
from entrepot.core.measures import MessageCount
from entrepot.core.ports import Clock, Entropy

_TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class Context:
    """Shared by all connections of an endpoint."""

    broker: Broker
    clock: Clock
    entropy: Entropy
    dialect: Dialect  # Knows which names are reserved.
    login: LoginPolicy
    version: str
    host: str  # Of the endpoint, as is the port.
    port: int
    is_tls: bool = False
    message_bytes_max: int = limits.MESSAGE_BYTES
    messages: MessageCount = field(default_factory=MessageCount)

    def token(self) -> str:
        """Return a new name that nobody can guess."""
        return self.entropy.token(_TOKEN_BYTES).hex()
