"""What comes next, and what of it is still good."""

import asyncio

import pytest

from entrepot.broker.ledger import NEVER, Lease
from entrepot.broker.queue.front import Front, divide, gaps, has_own_times
from entrepot.broker.queue.lane import Piece
from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.queue.message import Pending, Run
from entrepot.broker.queue.settings import QueueSettings
from entrepot.core import limits
from tests.unit.broker.queue.bed import (
    Bed,
    Eater,
    TroubledLane,
    envelope,
    on_queues,
    properties,
    ready,
    settle_down,
    words,
)

PERSISTENT = properties(delivery_mode=2)


def pending(
    text: str, time_ms: int = 0, head: bytes = properties(), due_ms: int | None = None
) -> Pending:
    return Pending(Run(time_ms, words(text, head)), None, due_ms=due_ms)


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
    front = Front(TroubledLane(MemoryUse()), QueueSettings(length_bytes_max=9))
    front.append([pending("aa bbb"), pending("later", due_ms=100)])
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
    front = Front(lane, QueueSettings(length_bytes_max=9))
    front.append([pending("aa bbb"), pending("later", due_ms=100)])
    lane.cannot_read = True
    assert front.end_times(100)
    assert front.ready_bytes == 0
    front.append([pending("c")])
    assert front.ready_bytes == 0
    lane.cannot_read = False
    assert front.ready_bytes == 11


def settle(front: Front, count: int) -> None:
    for taken in front.pop(count, 0).good:
        front.ledger.settle_popped(taken.offsets)


def again_ms(front: Front, now_ms: int = 0) -> int:
    """When to look again, while nothing is overdue."""
    popped, when_ms = front.pop_overdue(now_ms)
    assert popped.size == 0
    return when_ms


def test_the_next_expiry() -> None:
    front = Front(TroubledLane(MemoryUse()), QueueSettings())
    assert not front.may_expire
    assert again_ms(front) == NEVER
    own = properties(expiration="50")
    front.append([pending("a", 1_000), pending("b", 1_000, own)])
    assert front.may_expire
    assert again_ms(front) == NEVER, "the first one has no time"
    settle(front, 1)
    assert again_ms(front, 1_049) == 1_050
    front.came_up()
    front.append([pending("c", 1_020, own)])
    popped, when_ms = front.pop_overdue(1_050)
    assert (popped.size, popped.good, [offsets for offsets, _ in popped.expired]) == (
        1,
        [],
        [range(1, 2)],
    )
    assert when_ms == 1_070
    front.ledger.settle_popped(range(1, 2))
    assert again_ms(front, 1_070) == 1_070, "it arrives only now"
    assert front.ready_count == 1
    front.discard()
    assert not front.may_expire


@pytest.mark.parametrize(
    ("own", "ttl_ms", "expected"),
    [
        (None, None, NEVER),
        (None, 70, 1_070),
        ("50", None, 1_050),
        ("50", 70, 1_050),
        ("50", 20, 1_020),
        ("50", 0, 1_000),
    ],
)
def test_a_messages_own_time_or_its_queues(
    own: str | None, ttl_ms: int | None, expected: int
) -> None:
    front = Front(TroubledLane(MemoryUse()), QueueSettings(ttl_ms=ttl_ms))
    front.append([pending("a", 1_000, properties(expiration=own))])
    assert again_ms(front) == expected


def test_all_at_the_front_are_taken_up_to_the_first_good_one() -> None:
    front = Front(TroubledLane(MemoryUse()), QueueSettings())
    short, long = properties(expiration="5"), properties(expiration="500")
    front.append([pending("a b", 0, short), pending("c", 0, long), pending("d", 0, short)])
    front.came_up()
    popped, when_ms = front.pop_overdue(100)
    assert ([offsets for offsets, _ in popped.expired], when_ms) == ([range(2)], 500)
    front.ledger.settle_popped(range(2))
    popped, when_ms = front.pop_overdue(500)
    assert (popped.size, when_ms) == (2, NEVER), "those were all"
    assert front.ready_count == 0


