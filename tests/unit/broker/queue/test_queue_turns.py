"""What is said of very many messages at once: counted in turns of the loop, not in time."""

import asyncio
from collections.abc import Callable

import pytest

from entrepot.broker.queue.message import Run
from entrepot.broker.queue.queue import Queue
from entrepot.broker.turns import Turns
from entrepot.core import limits
from entrepot.core.faults import Faults
from tests.unit.broker.queue.bed import Bed, Eater, envelope, on_queues, settle_down, words

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


@on_queues
async def test_what_is_said_later_comes_after_what_is_done_in_turns(bed: Bed) -> None:
    bed.surroundings = bed.surroundings._replace(turns=Turns(BusyClock()))
    queue, eater = bed.queue(), Eater()
    queue.add_consumer(eater)
    count = 2 * SLICE + 6
    await bed.publish(queue, " ".join(map(str, range(count))))
    await all_turns()
    queue.settle(eater, 0, range(2 * SLICE + 1))
    queue.settle(eater, 0, range(2 * SLICE + 1, count))
    left = []
    while queue.unacked_count:
        left.append(queue.unacked_count)
        await asyncio.sleep(0)
    assert [*dict.fromkeys(left)] == [SLICE + 6, 6, 5]


@pytest.mark.parametrize("fails", [True, False])
@on_queues
async def test_when_the_queue_is_closed_nothing_more_is_done(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    faults = Faults()
    bed.surroundings = bed.surroundings._replace(turns=Turns(BusyClock()), faults=faults)
    queue, eater = bed.queue(), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, " ".join(map(str, range(3 * SLICE))))
    await all_turns()
    queue.settle(eater, 0, range(3 * SLICE))
    told: list[object] = []
    queue.when_settlements_committed(told.append)
    if fails:
        monkeypatch.setattr(bed.lane, "settled", lambda offsets: 1 // 0)
    else:
        queue.close()
    await all_turns()
    left = SLICE if fails else 2 * SLICE  # The slice that failed was out of the ledger.
    assert (len(bed.lane.ledger.leased), told, faults.count) == (left, [None], int(fails))
    assert queue.is_stopped is fails


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
    assert front.count_more()
    assert front.ready_bytes == 3 * SLICE
    assert front.count_more()
    assert not front.count_more()
    assert front.ready_bytes == 3 * (2 * SLICE - 500 + SLICE)


LARGE_BYTES = limits.QUEUE_TURN_BYTES_MAX // 4


def publish_large(bed: Bed, queue: Queue, count: int) -> None:
    messages = [(envelope(), bytes([number]) * LARGE_BYTES) for number in range(count)]
    bed.publish_run(queue, messages, "large")


async def growth(measure: Callable[[], int], end: int) -> list[int]:
    """Return what is measured after each turn of the loop until it is so much."""
    found = [measure()]
    while found[-1] != end:
        await asyncio.sleep(0)
        if (now := measure()) != found[-1]:
            found.append(now)
    return found


@on_queues
async def test_large_messages_are_delivered_in_turns_however_many_consumers_ask(bed: Bed) -> None:
    queue = bed.queue()
    publish_large(bed, queue, 10)
    await settle_down()
    eaters = [Eater(str(number), room=2) for number in range(9)]
    for eater in eaters:
        queue.add_consumer(eater)
    for _ in eaters:
        queue.dispatch()

    def delivered() -> int:
        queue.dispatch()  # Each that gets something may ask for more.
        return sum(len(eater.held) for eater in eaters)

    assert await growth(delivered, 10) == [4, 8, 10]


@on_queues
async def test_large_messages_are_dead_lettered_in_turns_and_in_order(bed: Bed) -> None:
    bed.surroundings = bed.surroundings._replace(turns=Turns(BusyClock()))
    queue, eater = bed.queue({"x-dead-letter-exchange": "dlx"}), Eater()
    queue.add_consumer(eater)
    publish_large(bed, queue, 10)
    await all_turns()

    def dead() -> int:
        return sum(len(run.messages) for run, _ in bed.letters)

    queue.reject(eater, 0, range(10))
    assert await growth(dead, 10) == [8, 10], "the first turn of the rest is now"
    assert [body[0] for run, _ in bed.letters for _, body in run.messages] == [*range(10)]
    await all_turns()
    assert not queue.account().wrong


@on_queues
async def test_large_messages_that_are_too_many_are_dropped_in_turns(bed: Bed) -> None:
    queue = bed.queue({"x-max-length-bytes": LARGE_BYTES})
    publish_large(bed, queue, 10)
    assert await growth(lambda: queue.ready_count, 1) == [0, 6, 2, 1]
    assert not queue.account().wrong
