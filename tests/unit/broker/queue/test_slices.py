"""What is said of very many messages at once: counted in turns of the loop, not in time."""

import asyncio
from collections.abc import Sequence

import pytest

from entrepot.broker.queue.message import Run
from entrepot.broker.queue.slices import Slices
from entrepot.broker.turns import Turns
from entrepot.core import limits
from tests.unit.broker.queue.bed import Bed, Eater, on_queues, settle_down, words

SLICE = limits.QUEUE_TURN_MESSAGES_MAX


class BusyClock:
    """Every look at it takes longer than a turn."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_ms(self) -> int:
        return int(self._now_s * 1_000)

    def monotonic(self) -> float:
        self._now_s += 1.0
        return self._now_s


async def all_turns() -> None:
    for _ in range(5):
        await settle_down()


class Bench:
    def __init__(self) -> None:
        self.story: list[object] = []
        self.slices = Slices(Turns(BusyClock()), self.guard, lambda: self.story.append("done"))

    def guard(self, call: object, *arguments: object) -> None:
        assert callable(call)
        try:
            call(*arguments)
        except ZeroDivisionError:
            self.slices.close()

    def note(self, offsets: Sequence[int]) -> None:
        self.story.append(len(offsets))


def test_few_are_done_at_once() -> None:
    bench = Bench()
    bench.slices.do(bench.note, range(SLICE))
    assert bench.story == [SLICE]
    assert not bench.slices


@on_queues
async def test_many_are_done_in_turns_and_what_is_said_later_comes_after_them(bed: Bed) -> None:
    bench = Bench()
    bench.slices.do(bench.note, range(2 * SLICE + 1))
    bench.slices.do(bench.note, range(5))
    assert bench.story == [SLICE]
    while bench.slices:
        bench.story.append("others")
        await asyncio.sleep(0)
    seen = [each for each in bench.story if each != "others"]
    assert seen == [SLICE, SLICE, 1, 5, "done"]
    assert bench.story.index("others") < bench.story.index(1)


@pytest.mark.parametrize("fails", [True, False])
@on_queues
async def test_when_the_queue_is_closed_nothing_more_is_done(bed: Bed, fails: bool) -> None:
    bench = Bench()
    bench.slices.do(bench.note, range(3 * SLICE))
    if fails:
        bench.slices.do(lambda offsets: 1 // 0, range(3 * SLICE))
    else:
        bench.slices.close()
    for _ in range(20):
        await asyncio.sleep(0)
    assert bench.story == [SLICE] * (3 if fails else 1) + ["done"]


@on_queues
async def test_messages_of_a_consumer_that_is_gone_come_back_in_turns_and_in_order(
    bed: Bed,
) -> None:
    """Nobody is handed a message before all are back: the next one would be out of order."""
    bed.surroundings = bed.surroundings._replace(turns=Turns(BusyClock()))
    queue = bed.queue()
    first, second = Eater(), Eater("second")
    queue.add_consumer(first)
    wanted = " ".join(map(str, range(5 * SLICE)))
    await bed.publish(queue, wanted)
    await all_turns()
    queue.remove_consumer(first)
    queue.release(first)
    queue.add_consumer(second)
    assert queue.unacked_count == 4 * SLICE
    await asyncio.sleep(0)
    assert not second.held
    await all_turns()
    assert second.has == wanted
    assert set(second.attempts) == {1}


@on_queues
async def test_what_was_settled_before_is_permanent_when_all_that_was_rejected_is_gone(
    bed: Bed,
) -> None:
    bed.surroundings = bed.surroundings._replace(turns=Turns(BusyClock()))
    queue = bed.queue()
    eater = Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, " ".join(map(str, range(3 * SLICE))))
    await all_turns()
    told: list[object] = []
    queue.reject(eater, 0, range(3 * SLICE))
    queue.when_settlements_committed(told.append)
    assert not told
    await settle_down()
    assert queue.unacked_count == 0
    assert told == [None]


@on_queues
async def test_what_is_settled_in_turns_does_not_come_back_with_its_consumer(bed: Bed) -> None:
    bed.surroundings = bed.surroundings._replace(turns=Turns(BusyClock()))
    queue = bed.queue()
    eater = Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, " ".join(map(str, range(4 * SLICE))))
    await all_turns()
    queue.settle(eater, 0, range(3 * SLICE))
    assert queue.unacked_count == 3 * SLICE
    queue.remove_consumer(eater)
    queue.release(eater)
    await all_turns()
    assert (queue.unacked_count, queue.ready_count) == (0, SLICE)
    assert not queue.account().wrong


@on_queues
async def test_what_is_too_much_goes_in_turns(bed: Bed) -> None:
    queue = bed.queue({"x-max-length": 1})
    queue.publish(Run(0, words(" ".join(map(str, range(5 * SLICE))))), None)
    counts = [0]
    while queue.ready_count != 1:
        await asyncio.sleep(0)
        counts.append(queue.dropped.get("maxlen", 0) - sum(counts))
    assert sum(counts) == 5 * SLICE - 1
    assert max(counts) <= 2 * SLICE  # The loop may come by twice before we look.


@on_queues
async def test_bytes_are_counted_in_turns(bed: Bed) -> None:
    """What goes before it is counted is not subtracted."""
    queue = bed.queue({"x-max-length-bytes": 4_000})
    front = queue._fronts[0]
    queue.publish(Run(0, words("one " * 3 * SLICE)), None)  # 9,000 bytes; some are dropped.
    await all_turns()
    assert (queue.ready_count, front.ready_bytes) == (4_000 // 3, 4_000 // 3 * 3)


@on_queues
async def test_a_count_that_is_not_finished_knows_what_goes_meanwhile(bed: Bed) -> None:
    queue = bed.queue({"x-max-length-bytes": 1_000_000})
    front = queue._fronts[0]
    queue.publish(Run(0, words("one " * 3 * SLICE)), None)
    await all_turns()
    front._forget_bytes()
    assert front.ready_bytes == 3 * SLICE, "a turn's"
    front.pop(SLICE + 500, 0)
    assert front.ready_bytes == 0
    front.came_back([range(SLICE - 500, SLICE + 500)])
    assert front.ready_bytes == 3 * SLICE
    assert front.count_more()
    assert not front.count_more()
    assert front.ready_bytes == 3 * (2 * SLICE - 500 + SLICE)
