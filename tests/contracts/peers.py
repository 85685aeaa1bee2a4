"""Receivers for tests of nets: they keep what they are told and can be waited for."""

import asyncio
from collections.abc import Callable

from entrepot.core.ports import Link, Net


class Peer:
    def __init__(self, link: Link, room: int = 10_000) -> None:
        self.link = link
        self.data = bytearray()
        self.drains = 0
        self.reasons: list[str] = []
        self.on_received: Callable[[bytes], None] | None = None
        self._view = memoryview(bytearray(room))
        self._changed = asyncio.Event()

    def writable(self) -> memoryview:
        return self._view

    def received(self, size: int) -> None:
        assert not self.reasons, "bytes after the end"
        assert 0 < size <= len(self._view)
        piece = bytes(self._view[:size])
        self.data += piece
        self._changed.set()
        if self.on_received is not None:
            self.on_received(piece)

    def drained(self) -> None:
        assert not self.reasons, "drained after the end"
        self.drains += 1
        self._changed.set()

    def closed(self, reason: str) -> None:
        self.reasons.append(reason)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def has(self, size: int) -> bytes:
        """The first `size` bytes, when they are there."""
        await self.until(lambda: len(self.data) >= size)
        return bytes(self.data[:size])

    async def end(self) -> str:
        """Why the link closed, when it has, and a moment later it is still the only word."""
        await self.until(lambda: bool(self.reasons))
        await asyncio.sleep(0.02)
        assert len(self.reasons) == 1, self.reasons
        return self.reasons[0]


class Guests:
    """Whoever was let in by `accept`, to be waited for."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Peer] = asyncio.Queue()
        self.count = 0

    def accept(self, link: Link) -> Peer:
        peer = Peer(link)
        self._waiting.put_nowait(peer)
        self.count += 1
        return peer

    async def next(self) -> Peer:
        return await self._waiting.get()


async def connect(net: Net, host: str, port: int) -> Peer:
    guests = Guests()
    link = await net.connect(host, port, guests.accept)
    peer = await guests.next()
    assert peer.link is link
    return peer
