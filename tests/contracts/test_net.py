"""The net as everything above it may rely on it."""

import asyncio
from typing import NamedTuple

import pytest

from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.ports import Disk, FileRange, Link, Listener, Net
from tests.contracts.peers import Guests, Peer, connect

HOST = "127.0.0.1"


class Pair(NamedTuple):
    """A listener, and two peers connected through it."""

    listener: Listener
    here: Peer
    there: Peer


async def connected(net: Net) -> Pair:
    guests = Guests()
    listener = await net.listen(HOST, 0, guests.accept)
    here = await connect(net, HOST, listener.port)
    return Pair(listener, here, await guests.next())


def test_bytes_arrive_in_order_both_ways(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)
        pair.there.on_received = lambda piece: pair.there.link.send([piece])
        sent = b""
        for size in (1, 2, 100, 5_000, 70_000, 300_000):
            data = bytes(index % 251 for index in range(size))
            pair.here.link.send([data])
            sent += data
        assert await pair.here.has(len(sent)) == sent
        assert bytes(pair.there.data) == sent

    on_net(body)


def test_chunks_of_every_kind_are_one_stream(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)
        pair.here.link.send([])
        pair.here.link.send([b"", memoryview(b"")])
        pair.here.link.send([b"one ", bytearray(b"two "), memoryview(b"xthree")[1:]])
        many = [b"%d," % index for index in range(3_000)]  # More than one call takes.
        pair.here.link.send(many)
        expected = b"one two three" + b"".join(many)
        assert await pair.there.has(len(expected)) == expected

    on_net(body)


def test_ranges_of_files_are_sent_between_buffers(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)
        content = bytes(range(251)) * 12_000
        file = disk.open("data", create=True)
        assert file.write(0, [content]) == len(content)
        pair.here.link.send(
            [
                b"head",
                FileRange(file, 10, 100),
                FileRange(file, 0, 0),
                b"middle",
                FileRange(file, 1_000, 2_500_000),
                FileRange(file, 7, 50_000),
                b"tail",
            ]
        )
        del file  # The range keeps it open.
        expected = (
            b"head" + content[10:110] + b"middle" + content[1_000:2_501_000] + content[7:50_007]
        ) + b"tail"
        assert await pair.there.has(len(expected)) == expected

    on_net(body)


@pytest.mark.parametrize("size", [100, 500_000])
def test_a_range_beyond_its_file_breaks_the_link(on_net, size: int) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)
        file = disk.open("data", create=True)
        file.write(0, [bytes(size)])
        pair.here.link.send([FileRange(file, 0, size + 1)])
        assert "ends before" in await pair.here.end()
        await pair.there.end()
        assert len(pair.there.data) <= size

    on_net(body)


def test_a_backlog_grows_and_drains(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)
        pair.there.link.pause()
        block = bytes(limits.MIB)
        sent = 0
        while pair.here.link.backlog <= limits.BACKLOG_BYTES_HIGH:
            pair.here.link.send([block])
            sent += len(block)
            assert sent < 500 * limits.MIB
            await asyncio.sleep(0)
        backlog = pair.here.link.backlog
        pair.here.link.send([b"more"])
        sent += 4
        assert pair.here.link.backlog == backlog + 4
        await asyncio.sleep(0.05)
        assert pair.here.drains == 0
        pair.there.link.resume()
        await pair.here.until(lambda: pair.here.drains > 0)
        assert pair.here.link.backlog <= limits.BACKLOG_BYTES_HIGH // 2
        await pair.there.has(sent)
        await asyncio.sleep(0.02)
        assert pair.here.link.backlog == 0
        assert pair.here.drains == 1

    on_net(body)


def test_no_drain_without_a_backlog(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)
        for _ in range(10):
            pair.here.link.send([bytes(100_000)])
            await asyncio.sleep(0.001)
        await pair.there.has(1_000_000)
        await asyncio.sleep(0.02)
        assert pair.here.drains == 0

    on_net(body)


@pytest.mark.parametrize("size", [30_000, 100_000])
def test_a_paused_link_is_not_read(on_net, size: int) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)
        pair.there.on_received = lambda _: pair.there.link.pause()
        pair.here.link.send([bytes(size)])
        await pair.there.has(1)
        before = len(pair.there.data)
        await asyncio.sleep(0.05)
        assert len(pair.there.data) == before < size
        pair.there.on_received = None
        pair.there.link.resume()
        pair.there.link.resume()
        await pair.there.has(size)

    on_net(body)


def test_close_sends_what_is_queued(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)
        pair.there.link.pause()
        pair.here.link.send([bytes(12 * limits.MIB)])
        pair.here.link.close("done")
        pair.here.link.close("again")
        pair.here.link.send([b"too late"])
        assert pair.here.reasons == []  # Never in the middle of a call.
        pair.there.link.resume()
        assert await pair.here.end() == "done"
        assert await pair.there.end() == "closed by peer"
        assert len(pair.there.data) == 12 * limits.MIB

    on_net(body)


