"""Disconnects a client that is silent for one and a half times its keep-alive interval.

Any bytes count. While we do not read from a client, its silence does not count.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from entrepot.wire.mqtt.reasons import MqttError, Reason

if TYPE_CHECKING:
    from entrepot.gateway.mqtt.adapter import MqttAdapter

_TICKS_PER_INTERVAL = 2
_TICKS_SILENT_MAX = 3


class KeepAlive:
    __slots__ = ("_adapter", "_interval_s", "_reads", "_ticks_silent", "_timer")

    def __init__(self, adapter: MqttAdapter, interval_s: int) -> None:
        self._adapter = adapter
        self._interval_s = interval_s
        self._reads = adapter.reads  # At the last tick.
        self._ticks_silent = 0
        self._timer = self._arm()

    def _arm(self) -> asyncio.TimerHandle:
        delay_s = self._interval_s / _TICKS_PER_INTERVAL
        return asyncio.get_running_loop().call_later(delay_s, self._adapter.guard, self._tick)

    def stop(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        adapter = self._adapter
        is_silent = adapter.reads == self._reads and not adapter.is_paused
        self._ticks_silent = self._ticks_silent + 1 if is_silent else 0
        self._reads = adapter.reads
        if self._ticks_silent >= _TICKS_SILENT_MAX:
            text = f"silent for more than its keep-alive interval of {self._interval_s} s"
            adapter.end(MqttError(Reason.KEEP_ALIVE_TIMEOUT, text))
        else:
            self._timer = self._arm()
