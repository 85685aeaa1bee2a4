"""What an AMQP connection may use of the house."""

from __future__ import annotations

from dataclasses import dataclass

from entrepot.broker.broker import Broker
from entrepot.core import limits
from entrepot.core.ports import Clock, Entropy
from entrepot.gateway.amqp.property_reader import AmqpPropertyReader
from entrepot.gateway.amqp.reply_to import Replies, unguessable


@dataclass(frozen=True, slots=True)
class Context:
    """One for all connections of an endpoint."""

    broker: Broker
    clock: Clock
    entropy: Entropy
    reader: AmqpPropertyReader
    replies: Replies
    version: str
    host: str  # Where the endpoint is.
    port: int
    asks_users: bool = False  # Whoever is in the users' store; else there is but one user.
    is_tls: bool = False
    message_bytes_max: int = limits.AMQP_MESSAGE_BYTES
    is_open: bool = False  # To all: somebody has said that whoever reaches the port may come in.

    def name(self, prefix: str) -> str:
        """One that nobody has: `amq.gen-…`, as RabbitMQ makes them."""
        return f"{prefix}-{unguessable(self.entropy)}"
