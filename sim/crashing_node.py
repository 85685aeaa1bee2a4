"""One node that crashes again and again, and the clients that trust it.

Producers and readers speak Kafka over the simulated network to a server in trouble. At
the end everything is healed and the history is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple

from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v12.response import FetchResponse
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.produce.v12.response import ProduceResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

from entrepot.client.connection import Connection
from entrepot.config import Config, Ports, Topics
from entrepot.core import batch
from entrepot.core.record import Record
from entrepot.log.policy import Durability
from sim.loop import SimLoop
from sim.trouble import HOST, PATIENCE_S, PORT, Trouble

TOPIC = "orders"
PARTITIONS = 14  # More than a commit syncs one by one: some ticks go through the journal.
PRODUCERS = 6
READERS = 2
_CONFIG = Config(
    host=HOST,
    ports=Ports(kafka=PORT),
    topics=Topics(num_partitions=PARTITIONS, segment_bytes=3_000),
)


class Result(NamedTuple):
    acked: int
    reads: int
    crashes: int
    losses: int  # Crashes that may have taken what was answered.
    faults: int
    trace: str


class CrashingNode(Trouble):
    def __init__(self, loop: SimLoop, *, seconds: float, **options: Any) -> None:
        machines = [f"p{number}" for number in range(PRODUCERS)]
        super().__init__(loop, _CONFIG, machines, **options)
        self._seconds = seconds
        self._idempotent: dict[str, _Idempotent] = {}
        self._ends: dict[int, int] = {}  # Partition -> the end a reader has seen.
        self._counter = 0

    async def run(self) -> Result:
        await self._start_whole()
        assert self._server is not None
        await self._server.broker.create_topic(TOPIC)
        clients = [self._client(f"p{n}", self._produce_once) for n in range(PRODUCERS // 2)]
        clients += [self._client(f"i{n}", self._produce_again) for n in range(PRODUCERS // 2)]
        clients += [self._client(f"r{n}", self._read_on) for n in range(READERS)]
        tasks = [self._loop.create_task(work) for work in [*self._nemeses(), *clients]]
        await asyncio.sleep(self._seconds)
        self._is_over = True
        await asyncio.gather(*tasks)
        await self._check()
        history = self.history
        counts = self.crashes, self.losses, self.faults
        return Result(history.acks, history.reads, *counts, history.trace)

    def _lose(self) -> None:
        self.history.lose()
        self._ends.clear()

    # --- clients

    async def _produce_once(self, name: str, random: Random, connection: Connection) -> None:
        """To some partitions, and never again: what became of it may stay unknown."""
        count = random.choice((1, 1, 2, PARTITIONS))
        chosen = sorted(random.sample(range(PARTITIONS), count))
        values = {p: self._new_values(name, p, random.randint(1, 4)) for p in chosen}
        batches = {p: self._batch(values[p]) for p in chosen}
        await self._produce(connection, values, batches)
        await asyncio.sleep(random.uniform(0, 0.02))

    async def _produce_again(self, name: str, random: Random, connection: Connection) -> None:
        """An idempotent producer: the same batch until it is acknowledged, then the next."""
        state = self._idempotent.setdefault(name, _Idempotent(1_000 + int(name[1:])))
        partition = state.producer_id % PARTITIONS
        if state.epoch != self.losses:  # What it had written may be lost: it begins anew.
            state.epoch, state.sequence, state.values = self.losses, 0, None
        if not state.values:
            state.values = self._new_values(name, partition, random.randint(1, 3))
        data = self._batch(state.values, state.producer_id, state.sequence, state.epoch)
        if await self._produce(connection, {partition: state.values}, {partition: data}):
            state.sequence += len(state.values)
            state.values = []
        await asyncio.sleep(random.uniform(0, 0.02))

    def _new_values(self, name: str, partition: int, count: int) -> list[str]:
        values = []
        for _ in range(count):
            self._counter += 1
            values.append(f"{name}:{self._counter}")
            self.history.write(partition, values[-1])
        return values

    def _batch(
        self, values: list[str], producer_id: int = -1, sequence: int = -1, epoch: int = -1
    ) -> bytes:
        """Of different sizes, so that segments end anywhere."""
        rows = [Record(None, value.encode(), (("pad", bytes(len(value) * 9)),)) for value in values]
        return batch.build(
            rows,
            now_ms=self._clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=epoch,
            sequence_first=sequence,
        )

    async def _produce(
        self, connection: Connection, values: dict[int, list[str]], batches: dict[int, bytes]
    ) -> bool:
        """Whether all of it was acknowledged."""
        data = tuple(
            PartitionProduceData(index=i32(p), records=Records(batches[p])) for p in sorted(batches)
        )
        request = ProduceRequest(
            acks=i16(-1),
            timeout=_milliseconds(1_000),
            topic_data=(TopicProduceData(name=TopicName(TOPIC), partition_data=data),),
        )
        answer = await connection.ask(request, ProduceResponse, PATIENCE_S)
        is_whole = True
        for result in answer.responses[0].partition_responses:
            self.history.note(
                self._loop.time(), result.index, result.error_code, result.base_offset
            )
            if result.error_code == 0:
                self.history.ack(result.index, result.base_offset, values[result.index])
            else:
                is_whole = False
        return is_whole

    async def _read_on(self, name: str, random: Random, connection: Connection) -> None:
        """A few partitions, each from somewhere at or below its end."""
        for partition in random.sample(range(PARTITIONS), 3):
            known = self._ends.get(partition, 0)
            start = random.choice((known, known, random.randint(0, known)))
            for offset, value in await self._fetch(connection, partition, start, wait_ms=20):
                self.history.read(partition, offset, value)
                self._ends[partition] = max(self._ends.get(partition, 0), offset + 1)
        await asyncio.sleep(random.uniform(0, 0.05))

    async def _fetch(
        self, connection: Connection, partition: int, offset: int, *, wait_ms: int
    ) -> list[tuple[int, str]]:
        wanted = FetchPartition(
            partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(20_000)
        )
        request = FetchRequest(
            replica_id=BrokerId(-1),
            max_wait=_milliseconds(wait_ms),
            min_bytes=i32(1),
            max_bytes=i32(100_000),
            isolation_level=i8(0),
            session_id=i32(0),
            session_epoch=i32(-1),
            topics=(FetchTopic(topic=TopicName(TOPIC), partitions=(wanted,)),),
            forgotten_topics_data=(),
        )
        answer = await connection.ask(request, FetchResponse, PATIENCE_S)
        found = answer.responses[0].partitions[0]
        self.history.note(self._loop.time(), partition, found.error_code, found.high_watermark)
        return _records(found.records or b"", offset)

    # --- the end

    async def _check(self) -> None:
        """Heal, and read everything."""
        await self._heal()
        connection = await self._connect("judge")
        logs: dict[int, list[tuple[int, str]]] = {}
        for partition in range(PARTITIONS):
            rows = logs[partition] = []
            while found := await self._fetch(connection, partition, len(rows), wait_ms=0):
                rows += found
        self.history.check_final(logs)


@dataclass(slots=True)
class _Idempotent:
    producer_id: int
    epoch: int = 0  # The losses of the node so far.
    sequence: int = 0
    values: list[str] | None = None  # Sent, not acknowledged.


def _milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=count))


def _records(data: bytes, offset: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for position, header in batch.walk(data):
        batch.check(data[position : position + header.size])
        for record in batch.records(data[position : position + header.size]):
            if record.offset >= offset:
                assert record.value is not None
                found.append((record.offset, record.value.decode()))
    return found


def crashing_node(
    seconds: float = 6.0,
    *,
    sync_is_noop: bool = False,
    durability: Durability = Durability.FSYNC,
) -> Callable[[SimLoop], Coroutine[Any, Any, Result]]:
    """For `loop.run`."""
    return lambda loop: CrashingNode(
        loop, seconds=seconds, sync_is_noop=sync_is_noop, durability=durability
    ).run()