def test_whether_any_brings_a_time() -> None:
    plain, own = words("a b"), words("c", properties(expiration="50"))
    assert not has_own_times(plain)
    assert has_own_times([*plain, *own])
    assert has_own_times(own)


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


LARGE = limits.QUEUE_TURN_BYTES_MAX // 4


def large(count: int, time_ms: int = 0, head: bytes = properties()) -> list[Pending]:
    messages = [(envelope(head), bytes(LARGE)) for _ in range(count)]
    return [Pending(Run(time_ms, [each]), None) for each in messages]


class CountingLane(TroubledLane):
    """Notes how many messages each read returned."""

    def __init__(self) -> None:
        super().__init__(MemoryUse())
        self.reads: list[int] = []

    def read(self, offsets: range, bytes_max: int | None = None) -> list[Piece]:
        pieces = super().read(offsets, bytes_max)
        self.reads.append(sum(len(each) for each, _ in pieces))
        return pieces


def test_large_messages_are_taken_out_a_few_at_a_time() -> None:
    front = Front(CountingLane(), QueueSettings())
    front.append(large(10))
    found = []
    while front.ready_count:
        popped = front.pop(1_000, 0)
        assert popped.is_cut is (front.ready_count > 0)
        found.append([offset for taken in popped.good for offset in taken.offsets])
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_large_messages_that_came_back_one_by_one_are_taken_out_a_few_at_a_time() -> None:
    front, lease = Front(CountingLane(), QueueSettings()), Lease("owner")
    front.append(large(20))
    for _ in range(5):
        for taken in front.pop(4, 0).good:
            front.ledger.lease(taken.offsets, lease)
    for offset in range(0, 20, 2):
        front.ledger.release(range(offset, offset + 1), "owner")
    assert [taken.offsets.start for taken in front.pop(1_000, 0).good] == [0, 2, 4, 6]
    assert front.ready_count == 6


def test_large_messages_expire_a_few_at_a_time() -> None:
    front = Front(CountingLane(), QueueSettings(ttl_ms=100))
    front.append(large(6))
    front.came_up()
    popped, again_ms = front.pop_overdue(100)
    assert (popped.size, again_ms, front.ready_count) == (4, 0, 2)
    popped, again_ms = front.pop_overdue(100)
    assert (popped.size, again_ms, front.ready_count) == (2, NEVER, 0)


def test_the_bytes_of_large_messages_are_counted_a_few_at_a_time() -> None:
    lane = CountingLane()
    lane.append([each.run for each in large(10)])
    front = Front(lane, QueueSettings(length_bytes_max=1))
    counted = [front.ready_bytes // LARGE]
    while front.count_more():
        counted.append(front.ready_bytes // LARGE)
    assert (counted, front.ready_bytes) == ([4, 8], 10 * LARGE)
    assert max(lane.reads) == 4
    popped = front.pop(1_000, 0)
    for taken in popped.good:
        front.ledger.lease(taken.offsets, Lease("owner"))
    front.came_back(front.ledger.release(range(4), "owner"))
    assert not front.count_more()
    assert max(lane.reads) == 4
    assert front.ready_bytes == 10 * LARGE


def test_a_good_message_at_the_front_is_not_read_again_until_it_expires() -> None:
    lane = CountingLane()
    front = Front(lane, QueueSettings())
    own = properties(expiration="50")
    front.append([pending("a", 1_000, own), pending("b", 1_000)])
    front.came_up()
    assert again_ms(front, 1_000) == 1_050
    lane.reads.clear()
    for now_ms in range(1_001, 1_050):
        front.append([pending("c", now_ms, own)])
        front.came_up()
        assert again_ms(front, now_ms) == 1_050
    assert lane.reads == []
    assert front.pop_overdue(1_050)[0].size == 1
    front.change_settings(QueueSettings(ttl_ms=30))
    assert front.pop_overdue(1_051)[0].size == 22, "b, which had no time, and c by the queue's"
