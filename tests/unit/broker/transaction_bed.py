"""A broker on a simulated disk, and producers that write to it in transactions."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from entrepot.broker.broker import Broker
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.served_partition import ServedPartition, committed
from entrepot.broker.server_settings import Defaults
from entrepot.broker.transaction import ProducerIdentity, Transaction, TransactionStatus
from entrepot.core import batch
from entrepot.core.record import Record
from entrepot.log.policy import Durability
from sim.clock import START_MS, SimClock
from sim.disk import SimDisk
from sim.entropy import SimEntropy
from sim.loop import Process, SimLoop, run

TOPIC = "orders"
ID = "pay"
TIMEOUT_MS = 10_000
V1, V2 = 0, 2


def on_broker(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test function out of a story: the bed comes first, parameters after.

    A parameter `durability` is the broker's as well.
    """
    signature = inspect.signature(story)
    _, *parameters = signature.parameters.values()

    async def main(loop: SimLoop, arguments: dict[str, Any]) -> None:
        bed = Bed(loop, arguments.get("durability", Durability.FSYNC))
        await bed.start()
        await bed.broker.create_topic(TOPIC, 3)
        await story(bed, **arguments)

    def test(**arguments: Any) -> None:
        run(0, lambda loop: main(loop, arguments))

    test.__name__, test.__doc__, test.__module__ = story.__name__, story.__doc__, story.__module__
    test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return test


class Bed:
    def __init__(self, loop: SimLoop, durability: Durability) -> None:
        self._loop = loop
        self._defaults = Defaults(settings={"durability": durability})
        self.disk = SimDisk(loop.random("disk"))
        self.clock = SimClock(loop)
        self._entropy = SimEntropy(loop.random("entropy"))
        self._process = Process(loop)
        self.broker = Broker(self.disk, self.clock, self._entropy)

    # --- life

    async def start(self) -> None:
        self._process = Process(self._loop)
        self.broker = Broker(self.disk, self.clock, self._entropy, self._defaults)
        await self._process.start(self.broker.open())

    def crash(self, *, power: bool = True) -> None:
        self._process.kill()
        self.disk = self.disk.crash() if power else self.disk.kill()

    async def restart(self) -> None:
        """As after kill -9, or as after a clean stop."""
        self.crash()
        await self.start()

    def inside(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run as a part of the broker's process: it dies with it."""
        return self._process.start(work)

    # --- transactions

    def state(self, transactional_id: str = ID) -> TransactionStatus:
        return self.found(transactional_id).state

    def found(self, transactional_id: str = ID) -> Transaction:
        return self.broker.transactions.transactions[transactional_id]

    async def init(self, transactional_id: str = ID, **more: Any) -> ProducerIdentity:
        found: ProducerIdentity = await self.inside(
            self.broker.transactions.init_producer_id(transactional_id, TIMEOUT_MS, **more)
        )
        return found

    async def add(
        self, producer: ProducerIdentity, *numbers: int, transactional_id: str = ID
    ) -> None:
        places = [TopicPartition(TOPIC, number) for number in numbers]
        await self.inside(
            self.broker.transactions.add_partitions(transactional_id, producer, places)
        )

    async def end(
        self,
        producer: ProducerIdentity,
        *,
        commit: bool,
        version: int = V1,
        transactional_id: str = ID,
    ) -> ProducerIdentity:
        found: ProducerIdentity = await self.inside(
            self.broker.transactions.end(transactional_id, producer, commit=commit, version=version)
        )
        return found

    # --- records

    def served_partition(self, number: int = 0) -> ServedPartition:
        return self.broker.served_partition(self.broker.topic(TOPIC), number)

    async def write(
        self,
        producer: ProducerIdentity,
        value: str,
        number: int = 0,
        *,
        sequence: int = 0,
        transactional_id: str = ID,
    ) -> int:
        """In a transaction that has the partition. Returns the offset."""
        place = TopicPartition(TOPIC, number)

        def admit(header: batch.BatchHeader) -> None:
            who = ProducerIdentity(header.producer_id, header.producer_epoch)
            self.broker.transactions.check_member(transactional_id, who, place)

        served = self.served_partition(number)
        appended = served.append(make(producer, value, sequence=sequence), admit)
        await self.inside(committed(served.partition, appended.offset_end))
        return appended.offset_first

    def read(self, number: int = 0, *, committed_only: bool = True) -> list[str]:
        """What a reader sees, having left out what was aborted."""
        served = self.served_partition(number)
        values: list[str] = []
        offset = served.partition.offset_start
        limit = served.last_stable_offset if committed_only else None
        while (found := served.partition.read(offset, 1_000_000, limit)) is not None:
            data = found.file.read(found.position, found.size)
            aborted = served.aborted(offset, found) if committed_only else []
            for position, header in batch.walk(data):
                offset = header.offset_end
                if header.is_control:
                    # The reader's rule: an abort marker ends the range it was told of.
                    aborted = [a for a in aborted if a[0] != header.producer_id or a[1] >= offset]
                    continue
                is_aborted = header.is_transactional and any(
                    producer == header.producer_id and first <= header.offset_first
                    for producer, first in aborted
                )
                if not is_aborted:
                    whole = data[position : position + header.size]
                    values += [(r.value or b"").decode() for r in batch.records(whole)]
        return values


def make(
    producer: ProducerIdentity, value: str, *, sequence: int = 0, transactional: bool = True
) -> bytes:
    return batch.build(
        [Record(None, value.encode())],
        now_ms=START_MS,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        sequence_first=sequence,
        transactional=transactional,
    )
