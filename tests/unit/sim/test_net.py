"""What the simulated network does on request, and that it splits bytes everywhere."""

import asyncio
import errno
from collections import Counter

import pytest

from entrepot.core import limits
from entrepot.core.ports import FileRange
from sim.disk import SimDisk
from sim.loop import Process, SimLoop, run
from sim.net import SimNetwork, Weather
from tests.contracts.peers import Guests, Peer, connect


class World:
    """A server, and a client connected to it."""

    def __init__(self, loop: SimLoop, weather: Weather | None = None) -> None:
        self.network = SimNetwork(loop.random("net"), weather)
        self.server = self.network.door("server")
        self.client = self.network.door("client")
        self.guests = Guests()

    async def open(self) -> tuple[Peer, Peer]:
        await self.server.listen("server", 9092, self.guests.accept)
        return await self.connect()

    async def connect(self) -> tuple[Peer, Peer]:
        here = await connect(self.client, "server", 9092)
        return here, await self.guests.next()


def test_every_split_of_a_message_happens() -> None:
    async def main(loop: SimLoop) -> int:
        here, there = await World(loop).open()
        firsts: list[int] = []
        there.on_received = lambda piece: firsts.append(len(piece))
        here.link.send([b"01", b"2345", b"6789"])
        await there.has(10)
        return firsts[0]

    found = Counter(run(seed, main) for seed in range(300))
    assert found.keys() == set(range(1, 11))
    assert found[10] > 100


def test_a_message_takes_its_time() -> None:
    async def main(loop: SimLoop) -> float:
        weather = Weather(delay_seconds_min=0.5, delay_seconds_max=0.6, split_chance=0.0)
        here, there = await World(loop, weather).open()
        start = loop.time()
        here.link.send([b"x"])
        await there.has(1)
        return loop.time() - start

    taken = [run(seed, main) for seed in range(20)]
    assert 0.5 <= min(taken) < max(taken) <= 0.6


def test_bandwidth_is_a_bound() -> None:
    async def main(loop: SimLoop) -> float:
        here, there = await World(loop, Weather(bytes_per_second=1_000_000)).open()
        start = loop.time()
        for _ in range(100):
            here.link.send([bytes(100_000)])
        await there.has(10_000_000)
        return loop.time() - start

    assert run(0, main) == pytest.approx(10, abs=0.1)


def test_broken_links_are_a_reset_on_both_sides() -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop)
        here, there = await world.open()
        there.link.pause()
        here.link.send([bytes(limits.MIB)])
        await asyncio.sleep(0.1)
        world.network.break_links("server")
        here.link.send([b"into the void"])
        there.link.resume()
        assert await here.end() == await there.end() == "Connection reset by peer"
        assert len(there.data) == 0
        assert here.link.backlog == 0
        here, there = await world.connect()
        here.link.send([b"again"])
        assert await there.has(5) == b"again"
        world.network.break_links()
        await here.end()

    for seed in range(20):
        run(seed, main)


def test_a_partition_breaks_what_it_separates() -> None:
    async def main(loop: SimLoop) -> str:
        world = World(loop)
        here, there = await world.open()
        local = await connect(world.server, "server", 9092)
        await world.guests.next()
        world.network.part("server", "its neighbour")
        assert await here.end() == "Connection reset by peer"
        await there.end()
        start = loop.time()
        with pytest.raises(OSError, match=r".") as caught:
            await world.connect()
        assert loop.time() - start < 11
        assert local.reasons == []
        world.network.heal()
        await world.connect()
        assert caught.value.errno is not None
        return errno.errorcode[caught.value.errno]

    assert {run(seed, main) for seed in range(20)} == {"EHOSTUNREACH", "ETIMEDOUT"}


def test_a_crashed_machine_is_reset_and_refuses() -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop)
        process = Process(loop)
        here, there = await process.start(world.open())
        here.link.send([b"x"])
        await there.has(1)
        process.kill()
        world.network.crash("server")
        await asyncio.sleep(1)
        assert there.reasons == []  # The dead hear nothing,
        assert here.reasons == []  # and `here` was started by the same process.
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        here, there = await world.open()
        world.network.crash("client")
        assert await there.end() == "Connection reset by peer"

    run(0, main)


def test_callbacks_belong_to_the_process_of_their_side() -> None:
    async def main(loop: SimLoop) -> tuple[int, int]:
        world = World(loop)
        server = Process(loop)
        listening = server.start(world.server.listen("server", 9092, world.guests.accept))
        await listening
        here, there = await world.connect()
        server.kill()
        here.link.send([bytes(200_000)])
        await asyncio.sleep(60)
        assert here.reasons == []
        return len(there.data), here.link.backlog

    received, backlog = run(0, main)
    assert received == 0
    assert backlog == 200_000 - 64 * limits.KIB


def test_a_range_is_read_when_it_arrives() -> None:
    async def main(loop: SimLoop) -> bytes:
        here, there = await World(loop).open()
        disk = SimDisk(loop.random("disk"))
        file = disk.open("f", create=True)
        file.write(0, [b"before"])
        here.link.send([FileRange(file, 0, 6)])
        file.write(0, [b"after!"])
        return await there.has(6)

    assert run(0, main) == b"after!"


def test_our_own_mistake_ends_the_simulation() -> None:
    async def main(loop: SimLoop) -> None:
        here, there = await World(loop).open()
        there.on_received = lambda piece: piece[1_000]  # type: ignore[return-value]
        here.link.send([b"x"])
        await asyncio.sleep(1)

    with pytest.raises(IndexError):
        run(0, main)
