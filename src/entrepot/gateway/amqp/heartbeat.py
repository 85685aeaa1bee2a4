"""Heartbeats in both directions: a client that is silent for too long is disconnected.

We send a heartbeat twice in the agreed interval, unless something else was sent. A client may
be silent for two intervals, as in RabbitMQ; any bytes count as a heartbeat. While we do not read
from a client, its silence does not count.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from entrepot.wire.amqp.frames import HEARTBEAT_FRAME

if TYPE_CHECKING:
    from entrepot.gateway.amqp.adapter import AmqpAdapter
    from entrepot.gateway.amqp.forwarding import Forwarding

_TICKS_PER_INTERVAL = 2
_INTERVALS_SILENT_MAX = 2


class HeartbeatTimer:
    def __init__(self, adapter: AmqpAdapter | Forwarding, interval_s: int) -> None:
        self._adapter = adapter
        self._interval_s = interval_s
        self._writes = self._reads = 0  # Of the adapter, at the last tick.
        self._ticks_silent = 0
        self._timer = self._arm()

    def _arm(self) -> asyncio.TimerHandle:
        delay_s = self._interval_s / _TICKS_PER_INTERVAL
        return asyncio.get_running_loop().call_later(delay_s, self._adapter.guard, self._tick)

    def stop(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        adapter = self._adapter
        if adapter.writes == self._writes:
            adapter.outbox.send((HEARTBEAT_FRAME,))
            adapter.flush()
        self._writes = adapter.writes
        is_silent = adapter.reads == self._reads and not adapter.is_paused
        self._ticks_silent = self._ticks_silent + 1 if is_silent else 0
        self._reads = adapter.reads
        if self._ticks_silent >= _INTERVALS_SILENT_MAX * _TICKS_PER_INTERVAL:
            adapter.give_up(f"missed heartbeats from client, timeout: {self._interval_s}s")
        else:
            self._timer = self._arm()
