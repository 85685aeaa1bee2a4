"""Leases until a time: taken, settled, given back, renewed, over."""

import asyncio

import pytest

from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.timed_leases import TimedLease
from entrepot.core import limits
from entrepot.core.errors import StorageError, TooManyLeases, UnknownLease
from tests.unit.broker.queue.bed import (
    Bed,
    envelope,
    on_queues,
    properties,
    ready,
    settle_down,
    text_of,
)


def text(pieces: list[tuple[int, Taken]]) -> str:
    return " ".join(text_of(taken.run.messages) for _, taken in pieces)


def taken(queue: Queue, lease: TimedLease, count: int) -> str:
    return text(queue.timed_leases.take(lease, count))


@on_queues
async def test_nobody_else_gets_what_is_leased_and_what_is_settled_is_gone(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a b c d")
    lease = queue.timed_leases.open(1_000)
    assert taken(queue, lease, 3) == "a b c"
    assert (ready(queue), queue.unacked_count) == ("d", 3)
    assert queue.timed_leases.settle(lease, 0, range(2)) == 2
    assert queue.timed_leases.settle(lease, 0, range(2)) == 0
    assert queue.timed_leases.settle(lease, 1, range(2)) == 0  # There is no such lane.
    assert queue.timed_leases.release(lease, 0, range(2, 9), is_attempt=False) == 1
    queue.timed_leases.close_if_empty(lease)
    with pytest.raises(UnknownLease):
        queue.timed_leases.find(lease.id)
    assert ready(queue) == "c d"


@pytest.mark.parametrize("is_attempt", [False, True])
@on_queues
async def test_when_the_time_is_over_messages_are_ready_again(bed: Bed, is_attempt: bool) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a b")
    lease = queue.timed_leases.open(1_000, is_attempt=is_attempt)
    assert taken(queue, lease, 9) == "a b"
    await asyncio.sleep(0.6)
    queue.timed_leases.renew(queue.timed_leases.find(lease.id), 1_000)
    await asyncio.sleep(0.9)
    assert ready(queue) == ""
    await asyncio.sleep(0.2)
    assert ready(queue) == "a b"
    assert queue.timed_leases.settle(lease, 0, range(2)) == 0
    assert bed.lane.ledger.attempts(0) == int(is_attempt)
    with pytest.raises(UnknownLease):
        queue.timed_leases.find(lease.id)


@on_queues
async def test_messages_that_are_known_are_leased_as_far_as_they_are_free(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a b c d e f")
    other = queue.timed_leases.open(1_000)
    assert taken(queue, other, 3) == "a b c"
    queue.timed_leases.settle(other, 0, range(1))
    queue.timed_leases.release(other, 0, range(2, 3), is_attempt=True)
    lease = queue.timed_leases.open(1_000)
    found, rest = queue.timed_leases.take_at(lease, 0, range(5))
    assert not rest
    assert text(found) == "c d e"
    assert next(each.attempts for _, each in found) == [1, 0, 0]
    assert queue.timed_leases.leased_by_others(lease, 0, range(5)) == [range(1, 2)]
    assert queue.timed_leases.take_at(lease, 1, range(5)) == ([], range(0))
    assert queue.timed_leases.leased_by_others(lease, 1, range(5)) == []
    assert ready(queue) == "f"
    queue.timed_leases.release_all(lease, is_attempt=False)
    queue.timed_leases.release_all(other, is_attempt=False)
    await settle_down()
    assert ready(queue) == "b c d e f"


@on_queues
async def test_who_takes_a_lease_over_has_it_alone(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a")
    lease = queue.timed_leases.open(1_000)
    assert taken(queue, lease, 1) == "a"
    await asyncio.sleep(0.3)
    assert queue.timed_leases.idle_ms(lease) == 300
    before = lease.id
    queue.timed_leases.take_over(lease)
    with pytest.raises(UnknownLease):
        queue.timed_leases.find(before)
    assert queue.timed_leases.find(lease.id) is lease
    queue.timed_leases.renew(lease, 1_000)
    assert queue.timed_leases.idle_ms(lease) == 0
    await asyncio.sleep(1.1)
    assert ready(queue) == "a"


@on_queues
async def test_the_dying_are_told_from_what_others_have(bed: Bed) -> None:
    queue = bed.queue({"x-dead-letter-exchange": "dlx"})
    await bed.publish(queue, "a b")
    other = queue.timed_leases.open(1_000)
    assert taken(queue, other, 2) == "a b"
    assert queue.timed_leases.dying(0, range(2)) == []
    queue.timed_leases.reject(other, 0, range(1, 2))
    lease = queue.timed_leases.open(1_000)
    assert queue.timed_leases.leased_by_others(lease, 0, range(2)) == [range(2)]
    assert queue.timed_leases.dying(0, range(2)) == [range(1, 2)]
    assert queue.timed_leases.dying(1, range(2)) == []
    await settle_down()
    assert queue.timed_leases.dying(0, range(2)) == []


@on_queues
async def test_those_in_between_stay_where_they_are(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a b")
    await bed.publish(queue, "later", due_ms=bed.clock.now_ms() + 500)
    await bed.publish(queue, "c d")
    lease = queue.timed_leases.open(1_000)
    found, _ = queue.timed_leases.take_at(lease, 0, range(1, 4))
    assert text(found) == "b c"
    assert ready(queue) == "a d"
    await asyncio.sleep(0.6)
    assert ready(queue) == "a later d"


@on_queues
async def test_a_message_that_keeps_failing_dies(bed: Bed) -> None:
    arguments = {"x-dead-letter-exchange": "dlx", "x-delivery-limit": 1}
    queue = bed.queue(arguments | {"x-queue-type": "quorum"}, durable=True)
    await bed.publish(queue, "a")
    for _ in range(2):
        lease = queue.timed_leases.open(1_000)
        assert taken(queue, lease, 1) == "a"
        queue.timed_leases.release(lease, 0, range(1), is_attempt=True)
        await settle_down()
    assert (bed.dead, ready(queue)) == ("a", "")


@on_queues
async def test_rejected_ones_are_dead_letters_and_expired_ones_too(bed: Bed) -> None:
    queue = bed.queue({"x-dead-letter-exchange": "dlx"})
    await bed.publish(queue, "a b")
    await bed.publish(queue, "old", properties(expiration="10"))
    await bed.publish(queue, "c")
    lease = queue.timed_leases.open(1_000)
    assert taken(queue, lease, 1) == "a"
    assert queue.timed_leases.reject(lease, 0, range(1)) == 1
    await asyncio.sleep(0.1)
    assert taken(queue, lease, 9) == "b c"
    await settle_down()
    assert bed.dead == "a old"


@on_queues
async def test_the_highest_priority_comes_first(bed: Bed) -> None:
    queue = bed.queue({"x-max-priority": 1})
    await bed.publish(queue, "low")
    await bed.publish(queue, "high", properties(priority=1))
    lease = queue.timed_leases.open(1_000)
    assert [taken(queue, lease, 5) for _ in range(3)] == ["high", "low", ""]
    assert [each.count for each in lease.held] == [1, 1]


@on_queues
async def test_a_log_that_cannot_be_read_gives_nothing(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a")
    bed.lane.cannot_read = True
    lease = queue.timed_leases.open(1_000)
    assert queue.timed_leases.take(lease, 1) == []
    with pytest.raises(StorageError):
        queue.timed_leases.take_at(lease, 0, range(1))
    bed.lane.cannot_read = False
    assert taken(queue, lease, 1) == "a"


@on_queues
async def test_bounds(bed: Bed) -> None:
    queue = bed.queue()
    for _ in range(limits.QUEUE_TIMED_LEASES_MAX):
        queue.timed_leases.open(1_000)
    with pytest.raises(TooManyLeases):
        queue.timed_leases.open(1_000)
    await asyncio.sleep(1.1)
    queue.timed_leases.open(1_000)


@on_queues
async def test_all_leases_together_hold_a_bounded_number(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUEUE_TIMED_LEASED_MAX", 3)
    queue = bed.queue()
    await bed.publish(queue, "a b c d")
    lease = queue.timed_leases.open(1_000)
    assert taken(queue, lease, 2) == "a b"
    with pytest.raises(TooManyLeases):
        queue.timed_leases.take_at(lease, 0, range(2, 4))
    assert taken(queue, queue.timed_leases.open(1_000), 2) == "c"
    assert taken(queue, lease, 2) == ""


@on_queues
async def test_large_messages_come_a_few_at_a_time(bed: Bed) -> None:
    queue = bed.queue()
    body = bytes(limits.QUEUE_TURN_BYTES_MAX)
    bed.publish_run(queue, [(envelope(), body)] * 3, "large")
    await settle_down()
    lease = queue.timed_leases.open(1_000)
    queue.timed_leases.take(lease, 1)
    assert sum(len(each.offsets) for _, each in queue.timed_leases.take(lease, 2)) == 1
