"""A net for datagrams in memory: some are lost, some come twice, most come late."""

import asyncio
import errno
from collections.abc import Callable
from random import Random

from entrepot.core.ports import Address

DELAY_SECONDS_MAX = 0.005
PORT_FIRST = 49152


class SimDatagramNetwork:
    def __init__(self, random: Random, size_max: int) -> None:
        self.random = random
        self.size_max = size_max
        self.loss = 0.0
        self.duplicates = 0.0
        self.sockets: dict[Address, SimDatagrams] = {}
        self._port = PORT_FIRST

    async def bind(
        self, host: str, port: int, received: Callable[[bytes, Address], None]
    ) -> "SimDatagrams":
        if not port:
            self._port += 1
            port = self._port
        if (host, port) in self.sockets:
            raise OSError(errno.EADDRINUSE, "address in use")
        opened = self.sockets[host, port] = SimDatagrams(self, (host, port), received)
        return opened


class SimDatagrams:
    def __init__(
        self,
        network: SimDatagramNetwork,
        address: Address,
        received: Callable[[bytes, Address], None],
    ) -> None:
        self._network = network
        self._address = address
        self._received = received

    @property
    def address(self) -> Address:
        return self._address

    def send(self, data: bytes, to: Address) -> None:
        network = self._network
        if network.sockets.get(self._address) is not self:
            return
        for chance in (1 - network.loss, network.duplicates):
            if network.random.random() < chance:
                delay = network.random.uniform(0, DELAY_SECONDS_MAX)
                asyncio.get_running_loop().call_later(delay, self._arrive, data, to)

    def close(self) -> None:
        self._network.sockets.pop(self._address, None)

    def _arrive(self, data: bytes, to: Address) -> None:
        socket = self._network.sockets.get(to)
        if socket is not None:
            socket._received(data[: self._network.size_max + 1], self._address)
