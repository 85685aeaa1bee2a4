"""Three nodes in one process, from one seed, and everything that goes wrong with them at once.

Nodes lose power, are killed and come back; links break, nodes are cut off from each other, some in
one direction only; disks are full and fail; wall clocks jump; the coordinator is slow, is away,
is not reached by one node or two, loses leases and forgets its history. Producers write with
acks=all where two replicas must be in sync, some with acks=1, and readers read what they can.

Checked all the time, and at the end, when all is well again:

- What was acknowledged to acks=all, and whatever was read, is there, at its offset, in order.
- What readers were told is the end does not go back.
- An epoch has one leader, and all that was acknowledged in it was by that node; a new leader was
  in sync (see `controller_world`).
- In the end every partition is led, everybody is in sync, and all replicas have the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NamedTuple

from entrepot.broker.served_partition import ServedPartition
from entrepot.client.client import LATEST, Client, TopicPartition
from entrepot.client.errors import ClientError
from entrepot.cluster.state import PARTITIONS, read_assignment
from entrepot.config import Cluster, Config, Ports, Topics
from entrepot.core import batch
from entrepot.core.errors import InvalidReplication, StorageError, TopicExists
from entrepot.core.ports import World
from entrepot.core.record import Record
from entrepot.log.policy import Durability
from entrepot.net.unfinished import UnfinishedInput
from entrepot.server import Server, StartError
from sim.clock import SimClock
from sim.cluster_mistakes import planted
from sim.controller_world import History as Assignments
from sim.coordinator import Climate, SimService
from sim.disk import Habits, SimDisk
from sim.entropy import SimEntropy
from sim.history import History, Violation
from sim.loop import Process, SimLoop
from sim.net import SimNetwork

NODES = (1, 2, 3)
TOPIC = "log"
COUNT = 2  # Partitions.
PRODUCERS = 3
READERS = 2
PATIENCE_S = 1.5
CALM_S = 40.0
_NAME = "sim"
_FAULTS = (
    ("write", errno.ENOSPC),
    ("write", errno.EIO),
    ("truncate", errno.EIO),
    ("sync", errno.EIO),
    ("open", errno.EMFILE),
)


class Result(NamedTuple):
    acks: int
    reads: int
    crashes: int
    faults: int
    changes: int  # Of assignments.
    trace: str


class Machine:
    """A node's disk, and its process when it runs."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.process: Process | None = None
        self.server: Server | None = None


