"""The real net: listens and connects on the event loop that is running.

A listener goes on when a peer disconnects before it was accepted, when the process is out of
file descriptors (it pauses, and new peers wait in the system's backlog), and when there are too
many peers (they are accepted and closed at once, so that they notice).
"""

import asyncio
import errno
import logging
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable
from functools import partial
from typing import Any

from entrepot.core import limits
from entrepot.core.clock import SystemClock
from entrepot.core.faults import Faults
from entrepot.core.measures import Traffic
from entrepot.core.ports import Link, Receiver, ServingReceiver
from entrepot.net.closings import Closings
from entrepot.net.link import SocketLink, name_of
from entrepot.net.unfinished import UnfinishedInput

ACCEPTS_PER_WAKE_MAX = 64
ACCEPT_PAUSE_SECONDS = 0.2  # When out of descriptors or memory.
LISTEN_BACKLOG = 1024
KEEPALIVE_SECONDS = 60  # Idle time before a peer is probed, to find out if it has vanished.
KEEPALIVE_PROBE_SECONDS = 10
KEEPALIVE_PROBES = 6

LOCALHOST = "localhost"  # 127.0.0.1, and ::1 where there is IPv6.
PORTS_TRIED_MAX = 20  # For port 0, until one is free on every address.

_Address = tuple[int, tuple[Any, ...]]  # The family, and the socket's address.

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

logger = logging.getLogger("entrepot.net")


class SocketNet:
    def __init__(
        self,
        *,
        connections_max: int = limits.CONNECTIONS_MAX,
        faults: Faults | None = None,
        unfinished: UnfinishedInput | None = None,
    ) -> None:
        """`unfinished` limits unfinished input of those who connect to us. None means: no limit."""
        self._faults = faults or Faults()
        self._connections_max = connections_max
        self._unfinished = unfinished
        self._listeners: list[SocketListener] = []
        self._links: dict[SocketLink, None] = {}  # Every socket that is not closed.
        self._is_full = False  # Connections are refused, which was logged.
        self._closings = Closings(SystemClock())

    async def listen(
        self, host: str, port: int, accept: Callable[[Link], ServingReceiver]
    ) -> "SocketListener":
        """Listen on every address of the host; if it is empty, on every address of the machine."""
        loop = asyncio.get_running_loop()
        sockets = await _bound(loop, host, port)
        traffic = Traffic()
        listener = SocketListener(loop, sockets, partial(self._admit, accept, traffic), traffic)
        self._listeners.append(listener)
        return listener

    async def connect(self, host: str, port: int, attach: Callable[[Link], Receiver]) -> SocketLink:
        loop = asyncio.get_running_loop()
        link = self._link(loop, await _connected(loop, host, port), host)
        try:
            await self._ready(link)
            link.attach(attach(link))
        except BaseException:
            link.abort("internal error")
            raise
        return link

    def close(self) -> None:
        """Close all listeners and abort all links, also those that are lingering."""
        for listener in self._listeners:
            listener.close()
        self._closings.hurry()
        for link in list(self._links):
            link.abort("shutting down")

    def _admit(
        self,
        accept: Callable[[Link], ServingReceiver],
        traffic: Traffic,
        connected: socket.socket,
    ) -> None:
        if len(self._links) >= self._connections_max:
            if not self._is_full:
                logger.warning("refusing connections: %d are open", len(self._links))
            self._is_full = True
            connected.close()
            return
        self._is_full = False
        try:
            link = self._link(asyncio.get_running_loop(), connected)
        except OSError:
            return  # The peer has disconnected already.
        link.traffic = traffic
        traffic.opened += 1
        self._welcome(link, accept)

    def _welcome(self, link: SocketLink, accept: Callable[[Link], ServingReceiver]) -> None:
        try:
            receiver = accept(link)
            if self._unfinished is not None:
                link.count_in(self._unfinished, receiver)
            link.attach(receiver)
        except Exception as error:
            self._faults.caught(f"{link.peer}: the connection is refused", error)
            link.abort("internal error")

    async def _ready(self, link: SocketLink) -> None:
        """Prepare a link that we opened before its receiver is attached."""

    def _link(
        self, loop: AbstractEventLoop, connected: socket.socket, host: str | None = None
    ) -> SocketLink:
        try:
            _prepare(connected)
            link = self._new_link(loop, connected, host)
        except OSError:
            connected.close()
            raise
        self._links[link] = None
        return link

    def _new_link(
        self, loop: AbstractEventLoop, connected: socket.socket, host: str | None
    ) -> SocketLink:
        """Create a link. `host` is the one we connected to; None means: they connected to us."""
        return SocketLink(loop, connected, self._forget, self._faults, self._closings)

    def _forget(self, link: SocketLink) -> None:
        del self._links[link]


