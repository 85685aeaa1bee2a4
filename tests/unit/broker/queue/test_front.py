"""What comes next, and what of it is still good."""

import asyncio

from entrepot.broker.ledger import NEVER
from entrepot.broker.queue.arrival import Arrival
from entrepot.broker.queue.front import Front, divide, gaps
from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.queue.message import Run
from entrepot.broker.queue.settings import QueueSettings
from tests.unit.broker.queue.bed import (
    READER,
    Bed,
    Eater,
    TroubledLane,
    on_queues,
    properties,
    ready,
    settle_down,
    words,
)

PERSISTENT = properties(delivery_mode=2)


def arrival(text: str, time_ms: int = 0, head: bytes = properties(), **fields: object) -> Arrival:
    return Arrival(Run(time_ms, words(text, head)), None, False, None)._replace(
        **fields  # type: ignore[arg-type]
    )


def test_parts_whose_messages_are_alike() -> None:
    run = Run(7, words("a bb cc d"))
    parts = list(divide((range(5, 9), run), lambda message: len(message[1]) == 1))
    assert [(is_so, offsets) for is_so, (offsets, _) in parts] == [
        (True, range(5, 6)),
        (False, range(6, 8)),
        (True, range(8, 9)),
    ]
    assert parts[1][1][1] == Run(7, words("bb cc"))


def test_gaps() -> None:
    run = Run(0, ())
    assert list(gaps(range(9), [(range(9), run)])) == []
    assert list(gaps(range(9), [(range(2, 4), run), (range(6, 8), run)])) == [
        range(2),
        range(4, 6),
        range(8, 9),
    ]
    assert list(gaps(range(3), [])) == [range(3)]


def test_bytes_are_counted_for_who_needs_them() -> None:
    front = Front(TroubledLane(MemoryUse()), QueueSettings(length_bytes_max=9), READER)
    front.append([arrival("aa bbb"), arrival("later", due_ms=100)])
    assert front.ready_bytes == 5
    popped = front.pop(1, 0)
    assert (popped.size, front.ready_bytes) == (1, 3)
    front.ledger.settle_popped(popped.good[0].offsets)
    assert front.end_times(100)
    assert front.ready_bytes == 8
    front.rewind(1)
    assert front.ready_bytes == 8
    assert sum(map(len, front.discard())) == 2
    assert front.ready_bytes == 0


def test_bytes_that_cannot_be_read_are_counted_later() -> None:
    lane = TroubledLane(MemoryUse())
    front = Front(lane, QueueSettings(length_bytes_max=9), READER)
    front.append([arrival("aa bbb"), arrival("later", due_ms=100)])
    lane.cannot_read = True
    assert front.end_times(100)
    assert front.ready_bytes == 0
    front.append([arrival("c")])
    assert front.ready_bytes == 0
    lane.cannot_read = False
    assert front.ready_bytes == 11


def test_the_next_expiry() -> None:
    front = Front(TroubledLane(MemoryUse()), QueueSettings(), READER)
    assert not front.may_expire
    assert front.expiry_ms() == NEVER
    front.append([arrival("a", 1_000), arrival("b", 1_000, properties(expiration="50"))])
    assert front.may_expire
    assert front.expiry_ms() == NEVER
    popped = front.pop(1, 0)
    front.ledger.settle_popped(popped.good[0].offsets)
    assert front.expiry_ms() == 1_050
    assert front.pop_overdue(1_049).size == 0
    front.came_up()
    popped = front.pop_overdue(1_050)
    assert (popped.size, popped.good, [offsets for offsets, _ in popped.expired]) == (
        1,
        [],
        [range(1, 2)],
    )
    front.ledger.settle_popped(range(1, 2))
    front.append([arrival("b", 1_000, properties(expiration="50"))])
    assert front.pop_overdue(1_050).size == 0, "it arrives only now"
    assert front.ready_count == 1
    front.discard()
    assert not front.may_expire
    both = Front(TroubledLane(MemoryUse()), QueueSettings(ttl_ms=20), READER)
    both.append([arrival("b", 1_000, properties(expiration="50"))])
    assert both.expiry_ms() == 1_020


@on_queues
async def test_transient_messages_do_not_survive_a_restart(bed: Bed) -> None:
    queue = bed.queue({"x-dead-letter-exchange": "dlx"}, durable=True)
    for text, head in (("t1 t2", properties()), ("p", PERSISTENT), ("t3", properties())):
        await bed.publish(queue, text, head)
    queue, eater = bed.again(queue, recovered=4), Eater()
    await bed.publish(queue, "new")
    queue.add_consumer(eater)
    await settle_down()
    assert (eater.has, bed.dead, queue.ready_count) == ("p new", "", 0)
    eater.ack(queue, "p new")
    assert queue.bytes_kept == 0


@on_queues
async def test_they_do_in_a_quorum_queue(bed: Bed) -> None:
    queue = bed.queue({"x-queue-type": "quorum"}, durable=True)
    await bed.publish(queue, "t")
    queue, eater = bed.again(queue, recovered=1), Eater()
    queue.add_consumer(eater)
    await settle_down()
    assert eater.has == "t"


@on_queues
async def test_times_are_kept_over_a_restart(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "own", properties(expiration="50"))
    await bed.publish(queue, "later", due_ms=bed.clock.now_ms() + 100)
    queue = bed.again(queue, recovered=0)
    assert (queue.ready_count, queue.deferred_count) == (1, 1)
    await asyncio.sleep(0.06)
    assert (queue.ready_count, queue.deferred_count) == (0, 1)
    await asyncio.sleep(0.05)
    assert ready(queue) == "later"
    assert bed.lane.told[-1] == (1, None)


@on_queues
async def test_what_retention_took_is_passed_over(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater()
    await bed.publish(queue, "a b c d e")
    bed.lane.gone = range(1, 3)
    queue.add_consumer(eater)
    await settle_down()
    assert eater.has == "a d e"
    assert (queue.ready_count, queue.unacked_count) == (0, 3)


@on_queues
async def test_what_cannot_be_read_stays(bed: Bed) -> None:
    queue, eater = bed.queue({"x-max-length": 1, "x-message-ttl": 5}), Eater()
    bed.lane.cannot_read = True
    await bed.publish(queue, "a")
    queue.add_consumer(eater)
    await asyncio.sleep(0.001)
    assert queue.get(eater, auto_ack=True) is None
    assert (eater.has, queue.ready_count) == ("", 1)
    bed.lane.cannot_read = False
    queue.dispatch()
    assert eater.has == "a"
