"""Queues on a node in trouble: whoever publishes is told the truth, and nobody loses a message.

Publishers with confirms and consumers of all habits speak AMQP to a server that crashes, on a
disk that fails. There are queues with a time to live, with a delivery limit, with priorities,
with a bound, dead letters from most of them, and an exchange that delays. At the end all is
healed, every time is over, and everything is taken out: see `queue_history` for what must hold.
Then the node crashes once more, and all queues must be empty. With less than `fsync` the node is
killed, and its power does not fail. All the time, at every step of a client and before and after
every crash, each queue must account for all its messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from entrepot.broker.queue.queue import Queue
from entrepot.broker.virtual_host.queue_maker import LEDGERS
from entrepot.config import Config, Ports, Security
from entrepot.core import limits
from entrepot.core.errors import StorageError
from entrepot.core.ports import World
from entrepot.log.policy import Durability
from entrepot.server import Server
from entrepot.wire.amqp.methods import basic, confirm, exchange, queue, tx
from sim.amqp_client import PATIENCE_S, AmqpClient, Gone, Heard
from sim.disk import SimDisk
from sim.history import Violation
from sim.loop import SimLoop
from sim.queue_conservation import QueueConservation
from sim.queue_history import HEARSAY_S, QueueHistory
from sim.queue_sessions import (
    DEAD,
    DELIVERY_LIMIT,
    DIRECT,
    FAN,
    GRAVES,
    LATER,
    QUEUES,
    Consuming,
    Publishing,
    Writer,
)
from sim.trouble import HOST, SMALL, Trouble

PORT = 5672
PUBLISHERS = 3
CONSUMERS = 5
SEGMENT_BYTES = 3_000
_DRAIN_S = 60.0
_HOUR_MS = 3_600_000
_CONFIG = Config(
    host=HOST,
    ports=Ports(kafka=None, amqp=PORT, http=None, sqs=None),
    security=Security(insecure=True),
)


class Result(NamedTuple):
    confirmed: int
    deliveries: int
    finished: int
    crashes: int
    faults: int
    trace: str


class QueueWorld(Trouble):
    def __init__(
        self, loop: SimLoop, *, seconds: float, durability: Durability, **options: Any
    ) -> None:
        publishers = [f"p{number}" for number in range(PUBLISHERS)]
        consumers = [f"c{number}" for number in range(CONSUMERS)]
        options["power_fails"] = durability is Durability.FSYNC
        super().__init__(loop, _CONFIG, publishers + consumers, durability=durability, **options)
        self._seconds = seconds
        self._publishers, self._consumers = publishers, consumers
        self._sessions = 0  # So far: each has a name of its own.
        self._latest: Server | None = None  # Started, or about to.
        self.conservation = QueueConservation()
        self.seen = QueueHistory(self._note, {"limited": DELIVERY_LIMIT})

    def _note(self, *event: object) -> None:
        self.history.note(self._loop.time(), *event)

    async def run(self) -> Result:
        await self._start_whole()
        await self._declare()
        works = [*self._nemeses(), self._fail_to_read(), self._stop_now_and_then()]
        works += [self._live(name, self._publish) for name in self._publishers]
        works += [self._live(name, self._consume) for name in self._consumers]
        tasks = [self._loop.create_task(work) for work in works]
        await asyncio.sleep(self._seconds)
        self._is_over = True
        await asyncio.gather(*tasks)
        await self._check()
        seen = self.seen
        return Result(
            seen.confirmed,
            seen.deliveries,
            seen.finished,
            self.crashes,
            self.faults,
            self.history.trace,
        )

    def _assemble(self, doors: World) -> Server:
        self._latest = super()._assemble(doors)
        return self._latest

    async def _serve(self, doors: World) -> None:
        self.seen.life += 1
        await super()._serve(doors)
        if self._server is not None:
            self.conservation.started(self._queues())

    def _stop(self, disk: SimDisk) -> None:
        self._take_stock()
        self.conservation.stopped(self._queues())
        super()._stop(disk)

    def _take_stock(self) -> None:
        """Whatever a client does, nothing is missing."""
        self.conservation.check(self._queues())

    async def _fail_to_read(self) -> None:
        random = self._loop.random("reads")
        while self._goes_on():
            await asyncio.sleep(random.uniform(0.2, 2.0))
            # What the disk cannot give back takes a queue down until the next start.
            error = random.choice((errno.ENOMEM, errno.ENOMEM, errno.ENOMEM, errno.EIO))
            self._disk.fail_next("read", error, "*.log", random.choice((1, 2)))
            self.faults += 1

    async def _stop_now_and_then(self) -> None:
        """In order, unless a crash comes in between."""
        random = self._loop.random("stops")
        while self._goes_on():
            await asyncio.sleep(random.uniform(0.5, 4.0))
            server, process = self._server, self._process
            if server is None or process is None or process.killed:
                continue
            self._note("stop")
            stopping = process.start(self._stop_in_order(server))
            await asyncio.wait([stopping], timeout=PATIENCE_S)
            if not process.killed:
                self._stop(self._disk.kill())
                self._start()

    async def _stop_in_order(self, server: Server) -> None:
        with contextlib.suppress(StorageError, OSError):
            await server.stop()

    # --- clients

    async def _open(self, name: str, heard: Heard, random: Random) -> AmqpClient:
        life = self.seen.life
        client = await AmqpClient.open(
            self._network.door(name),
            (HOST, PORT),
            heard,
            channel_number=random.randint(1, 5),
            heartbeat_s=random.choice((0, 1)),
        )
        self.seen.connected(client, life)
        return client

    async def _live(
        self, name: str, work: Callable[[str, Random], Coroutine[Any, Any, None]]
    ) -> None:
        """Connect and work, again and again; a lost connection is ordinary."""
        random = self._loop.random(name)
        while self._goes_on():
            self._sessions += 1
            try:
                await work(f"{name}-{self._sessions}", random)
            except Gone as gone:
                self._note(name, str(gone))
            await asyncio.sleep(random.uniform(0.02, 0.3))

    async def _declare(self) -> None:
        """In small segments, so that they are compacted and let go all the time."""
        assert self._server is not None
        await self._server.broker.internal_topic(LEDGERS, 1, SMALL)
        session = Publishing(self.seen)
        client = await self._open("judge", session.heard, self._loop.random("judge"))
        for name, kind, arguments in (
            (DIRECT, "direct", {}),
            (FAN, "fanout", {}),
            (DEAD, "fanout", {}),
            (LATER, "x-delayed-message", {"x-delayed-type": "direct"}),
        ):
            declare = exchange.Declare(0, name, kind, durable=True, arguments=arguments)
            await client.ask(declare, exchange.DeclareOk)
        with patch.object(limits, "QUEUE_SEGMENT_BYTES", SEGMENT_BYTES):
            for name, found in QUEUES.items():
                declared = queue.Declare(0, name, durable=True, arguments=found)
                await client.ask(declared, queue.DeclareOk)
        bindings = [(name, DIRECT, name) for name in QUEUES]
        bindings += [("work", FAN, ""), ("other", FAN, ""), (GRAVES, DEAD, "")]
        bindings += [("work", LATER, "work"), ("other", LATER, "other")]
        for to, by, key in bindings:
            await client.ask(queue.Bind(0, to, by, key), queue.BindOk)
        await client.leave()

    async def _publish(self, name: str, random: Random) -> None:
        session, writer = Publishing(self.seen), Writer(name, random, self.seen)
        client = await self._open(name.partition("-")[0], session.heard, random)
        await client.ask(confirm.Select(), confirm.SelectOk)
        while self._goes_on() and random.random() < 0.97:
            letters = [writer.write() for _ in range(random.choice((1, 1, 2, 6)))]
            if random.random() < 0.1:
                letters.append(writer.write_to_nowhere())
            session.publish(client, letters)
            self._take_stock()
            if random.random() < 0.5:
                await self._confirms(client, session)
            await asyncio.sleep(random.uniform(0, 0.2))
            client.check_open()
        if random.random() < 0.3:
            client.die()
        else:
            await self._confirms(client, session)
            await client.leave()

    async def _confirms(self, client: AmqpClient, session: Publishing) -> None:
        """Raises Gone, also when they do not come."""
        deadline = self._loop.time() + PATIENCE_S
        while session.is_waiting:
            client.check_open()
            if self._loop.time() > deadline:
                client.die()
            await asyncio.sleep(0.02)

    async def _consume(self, name: str, random: Random) -> None:
        in_transactions = random.random() < 0.4
        writer = Writer(name, random, self.seen) if in_transactions else None
        chosen = random.choice(("work", *QUEUES))
        session = Consuming(chosen, f"tag-{name}", random, self.seen, writer)
        client = session.client = await self._open(name.partition("-")[0], session.heard, random)
        if in_transactions:
            await client.ask(tx.Select(), tx.SelectOk)
        if random.random() < 0.8:
            qos = basic.Qos(0, random.randint(1, 8), is_global=random.random() < 0.3)
            await client.ask(qos, basic.QosOk)
        if random.random() < 0.3:
            await client.ask(queue.Declare(0, chosen, passive=True), queue.DeclareOk)
        arguments = random.choice(({}, {"x-priority": 1}))
        consume = basic.Consume(0, chosen, session.tag, arguments=arguments)
        await client.ask(consume, basic.ConsumeOk)
        for _ in range(random.randint(1, 40)):
            if not self._goes_on():
                break
            await asyncio.sleep(random.choice((0.0, random.uniform(0, 0.2))))
            await session.act()
            self._take_stock()
            client.check_open()
        await self._part(session, client, random)

    async def _part(self, session: Consuming, client: AmqpClient, random: Random) -> None:
        """Somehow."""
        roll = random.random()
        if roll < 0.3:
            client.die()
        elif roll < 0.4:
            client.fall_silent()
            await asyncio.sleep(random.uniform(0, 3))
            client.die()
        else:
            if roll < 0.7:
                await client.ask(basic.Cancel(session.tag), basic.CancelOk)
                await asyncio.sleep(random.uniform(0, 0.1))
                await session.act()
            await client.leave()

    # --- the end

    async def _check(self) -> None:
        """All times are over, and nothing goes wrong any more: everything comes out."""
        await asyncio.sleep(2 * HEARSAY_S)
        self._clock.jump(_HOUR_MS)
        await self._heal()
        await self._drain()
        self._take_stock()
        self.seen.check_final()
        await self._settled()
        await self._heal()
        await asyncio.sleep(2 * HEARSAY_S)
        if found := self._left():
            raise Violation(f"what was settled comes again: {found}")

    async def _drain(self) -> None:
        deadline = self._loop.time() + _DRAIN_S
        random = self._loop.random("drain")
        while found := self._left():
            if self._loop.time() > deadline:
                raise Violation(f"not drained: {found}")
            for name in QUEUES:
                if name in found:
                    await self._empty(name, random)
            await asyncio.sleep(0.1)

    async def _empty(self, name: str, random: Random) -> None:
        session = Consuming(name, "", random, self.seen, Writer("judge", random, self.seen))
        client = session.client = await self._open("judge", session.heard, random)
        await client.ask(tx.Select(), tx.SelectOk)
        answer = None
        while not isinstance(answer, basic.GetEmpty):
            answer = await client.ask(basic.Get(0, name), basic.GetOk, basic.GetEmpty)
        session.take_all()
        await session.commit()
        await client.leave()

    def _left(self) -> dict[str, tuple[int, int, int]]:
        """By queue: how much is ready, with somebody, and put off."""
        assert self._server is not None
        found: dict[str, tuple[int, int, int]] = {}
        for each in self._queues():
            counts = each.ready_count, each.unacked_count, each.deferred_count
            if any(counts) or any(lane.ledger.leased for lane in each.lanes):
                found[each.name] = counts
        return found

    def _queues(self) -> list[Queue]:
        """Those that are open, of the delayed exchange as well."""
        assert self._latest is not None
        vhost = self._latest.broker.vhosts.default
        return [*vhost.queues.values(), *filter(None, [vhost.delayed])]

    async def _settled(self) -> None:
        """Until all that was settled is permanent."""
        for each in self._queues():
            done: asyncio.Future[StorageError | None] = self._loop.create_future()
            each.when_settlements_committed(done.set_result)
            if error := await done:
                raise Violation(f"a healthy disk does not take it: {error}")


def queue_world(
    seconds: float = 6.0,
    *,
    sync_is_noop: bool = False,
    durability: Durability = Durability.FSYNC,
) -> Callable[[SimLoop], Coroutine[Any, Any, Result]]:
    """For `loop.run`."""
    return lambda loop: QueueWorld(
        loop, seconds=seconds, sync_is_noop=sync_is_noop, durability=durability
    ).run()
