"""The client in a simulated world: no clock, chance or socket but those it is handed.

The broker is the real one, on a simulated disk and network, and links break again and
again. What was acknowledged is there, in order; what was repeated may be there twice.
"""

import asyncio

from entrepot.client.admin import Admin, NewTopic
from entrepot.client.client import EARLIEST, LATEST, Client, TopicPartition
from entrepot.client.producer import Producer
from entrepot.client.reader import Reader
from entrepot.config import build
from entrepot.core.ports import World
from entrepot.server import Server
from sim.clock import SimClock
from sim.disk import SimDisk
from sim.entropy import SimEntropy
from sim.loop import SimLoop, run
from sim.net import SimNetwork

COUNT = 200
PART = TopicPartition("t", 0)


async def break_links(network: SimNetwork, times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0.05)
        network.break_links("broker")


async def session(loop: SimLoop, breaks: int) -> list[bytes | None]:
    network = SimNetwork(loop.random("net"))
    disk = SimDisk(loop.random("disk"))
    clock, entropy = SimClock(loop), SimEntropy(loop.random("entropy"))
    config = build({"host": "broker", "ports": {"kafka": 9092}}, "test")
    server = Server(config, World(clock, entropy, disk, network.door("broker")))
    await server.start()
    breaking = asyncio.ensure_future(break_links(network, breaks))
    async with Client(network.door("user"), "broker:9092") as client:
        outcome = await Admin(client).create_topics([NewTopic("t", 1)])
        assert outcome["t"] is None or outcome["t"].name == "TOPIC_ALREADY_EXISTS"
        producer = Producer(client, clock, batch_bytes=500)
        for number in range(COUNT):
            await producer.send("t", b"%d" % number)
            await asyncio.sleep(0.002)
        await producer.flush()
        await breaking
        start = (await client.list_offsets({PART: EARLIEST}))[PART].offset
        end = (await client.list_offsets({PART: LATEST}))[PART].offset
        reader = Reader(client, {PART: start})
        values: list[bytes | None] = []
        while reader.positions[PART] < end:
            values += [message.record.value for message in await reader.poll()]
    await server.stop()
    return values


def test_what_was_acknowledged_is_there_in_order(seed: int) -> None:
    values = run(seed, lambda loop: session(loop, breaks=8))
    assert list(dict.fromkeys(values)) == [b"%d" % number for number in range(COUNT)]


def test_nothing_is_there_twice_when_nothing_breaks() -> None:
    values = run(0, lambda loop: session(loop, breaks=0))
    assert values == [b"%d" % number for number in range(COUNT)]


def test_one_seed_gives_one_run() -> None:
    steps = []
    for _ in range(2):

        async def counted(loop: SimLoop) -> int:
            await session(loop, breaks=8)
            return loop.steps

        steps.append(run(3, counted))
    assert steps[0] == steps[1]