def test_the_last_answer_survives_unread_input(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)
        pair.there.link.pause()
        for _ in range(10):
            pair.here.link.send([bytes(5_000)])
            await asyncio.sleep(0.002)
        pair.there.link.send([b"answer" * 10_000])
        pair.there.link.close("enough of you")
        pair.here.link.send([b"talking on"])
        assert await pair.there.end() == "enough of you"
        assert await pair.here.end() == "closed by peer"
        assert bytes(pair.here.data) == b"answer" * 10_000

    on_net(body)


def test_abort_closes_both_sides_once(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)
        pair.there.link.pause()
        pair.here.link.send([bytes(12 * limits.MIB)])
        pair.here.link.abort("fed up")
        assert pair.here.reasons == []
        assert pair.here.link.backlog == 0
        pair.here.link.abort("again")
        pair.here.link.close("again")
        pair.here.link.send([b"too late"])
        pair.here.link.pause()
        pair.here.link.resume()
        pair.there.link.resume()
        assert await pair.here.end() == "fed up"
        await pair.there.end()
        assert len(pair.there.data) < 12 * limits.MIB

    on_net(body)


def test_abort_cuts_a_close_short(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)
        pair.there.link.pause()
        pair.here.link.send([bytes(12 * limits.MIB)])
        pair.here.link.close("done")
        await asyncio.sleep(0.02)
        assert pair.here.reasons == []
        pair.here.link.abort("no time")
        assert await pair.here.end() == "done"

    on_net(body)


def test_a_link_closed_from_its_own_callbacks(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)

        def answer_and_close(piece: bytes) -> None:
            pair.there.link.send([b"bye"])
            pair.there.link.close("said bye")
            assert pair.there.reasons == []

        pair.there.on_received = answer_and_close
        pair.here.link.send([b"hello"])
        assert await pair.here.has(3) == b"bye"
        assert await pair.there.end() == "said bye"
        assert await pair.here.end() == "closed by peer"

    on_net(body)


def test_a_link_closed_before_it_has_a_receiver(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        refused: list[Peer] = []

        def refuse(link: Link) -> Peer:
            link.send([b"full"])
            link.close("no room")
            refused.append(Peer(link))
            return refused[0]

        listener = await net.listen(HOST, 0, refuse)
        here = await connect(net, HOST, listener.port)
        assert await here.end() == "closed by peer"
        assert bytes(here.data) == b"full"
        assert await refused[0].end() == "no room"

    on_net(body)


def test_a_peers_mistake_closes_its_link_only(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)

        def complain(piece: bytes) -> None:
            raise PeerError("that is not the protocol")

        neighbours = await connected(net)
        pair.there.on_received = complain
        pair.here.link.send([b"garbage"])
        assert await pair.there.end() == "that is not the protocol"
        assert await pair.here.end() == "closed by peer"
        neighbours.here.link.send([b"fine"])
        assert await neighbours.there.has(4) == b"fine"

    on_net(body)


def test_many_links_at_once(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        def echo(link: Link) -> Peer:
            peer = Peer(link)
            peer.on_received = lambda piece: link.send([piece])
            return peer

        listener = await net.listen(HOST, 0, echo)

        async def talk(number: int) -> None:
            peer = await connect(net, HOST, listener.port)
            word = b"%06d" % number
            for count in range(1, 20):
                peer.link.send([word])
                await peer.has(len(word) * count)
            assert bytes(peer.data) == word * 19
            peer.link.close("done")
            assert await peer.end() == "done"

        await asyncio.gather(*(talk(number) for number in range(30)))

    on_net(body)


def test_addresses(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)
        assert pair.listener.host == HOST
        assert pair.listener.port > 0
        assert pair.here.link.peer == f"{HOST}:{pair.listener.port}"
        assert pair.there.link.peer
        with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
            await net.listen(HOST, pair.listener.port, Peer)
        pair.listener.close()
        pair.listener.close()
        with pytest.raises(ConnectionRefusedError):
            await net.connect(HOST, pair.listener.port, Peer)
        pair.here.link.send([b"still here"])
        assert await pair.there.has(10) == b"still here"
        again = await net.listen(HOST, pair.listener.port, Peer)
        assert again.port == pair.listener.port

    on_net(body)


def test_a_connection_that_nobody_wants(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        def decline(link: Link) -> Peer:
            raise LookupError("changed my mind")

        guests = Guests()
        listener = await net.listen(HOST, 0, guests.accept)
        with pytest.raises(LookupError):
            await net.connect(HOST, listener.port, decline)
        await (await guests.next()).end()

    on_net(body)


def test_a_closed_net_drops_its_links_and_listens_no_more(on_net) -> None:
    async def body(net: Net, disk: Disk) -> None:
        pair = await connected(net)
        pair.here.link.send([bytes(12 * limits.MIB)])
        net.close()
        assert await pair.here.end() == await pair.there.end() == "shutting down"
        with pytest.raises(ConnectionRefusedError):
            await net.connect(HOST, pair.listener.port, Peer)

    on_net(body)
