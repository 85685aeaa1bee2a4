"""Three queue managers in trouble: a message for the last one comes there once.

Clients publish with confirms at the first manager, for a queue of the third, which the first
reaches by way of the second only. Each of the three crashes, loses its power, and its connections.
What a client publishes again has another name, so every name must be in the queue at most once, and
every one that was confirmed exactly once. In every third seed the second manager only routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from entrepot.broker.queue.queue import Queue
from entrepot.config import Config, Manager, ManagerLink, Ports, Security
from entrepot.core.ports import World
from entrepot.linking.link import ManagerLink as Link
from entrepot.log.policy import Durability
from entrepot.net.unfinished import UnfinishedInput
from entrepot.server import Server, StartError
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, confirm, queue
from entrepot.wire.amqp.properties import PERSISTENT, BasicProperties, encode
from sim.amqp_client import PATIENCE_S, AmqpClient, Gone
from sim.clock import SimClock
from sim.disk import Habits, SimDisk
from sim.entropy import SimEntropy
from sim.history import History, Violation
from sim.loop import Process, SimLoop
from sim.net import SimNetwork

PORT = 5672
NEIGHBOURS = {"paris": ("london",), "london": ("paris", "tokyo"), "tokyo": ("london",)}
GOAL = "orders"
PUBLISHERS = 3
_DRAIN_S = 300.0
_HEAD = encode(BasicProperties(delivery_mode=PERSISTENT))


class Result(NamedTuple):
    confirmed: int
    arrived: int
    crashes: int
    trace: str


class Node:
    """One manager: a server, its disk, and its process."""

    def __init__(self, loop: SimLoop, network: SimNetwork, name: str, config: Config) -> None:
        self._loop = loop
        self._network = network
        self.name = name
        self._config = config
        self._disk = SimDisk(loop.random(f"disk of {name}"), Habits(short_write_chance=0.05))
        self._clock = SimClock(loop)
        self._entropy = SimEntropy(loop.random(f"entropy of {name}"))
        self._process: Process | None = None
        self.server: Server | None = None

    def start(self) -> asyncio.Task[None]:
        net = self._network.door(self.name, UnfinishedInput())
        doors = World(self._clock, self._entropy, self._disk, net)
        self._process = Process(self._loop)
        return self._process.start(self._serve(Server(self._config, doors)))

    async def _serve(self, server: Server) -> None:
        try:
            await server.start()
        except StartError as error:
            raise Violation(f"{self.name} does not start on a healthy disk: {error}") from None
        self.server = server

    def crash(self, *, power_fails: bool) -> None:
        assert self._process is not None
        self._process.kill()
        self.server = None
        self._network.crash(self.name)
        self._disk = self._disk.crash() if power_fails else self._disk.kill()


class LinkWorld:
    def __init__(self, loop: SimLoop, *, seconds: float, durability: Durability) -> None:
        self._loop = loop
        self._seconds = seconds
        self._power_fails = durability is Durability.FSYNC
        self._network = SimNetwork(loop.random("network"))
        self._nodes = {name: self._node(name, durability) for name in NEIGHBOURS}
        self._is_over = False
        self._number = 0
        self._confirmed: dict[str, None] = {}
        self.history = History()
        self.crashes = 0

    def _node(self, name: str, durability: Durability) -> Node:
        links = tuple(ManagerLink(to=to, address=f"{to}:{PORT}") for to in NEIGHBOURS[name])
        is_router = name == "london" and self._loop.seed % 3 == 2
        config = Config(
            host=name,
            durability=durability,
            ports=Ports(kafka=None, amqp=PORT, mqtt=None, stomp=None, http=None, sqs=None),
            security=Security(insecure=True),
            manager=Manager(name=name, store=not is_router),
            link=links,
        )
        return Node(self._loop, self._network, name, config)

    async def run(self) -> Result:
        for node in self._nodes.values():
            await node.start()
        await self._declare()
        await self._wait_for(self._is_known, "the first manager does not learn of the third")
        works = [self._crash_now_and_then(name) for name in NEIGHBOURS]
        works += [self._break_links()]
        works += [self._publish(f"p{number}") for number in range(PUBLISHERS)]
        tasks = [self._loop.create_task(work) for work in works]
        await asyncio.sleep(self._seconds)
        self._is_over = True
        await asyncio.gather(*tasks)
        found = await self._drain()
        self._check(found)
        return Result(len(self._confirmed), len(found), self.crashes, self.history.trace)

    def _note(self, *event: object) -> None:
        self.history.note(self._loop.time(), *event)

    def _queue(self, manager: str, name: str) -> Queue | None:
        server = self._nodes[manager].server
        return None if server is None else server.broker.vhosts.default.queues.get(name)

    def _is_known(self) -> bool:
        server = self._nodes["paris"].server
        assert server is not None
        return server.broker.vhosts.default.router.is_elsewhere(f"{GOAL}@tokyo")

    async def _wait_for(self, is_so: Callable[[], bool], otherwise: str) -> None:
        deadline = self._loop.time() + _DRAIN_S
        while not is_so():
            if self._loop.time() > deadline:
                raise Violation(otherwise)
            await asyncio.sleep(0.1)

    # --- what goes wrong

    async def _crash_now_and_then(self, name: str) -> None:
        random, node = self._loop.random(f"crashes of {name}"), self._nodes[name]
        while not self._is_over:
            await asyncio.sleep(random.uniform(0.2, 4.0))
            power_fails = self._power_fails and random.random() < 0.5
            self._note("crash", name, power_fails)
            node.crash(power_fails=power_fails)
            self.crashes += 1
            await asyncio.sleep(random.uniform(0, 0.5))
            node.start()

    async def _break_links(self) -> None:
        random = self._loop.random("links")
        while not self._is_over:
            await asyncio.sleep(random.uniform(0.1, 1.0))
            self._network.break_links(random.choice(tuple(NEIGHBOURS)))

    # --- clients

    async def _open(self, manager: str, name: str, heard: Callable[..., None]) -> AmqpClient:
        return await AmqpClient.open(self._network.door(name), (manager, PORT), heard)

    async def _declare(self) -> None:
        client = await self._open("tokyo", "judge", lambda *_: None)
        await client.ask(queue.Declare(0, GOAL, durable=True), queue.DeclareOk)
        await client.leave()

    async def _publish(self, name: str) -> None:
        """Connect and publish, again and again; a lost connection is ordinary."""
        random = self._loop.random(name)
        while not self._is_over:
            try:
                await self._session(name, random)
            except Gone as gone:
                self._note(name, str(gone))
            await asyncio.sleep(random.uniform(0.02, 0.3))

    async def _session(self, name: str, random: Random) -> None:
        waiting: dict[int, str] = {}  # By the number of the confirm.
        returned: dict[str, None] = {}

        def heard(method: Method, _: bytes, body: bytes) -> None:
            if isinstance(method, basic.Return):
                returned[body.decode()] = None
            elif isinstance(method, basic.Ack | basic.Nack):
                last = method.delivery_tag
                before = [tag for tag in waiting if tag < last] if method.multiple else []
                for tag in (*before, last):
                    word = waiting.pop(tag)
                    if isinstance(method, basic.Ack) and word not in returned:
                        self._confirmed[word] = None

        client = await self._open("paris", name, heard)
        await client.ask(confirm.Select(), confirm.SelectOk)
        tag = 0
        while not self._is_over and random.random() < 0.97:
            for _ in range(random.choice((1, 1, 2, 10))):
                tag, self._number = tag + 1, self._number + 1
                waiting[tag] = f"{name} {self._number}"
                method = basic.Publish(0, "", f"{GOAL}@tokyo", mandatory=True)
                client.publish([(method, _HEAD, waiting[tag].encode())])
            await asyncio.sleep(random.uniform(0, 0.3))
            client.check_open()
        deadline = self._loop.time() + PATIENCE_S
        while waiting and self._loop.time() < deadline:
            await asyncio.sleep(0.05)
            client.check_open()
        await client.leave()

    # --- the end

    async def _drain(self) -> list[str]:
        """Let everything arrive that is on its way, and return what did."""
        for node in self._nodes.values():
            node.crash(power_fails=self._power_fails)
            await node.start()
        await self._wait_for(self._is_quiet, "what was confirmed does not arrive")
        await asyncio.sleep(5)  # For what would come a second time.
        goal = self._queue("tokyo", GOAL)
        assert goal is not None
        return [
            bytes(body).decode()
            for _, taken in goal.peek(1_000_000)
            for _, body in taken.run.messages
        ]

    def _is_quiet(self) -> bool:
        return not any(
            found is None or found.ready_count or found.unacked_count
            for found in (self._queue("paris", "link.london"), self._queue("london", "link.tokyo"))
        )

    def _check(self, found: list[str]) -> None:
        if len(dict.fromkeys(found)) < len(found):
            twice = [word for word in dict.fromkeys(found) if found.count(word) > 1]
            raise Violation(f"came more than once: {twice[:5]}")
        lost = [word for word in self._confirmed if word not in dict.fromkeys(found)]
        if lost:
            raise Violation(f"confirmed, and never came: {lost[:5]}")


def link_world(
    seconds: float = 6.0,
    *,
    sync_is_noop: bool = False,
    durability: Durability = Durability.FSYNC,
    bug: str | None = None,
) -> Callable[[SimLoop], Coroutine[Any, Any, Result]]:
    """For `loop.run`. Bugs: "new-ids", a message that is sent again has another id; and
    "early", it is settled before the neighbour has confirmed it."""

    async def main(loop: SimLoop) -> Result:
        assert not sync_is_noop, "this world has no disks that lie"
        world = LinkWorld(loop, seconds=seconds, durability=durability)
        if bug == "new-ids":
            with patch.object(Link, "_encoded", _with_new_id(loop.random("bug"))):
                return await world.run()
        if bug == "early":
            with patch.object(Link, "_send", _settling_first(Link._send)):
                return await world.run()
        return await world.run()

    return main


def _with_new_id(random: Random) -> Callable[..., Any]:
    encoded = Link._encoded

    def new_id(link: Link, held: Any) -> Any:
        link._identity = f"{random.random()}"
        return encoded(link, held)

    return new_id


def _settling_first(send: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
    async def settling(link: Link, publisher: Any) -> None:
        held = list(link._held)
        for lane, offset, _ in held:
            link.queue.settle(link, lane, range(offset, offset + 1))
        await asyncio.sleep(0.2)
        await send(link, publisher)

    return settling
