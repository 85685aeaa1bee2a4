"""The real sockets for datagrams, on the event loop that is running.

A wake reads some datagrams, not all there are, so that a flood of them does not hold the loop.
What cannot be sent at once is not sent: who sends datagrams expects that some get lost.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from entrepot.core.ports import Address

READS_PER_WAKE_MAX = 64


class SocketDatagramNet:
    """`size_max` is the longest datagram that anybody may send."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max

    async def bind(
        self, host: str, port: int, received: Callable[[bytes, Address], None]
    ) -> SocketDatagrams:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setblocking(False)
            opened.bind(address)
        except BaseException:
            opened.close()
            raise
        return SocketDatagrams(loop, opened, self._size_max, received)

    async def join(
        self, host: str, group: str, port: int, received: Callable[[bytes, Address], None]
    ) -> SocketDatagrams:
        """Receive what is sent to a group of IP multicast; closing leaves it. Raises OSError."""
        opened = open_group(host, group, port, listens=True)
        return SocketDatagrams(asyncio.get_running_loop(), opened, self._size_max, received)


def open_group(host: str, group: str, port: int, *, listens: bool) -> socket.socket:
    """Open a socket for a group of IP multicast, by way of the interface with an address.

    Who listens joins the group; to send one need not. What is sent comes back to this machine,
    and leaves the local net only if the routers are told to. Raises OSError where the system
    knows no multicast.
    """
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP)
    try:
        opened.setblocking(False)
        way = socket.inet_aton(host)
        if listens:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "SO_REUSEPORT"):
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            opened.bind((group, port))
            member = socket.inet_aton(group) + way
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, way)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    except BaseException:
        opened.close()
        raise
    return opened


class SocketDatagrams:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        opened: socket.socket,
        size_max: int,
        received: Callable[[bytes, Address], None],
    ) -> None:
        self._loop = loop
        self._socket = opened
        self._size_max = size_max
        self._received = received
        self._address: Address = opened.getsockname()[:2]
        loop.add_reader(opened.fileno(), self._readable)

    @property
    def address(self) -> Address:
        return self._address

    def send(self, data: bytes, to: Address) -> None:
        """Send to an address in digits: looking up a name would block."""
        try:
            host: Any = str(ip_address(to[0]))
            self._socket.sendto(data, (host, to[1]))
        except (OSError, ValueError, OverflowError):
            return  # It is lost.

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _readable(self) -> None:
        for _ in range(READS_PER_WAKE_MAX):
            if self._socket.fileno() < 0:
                return
            try:
                data, source = self._socket.recvfrom(self._size_max + 1)
            except BlockingIOError:
                return
            except OSError:
                continue  # What an earlier datagram met: nobody listens there.
            self._received(data, source[:2])
