"""What all connections of an AMQP endpoint share: the broker, the clock, settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from entrepot.broker.broker import Broker
from entrepot.broker.login import LoginPolicy
from entrepot.core import limits
from entrepot.core.measures import MessageCount
from entrepot.core.ports import Clock, Entropy, Link
from entrepot.gateway.amqp.reply_to import Replies, unguessable
from entrepot.wire.amqp.methods.connection import Open, StartOk, TuneOk


class Wanted(NamedTuple):
    """What a client has said until it opens its connection, to be said again to another node."""

    start_ok: StartOk
    tune_ok: TuneOk
    opening: Open


@dataclass(frozen=True, slots=True)
class Context:
    """Shared by all connections of an endpoint."""

    broker: Broker
    clock: Clock
    entropy: Entropy
    replies: Replies
    login: LoginPolicy
    version: str
    host: str  # Of the endpoint, as is the port.
    port: int
    is_tls: bool = False
    message_bytes_max: int = limits.MESSAGE_BYTES
    messages: MessageCount = field(default_factory=MessageCount)
    # In a cluster: leaves a client to the node that has the queues.
    forward: Callable[[Link, Wanted], object] | None = None

    def name(self, prefix: str) -> str:
        """Return a new unique name such as `amq.gen-…`, as RabbitMQ generates them."""
        return f"{prefix}-{unguessable(self.entropy)}"
