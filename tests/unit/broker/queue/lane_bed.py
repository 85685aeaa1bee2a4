"""Lanes in a log on a simulated disk, in a process that can be killed or lose its power."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from entrepot.broker.ledger import Lease
from entrepot.broker.ledger_store import LedgerStore
from entrepot.broker.queue.lane import Lane, Piece, Waiter
from entrepot.broker.queue.log_lane import LogLane
from entrepot.broker.queue.message import Run
from entrepot.broker.queue.message_cache import MessageCache
from entrepot.broker.served_partition import ServedPartition
from entrepot.broker.topic_config import topic_config
from entrepot.broker.virtual_host.queue_maker import LEDGERS as TOPIC
from entrepot.core.errors import StorageError
from entrepot.core.faults import Uncaught
from entrepot.core.message import Envelope, Message
from entrepot.core.names import PartitionId
from entrepot.core.neutral import NEUTRAL, Formats, Head, NeutralFormat
from entrepot.core.properties import Properties
from entrepot.log.log import Log
from sim.loop import SimLoop
from tests.unit.log.bed import Life

OWNER = "ana"
LEASE = Lease(OWNER)


class CountingFormat(NeutralFormat):
    """The neutral format; counts how often envelopes are written and read."""

    def __init__(self) -> None:
        self.asked = 0

    def pack(self, envelope: Envelope) -> bytes:
        self.asked += 1
        return super().pack(envelope)

    def unpack(self, packed: bytes) -> Envelope | None:
        self.asked += 1
        return super().unpack(packed)


def head(told: bytes = b"p") -> bytes:
    """Properties that say so."""
    return NEUTRAL.write(Head(Properties(headers={"told": told})))


@dataclass(frozen=True)
class FakeTopic:
    name: str


class LaneBed(Life):
    """As much of a broker as a store of ledgers needs, and lanes a, b and so on."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.log = Log(self.disk, self.clock)
        self.faults = Uncaught()
        self.topics: dict[str, FakeTopic] = {}
        self.served_partitions: dict[str, ServedPartition] = {}
        self.lanes: dict[str, LogLane] = {}
        self.cache = MessageCache()
        self.store = LedgerStore(self, self.clock, TOPIC, "queues")  # type: ignore[arg-type]

    async def start(
        self, *names: str, cache_bytes: int = 1_000_000, durability: str = "fsync", **settings: str
    ) -> None:
        """Settings of the lanes' partitions, with `_` for their dots."""
        dotted = {key.replace("_", "."): value for key, value in settings.items()}
        self.log = Log(self.disk, self.clock)
        self.store = LedgerStore(self, self.clock, TOPIC, "queues")  # type: ignore[arg-type]
        self.cache = MessageCache(cache_bytes)
        self.topics = {TOPIC: FakeTopic(TOPIC)}
        formats = Formats()

        async def open_all() -> None:
            self.log.begin()
            small = {"cleanup.policy": "compact", "segment.bytes": "2000"}
            self._open(TOPIC, small)
            for name in names:
                self._open(name, dotted | {"durability": durability})
            await self.log.ready()
            self.store.open()
            for name in names:
                self.lanes[name] = LogLane(
                    self.served_partitions[name], self.store, formats, self.cache
                )
            self.store.forget_others()

        self.lanes.clear()
        await self.begin(open_all())

    def _open(self, name: str, settings: Mapping[str, str]) -> None:
        config = topic_config(settings, {})
        opened = self.log.open(identity(name), name, config.policy)
        self.served_partitions[name] = ServedPartition(self.log, self.clock, opened, config)

    async def stop(self) -> None:
        self.call(self.store.close)
        await self.do(self.log.close())
        self.kill()

    # --- what a store asks a broker

    def served_partition(self, topic: FakeTopic, index: int) -> ServedPartition:
        assert index == 0
        return self.served_partitions[topic.name]

    async def internal_topic(
        self, name: str, partition_count: int, settings: Mapping[str, str]
    ) -> FakeTopic:
        assert (name, partition_count) == (TOPIC, 1)
        return FakeTopic(name)

    # --- verbs

    def append(self, name: str, *runs: Run) -> int:
        return self.call(self.lanes[name].append, runs)

    async def publish(self, name: str, *runs: Run) -> int:
        """Append, and wait for the commit."""
        end = self.append(name, *runs)
        await self.wait(lambda waiter: self.lanes[name].when_committed(end, waiter))
        return end

    def settle(self, name: str, *offsets: int) -> None:
        lane = self.lanes[name]
        for offset in offsets:
            settled = lane.ledger.settle(range(offset, offset + 1), OWNER)
            self.call(lane.settled, settled)

    def release(self, name: str, *offsets: int) -> None:
        lane = self.lanes[name]
        for offset in offsets:
            released = lane.ledger.release(range(offset, offset + 1), OWNER)
            self.call(lane.attempted, released)

    async def settlements(self, name: str) -> None:
        await self.wait(self.lanes[name].when_settlements_committed)

    async def wait(self, ask: Callable[[Waiter], None]) -> None:
        answer: asyncio.Future[StorageError | None] = self.loop.create_future()
        self.call(ask, lambda error: answer.done() or answer.set_result(error))
        error = await answer
        if error is not None:
            raise error

    def ready(self, name: str) -> list[int]:
        """What could be handed out, without doing so."""
        lane = self.lanes[name]
        return [offset for each in lane.ledger.ready(10**6, lane.offset_end) for offset in each]


def identity(name: str) -> PartitionId:
    return PartitionId(UUID(bytes=name.encode()[:16].rjust(16, b"\0")), 0)


def run(*bodies: bytes, key: str = "k", time_ms: int = 1_000, properties: bytes = b"p") -> Run:
    envelope = Envelope("x", key, head(properties), NEUTRAL)
    return Run(time_ms, [(envelope, body) for body in bodies])


def take(lane: Lane, count: int) -> list[int]:
    """Lease them, to the one owner there is."""
    taken = lane.ledger.pop(count, lane.offset_end)
    for each in taken:
        lane.ledger.lease(each, LEASE)
    return [offset for each in taken for offset in each]


def flat(pieces: Iterable[Piece]) -> list[tuple[int, int, Message]]:
    """Message by message: offset, time, and the message."""
    found = []
    for offsets, each in pieces:
        assert len(offsets) == len(each.messages) > 0
        for offset, (envelope, body) in zip(offsets, each.messages, strict=True):
            found.append((offset, each.time_ms, (envelope, bytes(body))))
    return found


def bodies(pieces: Iterable[Piece]) -> list[bytes]:
    return [bytes(message[1]) for *_, message in flat(pieces)]