class ClusterWorld:
    topics: tuple[tuple[str, int], ...] = ((TOPIC, COUNT),)

    def __init__(
        self, loop: SimLoop, *, seconds: float, sync_is_noop: bool, durability: Durability
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._random: Random = loop.random("world")
        self._durability = durability
        self._network = SimNetwork(loop.random("network"))
        climate = Climate(
            delay_seconds_max=self._random.choice((0.01, 0.2, 0.5)),
            lost_answer_chance=self._random.choice((0.0, 0.05, 0.2)),
        )
        self.service = SimService(loop.random("coordinator"), climate)
        habits = Habits(short_write_chance=0.05, sync_is_noop=sync_is_noop)
        disks = {node: SimDisk(loop.random(f"disk {node}"), habits) for node in NODES}
        self.machines = {node: Machine(disk) for node, disk in disks.items()}
        self._clock = SimClock(loop)
        self._entropy = SimEntropy(loop.random("entropy"))
        self._lag_ms = self._random.choice((1_000, 10_000))
        self._is_over, self._counter = False, 0
        self._ends: dict[int, int] = {}  # By partition: up to where readers know it committed.
        self._acked_by: dict[tuple[int, int], int] = {}  # (partition, offset) -> node.
        self.history = History()
        self.assignments = Assignments()
        self.crashes = self.faults = 0
        self._context = contextvars.copy_context()  # Of no node's process.

    # --- nodes

    def _config(self, node: int) -> Config:
        ports = Ports(kafka=9092, amqp=None, mqtt=None, stomp=None, http=None, sqs=None)
        cluster = Cluster(
            coordinator=("http://etcd:2379",),
            name=_NAME,
            min_insync_replicas=2,
            session_timeout_ms=2_000,
            replica_lag_time_max_ms=self._lag_ms,
        )
        return Config(
            node_id=node,
            host=f"n{node}",
            ports=ports,
            cluster=cluster,
            durability=self._durability,
            topics=Topics(segment_bytes=3_000),
        )

    def _start(self, node: int) -> None:
        machine = self.machines[node]
        if machine.process is not None:
            return
        net = self._network.door(f"n{node}", UnfinishedInput())
        door = self.service.door(str(node))
        doors = World(self._clock, self._entropy, machine.disk, net, coordinator=door)
        machine.process = Process(self._loop)
        machine.process.start(self._serve(machine, Server(self._config(node), doors)))

    async def _serve(self, machine: Machine, server: Server) -> None:
        try:
            await server.start()
            machine.server = server
        except StartError as error:
            self.history.note(self._loop.time(), "start failed", str(error))

    def _crash(self, node: int, *, power_fails: bool) -> None:
        machine = self.machines[node]
        if machine.process is not None:
            machine.process.kill()
            machine.process = machine.server = None
        self._network.crash(f"n{node}")
        machine.disk = machine.disk.crash() if power_fails else machine.disk.kill()

    # --- life

    async def run(self) -> Result:
        watching = self._loop.create_task(self._watch())
        for node in NODES:
            self._start(node)
        await self._create_topic()
        work = [self._produce(f"p{number}") for number in range(PRODUCERS)]
        work += [self._read(f"r{number}") for number in range(READERS)]
        work += [self._crash_now_and_then(), self._part(), self._trouble_the_coordinator()]
        work += [self._fail_disks(), self._jump_the_clock(), *self._more_work()]
        tasks = [self._loop.create_task(each) for each in work]
        await asyncio.sleep(self._seconds)
        self._is_over = True
        await asyncio.gather(*tasks)
        await self._check()
        if watching.done():
            watching.result()
        history = self.history
        return Result(
            history.acks,
            history.reads,
            self.crashes,
            self.faults,
            self.assignments.changes,
            history.trace,
        )

    def _more_work(self) -> list[Coroutine[Any, Any, None]]:
        return []  # Of other clients, beside these.

    async def _check_more(self) -> None: ...  # Check what they wrote, in the end.

    async def _create_topic(self) -> None:
        await self._until_whole()
        server = self.machines[1].server
        assert server is not None
        for name, count in self.topics:
            while name not in server.broker.topics:
                # An answer of the coordinator may get lost, and a node's lease.
                with contextlib.suppress(StorageError, InvalidReplication, TopicExists):
                    await server.broker.create_topic(name, count)
                await self._until_whole()
        await self._until_whole(*(name for name, _ in self.topics))

    async def _until_whole(self, *topics: str) -> None:
        for _ in range(1_000):
            if self._is_whole(*topics):
                return
            await asyncio.sleep(0.1)
        raise Violation("the nodes do not find each other")

    def _is_whole(self, *topics: str) -> bool:
        """Return whether all nodes know each other, and these topics."""
        for machine in self.machines.values():
            broker = None if machine.server is None else machine.server.broker
            peers = [] if broker is None or broker.cluster is None else broker.cluster.peers()
            if broker is None or len(peers) < len(NODES) or not {*topics} <= {*broker.topics}:
                return False
        return True

    async def _watch(self) -> None:
        """See every change of an assignment, as the service makes it."""
        prefix = f"{_NAME}/{PARTITIONS}"
        while True:
            for entry in self.service.store.range(prefix).entries:
                self.assignments.add(entry.key, read_assignment(entry.value))
            await self.service.next_change()

    # --- what goes wrong

    async def _crash_now_and_then(self) -> None:
        random = self._loop.random("crashes")
        while not self._is_over:
            await asyncio.sleep(random.uniform(0.2, 3.0))
            node, power_fails = random.choice(NODES), random.random() < 0.6
            self.history.note(self._loop.time(), "crash", node, power_fails)
            self._crash(node, power_fails=power_fails and self._durability is Durability.FSYNC)
            self.crashes += 1
            await asyncio.sleep(random.choice((0.0, 0.1, 1.0, 4.0)))
            self._start(node)

    def crash_perhaps(self, node: int) -> None:
        """Kill this node next, once in three times, and start it again after a while."""
        if self._random.random() < 1 / 3:
            self._loop.call_soon(self._crash_and_start, node, context=self._context)

    def _crash_and_start(self, node: int) -> None:
        if not self._is_over and self.machines[node].process is not None:
            self._crash(node, power_fails=False)
            self._loop.call_later(4.0, self._start, node)

    async def _part(self) -> None:
        random = self._loop.random("links")
        while not self._is_over:
            await asyncio.sleep(random.uniform(0.1, 2.0))
            one, other = random.sample(NODES, 2)
            match random.randrange(5):
                case 0 | 1:
                    self._network.break_links(f"n{one}")
                case 2:
                    self._network.part(f"n{one}")
                case 3:
                    self._network.mute(f"n{one}", f"n{other}")
                case 4:
                    self._network.heal()
            if random.random() < 0.5:
                await asyncio.sleep(random.uniform(0.1, 3.0))
                self._network.heal()

    async def _trouble_the_coordinator(self) -> None:
        random = self._loop.random("coordinator's trouble")
        while not self._is_over:
            await asyncio.sleep(random.uniform(0.3, 3.0))
            match random.randrange(5):
                case 0 | 1:
                    for node in random.sample(NODES, random.choice((1, 2))):
                        self.service.cut_off(str(node))
                case 2:
                    entries = self.service.store.range("").entries
                    leases = list(dict.fromkeys(each.lease for each in entries if each.lease))
                    for lease in random.sample(leases, min(len(leases), random.choice((1, 2)))):
                        self.service.lose_lease(lease)  # One leader after the other.
                        await asyncio.sleep(random.uniform(0, 0.2))
                case 3:
                    self.service.compact()
                    self.service.is_away = random.random() < 0.3
                case 4:
                    self.service.heal()
            if random.random() < 0.6:
                await asyncio.sleep(random.uniform(0.5, 5.0))
                self.service.heal()

    async def _fail_disks(self) -> None:
        random = self._loop.random("faults")
        while not self._is_over:
            await asyncio.sleep(random.uniform(0.5, 4.0))
            operation, error = random.choice(_FAULTS)
            pattern = random.choice(("*", "partitions/*", "journal/*", "*.log", "*.index"))
            disk = self.machines[random.choice(NODES)].disk
            disk.fail_next(operation, error, pattern, random.choice((1, 1, 3)))  # type: ignore[arg-type]
            self.faults += 1

    async def _jump_the_clock(self) -> None:
        random = self._loop.random("clock")
        while not self._is_over:
            await asyncio.sleep(random.uniform(0.5, 2.0))
            self._clock.jump(random.randrange(-60_000, 60_000))

    # --- clients

    def _client(self, name: str, attempts: int = 1) -> Client:
        bootstrap = ",".join(f"n{node}:9092" for node in NODES)
        net = self._network.door(name)
        return Client(net, bootstrap, client_id=name, timeout_s=PATIENCE_S, attempts=attempts)

    async def _produce(self, name: str) -> None:
        """Each value once: what became of it may stay unknown."""
        random = self._loop.random(name)
        while not self._is_over:
            client = self._client(name)
            try:
                while not self._is_over:
                    await self._produce_once(name, random, client)
                    await asyncio.sleep(random.uniform(0, 0.05))
            except ClientError:
                await asyncio.sleep(random.uniform(0.01, 0.3))
            await client.close()

    async def _produce_once(self, name: str, random: Random, client: Client) -> None:
        partition, acks = random.randrange(COUNT), random.choice((-1, -1, -1, 1))
        values = []
        for _ in range(random.randint(1, 3)):
            self._counter += 1
            values.append(f"{name}:{self._counter}")
            self.history.write(partition, values[-1])
        rows = [Record(None, value.encode(), (("pad", bytes(len(value) * 9)),)) for value in values]
        data = batch.build(rows, now_ms=self._clock.now_ms())
        node = await client.cluster.leader(TOPIC, partition)
        offset = await client.produce(TOPIC, partition, data, acks=acks)
        self.history.note(self._loop.time(), name, acks, partition, offset)
        if acks == -1:
            self.history.ack(partition, offset, values)
            self._acked_by[partition, offset] = node

    async def _read(self, name: str) -> None:
        random = self._loop.random(name)
        while not self._is_over:
            client = self._client(name)
            try:
                while not self._is_over:
                    await self._read_once(random, client)
                    await asyncio.sleep(random.uniform(0, 0.1))
            except ClientError:
                await asyncio.sleep(random.uniform(0.01, 0.3))
            await client.close()

    async def _read_once(self, random: Random, client: Client) -> None:
        partition = random.randrange(COUNT)
        place, known = TopicPartition(TOPIC, partition), self._ends.get(partition, 0)
        if random.random() < 0.3:
            found = await client.list_offsets({place: LATEST})
            if found[place].offset < known:
                raise Violation(
                    f"partition {partition} ends at {found[place].offset}, and was read to {known}"
                )
            return
        start = random.choice((known, known, random.randint(0, known)))
        for offset, value, _ in await self._fetch(client, partition, start):
            self.history.read(partition, offset, value)
            self._ends[partition] = max(self._ends.get(partition, 0), offset + 1)

    async def _fetch(
        self, client: Client, partition: int, offset: int, wait_ms: int = 20
    ) -> list[tuple[int, str, int]]:
        """Return offsets, values, and the leader epochs of their batches."""
        place = TopicPartition(TOPIC, partition)
        found = await client.fetch({place: offset}, wait_ms=wait_ms)
        rows, data = [], bytes(found[place].batches)
        for position, header in batch.walk(data):
            whole = data[position : position + header.size]
            batch.check(whole)
            for record in batch.records(whole):
                if record.offset >= offset:
                    value = (record.value or b"").decode()
                    rows.append((record.offset, value, header.leader_epoch))
        return rows

    # --- the end

    async def _check(self) -> None:
        """Heal, and look at everything."""
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
        judge = self._client("judge", attempts=10)
        logs: dict[int, list[tuple[int, str]]] = {}
        leaders: dict[tuple[int, int], int] = {}  # By partition and epoch.
        for partition in range(COUNT):
            rows = logs[partition] = []
            while found := await self._fetch(judge, partition, len(rows), wait_ms=0):
                for offset, value, epoch in found:
                    rows.append((offset, value))
                    node = self._acked_by.get((partition, offset), 0)
                    if node and leaders.setdefault((partition, epoch), node) != node:
                        raise Violation(f"partition {partition}: two leaders in epoch {epoch}")
        await judge.close()
        self.history.check_final(logs)
        await self._check_more()
        self._check_copies()

    def _check_roles(self) -> None:
        for entry in self.service.store.range(f"{_NAME}/{PARTITIONS}").entries:
            assignment = read_assignment(entry.value)
            if assignment.leader not in NODES or len(assignment.in_sync) != len(NODES):
                raise Violation(f"{entry.key}: in the end it is {assignment}")

    def _check_copies(self) -> None:
        """All replicas have the same bytes."""
        for number in range(COUNT):
            served = [self._served(node, TOPIC, number) for node in NODES]
            copies = [b"".join(each.partition.batches()) for each in served]
            if len({*copies}) != 1:
                raise Violation(f"partition {number}: not alike, with {[*map(len, copies)]} bytes")

    def _served(self, node: int, topic: str, number: int) -> ServedPartition:
        server = self.machines[node].server
        if server is None:
            raise Violation(f"node {node} does not start on a healthy disk")
        return server.broker.served_partition(server.broker.topic(topic), number)


def cluster_world(
    seconds: float = 20.0,
    *,
    sync_is_noop: bool = False,
    durability: Durability = Durability.FSYNC,
    bug: str | None = None,
) -> Callable[[SimLoop], Coroutine[Any, Any, Result]]:
    """For `loop.run`."""

    async def main(loop: SimLoop) -> Result:
        world = ClusterWorld(
            loop, seconds=seconds, sync_is_noop=sync_is_noop, durability=durability
        )
        with planted(bug, world):
            return await world.run()

    return main
