"""Consumers that do anything at any time, against a model that remembers everything."""

import asyncio
from random import Random

from entrepot.broker.share_group.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    ShareDelivery,
)
from entrepot.core import batch
from tests.unit.broker.share_group.stage import Stage
from tests.unit.log.bed import simulated

STEPS = 120


class Consumer:
    """Identity is all that the broker knows of it."""

    def __init__(self) -> None:
        self.held: dict[int, None] = {}


class World:
    def __init__(self, bed: Stage, random: Random) -> None:
        self._bed = bed
        self._random = random
        self.consumers = [Consumer() for _ in range(3)]
        self.settled: dict[int, None] = {}  # Permanently.
        self.offset_end = 0

    async def fill(self) -> None:
        sizes = [self._random.randint(1, 12) for _ in range(self._random.randint(1, 4))]
        await self._bed.fill(*sizes)
        self.offset_end += sum(sizes)

    def acquire(self, consumer: Consumer, count: int, *, is_strict: bool) -> int:
        size = self._random.choice([1, 200, 1 << 20])
        found = self._bed.delivery(consumer, count, size=size, is_strict=is_strict)
        if found is None:
            return 0
        own = [offset for each in found.acquired for offset in each.offsets]
        assert own == sorted(own)
        assert not is_strict or len(own) <= count
        for offset in own:
            assert offset not in self.settled, "settled, and delivered again"
            assert all(offset not in other.held for other in self.consumers), "somebody has it"
        assert set(own) <= set(_offsets(found)), "a record was not sent"
        consumer.held.update(dict.fromkeys(own))
        return len(own)

    async def acknowledge(self, consumer: Consumer) -> None:
        chosen = sorted(
            self._random.sample(list(consumer.held), self._random.randint(0, len(consumer.held)))
        )
        acks = [
            self._random.choice(
                [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW]
            )
            for _ in chosen
        ]
        told = [
            Acknowledgement(range(offset, offset + 1), [ack])
            for offset, ack in zip(chosen, acks, strict=True)
        ]
        share = self._bed.share()
        self._bed.call(share.acknowledge, consumer, told, self._bed.groups.now())
        for offset, ack in zip(chosen, acks, strict=True):
            if ack is not AcknowledgeType.RENEW:
                del consumer.held[offset]
        await self._bed.do(share.kept())
        for offset, ack in zip(chosen, acks, strict=True):
            if ack is AcknowledgeType.ACCEPT:
                self.settled[offset] = None

    def leave(self, consumer: Consumer) -> None:
        self._bed.call(self._bed.share().release, consumer)
        consumer.held.clear()

    async def wait(self) -> None:
        """Longer than any lock lasts."""
        await asyncio.sleep(31)
        self.forget_locks()

    async def lose_power(self) -> None:
        await self._bed.restart()
        self.forget_locks()

    def forget_locks(self) -> None:
        for consumer in self.consumers:
            consumer.held.clear()

    async def step(self) -> None:
        consumer = self._random.choice(self.consumers)
        match self._random.choices(range(6), weights=(4, 8, 8, 2, 1, 1))[0]:
            case 0:
                await self.fill()
            case 1:
                is_strict = self._random.random() < 0.5
                self.acquire(consumer, self._random.randint(1, 20), is_strict=is_strict)
            case 2:
                await self.acknowledge(consumer)
            case 3:
                self.leave(consumer)
            case 4:
                await self.wait()
            case 5:
                await self.lose_power()


def _offsets(found: ShareDelivery) -> list[int]:
    data = b"".join(each.file.read(each.position, each.size) for each in found.batches)
    return [
        record.offset
        for position, header in batch.walk(data)
        for record in batch.records(data[position : position + header.size])
    ]


@simulated
async def test_each_record_is_delivered_until_it_is_settled(bed: Stage, seed: int) -> None:
    await bed.open("t", share_delivery_count_limit="1000", share_partition_max_record_locks="30")
    world = World(bed, Random(seed))
    for _ in range(STEPS):
        await world.step()
    for consumer in world.consumers:
        world.leave(consumer)
    last = world.consumers[0]
    while world.acquire(last, 20, is_strict=False):
        held = sorted(last.held)
        await bed.settle(last, AcknowledgeType.ACCEPT, *(range(each, each + 1) for each in held))
        world.settled.update(dict.fromkeys(held))
        last.held.clear()
    assert sorted(world.settled) == list(range(world.offset_end))
    assert (bed.share().ledger.offset_low, bed.share().lag) == (world.offset_end, 0)
