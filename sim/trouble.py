"""A whole server, and what goes wrong with it, all at the same time.

The power fails, the process is killed, links break, disks fill up and fail to write and
to sync, the clock jumps. A world derives from this, lives with it for a while, then says
that it is over, heals the node and checks what it got.

A killed process loses nothing, whatever the durability. Where the power fails with less than
`fsync`, what was answered may be lost: the world is told so, and checks what still must hold.
Odd seeds then know kills only, and check everything.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from entrepot.broker.consumer_group.store import PARTITIONS as OFFSET_PARTITIONS
from entrepot.broker.consumer_group.store import TOPIC as OFFSETS
from entrepot.broker.transaction_coordinator import PARTITIONS as TRANSACTION_PARTITIONS
from entrepot.broker.transaction_coordinator import TOPIC as TRANSACTIONS
from entrepot.client.connection import Connection
from entrepot.client.errors import ClientError, Unreachable
from entrepot.config import Config
from entrepot.core.ports import World
from entrepot.log.policy import Durability
from entrepot.net.unfinished import UnfinishedInput
from entrepot.server import Server, StartError
from sim.clock import SimClock
from sim.disk import Habits, SimDisk
from sim.entropy import SimEntropy
from sim.history import History, Violation
from sim.loop import Process, SimLoop
from sim.net import SimNetwork

HOST, PORT = "node", 9092
PATIENCE_S = 1.5
SMALL = {
    "cleanup.policy": "compact",
    "segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "500",
}
_POWER_FAILS = 0.6  # Of all crashes; the others are kills.
_FAULTS = (
    ("write", errno.ENOSPC),
    ("write", errno.EIO),
    ("truncate", errno.EIO),
    ("sync", errno.EIO),
    ("open", errno.EMFILE),
)


_Answer = TypeVar("_Answer")


class _Connection(Connection):
    """One that does not believe an answer of a node whose power failed since it was asked."""

    losses: Callable[[], int]

    async def ask(self, request: Any, answer: type[_Answer], timeout_s: float) -> _Answer:
        before = self.losses()
        found = await super().ask(request, answer, timeout_s)
        if self.losses() != before:
            raise Unreachable("the power failed meanwhile")
        return found


class Trouble:
    def __init__(
        self,
        loop: SimLoop,
        config: Config,
        machines: Sequence[str],
        *,
        sync_is_noop: bool = False,
        durability: Durability = Durability.FSYNC,
        power_fails: bool = True,
        life_s_max: float = 1.5,
    ) -> None:
        """The machines are those whose links break. The power fails unless told otherwise. Between
        two crashes are at most `life_s_max` seconds."""
        self._loop = loop
        self._config = replace(config, durability=durability)
        self._machines = machines
        if durability is not Durability.FSYNC:
            power_fails = power_fails and loop.seed % 2 == 0
        self._power_fails = _POWER_FAILS if power_fails else 0.0
        self._network = SimNetwork(loop.random("network"))
        habits = Habits(short_write_chance=0.05, sync_is_noop=sync_is_noop)
        self._disk = SimDisk(loop.random("disk"), habits)
        self._clock = SimClock(loop)
        self._entropy = SimEntropy(loop.random("entropy"))
        self._process: Process | None = None
        self._server: Server | None = None
        self._is_over = False
        self._life_s_max = life_s_max
        self.history = History()
        self.crashes = 0
        self.losses = 0  # Crashes that may have taken what was answered.
        self.faults = 0

    def _goes_on(self) -> bool:
        return not self._is_over

    def _nemeses(self) -> list[Coroutine[Any, Any, None]]:
        return [
            self._crash_now_and_then(),
            self._break_links(),
            self._fail_the_disk(),
            self._jump_the_clock(),
        ]

    # --- the node

    def _start(self) -> asyncio.Task[None]:
        net = self._network.door(HOST, UnfinishedInput())
        doors = World(self._clock, self._entropy, self._disk, net)
        self._process = Process(self._loop)
        return self._process.start(self._serve(doors))

    async def _serve(self, doors: World) -> None:
        server = self._assemble(doors)
        try:
            await server.start()
            self._server = server
        except StartError:
            self.history.note(self._loop.time(), "start failed")

    def _assemble(self, doors: World) -> Server:
        return Server(self._config, doors)

    def _stop(self, disk: SimDisk) -> None:
        assert self._process is not None
        self._process.kill()
        self._server = None
        self._network.crash(HOST)
        self._disk = disk

    async def _start_whole(self) -> None:
        """Start on a disk that does not fail; when it returns, the node serves."""
        await self._start()
        if self._server is None:
            raise Violation("the node does not start on a healthy disk")

    async def _make_internal_topics(self) -> None:
        """With small segments, so that they are compacted all the time."""
        assert self._server is not None
        for name, count in ((OFFSETS, OFFSET_PARTITIONS), (TRANSACTIONS, TRANSACTION_PARTITIONS)):
            await self._server.broker.internal_topic(name, count, SMALL)

    async def _heal(self) -> None:
        """One more crash for good measure, and from now on nothing goes wrong."""
        self._crash(power_fails=self._power_fails > 0)
        self._disk.habits.short_write_chance = 0.0
        await self._start_whole()

    def _crash(self, *, power_fails: bool) -> None:
        self._stop(self._disk.crash() if power_fails else self._disk.kill())
        if power_fails and self._config.durability is not Durability.FSYNC:
            self.losses += 1
            self._lose()

    def _lose(self) -> None:
        """What was answered so far may be lost: for the world's checkers."""

    # --- what goes wrong

    async def _crash_now_and_then(self) -> None:
        random = self._loop.random("crashes")
        while self._goes_on():
            await asyncio.sleep(random.uniform(0.05, self._life_s_max))
            power_fails = random.random() < self._power_fails
            self.history.note(self._loop.time(), "crash", power_fails)
            self._crash(power_fails=power_fails)
            self.crashes += 1
            await asyncio.sleep(random.uniform(0, 0.3))
            self._start()

    async def _break_links(self) -> None:
        random = self._loop.random("links")
        while self._goes_on():
            await asyncio.sleep(random.uniform(0.1, 1.0))
            self._network.break_links(random.choice(self._machines))

    async def _fail_the_disk(self) -> None:
        random = self._loop.random("faults")
        while self._goes_on():
            await asyncio.sleep(random.uniform(0.1, 1.0))
            operation, error = random.choice(_FAULTS)
            pattern = random.choice(("*", "partitions/*", "journal/*", "*.log", "*.index"))
            self._disk.fail_next(operation, error, pattern, random.choice((1, 1, 3)))  # type: ignore[arg-type]
            self.faults += 1

    async def _jump_the_clock(self) -> None:
        random = self._loop.random("clock")
        while self._goes_on():
            await asyncio.sleep(random.uniform(0.5, 2.0))
            self._clock.jump(random.randrange(-60_000, 60_000))

    # --- clients

    async def _connect(self, name: str) -> Connection:
        net = self._network.door(name)
        made = await _Connection.open(net, HOST, PORT, client_id=name, timeout_s=PATIENCE_S)
        made.losses = lambda: self.losses
        return made

    async def _client(
        self, name: str, work: Callable[[str, Random, Connection], Coroutine[Any, Any, None]]
    ) -> None:
        """Connect and work, again and again; a lost connection is ordinary."""
        random = self._loop.random(name)
        while self._goes_on():
            try:
                connection = await self._connect(name)
                while self._goes_on():
                    await work(name, random, connection)
                connection.close()
            except ClientError:
                await asyncio.sleep(random.uniform(0.01, 0.1))