class SocketListener:
    def __init__(
        self,
        loop: AbstractEventLoop,
        sockets: list[socket.socket],
        admit: Callable[[socket.socket], None],
        traffic: Traffic,
    ) -> None:
        self.traffic = traffic
        self._loop = loop
        self._sockets = sockets
        self._admit = admit
        self._host: str = sockets[0].getsockname()[0]
        self._port: int = sockets[0].getsockname()[1]
        for listening in sockets:
            self._watch(listening)

    @property
    def host(self) -> str:
        return self._host

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets.clear()

    def _watch(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:  # It may have been closed during the pause.
            self._loop.add_reader(listening.fileno(), self._acceptable, listening)

    def _acceptable(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_WAKE_MAX):
            try:
                connected, _address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    return  # The peer disconnected before it was accepted.
                logger.warning(
                    "cannot accept on %s: %s", name_of(listening.getsockname()), error.strerror
                )
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._watch, listening)
                return
            self._admit(connected)


async def _bound(loop: AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for every address of the host that this machine has."""
    addresses = await _addresses(loop, host)
    for _ in range(PORTS_TRIED_MAX - 1):
        try:
            return _bound_to_all(host, addresses, port)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE:
                raise
    return _bound_to_all(host, addresses, port)


async def _addresses(loop: AbstractEventLoop, host: str) -> list[_Address]:
    if host == LOCALHOST:  # Not looked up: clients may resolve it to either.
        return [(socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET6, ("::1", 0, 0, 0))]
    found = await loop.getaddrinfo(
        host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _bound_to_all(host: str, addresses: list[_Address], port: int) -> list[socket.socket]:
    """Return sockets that listen on one port of every address.

    Port 0 means: any port. One that is free on the first address may be in use on another.
    """
    sockets: list[socket.socket] = []
    refused: OSError | None = None
    try:
        for family, address in addresses:
            if sockets:
                port = sockets[0].getsockname()[1]
            try:
                sockets.append(_bound_to(family, (address[0], port, *address[2:])))
            except OSError as error:
                if error.errno not in _NO_SUCH_ADDRESS:
                    raise
                logger.info("%s is not listened on: %s", address[0], error.strerror)
                refused = error
        if not sockets:
            raise refused or OSError(f"{host} has no address")
    except BaseException:
        for listening in sockets:
            listening.close()
        raise
    return sockets


def _bound_to(family: int, address: tuple[Any, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # IPv4 has a socket of its own.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(LISTEN_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


async def _connected(loop: AbstractEventLoop, host: str, port: int) -> socket.socket:
    """Return a socket connected to the first address of the host that answers."""
    refused: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        connecting = socket.socket(family, kind, protocol)
        try:
            connecting.setblocking(False)
            await loop.sock_connect(connecting, address)
        except BaseException as error:
            connecting.close()
            if not isinstance(error, OSError):
                raise
            refused = error
        else:
            return connecting
    raise refused or OSError(f"{host} has no address")


def _prepare(connected: socket.socket) -> None:
    """Set the options of a connected socket.

    The send buffer is limited, because Linux would take megabytes of an answer at once. They
    cost memory for each slow peer, and a fast peer begins to read them later than it could.
    """
    connected.setblocking(False)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.SEND_BUFFER_BYTES)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_PROBE_SECONDS)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
