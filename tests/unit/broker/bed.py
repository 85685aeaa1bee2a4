"""A broker on a simulated disk, in a process that can be killed or lose its power."""

import asyncio
from collections.abc import Mapping

from entrepot.broker.broker import Broker
from entrepot.broker.served_partition import Appended, ServedPartition
from entrepot.broker.server_settings import Defaults
from entrepot.core import batch
from entrepot.core.errors import StorageError
from entrepot.core.record import Record
from sim.entropy import SimEntropy
from sim.loop import SimLoop
from tests.unit.log.bed import Life


class Bed(Life):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.entropy = SimEntropy(loop.random("entropy"))
        self.broker = Broker(self.disk, self.clock, self.entropy)

    async def start(self, settings: Mapping[str, str] | None = None) -> None:
        defaults = Defaults(settings=dict(settings or {}))
        self.broker = Broker(self.disk, self.clock, self.entropy, defaults)
        await self.begin(self.broker.open())

    async def stop(self) -> None:
        await self.do(self.broker.close())
        self.kill()

    # --- verbs

    def served_partition(self, name: str, index: int = 0) -> ServedPartition:
        return self.broker.served_partition(self.broker.topic(name), index)

    async def create(self, name: str, count: int = 1, **settings: str) -> None:
        """Settings with `_` for their dots."""
        dotted = {key.replace("_", "."): value for key, value in settings.items()}
        await self.do(self.broker.create_topic(name, count, dotted))

    async def delete(self, name: str) -> None:
        await self.do(self.broker.delete_topic(self.broker.topic(name)))

    def append(self, name: str, data: bytes, index: int = 0) -> Appended:
        return self.call(self.served_partition(name, index).append, data)

    async def commit(self, name: str, data: bytes, index: int = 0) -> Appended:
        """Append, and wait for the answer."""
        served = self.served_partition(name, index)
        appended = self.append(name, data, index)
        answer: asyncio.Future[StorageError | None] = self.loop.create_future()
        served.when_committed(appended.offset_end, answer.set_result)
        error = await answer
        if error is not None:
            raise error
        return appended

    def records(self, name: str, index: int = 0) -> list[Record]:
        """What a reader sees from the start on."""
        partition = self.served_partition(name, index).partition
        offset, found = partition.offset_start, list[Record]()
        while (part := partition.read(offset, 1)) is not None:
            data = part.file.read(part.position, part.size)
            batch.check(data)
            found += [record for record in batch.records(data) if record.offset >= offset]
            offset = found[-1].offset + 1
        return found

    def values(self, name: str, index: int = 0) -> list[bytes | None]:
        return [record.value for record in self.records(name, index)]
