"""What only real sockets do: resets, half-closes, exhaustion, addresses, reference counts."""

import asyncio
import errno
import gc
import logging
import os
import resource
import socket
import struct
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from entrepot.core import limits
from entrepot.core.ports import FileRange, Link
from entrepot.log.disk import FileDisk
from entrepot.net import link as link_module
from entrepot.net import sockets as sockets_module
from entrepot.net.sockets import SocketListener, SocketNet
from tests.contracts.peers import Guests, Peer, connect

HOST = "127.0.0.1"

OnNet = Callable[[Callable[[SocketNet], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def on_net(request: pytest.FixtureRequest) -> OnNet:
    async def with_net(body: Callable[[SocketNet], Coroutine[Any, Any, None]]) -> None:
        net = SocketNet(connections_max=50)
        try:
            async with asyncio.timeout(20):
                await body(net)
        finally:
            net.close()

    return lambda body: request.param(with_net(body))


class House:
    """A listener, and plain sockets connected to it."""

    def __init__(self) -> None:
        self.guests = Guests()

    async def open(self, net: SocketNet, host: str = HOST) -> SocketListener:
        self.listener = await net.listen(host, 0, self.guests.accept)
        return self.listener

    async def visit(self) -> tuple[socket.socket, Peer]:
        """A plain socket, and the peer that was accepted for it."""
        visitor = socket.create_connection((HOST, self.listener.port))
        visitor.setblocking(False)
        return visitor, await self.guests.next()


def test_a_reset_is_one_end(on_net: OnNet) -> None:
    async def body(net: SocketNet) -> None:
        house = House()
        await house.open(net)
        visitor, peer = await house.visit()
        visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        visitor.close()
        assert await peer.end() == "Connection reset by peer"

    on_net(body)


def test_a_reset_while_sending_is_one_end(on_net: OnNet) -> None:
    async def body(net: SocketNet) -> None:
        house = House()
        await house.open(net)
        visitor, peer = await house.visit()
        peer.link.pause()  # It finds out by writing.
        peer.link.send([bytes(20_000_000)])
        visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        visitor.close()
        assert await peer.end() in ("Connection reset by peer", "Broken pipe")
        assert peer.link.backlog == 0

    on_net(body)


def test_many_small_pieces_are_sent_some_at_a_time(
    on_net: OnNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "CHUNKS_PER_CALL_MAX", 1)

    async def body(net: SocketNet) -> None:
        house = House()
        await house.open(net)
        visitor, peer = await house.visit()
        count = 3 * link_module.SENDS_PER_WAKE_MAX
        peer.link.send([b"x"] * count)
        assert peer.link.backlog == count - link_module.SENDS_PER_WAKE_MAX
        size, loop = 0, asyncio.get_running_loop()
        while size < count:
            size += len(await loop.sock_recv(visitor, 100))
        assert peer.link.backlog == 0
        visitor.close()

    on_net(body)


def test_a_half_closed_peer_still_gets_what_is_queued(on_net: OnNet) -> None:
    async def body(net: SocketNet) -> None:
        house = House()
        await house.open(net)
        visitor, peer = await house.visit()
        peer.on_received = lambda piece: peer.link.send([bytes(8_000_000)])
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(visitor, b"?")
        visitor.shutdown(socket.SHUT_WR)
        size = 0
        while piece := await loop.sock_recv(visitor, 1 << 20):
            size += len(piece)
        assert size == 8_000_000
        assert await peer.end() == "closed by peer"
        visitor.close()

    on_net(body)


def test_a_peer_that_never_reads_is_not_waited_for_forever(
    on_net: OnNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "LINGER_SECONDS", 0.1)

    async def body(net: SocketNet) -> None:
        house = House()
        await house.open(net)
        visitor, peer = await house.visit()
        peer.link.send([bytes(20_000_000)])
        peer.link.close("stopping")
        assert await peer.end() == "stopping"
        other_visitor, other = await house.visit()  # Has read all there is, never closes.
        other.link.close("stopping")
        assert await other.end() == "stopping"
        await asyncio.sleep(0.2)
        other_visitor.send(b"x")  # Is answered with a reset.
        await asyncio.sleep(0.05)
        with pytest.raises(ConnectionError):
            other_visitor.send(b"x")
        visitor.close()
        other_visitor.close()

    on_net(body)


def test_our_own_mistake_closes_one_link_and_is_logged(
    on_net: OnNet, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(net: SocketNet) -> None:
        house = House()
        await house.open(net)
        visitor, peer = await house.visit()
        neighbour, other = await house.visit()
        other.on_received = lambda piece: other.link.send([piece])
        peer.on_received = lambda piece: piece[1000]  # type: ignore[return-value]
        visitor.send(b"x")
        assert await peer.end() == "internal error"
        neighbour.send(b"fine")
        assert await other.has(4) == b"fine"
        visitor.close()
        neighbour.close()

    on_net(body)
    (record,) = [record for record in caplog.records if record.name == "entrepot.faults"]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[0] is IndexError


def test_a_receiver_without_room_is_our_own_mistake(
    on_net: OnNet, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(net: SocketNet) -> None:
        house = House()
        await house.open(net)
        visitor, peer = await house.visit()
        peer.writable = [].pop  # type: ignore[method-assign]
        visitor.send(b"x")
        assert await peer.end() == "internal error"
        visitor.close()

    on_net(body)
    assert "the connection is closed" in caplog.text


def test_a_failing_accept_refuses_one_connection(
    on_net: OnNet, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(net: SocketNet) -> None:
        guests = Guests()

        def accept(link: Link) -> Peer:
            peer = guests.accept(link)
            if guests.count == 1:
                raise LookupError("no such thing")
            return peer

        listener = await net.listen(HOST, 0, accept)
        loop = asyncio.get_running_loop()
        with socket.create_connection((HOST, listener.port)) as refused:
            refused.setblocking(False)
            assert await loop.sock_recv(refused, 1) == b""
        with socket.create_connection((HOST, listener.port)) as welcome:
            await guests.next()
            welcome.send(b"x")
            assert await (await guests.next()).has(1) == b"x"

    on_net(body)
    assert "the connection is refused" in caplog.text


def test_more_connections_than_allowed_are_let_out_again(
    on_net: OnNet, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(net: SocketNet) -> None:
        house = House()
        await house.open(net)
        inside = [await house.visit() for _ in range(50)]
        loop = asyncio.get_running_loop()
        for _ in range(3):
            with socket.create_connection((HOST, house.listener.port)) as refused:
                refused.setblocking(False)
                assert await loop.sock_recv(refused, 1) == b""
        visitor, peer = inside.pop()
        visitor.close()
        await peer.end()
        inside.append(await house.visit())
        for visitor, _ in inside:
            visitor.close()

    on_net(body)
    lines = [record.getMessage() for record in caplog.records if record.name == "entrepot.net"]
    assert lines == ["refusing connections: 50 are open"]


def test_running_out_of_descriptors_is_survived(
    on_net: OnNet, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets_module, "ACCEPT_PAUSE_SECONDS", 0.05)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def body(net: SocketNet) -> None:
        house = House()
        await house.open(net)
        visitor = socket.create_connection((HOST, house.listener.port))
        used = os.dup(visitor.fileno())
        os.close(used)
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
        try:
            await asyncio.sleep(0.08)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        peer = await house.guests.next()
        visitor.send(b"hello")
        assert await peer.has(5) == b"hello"
        visitor.close()

    on_net(body)
    assert "cannot accept on 127.0.0.1" in caplog.text
    assert os.strerror(errno.EMFILE) in caplog.text


def test_a_listener_closed_while_it_pauses(on_net: OnNet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets_module, "ACCEPT_PAUSE_SECONDS", 0.02)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def body(net: SocketNet) -> None:
        house = House()
        await house.open(net)
        visitor = socket.create_connection((HOST, house.listener.port))
        used = os.dup(visitor.fileno())
        os.close(used)
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
        try:
            await asyncio.sleep(0.01)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        house.listener.close()
        await asyncio.sleep(0.05)
        assert house.guests.count == 0
        visitor.close()

    on_net(body)


@pytest.mark.skipif("not _has_ipv6_loopback()", reason="no IPv6 here")
def test_ipv6(on_net: OnNet) -> None:
    async def body(net: SocketNet) -> None:
        house = House()
        listener = await house.open(net, "::1")
        assert listener.host == "::1"
        here = await connect(net, "::1", listener.port)
        assert here.link.peer == f"[::1]:{listener.port}"
        here.link.send([b"six"])
        there = await house.guests.next()
        assert await there.has(3) == b"six"

    on_net(body)


def test_every_address_of_the_machine_has_the_same_port(on_net: OnNet) -> None:
    async def body(net: SocketNet) -> None:
        house = House()
        listener = await house.open(net, "")
        for address in (HOST, "::1") if _has_ipv6_loopback() else (HOST,):
            with socket.create_connection((address, listener.port)):
                await house.guests.next()

    on_net(body)


def _has_ipv6_loopback() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


def test_an_unknown_host_is_an_os_error(on_net: OnNet) -> None:
    async def body(net: SocketNet) -> None:
        with pytest.raises(OSError, match=r"."):
            await net.listen("host.invalid", 0, Peer)
        with pytest.raises(OSError, match=r"."):
            await net.connect("host.invalid", 1, Peer)

    on_net(body)


def test_nothing_keeps_a_closed_link_alive(on_net: OnNet) -> None:
    async def body(net: SocketNet) -> None:
        house = House()
        await house.open(net)
        visitor, peer = await house.visit()
        visitor.close()
        await peer.end()
        link, gone = weakref.ref(peer.link), weakref.ref(peer)
        gc.disable()
        try:
            del peer
            await asyncio.sleep(0.02)
            assert gone() is None
            assert link() is None
        finally:
            gc.enable()

    on_net(body)


def test_a_range_and_its_header_leave_in_full_packets(on_net: OnNet, tmp_path: Path) -> None:
    """A header of a few bytes in front of a file does not travel by itself."""

    async def body(net: SocketNet) -> None:
        disk = FileDisk(tmp_path)
        file = disk.open("data", create=True)
        file.write(0, [bytes(20_000)])
        house = House()
        await house.open(net)
        visitor, peer = await house.visit()
        before = _segments_out(peer.link)
        for _ in range(20):
            peer.link.send([b"head", FileRange(file, 0, 20_000)])
            await asyncio.sleep(0.005)
            while True:
                try:
                    visitor.recv(1 << 20)
                except BlockingIOError:
                    break
        assert _segments_out(peer.link) - before <= 30  # 20 sends; 40 if headers went alone.
        visitor.close()

    if not hasattr(socket, "MSG_MORE"):
        pytest.skip("only Linux knows MSG_MORE")
    on_net(body)


def test_the_system_holds_little_of_an_answer_that_is_not_read(
    on_net: OnNet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is asked once how much it takes, not again to hear that it takes no more."""
    size, asked = 16 * limits.MIB, []

    def sendfile(*arguments: int) -> int:
        asked.append(arguments)
        return system_sendfile(*arguments)

    system_sendfile = os.sendfile
    monkeypatch.setattr(os, "sendfile", sendfile)

    async def body(net: SocketNet) -> None:
        asked.clear()
        file = FileDisk(tmp_path).open("data", create=True)
        file.truncate(size)
        house = House()
        await house.open(net)
        visitor = socket.socket()
        visitor.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * limits.KIB)
        visitor.connect((HOST, house.listener.port))
        peer = await house.guests.next()
        peer.link.send([FileRange(file, 0, size)])
        assert len(asked) == 1
        assert size - peer.link.backlog < 4 * limits.SEND_BUFFER_BYTES
        peer.link.send([bytes(1)])  # Behind what waits.
        assert len(asked) == 1
        visitor.close()

    on_net(body)


def _segments_out(link: Link) -> int:
    """tcpi_data_segs_out of struct tcp_info."""
    assert isinstance(link, link_module.SocketLink)
    info = link._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    return int(struct.unpack_from("I", info, 156)[0])


# --- localhost


def test_localhost_is_of_both_families(on_net: OnNet) -> None:
    async def body(net: SocketNet) -> None:
        house = House()
        listener = await house.open(net, "localhost")
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, listener.port)):
                await house.guests.next()

    on_net(body)


def test_without_ipv6_localhost_is_what_there_is(
    on_net: OnNet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bind = sockets_module._bound_to

    def without_ipv6(family: int, address: tuple[Any, ...]) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return bind(family, address)

    monkeypatch.setattr(sockets_module, "_bound_to", without_ipv6)

    async def body(net: SocketNet) -> None:
        house = House()
        with caplog.at_level(logging.INFO):
            await house.open(net, "localhost")
        visitor, _ = await house.visit()
        visitor.close()

    on_net(body)
    assert "::1 is not listened on: Address family not supported" in caplog.text


def test_a_free_port_is_free_on_both_families(
    on_net: OnNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first port that the system gives for IPv4 is taken for IPv6."""
    bind, taken = sockets_module._bound_to, list[int]()

    def once_taken(family: int, address: tuple[Any, ...]) -> socket.socket:
        if family == socket.AF_INET6 and not taken:
            taken.append(address[1])
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        return bind(family, address)

    monkeypatch.setattr(sockets_module, "_bound_to", once_taken)

    async def body(net: SocketNet) -> None:
        listener = await House().open(net, "localhost")
        assert len(listener._sockets) == 2
        assert {each.getsockname()[1] for each in listener._sockets} == {listener.port}
        with pytest.raises(OSError, match="in use"):
            await net.listen("localhost", listener.port, Guests().accept)

    on_net(body)
