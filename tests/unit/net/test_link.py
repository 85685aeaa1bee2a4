"""One connection does not keep the loop from the others."""

import asyncio
import itertools

import pytest

from entrepot.core.clock import SystemClock
from entrepot.net.sockets import SocketNet
from tests.unit.net.test_sockets import House


def test_reading_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Much that takes long to serve is waiting: others get their turn in between."""
    seconds = itertools.count(1)
    monkeypatch.setattr(SystemClock, "monotonic", lambda self: float(next(seconds)))
    reads = 0
    reads_before_others: list[int] = []

    async def body() -> None:
        net, house = SocketNet(), House()
        await house.open(net)
        visitor, peer = await house.visit()
        loop, received = asyncio.get_running_loop(), peer.received

        def counted(size: int) -> None:
            nonlocal reads
            reads += 1
            if reads == 1:
                loop.call_soon(lambda: reads_before_others.append(reads))
            received(size)

        monkeypatch.setattr(peer, "received", counted)
        await loop.sock_sendall(visitor, bytes(1_000_000))
        await peer.has(100_000)
        visitor.close()
        net.close()

    asyncio.run(body())
    assert reads_before_others[0] <= 2
