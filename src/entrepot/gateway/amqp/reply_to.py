"""Direct reply-to: replies go straight to the channel that sent the request, without a queue.

A client consumes from `amq.rabbitmq.reply-to` and publishes requests with that name as
`reply-to`. Receivers of a request see a generated name in its place, which leads to that channel
only and ends with it. Replies are never queued: one without a consumer is unroutable.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrepot.broker.queue.message import Run, Taken
from entrepot.core.message import Message
from entrepot.core.ports import Entropy
from entrepot.gateway.amqp.format import REPLY_TO

if TYPE_CHECKING:
    from entrepot.gateway.amqp.consumer import ReplyConsumer

REPLY_PREFIX = f"{REPLY_TO}."


class Replies:
    """All reply consumers of a broker, by their generated names."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._consumers: dict[tuple[str, str], ReplyConsumer] = {}  # By virtual host and name.

    def add(self, vhost: str, consumer: ReplyConsumer) -> str:
        """Register a consumer; return the name generated for it."""
        name = REPLY_PREFIX + unguessable(self._entropy)
        self._consumers[vhost, name] = consumer
        return name

    def remove(self, vhost: str, name: str) -> None:
        self._consumers.pop((vhost, name), None)

    def has(self, vhost: str, name: str) -> bool:
        return (vhost, name) in self._consumers

    def deliver(self, vhost: str, name: str, messages: Sequence[Message]) -> Sequence[Message]:
        """Deliver replies; return them if their consumer is gone."""
        consumer = self._consumers.get((vhost, name))
        if consumer is None:
            return messages
        consumer.deliver(0, Taken(range(len(messages)), Run(0, messages), None))
        return ()


def unguessable(entropy: Entropy) -> str:
    return urlsafe_b64encode(entropy.token(16)).decode().rstrip("=")
