"""Receivers, consumers, delays, dead letters and changing settings by chance: nothing is lost."""

import asyncio
from random import Random

import pytest
from msgspec.structs import replace

from entrepot.broker.queue.receipts import Received, Waiting
from entrepot.core.errors import NotLeased
from tests.unit.broker.queue.bed import Bed, Eater, on_queues, settle_down

STEPS = 400


class World:
    def __init__(self, bed: Bed, chance: Random) -> None:
        self.bed, self.chance = bed, chance
        self.queue = bed.queue()
        self.eater = Eater(room=2)
        self.sent: list[str] = []
        self.received: list[Received] = []  # Also those whose time is over.
        self.waiting: list[Waiting] = []
        self.settled: list[str] = []

    async def step(self) -> None:
        names = ("send", "send", "take", "take", "wait", "collect", "settle", "settle", "renew")
        more = ("release", "give_up", "pass_time", "pass_time", "change", "consume", "purge")
        await getattr(self, self.chance.choice(names + more))()

    async def send(self) -> None:
        due_ms = self.chance.choice((None, None, 0, self.bed.clock.now_ms() + 700))
        words = [f"m{len(self.sent) + number}" for number in range(self.chance.randrange(1, 6))]
        self.sent += words
        await self.bed.publish(self.queue, " ".join(words), due_ms=due_ms)

    async def take(self) -> None:
        lasts_ms = self.chance.choice((0, 300, 1_000))
        self.received += self.queue.receipts.take(self.chance.randrange(1, 11), lasts_ms)

    async def wait(self) -> None:
        self.waiting.append(self.queue.receipts.wait(self.chance.randrange(1, 11), 500))

    async def collect(self) -> None:
        for waiting in [each for each in self.waiting if each.found.done()]:
            self.waiting.remove(waiting)
            self.received += waiting.found.result()

    async def settle(self) -> None:
        if self.received:
            each = self.chance.choice(self.received)
            if self.queue.receipts.settle(each.receipt):
                self.settled.append(bytes(each.message[1]).decode())

    async def renew(self) -> None:
        if self.received:
            each = self.chance.choice(self.received)
            try:
                self.queue.receipts.renew(each.receipt, self.chance.choice((0, 300, 1_000)))
            except NotLeased:
                self.received.remove(each)

    async def release(self) -> None:
        self.queue.receipts.release(self.chance.sample(self.received, min(2, len(self.received))))

    async def give_up(self) -> None:
        if self.waiting:
            self.queue.receipts.give_up(self.waiting.pop(self.chance.randrange(len(self.waiting))))

    async def pass_time(self) -> None:
        await asyncio.sleep(self.chance.choice((0.1, 0.4, 1.1)))

    async def change(self) -> None:
        choose = self.chance.choice
        settings = replace(
            self.queue.settings,
            delay_ms=choose((0, 0, 500)),
            ttl_ms=choose((None, None, 5_000)),
            delivery_limit=choose((None, 0, 2)),
            dead_letter_exchange=choose((None, "x")),
            dead_letters_expired=choose((True, False)),
        )
        self.queue.change_settings(settings)

    async def consume(self) -> None:
        if self.eater in [*self.queue.consumers]:
            self.queue.remove_consumer(self.eater)
            self.queue.release(self.eater)
            self.eater.held.clear()
        else:
            self.queue.add_consumer(self.eater)

    async def purge(self) -> None:
        if self.chance.random() < 0.1:
            self.queue.receipts.settle_all()
            self.queue.purge()


@pytest.mark.parametrize("number", range(8))
@on_queues
async def test_every_message_is_somewhere_and_settled_once(bed: Bed, number: int) -> None:
    world = World(bed, Random(number))
    for _ in range(STEPS):
        await world.step()
        account = world.queue.account()
        assert (account.missing, [*account.wrong]) == (0, [])
    assert len(world.settled) == len({*world.settled})
    for waiting in world.waiting:
        world.queue.receipts.give_up(waiting)
    if world.eater in [*world.queue.consumers]:
        world.queue.remove_consumer(world.eater)
    world.queue.release(world.eater)
    world.queue.change_settings(replace(world.queue.settings, ttl_ms=None, delivery_limit=None))
    await asyncio.sleep(2)
    await settle_down()
    account = world.queue.account()
    assert (account.unacked, account.deferred, account.dying) == (0, 0, 0)
    left = [bytes(each.message[1]).decode() for each in world.queue.receipts.take(10_000, 1_000)]
    assert len(left) == account.ready
    assert not {*left} & {*world.settled}
    assert len(world.sent) == account.accepted
    assert len(left) + account.settled + sum(account.dropped.values()) == len(world.sent)
