"""A broker with a topic that a share group reads: what most tests here start from."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from entrepot.broker.served_partition import committed
from entrepot.broker.share_group.coordinator import ShareCoordinator
from entrepot.broker.share_group.group import ShareHeartbeat, ShareHeartbeatAnswer
from entrepot.broker.share_group.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    ShareDelivery,
    SharePartition,
)
from entrepot.core import batch
from entrepot.core.marker import Marker, build_marker
from entrepot.core.record import Record
from tests.unit.broker.bed import Bed
from tests.unit.log.bed import make

EVERYTHING = 1 << 30


class Stage(Bed):
    @property
    def groups(self) -> ShareCoordinator:
        return self.broker.share_groups

    async def configure(self, group: str = "g", **settings: str) -> None:
        """Settings with `_` for their dots."""
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        await self.do(self.groups.alter_settings(group, dotted))

    async def open(self, *topics: str, count: int = 1, **settings: str) -> None:
        """A group "g" with a member "m" that reads these from their beginning."""
        await self.start()
        for name in topics:
            await self.create(name, count)
        await self.configure(share_auto_offset_reset="earliest", **settings)
        await self.beat(topics=topics)

    async def beat(
        self,
        group: str = "g",
        member: str = "m",
        epoch: int = 0,
        topics: tuple[str, ...] | None = None,
    ) -> ShareHeartbeatAnswer:
        request = ShareHeartbeat(member, epoch, None, topics, "client", "/host")

        async def ask() -> ShareHeartbeatAnswer:
            told = self.groups.heartbeat(group, request)
            return await told if isinstance(told, Awaitable) else told

        return await self.do(ask())

    def share(self, topic: str = "t", index: int = 0, group: str = "g") -> SharePartition:
        return self.groups.partition(group, self.broker.topic(topic), index)

    async def fill(self, *sizes: int, topic: str = "t") -> None:
        """Batches of so many records; a record's value is its offset."""
        offset = self.served_partition(topic).partition.offset_end
        for size in sizes:
            await self.commit(topic, make(*(b"%d" % (offset + n) for n in range(size))))
            offset += size

    async def transaction(self, size: int, *, commits: bool, producer: int = 1) -> None:
        records = [Record(None, b"transacted") for _ in range(size)]
        data = batch.build(
            records,
            now_ms=self.clock.now_ms(),
            producer_id=producer,
            producer_epoch=0,
            sequence_first=0,
            transactional=True,
        )
        served = self.served_partition("t")
        self.call(served.write, data)
        end = self.call(
            served.write, build_marker(Marker(producer, 0, commits), self.clock.now_ms())
        )
        await self.do(committed(served.partition, end.offset_end))

    # --- a consumer's side

    def acquire(self, owner: object, count: int = 1_000, **options: Any) -> list[tuple[range, int]]:
        """Offsets, and which delivery it is."""
        found = self.delivery(owner, count, **options)
        return [] if found is None else [(each.offsets, each[1]) for each in found.acquired]

    def delivery(
        self, owner: object, count: int = 1_000, *, size: int = EVERYTHING, is_strict: bool = False
    ) -> ShareDelivery | None:
        share = self.share()

        def acquire() -> ShareDelivery | None:
            found = share.acquire(owner, count, size, self.groups.now(), is_strict=is_strict)
            self.groups.watch(share)
            return found

        return self.call(acquire)

    def tell(self, owner: object, ack: AcknowledgeType, *rows: range) -> None:
        told = [Acknowledgement(row, [ack]) for row in rows]
        self.call(self.share().acknowledge, owner, told, self.groups.now())

    async def settle(self, owner: object, ack: AcknowledgeType, *rows: range) -> None:
        """And wait until it is permanent."""

        async def tell_and_wait() -> None:
            self.tell(owner, ack, *rows)
            await self.share().kept()

        await self.do(tell_and_wait())

    async def restart(self) -> None:
        """After the power failed."""
        self.crash()
        await self.start()
