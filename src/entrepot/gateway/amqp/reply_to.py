"""Direct reply-to: answers go straight to the channel that asked, without a queue.

A client consumes from the name below and publishes requests with it as `reply-to`; whoever
receives such a request sees a name of its own in its place, which leads to that channel only
and is gone with it. Nothing waits: an answer for which nobody is there is unroutable.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrepot.broker.queue.message import Run, Taken
from entrepot.core.envelope import Message
from entrepot.core.ports import Entropy
from entrepot.gateway.amqp.property_reader import REPLY_TO

if TYPE_CHECKING:
    from entrepot.gateway.amqp.consumer import ReplyConsumer

REPLY_PREFIX = f"{REPLY_TO}."


class Replies:
    """All channels of a broker that wait for answers."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._consumers: dict[tuple[str, str], ReplyConsumer] = {}  # By virtual host and name.

    def add(self, vhost: str, consumer: ReplyConsumer) -> str:
        """The name that leads to it."""
        name = REPLY_PREFIX + unguessable(self._entropy)
        self._consumers[vhost, name] = consumer
        return name

    def remove(self, vhost: str, name: str) -> None:
        self._consumers.pop((vhost, name), None)

    def has(self, vhost: str, name: str) -> bool:
        return (vhost, name) in self._consumers

    def deliver(self, vhost: str, name: str, messages: Sequence[Message]) -> Sequence[Message]:
        """Those for which nobody is there."""
        consumer = self._consumers.get((vhost, name))
        if consumer is None:
            return messages
        consumer.deliver(0, Taken(range(len(messages)), Run(0, messages), None))
        return ()


def unguessable(entropy: Entropy) -> str:
    return urlsafe_b64encode(entropy.token(16)).decode().rstrip("=")
