"""One time, the earliest, although clocks are set."""

import asyncio

from entrepot.broker.ledger import NEVER
from entrepot.broker.queue.timer import Timer
from entrepot.broker.turns import Turns
from entrepot.core import limits
from sim.clock import SimClock
from tests.unit.broker.queue.bed import Bed, on_queues


@on_queues
async def test_the_earliest_counts(bed: Bed) -> None:
    rung: list[int] = []
    start = bed.clock.now_ms()
    timer = Timer(
        bed.clock, bed.surroundings.turns, lambda: rung.append(bed.clock.now_ms() - start)
    )
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
    timer = Timer(bed.clock, bed.surroundings.turns, lambda: rung.append(1))
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


class SlowClock(SimClock):
    """Half a turn passes whenever it is looked at."""

    looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks * limits.TURN_MS / 2 / 1_000


@on_queues
async def test_many_at_once_are_called_in_turns(bed: Bed) -> None:
    rung: list[int] = []
    when_ms = bed.clock.now_ms() + 100

    turns = Turns(SlowClock(asyncio.get_running_loop()))
    timers = [Timer(bed.clock, turns, lambda: rung.append(1)) for _ in range(20)]
    for timer in timers:
        timer.set(when_ms)
    await asyncio.sleep(0.1)
    assert 0 < len(rung) < 5
    timers[-1].stop()  # It is due, and not called yet.
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(rung) == 19
