"""Datagrams, as everything above may rely on them: the real net, and its twin."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from entrepot.core.ports import Address, DatagramNet
from entrepot.net.datagrams import SocketDatagramNet
from sim.datagrams import SimDatagramNetwork
from sim.loop import run

SIZE_MAX = 1_400
HOST = "127.0.0.1"

Body = Callable[[DatagramNet], Coroutine[Any, Any, None]]


@pytest.fixture(params=["asyncio", "uvloop", "sim"])
def on_datagrams(request: pytest.FixtureRequest) -> Callable[[Body], None]:
    if request.param == "sim":
        return lambda body: run(
            1, lambda loop: body(SimDatagramNetwork(loop.random("net"), SIZE_MAX))
        )
    runner = {"asyncio": asyncio.run, "uvloop": uvloop.run}[request.param]
    return lambda body: runner(body(SocketDatagramNet(SIZE_MAX)))


class Peer:
    def __init__(self) -> None:
        self.got: list[tuple[bytes, Address]] = []
        self._changed = asyncio.Event()

    def received(self, data: bytes, source: Address) -> None:
        self.got.append((data, source))
        self._changed.set()

    async def has(self, count: int) -> list[tuple[bytes, Address]]:
        while len(self.got) < count:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 20)
        return self.got


def test_they_arrive_whole_with_their_source(on_datagrams) -> None:
    async def body(net: DatagramNet) -> None:
        one, other = Peer(), Peer()
        here = await net.bind(HOST, 0, one.received)
        there = await net.bind(HOST, 0, other.received)
        for data in (b"one", b"", b"x" * SIZE_MAX):
            here.send(data, there.address)
        got = await other.has(3)
        assert sorted(data for data, _ in got) == [b"", b"one", b"x" * SIZE_MAX]
        assert {source for _, source in got} == {here.address}
        there.send(b"back", here.address)
        assert await one.has(1) == [(b"back", there.address)]
        here.close()
        there.close()

    on_datagrams(body)


def test_one_that_is_too_long_is_still_too_long(on_datagrams) -> None:
    async def body(net: DatagramNet) -> None:
        peer = Peer()
        here = await net.bind(HOST, 0, peer.received)
        here.send(b"x" * 5_000, here.address)
        ((data, _),) = await peer.has(1)
        assert len(data) == SIZE_MAX + 1
        here.close()

    on_datagrams(body)


def test_what_cannot_be_sent_is_lost_and_that_is_all(on_datagrams) -> None:
    async def body(net: DatagramNet) -> None:
        peer = Peer()
        here = await net.bind(HOST, 0, peer.received)
        gone = await net.bind(HOST, 0, peer.received)
        gone.close()
        for to in (gone.address, ("not an address", 1), (HOST, 70_000), ("::1", 1), (HOST, 0)):
            here.send(b"lost", to)
        here.send(b"found", here.address)
        assert await peer.has(1) == [(b"found", here.address)]
        here.close()
        here.send(b"closed", here.address)
        here.close()

    on_datagrams(body)


def test_an_address_is_taken_once(on_datagrams) -> None:
    async def body(net: DatagramNet) -> None:
        here = await net.bind(HOST, 0, Peer().received)
        with pytest.raises(OSError):  # noqa: PT011  # The system's words differ.
            await net.bind(*here.address, Peer().received)
        here.close()
        (await net.bind(*here.address, Peer().received)).close()

    on_datagrams(body)
