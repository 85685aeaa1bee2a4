"""Settings that are changed while the queue is in use, and those that came with receivers."""

import asyncio
from typing import Any

from msgspec.structs import replace

from entrepot.broker.queue.queue import Queue
from tests.unit.broker.queue.bed import Bed, Eater, on_queues, ready, settle_down


def change(queue: Queue, **settings: Any) -> None:
    queue.change_settings(replace(queue.settings, **settings))


@on_queues
async def test_a_queue_delays_what_is_published(bed: Bed) -> None:
    queue = bed.queue()
    change(queue, delay_ms=1_000)
    await bed.publish(queue, "a")
    await bed.publish(queue, "b", due_ms=0)
    await bed.publish(queue, "c", due_ms=bed.clock.now_ms() + 500)
    assert (ready(queue), queue.deferred_count) == ("b", 2)
    await asyncio.sleep(0.6)
    assert ready(queue) == "b c"
    await asyncio.sleep(0.5)
    assert (ready(queue), queue.deferred_count) == ("a b c", 0)


@on_queues
async def test_what_expires_may_be_gone_although_there_are_dead_letters(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a b")
    change(queue, dead_letter_exchange="x", ttl_ms=1_000, dead_letters_expired=False)
    eater = Eater(room=1)
    queue.add_consumer(eater)
    await asyncio.sleep(1.5)
    assert (eater.has, ready(queue), bed.dead) == ("a", "", "")
    assert queue.dropped == {"expired": 1}
    eater.reject(queue, "a")
    await settle_down()
    assert bed.dead == "a"
    assert queue.account().missing == 0


@on_queues
async def test_a_time_to_live_may_come_later_and_go(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a")
    await asyncio.sleep(1)
    change(queue, ttl_ms=2_000)
    await asyncio.sleep(0.5)
    assert ready(queue) == "a"
    change(queue, ttl_ms=None)
    await asyncio.sleep(2)
    assert ready(queue) == "a"
    change(queue, ttl_ms=2_000)
    await settle_down()
    assert (ready(queue), queue.dropped) == ("", {"expired": 1})


@on_queues
async def test_a_delivery_limit_and_dead_letters_may_come_later_and_go(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a b")
    change(queue, dead_letter_exchange="x", delivery_limit=0)
    eater = Eater(room=1)
    queue.add_consumer(eater)
    await settle_down()
    eater.nack(queue, "a")
    await settle_down()
    assert bed.dead == "a"
    change(queue, dead_letter_exchange=None, delivery_limit=None)
    eater.nack(queue, "b")
    await settle_down()
    assert (eater.has, bed.dead) == ("b", "a")


@on_queues
async def test_dead_letters_that_cannot_be_read_until_there_are_none_are_dropped(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a")
    change(queue, dead_letter_exchange="x")
    eater = Eater()
    queue.add_consumer(eater)
    await settle_down()
    bed.lane.cannot_read = True
    eater.reject(queue, "a")
    change(queue, dead_letter_exchange=None)
    bed.lane.cannot_read = False
    await asyncio.sleep(2)
    account = queue.account()
    assert (bed.dead, account.dying, account.missing, queue.dropped) == ("", 0, 0, {"rejected": 1})
