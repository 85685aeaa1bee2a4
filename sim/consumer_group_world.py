"""Two groups, one of each protocol, on a node in trouble, with members that come and go.

Producers fill a topic; each group must read all of it. Members join, leave and die at any
time, answers get lost and requests come twice. What must hold throughout: in one
generation or epoch a partition is given to one member only; what is committed never goes
back; and in the end each group has read everything that was acknowledged. Where the power
fails with less than `fsync`, groups begin anew: only the first of the three is asked for, and
that they come to an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v12.response import FetchResponse
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.produce.v12.response import ProduceResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import Records, i8, i16, i32, i64

from entrepot.broker.consumer_group.modern import ModernGroup
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.partitions import Holders
from entrepot.broker.consumer_group.records import Value
from entrepot.client.connection import Connection
from entrepot.config import Config, Groups, Ports, Topics
from entrepot.core import batch
from entrepot.core.ports import World
from entrepot.core.record import Record
from entrepot.log.policy import Durability
from entrepot.server import Server
from sim.group_member import (
    HEARTBEAT_S,
    PATIENCE_S,
    REBALANCE_MS,
    SESSION_MS,
    ClassicMember,
    Member,
    ModernMember,
    ms,
)
from sim.history import Violation
from sim.loop import SimLoop
from sim.trouble import HOST, PORT, Trouble

TOPIC = "work"
PARTITIONS = 5
PRODUCERS = 2
MEMBERS_MAX = 5  # Of each group.
GROUPS = ("classic", "modern")
BUGS = ("early-answers", "overlap")
_DRAIN_S = 60.0
_CONFIG = Config(
    host=HOST,
    ports=Ports(kafka=PORT),
    topics=Topics(num_partitions=PARTITIONS, segment_bytes=3_000),
    groups=Groups(
        initial_rebalance_delay_ms=30,
        min_session_timeout_ms=100,
        consumer_heartbeat_interval_ms=round(HEARTBEAT_S * 1_000),
        consumer_session_timeout_ms=SESSION_MS,
    ),
)


class Result(NamedTuple):
    acked: int
    reads: int
    crashes: int
    faults: int
    trace: str
    rebalances: int
    commits: int


class Judge:
    """A `Witness`: what members say must fit together."""

    def __init__(
        self,
        note: Callable[..., None],
        now: Callable[[], float],
        living: Callable[[], list[Member]],
    ) -> None:
        self._note = note
        self._now = now
        self._living = living
        self.owners: dict[tuple[str, int, int], str] = {}  # Group, epoch, partition.
        self.floors: dict[tuple[str, int], int] = {}
        self.processed: dict[str, dict[str, int]] = {group: {} for group in GROUPS}
        self._lost_s = float("-inf")  # When the power last failed.
        self.commits = 0

    def lose(self) -> None:
        """Generations, epochs and offsets may begin anew."""
        self.owners.clear()
        self.floors.clear()
        self._lost_s = self._now()

    def given(self, member: Member, partition: int) -> None:
        group, epoch, identity = member.group, member.epoch, member.identity
        self._note("given", group, epoch, partition, identity)
        owner = self.owners.setdefault((group, epoch, partition), identity)
        if owner != identity:
            raise Violation(
                f"{group}: partition {partition} is {owner}'s and {identity}'s in {epoch}"
            )
        if group == "modern":
            self._check_alone(member, partition)

    def _check_alone(self, member: Member, partition: int) -> None:
        """Nobody else still has it, of those the group still hears of: the modern protocol
        takes away before it gives. (The classic one does, too, but a join that comes late can
        begin a generation its sender knows nothing of.)"""
        since_s = max(self._now() - REBALANCE_MS / 1_000, self._lost_s)
        for other in self._living():
            is_other = other.group == member.group and other.identity != member.identity
            is_heard = other.heard_s > since_s
            if is_other and is_heard and partition in other.positions:
                raise Violation(
                    f"{member.group}: partition {partition} is given to {member.identity} in "
                    f"{member.epoch}, and {other.identity} has it since {other.epoch}"
                )

    def floor(self, group: str, partition: int) -> int:
        return self.floors.get((group, partition), 0)

    def found(self, group: str, partition: int, offset: int, floor: int) -> None:
        self._note("found", group, partition, offset)
        if offset < floor:
            raise Violation(
                f"{group}: partition {partition} was committed up to {floor}, and is at {offset}"
            )

    def committed(self, group: str, partition: int, offset: int) -> None:
        self._note("committed", group, partition, offset)
        self.commits += 1
        self.floors[group, partition] = max(offset, self.floor(group, partition))

    def read(self, group: str, value: str) -> None:
        seen = self.processed[group]
        seen[value] = seen.get(value, 0) + 1


class ConsumerGroupWorld(Trouble):
    def __init__(self, loop: SimLoop, *, seconds: float, bug: str | None, **options: Any) -> None:
        self._living: dict[str, tuple[Member, asyncio.Task[None]]] = {}
        self._born = 0
        machines = [f"p{number}" for number in range(PRODUCERS)]
        super().__init__(loop, _CONFIG, machines, **options)
        self._seconds = seconds
        self._bug = bug
        self._counter = 0
        self._judge = Judge(
            lambda *event: self.history.note(self._loop.time(), *event),
            loop.time,
            lambda: [member for member, _ in self._living.values()],
        )

    async def run(self) -> Result:
        await self._start_whole()
        await self._make_internal_topics()
        assert self._server is not None
        await self._server.broker.create_topic(TOPIC)
        clients = [self._client(f"p{n}", self._produce) for n in range(PRODUCERS)]
        works: list[Coroutine[Any, Any, None]] = [*self._nemeses(), *clients]
        works += [self._come_and_go(group) for group in GROUPS]
        tasks = [self._loop.create_task(work) for work in works]
        await asyncio.sleep(self._seconds)
        self._is_over = True
        await asyncio.gather(*tasks)
        await self._heal()
        await self._drain()
        await self._part()
        self._check()
        acked, reads = self.history.acks, sum(map(len, self._judge.processed.values()))
        rebalances = len(dict.fromkeys(key[:2] for key in self._judge.owners))
        return Result(
            acked,
            reads,
            self.crashes,
            self.faults,
            self.history.trace,
            rebalances,
            self._judge.commits,
        )

    def _lose(self) -> None:
        self.history.lose()
        self._judge.lose()

    def _assemble(self, doors: World) -> Server:
        server = super()._assemble(doors)
        if self._bug is not None:
            plant(server, self._bug)
        return server

    # --- members

    async def _come_and_go(self, group: str) -> None:
        random = self._loop.random(f"life of {group}")
        while self._goes_on():
            mine = [name for name, (member, _) in self._living.items() if member.group == group]
            fate = random.random()
            if not mine or (fate < 0.5 and len(mine) < MEMBERS_MAX):
                self._give_birth(group, random)
            elif fate < 0.75:
                self._kill(random.choice(mine))
            else:
                member, _ = self._living[random.choice(mine)]
                member.is_leaving = True
            await asyncio.sleep(random.uniform(0.05, 0.8))
        self._give_birth(group, random)

    def _give_birth(self, group: str, random: Random) -> None:
        self._born += 1
        name = f"{group}-{self._born}"
        # Two of a group at a time may believe to be the same static member.
        instance_id = random.choice((None, None, f"{group}-static"))
        chance = self._loop.random(name)
        options: dict[str, Any] = {
            "connect": self._connect,
            "read": self._reader(group, chance),
            "instance_id": instance_id,
        }
        member: Member
        if group == "classic":
            options["partition_count"] = PARTITIONS
            member = ClassicMember(name, group, TOPIC, self._judge, chance, **options)
        else:
            member = ModernMember(name, group, TOPIC, self._judge, chance, **options)
        task = self._loop.create_task(member.live())
        self._living[name] = member, task
        task.add_done_callback(lambda _: self._living.pop(name, None))

    def _kill(self, name: str) -> None:
        """As kill -9 does: nobody is told."""
        _, task = self._living.pop(name)
        task.cancel()
        self._network.break_links(name)

    def _reader(
        self, group: str, random: Random
    ) -> Callable[[Connection, int, int], Awaitable[int]]:
        async def read(connection: Connection, partition: int, position: int) -> int:
            wanted = FetchPartition(
                partition=i32(partition), fetch_offset=i64(position), partition_max_bytes=i32(300)
            )
            request = FetchRequest(
                replica_id=BrokerId(-1),
                max_wait=ms(random.choice((0, 20))),
                min_bytes=i32(1),
                max_bytes=i32(1_000),
                isolation_level=i8(0),
                session_id=i32(0),
                session_epoch=i32(-1),
                topics=(FetchTopic(topic=TopicName(TOPIC), partitions=(wanted,)),),
                forgotten_topics_data=(),
            )
            answer = await connection.ask(request, FetchResponse, PATIENCE_S)
            found = answer.responses[0].partitions[0]
            if found.error_code == ErrorCode.offset_out_of_range:  # It was lost.
                return 0
            data = found.records or b""
            for start, header in batch.walk(data):
                for record in batch.records(data[start : start + header.size]):
                    if record.offset >= position:
                        assert record.value is not None
                        self.history.read(partition, record.offset, record.value.decode())
                        self._judge.read(group, record.value.decode())
                        position = record.offset + 1
            return position

        return read

    # --- producers

    async def _produce(self, name: str, random: Random, connection: Connection) -> None:
        partition = random.randrange(PARTITIONS)
        values = []
        for _ in range(random.randint(1, 3)):
            self._counter += 1
            values.append(f"{name}:{self._counter}")
            self.history.write(partition, values[-1])
        rows = [Record(None, value.encode()) for value in values]
        data = PartitionProduceData(
            index=i32(partition),
            records=Records(batch.build(rows, now_ms=self._clock.now_ms())),
        )
        request = ProduceRequest(
            acks=i16(-1),
            timeout=ms(1_000),
            topic_data=(TopicProduceData(name=TopicName(TOPIC), partition_data=(data,)),),
        )
        answer = await connection.ask(request, ProduceResponse, PATIENCE_S)
        result = answer.responses[0].partition_responses[0]
        if result.error_code == 0:
            self.history.ack(partition, result.base_offset, values)
        await asyncio.sleep(random.uniform(0, 0.05))

    # --- the end

    async def _drain(self) -> None:
        """On a healthy node both groups come to the end of everything."""
        deadline = self._loop.time() + _DRAIN_S
        while behind := self._behind():
            if self._loop.time() > deadline:
                raise Violation(f"not read to the end: {behind}")
            await asyncio.sleep(0.2)

    def _behind(self) -> list[tuple[str, int, int, int]]:
        """Group, partition, what is committed, where the end is."""
        assert self._server is not None
        broker = self._server.broker
        topic = broker.topic(TOPIC)
        rows = []
        for group in GROUPS:
            for index in range(PARTITIONS):
                end = broker.served_partition(topic, index).partition.high_watermark
                place = TopicPartition(TOPIC, index)
                found = broker.groups.fetch_offsets(group, [place])[place]
                offset = getattr(found, "offset", 0)
                if offset < max(end, self._judge.floor(group, index)):
                    rows.append((group, index, offset, end))
        return rows

    async def _part(self) -> None:
        tasks = [task for _, task in self._living.values()]
        for member, _ in self._living.values():
            member.is_leaving = True
        await asyncio.gather(*tasks)

    def _check(self) -> None:
        if self.losses:
            return  # Offsets may have survived what they speak of, and skip what came then.
        for group, seen in self._judge.processed.items():
            missed = [value for _, _, value in self.history.acked if value not in seen]
            if missed:
                raise Violation(f"{group} never got {missed[:5]}, and {len(missed)} in all")


# --- planted bugs


class _Careless(ModernGroup):
    """Forgets who has what, so it gives away what others have."""

    def _apply_current(self, member_id: str, value: Value | None) -> None:
        super()._apply_current(member_id, value)
        self._holders = Holders()


def plant(server: Server, bug: str) -> None:
    groups = server.broker.groups
    if bug == "overlap":
        groups._new_modern = lambda group_id: _Careless(  # type: ignore[method-assign]
            group_id, groups._settings, groups._deadlines
        )
    else:
        assert bug == "early-answers", bug
        groups._store.is_kept = lambda group: True  # type: ignore[method-assign]


def consumer_groups(
    seconds: float = 6.0,
    *,
    sync_is_noop: bool = False,
    durability: Durability = Durability.FSYNC,
    bug: str | None = None,
) -> Callable[[SimLoop], Coroutine[Any, Any, Result]]:
    """For `loop.run`."""
    return lambda loop: ConsumerGroupWorld(
        loop, seconds=seconds, bug=bug, sync_is_noop=sync_is_noop, durability=durability
    ).run()
