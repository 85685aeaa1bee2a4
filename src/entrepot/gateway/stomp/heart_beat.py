"""Heart-beats in both directions: a client that is silent for too long is disconnected.

We send an end of line twice in the agreed interval, unless something else was sent. A client may
be silent for two intervals; any bytes count as a heart-beat. While we do not read from a client,
its silence does not count.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from entrepot.wire.stomp import limits as stomp_limits
from entrepot.wire.stomp.frames import HEART_BEAT

if TYPE_CHECKING:
    from entrepot.gateway.stomp.adapter import StompAdapter

_TICKS_PER_INTERVAL = 2
_INTERVALS_SILENT_MAX = 2


def agreed_ms(asked_ms: int) -> int:
    """Return the interval that we agree to, in milliseconds. 0 means: no heart-beats."""
    if not asked_ms:
        return 0
    return min(max(asked_ms, stomp_limits.HEART_BEAT_MS_MIN), stomp_limits.HEART_BEAT_MS_MAX)


class HeartBeat:
    def __init__(self, adapter: StompAdapter, send_ms: int, receive_ms: int) -> None:
        """Send every `send_ms`, and expect every `receive_ms`. 0 means: not."""
        self._adapter = adapter
        self._writes, self._reads = adapter.writes, adapter.reads  # At the last tick.
        self._ticks_silent = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        if send_ms:
            self._arm("send", send_ms)
        if receive_ms:
            self._arm("receive", receive_ms)

    def _arm(self, what: str, interval_ms: int) -> None:
        loop, tick = asyncio.get_running_loop(), self._tick
        delay_s = interval_ms / 1_000 / _TICKS_PER_INTERVAL
        guard = self._adapter.guard
        self._timers[what] = loop.call_later(delay_s, guard, tick, what, interval_ms)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _tick(self, what: str, interval_ms: int) -> None:
        if what == "send":
            self._send()
        elif self._is_silent():
            self._adapter.give_up(f"no heart-beat from the client, interval: {interval_ms} ms")
            return
        self._arm(what, interval_ms)

    def _send(self) -> None:
        adapter = self._adapter
        if adapter.writes == self._writes:
            adapter.outbox.send((HEART_BEAT,))
            adapter.flush()
        self._writes = adapter.writes

    def _is_silent(self) -> bool:
        adapter = self._adapter
        is_silent = adapter.reads == self._reads and not adapter.is_paused
        self._ticks_silent = self._ticks_silent + 1 if is_silent else 0
        self._reads = adapter.reads
        return self._ticks_silent >= _INTERVALS_SILENT_MAX * _TICKS_PER_INTERVAL
