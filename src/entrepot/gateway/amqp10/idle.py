"""Signs of life: empty frames for a client that asks for them, and an end for a silent one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from entrepot.wire.amqp10 import limits as amqp_limits
from entrepot.wire.amqp10.frames import EMPTY_FRAME

if TYPE_CHECKING:
    from entrepot.gateway.amqp10.adapter import Amqp10Adapter


class IdleTimer:
    """Looks at the connection every now and then, and never for a single frame."""

    def __init__(self, adapter: Amqp10Adapter, send_ms: int | None) -> None:
        """`send_ms`: the client closes the connection after so much silence. None means: never."""
        self._adapter = adapter
        self._loop = asyncio.get_running_loop()
        self._interval_s = amqp_limits.IDLE_MS / 2_000
        self._sends = bool(send_ms)
        if send_ms:
            self._interval_s = min(self._interval_s, send_ms / 2_000)
        self._reads = self._writes = -1  # As they were at the last look.
        self._silent_s = 0.0
        self._handle = self._wait()

    def _wait(self) -> asyncio.TimerHandle:
        return self._loop.call_later(self._interval_s, self._adapter.guard, self._look)

    def _look(self) -> None:
        adapter = self._adapter
        is_silent = adapter.reads == self._reads and not adapter.is_paused
        self._silent_s = self._silent_s + self._interval_s if is_silent else 0.0
        if self._silent_s >= amqp_limits.IDLE_MS / 1_000:
            adapter.give_up("nothing came for too long")
            return
        if self._sends and adapter.writes == self._writes:
            adapter.outbox.send((EMPTY_FRAME,))
            adapter.flush()
        self._reads, self._writes = adapter.reads, adapter.writes
        self._handle = self._wait()

    def stop(self) -> None:
        self._handle.cancel()
