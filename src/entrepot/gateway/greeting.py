"""Chooses a connection's protocol by its first bytes, for protocols that share a port.

The first bytes are read here, and no more than these. Then the adapter of the protocol that they
name is made and gets them, and all calls of the link go to it directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from entrepot.core import limits
from entrepot.core.ports import NOTHING_UNFINISHED, Link, ServingReceiver, Unfinished

Accept = Callable[[Link], ServingReceiver]


class Greeting:
    """Implements `ServingReceiver`."""

    def __init__(self, link: Link, size: int, choose: Callable[[bytes], Accept]) -> None:
        """`choose` gets `size` bytes. A connection that ends before is never accepted."""
        self._link = link
        self._area = bytearray(size)
        self._filled = 0
        self._choose = choose
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(
            limits.LOGIN_MS_MAX / 1_000, link.guard, link.abort, "nothing came in time"
        )

    def writable(self) -> memoryview:
        return memoryview(self._area)[self._filled :]

    def received(self, size: int) -> None:
        self._filled += size
        if self._filled < len(self._area):
            return
        self._deadline.cancel()
        first = bytes(self._area)
        adapter = self._choose(first)(self._link)
        for name in ("writable", "received", "drained", "closed", "unfinished", "refuse"):
            setattr(self, name, getattr(adapter, name))
        adapter.writable()[: len(first)] = first
        adapter.received(len(first))

    def drained(self) -> None:
        """Do nothing: nothing was sent."""

    def closed(self, reason: str) -> None:
        self._deadline.cancel()

    def unfinished(self) -> Unfinished:
        if not self._filled:
            return NOTHING_UNFINISHED
        return Unfinished(self._filled, 0, True)

    def refuse(self, reason: str) -> None:
        self._link.abort(reason)
