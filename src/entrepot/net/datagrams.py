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
