"""Input that is not finished: a whole broker on a simulated net, and peers that send in part."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from struct import pack
from typing import Any

import pytest

from entrepot.config import build
from entrepot.core import limits
from entrepot.core.ports import World
from entrepot.net.unfinished import EVICTIONS_PER_TURN_MAX, UnfinishedInput
from entrepot.server import Server
from entrepot.wire.amqp.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER, frame, method_frame
from entrepot.wire.amqp.methods import basic, channel, connection
from entrepot.wire.amqp.scan import BODY, HEADER
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic, encode_request
from entrepot.wire.kafka.frames import request_header, size_prefix
from sim.clock import SimClock
from sim.disk import SimDisk
from sim.entropy import SimEntropy
from sim.loop import SimLoop, run
from sim.net import SimNetwork, Weather
from tests.contracts.peers import Peer, connect

KAFKA, AMQP, HTTP = 9092, 5672, 15672
SETTINGS = {"host": "broker", "security": {"insecure": True}}  # Nobody is on this machine.
BYTES_MAX, SECONDS_MAX = limits.MIB, 10


class House:
    """The broker, and peers that are connected to it."""

    def __init__(self, network: SimNetwork, unfinished: UnfinishedInput) -> None:
        self.network = network
        self.unfinished = unfinished

    async def peer(self, port: int, *said: bytes) -> Peer:
        peer = await connect(self.network.door("peers"), "broker", port)
        peer.link.send(said)
        return peer

    async def amqp_peer(self, *said: bytes) -> Peer:
        """On a connection that is open, with a channel."""
        peer = await self.peer(AMQP, PROTOCOL_HEADER)
        for on, method in (
            (0, connection.StartOk({}, "PLAIN", b"\0guest\0guest")),
            (0, connection.TuneOk(100, 131_072, 0)),
            (0, connection.Open("/")),
            (1, channel.Open()),
        ):
            await self.quiet()
            peer.link.send([method_frame(on, method)])
        await peer.until(lambda: pack(">HH", *channel.OpenOk.ID) in peer.data)
        peer.link.send(said)
        return peer

    async def quiet(self) -> None:
        """Wait until what was sent has come."""
        await asyncio.sleep(0.1)


Body = Callable[[House], Coroutine[Any, Any, None]]


def in_house(body: Body) -> Callable[[], None]:
    async def main(loop: SimLoop) -> None:
        network = SimNetwork(loop.random("net"), Weather(split_chance=0.1))
        unfinished = UnfinishedInput(BYTES_MAX, SECONDS_MAX * 1_000)
        doors = World(
            SimClock(loop),
            SimEntropy(loop.random("entropy")),
            SimDisk(loop.random("disk")),
            network.door("broker", unfinished),
        )
        server = Server(build(SETTINGS, "test"), doors)
        await server.start()
        await server.broker.create_topic("empty", 1)
        await body(House(network, unfinished))
        network.break_links("peers")
        await asyncio.sleep(1)
        assert unfinished.bytes_held == 0
        await server.stop()

    def test() -> None:
        run(0, main)

    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    return test


# --- what is said


def versions(correlation_id: int = 7) -> bytes:
    message = request_header(Api.API_VERSIONS, 0, correlation_id, "test")
    return size_prefix(len(message)) + message


def large(sent: int, size: int = 90 * limits.MIB) -> bytes:
    """The beginning of a large Produce."""
    return (size_prefix(size) + pack(">hh", Api.PRODUCE, 9) + bytes(sent))[:sent]


def long_fetch() -> bytes:
    """One that waits a minute for what does not come."""
    wanted = FetchTopic("empty", None, [FetchPartition(0, -1, 0, -1, -1, 1)])
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1, topics=[wanted])
    message = request_header(Api.FETCH, 12, 1, "test") + encode_request(12, request)
    return size_prefix(len(message)) + message


def amqp_publish(sent: int, of: int, on: int = 1) -> bytes:
    """A message of which a part is missing."""
    pieces = [bytes(min(100_000, sent - start)) for start in range(0, sent, 100_000)]
    return b"".join(
        [
            method_frame(on, basic.Publish(0, "", "nowhere")),
            frame(HEADER, on, pack(">HHQH", 60, 0, of, 0)),
            *(frame(BODY, on, piece) for piece in pieces),
        ]
    )


def http_put(sent: int, of: int) -> bytes:
    return b"PUT /api/queues/%%2f/q HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % of + bytes(
        sent
    )


# --- how much


@in_house
async def test_who_holds_much_goes_and_who_holds_little_stays(house: House) -> None:
    small = await house.peer(KAFKA, versions()[:-1])  # The oldest of all.
    greedy = []
    for _ in range(40):
        greedy.append(await house.peer(KAFKA, large(100_000)))
        await house.quiet()
        assert house.unfinished.bytes_held <= BYTES_MAX
    late = await house.peer(KAFKA, versions()[:-1])
    small.link.send([versions()[-1:]])
    late.link.send([versions()[-1:]])
    await small.has(10)
    await late.has(10)
    assert [bool(peer.reasons) for peer in greedy] == [True] * 30 + [False] * 10


@in_house
async def test_many_that_hold_little_do_not_keep_others_out(house: House) -> None:
    for _ in range(20):
        many = [await house.peer(KAFKA, large(2_500)) for _ in range(50)]
        await house.quiet()
    assert house.unfinished.bytes_held <= BYTES_MAX
    assert not any(peer.reasons for peer in many), "the oldest go"
    one = await house.peer(KAFKA, versions())
    await one.has(10)


@in_house
async def test_one_frame_that_is_larger_than_all_may_hold(house: House) -> None:
    peer = await house.peer(KAFKA, large(2 * limits.MIB))
    await peer.end()


@in_house
async def test_a_busy_connection_has_no_old_input(house: House) -> None:
    """However long it goes without a read that ends where a request does."""
    busy = await house.peer(KAFKA, versions()[:-1])
    for count in range(1, 20):
        await house.peer(KAFKA, large(90_000))
        await house.quiet()
        busy.link.send([versions()[-1:] + versions() * 100 + versions()[:-1]])
        await house.quiet()
        assert not busy.reasons, count
    busy.link.send([versions()[-1:]])
    await house.quiet()
    assert len(busy.data) % 20 == 0


@in_house
async def test_requests_that_wait_count(house: House) -> None:
    waiting = await house.peer(KAFKA, long_fetch(), versions(), large(900_000, 899_996))
    await house.quiet()
    assert house.unfinished.bytes_held > 899_996
    await house.peer(KAFKA, large(500_000))
    await house.quiet()
    assert waiting.reasons
    assert house.unfinished.bytes_held == 500_000


@in_house
async def test_several_channels_hold_together(house: House) -> None:
    parts = [amqp_publish(100_000, 200_000, on=number) for number in range(1, 20)]
    peer = await house.amqp_peer(*parts)
    await peer.end()


# --- how long


@in_house
async def test_who_does_not_go_on_goes(house: House) -> None:
    silent = [
        await house.peer(KAFKA, versions()[:-1]),
        await house.peer(KAFKA, versions(), large(500_000)),
        await house.amqp_peer(HEARTBEAT_FRAME[:-1]),
        await house.amqp_peer(amqp_publish(1_000, 2_000)),
        await house.peer(HTTP, http_put(1_000, 2_000)),
    ]
    slow, idle = await house.peer(KAFKA), await house.peer(KAFKA, versions())
    for byte in versions()[:-1]:
        slow.link.send([bytes((byte,))])
        await asyncio.sleep(0.7 * SECONDS_MAX)
    assert all(peer.reasons for peer in silent)
    slow.link.send([versions()[-1:]])
    await slow.has(10)
    await idle.has(10)
    assert not slow.reasons
    assert not idle.reasons


@in_house
async def test_heartbeats_do_not_finish_a_message(house: House) -> None:
    peer = await house.amqp_peer(amqp_publish(1_000, 2_000))
    for _ in range(SECONDS_MAX * 2):
        peer.link.send([HEARTBEAT_FRAME])
        await asyncio.sleep(1)
    assert peer.reasons


@in_house
async def test_who_waits_for_us_may_wait(house: House) -> None:
    """Its part of a frame is behind a request that takes its time."""
    peer = await house.peer(KAFKA, long_fetch(), versions(), versions()[:-1])
    await asyncio.sleep(59)
    peer.link.send([versions()[-1:]])
    await asyncio.sleep(SECONDS_MAX + 5)
    assert not peer.reasons


@in_house
async def test_those_who_are_late_go_in_turns(house: House) -> None:
    """A thousand ends at once would keep the others waiting."""
    peers = [await house.peer(KAFKA, versions()[:-1]) for _ in range(EVICTIONS_PER_TURN_MAX + 5)]
    await asyncio.sleep(1.5 * SECONDS_MAX)
    assert all(peer.reasons for peer in peers)


# --- what they are told


@in_house
async def test_http_has_words_for_it(house: House) -> None:
    peer = await house.peer(HTTP, http_put(2 * limits.MIB, 3 * limits.MIB))
    await peer.end()
    assert peer.data.startswith(b"HTTP/1.1 503 ")


@in_house
async def test_amqp_has_words_for_it(house: House) -> None:
    peer = await house.amqp_peer(amqp_publish(2 * limits.MIB, 3 * limits.MIB))
    await peer.end()
    assert pack(">HHH", *connection.Close.ID, 506) in peer.data


def test_the_log_says_who_and_why(caplog: pytest.LogCaptureFixture) -> None:
    @in_house
    async def evicted(house: House) -> None:
        for peer in (
            await house.peer(KAFKA, large(2 * limits.MIB)),
            await house.amqp_peer(amqp_publish(2 * limits.MIB, 3 * limits.MIB)),
            await house.peer(HTTP, http_put(2 * limits.MIB, 3 * limits.MIB)),
        ):
            await peer.end()

    with caplog.at_level(logging.WARNING):
        evicted()
    lines = [each.getMessage() for each in caplog.records if "unfinished" in each.getMessage()]
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("peers:")
        assert f"while all connections hold more than {BYTES_MAX}" in line
