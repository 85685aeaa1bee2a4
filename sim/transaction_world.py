"""Transactional clients of a node that crashes, and readers who must not see it.

What the clients do is in `transaction_clients`. At the end all is healed, every open transaction
runs into its timeout, and everything is read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.transaction import Transaction
from entrepot.client.connection import Connection
from entrepot.config import Config, Ports, Topics
from entrepot.core.errors import StorageError, UnknownTopic
from entrepot.core.ports import World
from entrepot.log.policy import Durability
from entrepot.server import Server
from sim.history import Violation
from sim.loop import SimLoop
from sim.transaction_clients import BOOKS, LISTS, TIMEOUT_MS, WRITERS, TransactionClients
from sim.trouble import HOST, PORT, Trouble

_CONFIG = Config(host=HOST, ports=Ports(kafka=PORT), topics=Topics(segment_bytes=3_000))


class Result(NamedTuple):
    committed: int
    reads: int
    crashes: int
    losses: int  # Crashes that may have taken what was answered.
    faults: int
    trace: str


class TransactionWorld(TransactionClients, Trouble):
    def __init__(self, loop: SimLoop, *, seconds: float, bug: str | None, **options: Any) -> None:
        machines = [f"p{number}" for number in range(WRITERS + 2)]
        Trouble.__init__(self, loop, _CONFIG, machines, **options)
        TransactionClients.__init__(self)
        self._seconds = seconds
        self._bug = bug

    async def run(self) -> Result:
        await self._start_whole()
        await self._make_internal_topics()
        assert self._server is not None
        for topic, count in (("lists", len(LISTS)), ("books", len(BOOKS)), ("copy", 1)):
            await self._server.broker.create_topic(topic, count)
        work = self._nemeses()
        work += [self._client(name, task) for name, task in self._work()]
        tasks = [self._loop.create_task(each) for each in work]
        await asyncio.sleep(self._seconds)
        self._is_over = True
        await asyncio.gather(*tasks)
        await self._check()
        seen = self.seen
        counts = self.crashes, self.losses, self.faults
        return Result(seen.committed, seen.reads, *counts, self.history.trace)

    async def _connect(self, name: str) -> Connection:
        return await Trouble._connect(self, name)

    async def _serve(self, doors: World) -> None:
        await super()._serve(doors)
        if self._bug is not None and self._server is not None:
            plant(self._server, self._bug)

    def _lose(self) -> None:
        self.seen.lose()
        self._positions.clear()
        self._sums.clear()

    async def _check(self) -> None:
        """Heal, crash once more for good measure, let all that is open time out, and read."""
        await self._heal()
        await asyncio.sleep(2 * TIMEOUT_MS / 1_000)
        await self._check_logs(await self._connect("judge"), is_lossy=self.losses > 0)

    def _end_of(self, place: TopicPartition) -> int:
        assert self._server is not None
        broker = self._server.broker
        try:
            served = broker.served_partition(broker.topic(place.topic), place.partition)
        except UnknownTopic as error:
            raise Violation(f"{place}: {error}") from None
        return served.partition.offset_end


def plant(server: Server, bug: str) -> None:
    """A mistake that a run must find."""
    transactions = server.broker.transactions
    served_at, carry_out = transactions.markers.served_at, transactions._carry_out

    async def hasty(prepared: Transaction) -> None:
        with contextlib.suppress(StorageError):
            await transactions._write_markers(prepared)
        await carry_out(prepared)

    if bug == "marker-left-out":
        transactions.markers.served_at = (  # type: ignore[method-assign]
            lambda place: [] if place == LISTS[2] else served_at(place)
        )
    else:
        assert bug == "marker-before-decision", bug
        transactions._carry_out = hasty  # type: ignore[method-assign]


def transaction_world(
    seconds: float = 6.0,
    *,
    sync_is_noop: bool = False,
    durability: Durability = Durability.FSYNC,
    bug: str | None = None,
) -> Callable[[SimLoop], Coroutine[Any, Any, Result]]:
    """For `loop.run`."""
    return lambda loop: TransactionWorld(
        loop, seconds=seconds, bug=bug, sync_is_noop=sync_is_noop, durability=durability
    ).run()
