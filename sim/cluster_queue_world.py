"""Queues of the cluster world: AMQP clients at all nodes while everything goes wrong.

Publishers wait for confirms, consumers settle in transactions, each at a node that is drawn for
every connection. Checked all the time, and at the end, when all is well again:

- What was confirmed comes out, or is there.
- What was settled in a transaction that was answered never comes again.
- What comes was published.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from entrepot.broker.ledger_store import LedgerStore
from entrepot.broker.served_partition import ServedPartition
from entrepot.config import Config
from entrepot.log.partition import Waiter
from entrepot.log.policy import Durability
from entrepot.wire.amqp.errors import ReplyCode
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, confirm, queue, tx
from sim.amqp_client import AmqpClient, Gone
from sim.cluster_world import CALM_S, NODES, ClusterWorld
from sim.coordinator import Climate
from sim.history import Violation
from sim.loop import SimLoop

Heard = list[tuple[Method, bytes]]  # Methods that came unasked, with their bodies.
Work = Callable[[str, Random, AmqpClient, Heard], Coroutine[Any, Any, None]]

QUEUE = "work"
PUBLISHERS = 3
CONSUMERS = 3
_PORT = 5672
_PERSISTENT = b"\x10\x00\x02"  # Flags, and delivery mode 2.
_HEALED_S = 60.0


class Result(NamedTuple):
    confirmed: int
    nacked: int
    deliveries: int
    settled: int
    crashes: int
    changes: int  # Of assignments.
    trace: str


class ClusterQueueWorld(ClusterWorld):
    def __init__(self, loop: SimLoop, *, seconds: float, durability: Durability) -> None:
        super().__init__(loop, seconds=seconds, sync_is_noop=False, durability=durability)
        self._sent: dict[str, None] = {}
        self._confirmed: dict[str, None] = {}
        self._asked: dict[str, None] = {}  # To be settled; whether it was may be unknown.
        self._settled: dict[str, None] = {}
        self._deliveries = self._nacked = 0

    def _config(self, node: int) -> Config:
        config = super()._config(node)
        security = replace(config.security, insecure=True)  # Clients are at other machines.
        ports, cluster = config.ports, replace(config.cluster, queues=True)
        return replace(config, ports=replace(ports, amqp=_PORT), cluster=cluster, security=security)

    async def run(self) -> Result:  # type: ignore[override]
        watching = self._loop.create_task(self._watch())
        for node in NODES:
            self._start(node)
        await self._until_whole()
        work = [self._live(f"p{number}", self._publish) for number in range(PUBLISHERS)]
        work += [self._live(f"c{number}", self._consume) for number in range(CONSUMERS)]
        tasks = [self._loop.create_task(each) for each in work]
        await asyncio.sleep(1.0)
        faults = [self._crash_now_and_then(), self._part(), self._trouble_the_coordinator()]
        tasks += [self._loop.create_task(each) for each in (*faults, self._jump_the_clock())]
        await asyncio.sleep(self._seconds)
        self._is_over = True
        await asyncio.gather(*tasks)
        await self._check()
        if watching.done():
            watching.result()
        counts = len(self._confirmed), self._nacked, self._deliveries, len(self._settled)
        return Result(*counts, self.crashes, self.assignments.changes, self.history.trace)

    # --- clients

    async def _live(self, name: str, work: Work) -> None:
        """Connect to one node after the other."""
        random = self._loop.random(name)
        while not self._is_over:
            await self._once(name, random, work)
            await asyncio.sleep(random.uniform(0.01, 0.5))

    async def _once(
        self,
        name: str,
        random: Random,
        work: Work,
    ) -> None:
        heard: Heard = []

        def hear(method: Method, properties: bytes, body: bytes) -> None:
            if isinstance(method, basic.Deliver | basic.GetOk):
                self._came(body.decode())
            heard.append((method, body))

        net = self._network.door(name)
        client: AmqpClient | None = None
        try:
            address = f"n{random.choice(NODES)}", _PORT
            client = await AmqpClient.open(net, address, hear)
            client.mistake = ReplyCode.PRECONDITION_FAILED  # A transaction when the home moves.
            await client.ask(queue.Declare(queue=QUEUE, durable=True), queue.DeclareOk)
            await work(name, random, client, heard)
            await client.leave()
        except Gone:
            if client is not None:
                client.die()

    async def _publish(self, name: str, random: Random, client: AmqpClient, heard: Heard) -> None:
        await client.ask(confirm.Select(), confirm.SelectOk)
        numbers: dict[int, str] = {}
        published = 0
        while not self._is_over:
            client.check_open()
            for _ in range(random.randint(1, 4)):
                self._counter += 1
                published += 1
                value = numbers[published] = f"{name}:{self._counter}"
                self._sent[value] = None
                method = basic.Publish(routing_key=QUEUE)
                client.publish([(method, _PERSISTENT, value.encode())])
            await asyncio.sleep(random.uniform(0, 0.1))
            self._take_confirms(heard, numbers)

    def _take_confirms(self, heard: Heard, numbers: dict[int, str]) -> None:
        for method, _ in heard:
            assert isinstance(method, basic.Ack | basic.Nack), method
            tag = method.delivery_tag
            tags = [each for each in numbers if each <= tag] if method.multiple else [tag]
            for each in tags:
                value = numbers.pop(each, None)
                if value is None:
                    raise Violation(f"publish {each} is answered twice")
                if isinstance(method, basic.Ack):
                    self._confirmed[value] = None
                else:
                    self._nacked += 1
        heard.clear()

    async def _consume(self, name: str, random: Random, client: AmqpClient, heard: Heard) -> None:
        await client.ask(basic.Qos(prefetch_count=5), basic.QosOk)
        await client.ask(tx.Select(), tx.SelectOk)
        await client.ask(basic.Consume(queue=QUEUE), basic.ConsumeOk)
        while not self._is_over:
            await asyncio.sleep(random.uniform(0, 0.2))
            client.check_open()
            await self._settle(client, heard)

    async def _settle(self, client: AmqpClient, heard: Heard) -> None:
        taken, heard[:] = heard[:], []
        values = []
        for method, body in taken:
            assert isinstance(method, basic.Deliver), method
            values.append(body.decode())
            client.say(basic.Ack(method.delivery_tag))
        if values:
            self._asked.update(dict.fromkeys(values))
            await client.ask(tx.Commit(), tx.CommitOk)
            self._settled.update(dict.fromkeys(values))
            self.history.note(self._loop.time(), "settled", *values)

    def _came(self, value: str) -> None:
        self._deliveries += 1
        if value not in self._sent:
            raise Violation(f"{value} was never published")
        if value in self._settled:
            raise Violation(f"{value} was settled and comes again")

    # --- the end

    async def _check(self) -> None:
        for node, machine in self.machines.items():
            self._crash(node, power_fails=self._durability is Durability.FSYNC)
            machine.disk.habits.short_write_chance = 0.0
        self._network.heal()
        self.service.heal()
        self.service.climate = Climate()
        for node in NODES:
            self._start(node)
        await asyncio.sleep(CALM_S)
        self._check_roles()
        left = await self._drain()
        lost = [each for each in self._confirmed if each not in left and each not in self._asked]
        if lost:
            raise Violation(f"confirmed and lost: {lost[:10]}")

    async def _drain(self) -> dict[str, None]:
        found: dict[str, None] = {}
        until_s = self._loop.time() + _HEALED_S
        is_empty = False
        while not is_empty:
            if self._loop.time() > until_s:
                raise Violation("the queue cannot be drained on a healthy cluster")

            async def take(name: str, random: Random, client: AmqpClient, heard: Heard) -> None:
                nonlocal is_empty
                while True:
                    answer = await client.ask(basic.Get(queue=QUEUE), basic.GetOk, basic.GetEmpty)
                    if isinstance(answer, basic.GetEmpty):
                        is_empty = True
                        return
                    for _, body in heard:
                        found[body.decode()] = None
                    heard.clear()

            await self._once("drain", self._loop.random("drain"), take)
            await asyncio.sleep(0.2)
        return found


@contextlib.contextmanager
def planted(bug: str | None) -> Iterator[None]:
    match bug:
        case "confirms-alone":  # What the home alone has is confirmed, and counts as settled.
            with patch.object(ServedPartition, "when_safe", _when_durable):
                yield
        case "old-ledgers":  # A new home believes that nothing was settled.
            with patch.object(LedgerStore, "_fold", lambda *_: None):
                yield
        case _:
            assert bug is None, bug
            yield


def _when_durable(served: ServedPartition, offset_end: int, waiter: Waiter) -> None:
    served.partition.when_durable(offset_end, waiter)


def cluster_queue_world(
    seconds: float,
    *,
    sync_is_noop: bool = False,
    durability: Durability = Durability.FSYNC,
    bug: str | None = None,
) -> Callable[[SimLoop], Coroutine[Any, Any, Result]]:
    assert not sync_is_noop, "for the other worlds"

    async def world(loop: SimLoop) -> Result:
        with planted(bug):
            return await ClusterQueueWorld(loop, seconds=seconds, durability=durability).run()

    return world
