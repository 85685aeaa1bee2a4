"""The room that all consumers of a channel share: the prefetch of the whole channel.

A queue asks all its consumers how much room they have before it delivers to any of them. So
room that was reserved for one consumer is not given to another in the same turn of the loop.
Each gets a part of what is left; one that gets nothing is woken in the next turn.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from entrepot.gateway.amqp.channel import Channel
    from entrepot.gateway.amqp.consumer import QueueConsumer


class SharedRoom:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._reserved: dict[QueueConsumer, int] = {}  # How many messages, in this turn.
        self._refused: dict[QueueConsumer, None] = {}  # Consumers that got nothing in this turn.

    def reserve(self, consumer: QueueConsumer, wanted: int, room: int) -> int:
        """Reserve a part of the room that all share; return how many messages this one may get."""
        self._reserved.pop(consumer, None)
        if not self._reserved and not self._refused:
            guard = self._channel.connection.guard
            asyncio.get_running_loop().call_soon(guard, self._forget)
        others = max(1, len(self._channel.consumers) - len(self._reserved))
        left = max(0, room - sum(self._reserved.values()))
        reserved = min(wanted, -(-left // others))
        self._reserved[consumer] = reserved
        if not reserved and room > 0:
            self._refused[consumer] = None
        return reserved

    def used(self, consumer: QueueConsumer, count: int) -> None:
        """Reduce a reservation by messages that were delivered."""
        if consumer in self._reserved:
            self._reserved[consumer] = max(0, self._reserved[consumer] - count)

    def _forget(self) -> None:
        """End the turn: drop all reservations, and wake consumers that got nothing."""
        refused = list(self._refused)
        self._reserved.clear()
        self._refused.clear()
        for consumer in refused:
            consumer.wake()
