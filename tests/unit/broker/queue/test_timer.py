"""One time, the earliest, although clocks are set."""

import asyncio

from entrepot.broker.ledger import NEVER
from entrepot.broker.queue.timer import Timer
from entrepot.core import limits
from tests.unit.broker.queue.bed import Bed, on_queues


@on_queues
async def test_the_earliest_counts(bed: Bed) -> None:
    rung: list[int] = []
    start = bed.clock.now_ms()
    timer = Timer(bed.clock, lambda: rung.append(bed.clock.now_ms() - start))
    for milliseconds in (500, 100, 900):
        timer.set(start + milliseconds)
    timer.set(NEVER)
    await asyncio.sleep(2)
    assert rung == [100]
    timer.set(start)  # Long ago: at once.
    await asyncio.sleep(0.001)
    assert len(rung) == 2
    timer.set(start + 5_000)
    timer.stop()
    await asyncio.sleep(9)
    assert len(rung) == 2


@on_queues
async def test_a_clock_that_is_set_is_noticed(bed: Bed) -> None:
    rung: list[int] = []
    timer = Timer(bed.clock, lambda: rung.append(1))
    timer.set(bed.clock.now_ms() + 100)
    bed.clock.jump(-1_000)
    await asyncio.sleep(0.2)
    assert rung == []
    await asyncio.sleep(1)
    assert rung == [1]
    timer.set(bed.clock.now_ms() + 1_000_000_000)
    bed.clock.jump(1_000_000_000)
    await asyncio.sleep(limits.QUEUE_TIMER_MS_MAX / 1_000 + 1)
    assert rung == [1, 1]
