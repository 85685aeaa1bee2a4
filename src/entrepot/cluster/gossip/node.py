"""A node that gossips: an agent, a socket and a clock.

`DatagramNode` is what all nodes of this kind have in common. `GossipNode` is the small port for
others: start it with where it listens and whom it knows; ask it for its `members`, or be told when
one is suspected.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from entrepot.cluster.gossip.agent import Agent
from entrepot.cluster.gossip.packets import Datagram
from entrepot.cluster.gossip.swim import Member, Swim
from entrepot.core.faults import Faults
from entrepot.core.ports import Address, Clock, DatagramNet, Datagrams


class DatagramAgent(Protocol):
    """The part of a node that has neither a socket nor a clock."""

    @property
    def swim(self) -> Swim: ...

    def start(self, now: float) -> None: ...

    def wake_at(self) -> float:
        """Return when `tick` is to be called next."""

    def tick(self, now: float, now_ms: int) -> list[Datagram]: ...

    def receive(self, data: bytes, source: Address, now: float, now_ms: int) -> list[Datagram]: ...

    def leave(self, now_ms: int) -> list[Datagram]: ...


class DatagramNode:
    def __init__(self, agent: DatagramAgent, clock: Clock, faults: Faults) -> None:
        self._agent = agent
        self._clock = clock
        self._faults = faults
        self._datagrams: Datagrams | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, net: DatagramNet, host: str, port: int) -> Address:
        """Listen, and begin to gossip; return where. Raises OSError."""
        self._datagrams = await net.bind(host, port, self._received)
        self._agent.swim.move(*self._datagrams.address)
        self._agent.start(self._clock.monotonic())
        self._wake()
        return self._datagrams.address

    def members(self) -> list[Member]:
        """Return what this node believes of all."""
        return self._agent.swim.members()

    def stop(self) -> None:
        """Say goodbye, and stop."""
        self._send(self._agent.leave(self._clock.now_ms()))
        self.crash()

    def crash(self) -> None:
        """Stop without a word, as a process does that is killed."""
        if self._timer is not None:
            self._timer.cancel()
        if self._datagrams is not None:
            self._datagrams.close()
            self._datagrams = None

    def _received(self, data: bytes, source: Address) -> None:
        if self._datagrams is not None:
            self._faults.guard("gossip", self._receive, data, source)

    def _receive(self, data: bytes, source: Address) -> None:
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        self._send(self._agent.receive(data, source, now, now_ms))

    def _wake(self) -> None:
        self._faults.guard("gossip", self._tick)
        delay = max(self._agent.wake_at() - self._clock.monotonic(), 0.001)
        self._timer = asyncio.get_running_loop().call_later(delay, self._wake)

    def _tick(self) -> None:
        self._send(self._agent.tick(self._clock.monotonic(), self._clock.now_ms()))

    def _send(self, datagrams: list[Datagram]) -> None:
        if self._datagrams is not None:
            for address, data in datagrams:
                self._datagrams.send(data, address)


class GossipNode(DatagramNode):
    def __init__(self, agent: Agent, clock: Clock, faults: Faults) -> None:
        super().__init__(agent, clock, faults)
        self.agent = agent

    def put(self, key: str, value: bytes) -> None:
        """Publish a fact of this node. Raises ValueError if there are too many."""
        self.agent.put(key, value)

    def multicast(self, body: bytes) -> None:
        self._send(self.agent.multicast(body, self._clock.monotonic(), self._clock.now_ms()))

    def join_group(self, name: str) -> None:
        self._send(self.agent.join_group(name, self._clock.now_ms()))

    def leave_group(self, name: str) -> None:
        self._send(self.agent.leave_group(name, self._clock.now_ms()))

    def send_to_group(self, name: str, body: bytes) -> None:
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        self._send(self.agent.send_to_group(name, body, now, now_ms))
