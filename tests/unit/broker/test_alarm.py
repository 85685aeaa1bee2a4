"""One timer for many deadlines."""

import asyncio

from entrepot.broker.alarm import Alarm
from entrepot.broker.deadlines import Deadlines
from entrepot.core import limits
from entrepot.core.faults import Faults
from sim import loop
from sim.clock import SimClock
from sim.loop import SimLoop


class Slow(SimClock):
    """Whoever asks twice has worked for a turn in between."""

    asked = 0

    def monotonic(self) -> float:
        self.asked += 1
        return super().monotonic() + self.asked * limits.TURN_MS / 1_000


def test_many_that_come_at_once_have_their_turn_and_then_the_others() -> None:
    rung: list[int] = []

    async def main(sim: SimLoop) -> list[int]:
        deadlines: Deadlines[int] = Deadlines()
        alarm = Alarm(Slow(sim), deadlines, rung.append, Faults())
        for number in range(10):
            deadlines.set(number, number)
        alarm.arm()
        seen: list[int] = []
        while len(rung) < 10:
            await asyncio.sleep(0.001)
            seen.append(len(rung))
        alarm.cancel()
        return seen

    seen = loop.run(0, main)
    assert rung == list(range(10))
    assert len(set(seen) - {0}) >= 9, "one in each turn, others in between"
