"""A log on a simulated disk, and batches to put in it: what most tests here start from.

A test is a story told to `simulated`: a coroutine with a bed. What lies in the bed runs as
a process of its own, so that it can be killed, or its power cut, between any two steps;
then the next `start` finds what is left on the disk.
"""

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from entrepot.core import batch
from entrepot.core.batch import BatchHeader
from entrepot.core.names import PartitionId
from entrepot.core.record import Record
from entrepot.log.log import Log, Opened
from entrepot.log.partition import Partition
from entrepot.log.policy import Policy
from sim.clock import START_MS, SimClock
from sim.disk import SimDisk
from sim.loop import Process, SimLoop, run

T = TypeVar("T")


def simulated(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test function out of a story: the bed comes first, fixtures and parameters after."""
    signature = inspect.signature(story)
    bed, *parameters = signature.parameters.values()

    def test(**arguments: Any) -> None:
        run(arguments.get("seed", 0), lambda loop: story(bed.annotation(loop), **arguments))

    test.__name__, test.__doc__, test.__module__ = story.__name__, story.__doc__, story.__module__
    test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return test


def make(
    *values: bytes,
    time_ms: int = START_MS,
    producer: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    codec: batch.Codec = batch.Codec.NONE,
) -> bytes:
    """One batch with a record per value."""
    return batch.build(
        [Record(None, value) for value in values],
        now_ms=time_ms,
        codec=codec,
        producer_id=producer,
        producer_epoch=-1 if producer < 0 else epoch,
        sequence_first=-1 if producer < 0 else sequence,
    )


def headed(*batches: bytes) -> list[tuple[BatchHeader, bytes]]:
    """Batches as `Partition.append` takes them."""
    return [(batch.read_header(each), each) for each in batches]


class Life:
    """A process and its disk."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.clock = SimClock(loop)
        self.disk = SimDisk(loop.random("disk"))
        self._chance = loop.random("bed")
        self._process = Process(loop)
        self._context = contextvars.copy_context()

    async def begin(self, work: Coroutine[Any, Any, object]) -> None:
        """A new process, and the first thing it does."""
        self._process = Process(self.loop)

        async def first() -> contextvars.Context:
            await work
            return contextvars.copy_context()

        self._context = await self._process.start(first())

    def kill(self) -> None:
        """The process is gone; what it wrote is there."""
        self._process.kill()
        self.disk = self.disk.kill()

    def crash(self) -> None:
        """The power is gone; what it synced is there."""
        self._process.kill()
        self.disk = self.disk.crash()

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the process do it, so that it dies with it."""
        return await asyncio.shield(self._process.start(work))

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        return self._context.run(function, *arguments)

    async def sleep_up_to(self, seconds: float) -> None:
        """Somewhere in a stretch of time: the seed says where."""
        await asyncio.sleep(self._chance.uniform(0, seconds))

    def read_file(self, path: str) -> bytes:
        file = self.disk.open(path)
        return file.read(0, file.size())

    def flip(self, path: str, position: int) -> None:
        """Change one bit of a file, as a bad disk does: at once and for good."""
        node = self.disk.open(path).node()
        position %= len(node.content)
        node.content[position] ^= 0x10
        node.durable[:] = node.content
        node.pending.clear()


class Bed(Life):
    """A process with a log."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.log: Log = Log(self.disk, self.clock)
        self.opened: dict[str, Opened] = {}

    async def start(
        self, *names: str, policy: Policy | None = None, check_all: bool = False
    ) -> None:
        """A log on what the disk has, with one partition of each of these topics."""
        self.log = Log(self.disk, self.clock, check_all=check_all)

        async def open_all() -> None:
            self.log.begin()
            for name in names:
                self.open(name, policy or Policy())
            await self.log.ready()

        await self.begin(open_all())

    def open(self, name: str, policy: Policy) -> None:
        """What a broker does with each of its partitions, before the log is ready."""
        opened = self.log.open(identity(name), name.partition("#")[0], policy)
        opened.partition.view_snapshot = bytes
        self.opened[name] = opened

    async def stop(self) -> None:
        """Cleanly."""
        await self.do(self.log.close())
        self.kill()

    # --- the partitions of a life

    def __getitem__(self, name: str) -> Partition:
        return self.log.partitions[identity(name)]

    def append(self, name: str, *batches: bytes, may_wait: bool = False) -> int:
        append = partial(self.log.append, may_wait=may_wait)
        return self.call(append, self[name], headed(*batches))

    async def committed(self) -> None:
        await self.log.committer.drain()

    async def write(self, name: str, *values: bytes) -> None:
        """One batch per value, each committed before the next."""
        for value in values:
            self.append(name, make(value))
            await self.committed()

    async def sweep(self, name: str) -> None:
        """Let go of what is below the start of a partition, now."""
        self.call(self.log.sweep, self[name])
        await self.do(self.log.forget_segments())

    def values(self, name: str) -> list[bytes | None]:
        """What a reader sees from the start on."""
        return [record.value for record in self.records(name)]

    def records(self, name: str) -> list[Record]:
        partition = self[name]
        offset, found = partition.offset_start, list[Record]()
        while (part := partition.read(offset, 1)) is not None:
            data = part.file.read(part.position, part.size)
            batch.check(data)
            found += [each for each in batch.records(data) if each.offset >= offset]
            offset = found[-1].offset + 1
        return found

    def names(self, name: str) -> list[str]:
        return self.disk.names(self.directory(name))

    @staticmethod
    def directory(name: str) -> str:
        return f"partitions/{name}-0"


def identity(name: str) -> PartitionId:
    """`t#2` is another topic that is also called t."""
    return PartitionId(UUID(bytes=name.encode().rjust(16, b"\0")), 0)
