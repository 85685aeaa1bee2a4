"""Room that all consumers of a channel share: a prefetch for the whole channel.

A queue asks all its consumers how much room they have before it gives anything to one of
them. So what one consumer was promised is not promised to another in the same turn of the
loop; each is promised its part of what is left, and may ask again.
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
        self._promised: dict[QueueConsumer, int] = {}  # In this turn.
        self._disappointed: dict[QueueConsumer, None] = {}

    def promise(self, consumer: QueueConsumer, wanted: int, room: int) -> int:
        """So much room is there for all; how much of it is for this one."""
        self._promised.pop(consumer, None)
        if not self._promised and not self._disappointed:
            guard = self._channel.connection.guard
            asyncio.get_running_loop().call_soon(guard, self._forget)
        others = max(1, len(self._channel.consumers) - len(self._promised))
        left = max(0, room - sum(self._promised.values()))
        promised = min(wanted, -(-left // others))
        self._promised[consumer] = promised
        if not promised and room > 0:
            self._disappointed[consumer] = None
        return promised

    def used(self, consumer: QueueConsumer, count: int) -> None:
        if consumer in self._promised:
            self._promised[consumer] = max(0, self._promised[consumer] - count)

    def _forget(self) -> None:
        disappointed = list(self._disappointed)
        self._promised.clear()
        self._disappointed.clear()
        for consumer in disappointed:
            consumer.wake()
