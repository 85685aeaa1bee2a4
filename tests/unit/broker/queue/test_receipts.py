"""Leases of single messages: taken, awaited, settled, renewed, over; and nothing is lost."""

import asyncio

import pytest

from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.receipts import Received
from entrepot.core import limits
from entrepot.core.errors import (
    LeaseTooLong,
    NotLeased,
    TooManyLeases,
    UnknownQueue,
    UnknownReceipt,
)
from tests.unit.broker.queue.bed import Bed, Eater, on_queues, ready, settle_down


def text(received: list[Received]) -> str:
    return " ".join(bytes(each.message[1]).decode() for each in received)


def counts(queue: Queue) -> tuple[int, int, int]:
    """Ready, leased and settled; and nothing else."""
    account = queue.account()
    assert (account.missing, [*account.wrong]) == (0, [])
    return account.ready, account.unacked, account.settled


@on_queues
async def test_a_message_has_a_receipt_and_a_time_of_its_own(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a b c")
    a, b = queue.receipts.take(2, 1_000)
    assert (text([a, b]), a.attempts, a.first_ms) == ("a b", 0, bed.clock.now_ms())
    assert counts(queue) == (1, 2, 0)
    await asyncio.sleep(0.5)
    queue.receipts.renew(b.receipt, 1_000)
    await asyncio.sleep(0.6)
    assert (ready(queue), counts(queue)) == ("a c", (2, 1, 0))
    again = queue.receipts.take(9, 1_000)
    assert (text(again), [each.attempts for each in again]) == ("a c", [1, 0])
    assert again[0].first_ms == a.first_ms < bed.clock.now_ms()
    assert queue.receipts.settle(b.receipt)
    assert counts(queue) == (0, 2, 1)


@on_queues
async def test_a_lease_that_is_renewed_to_the_same_time_ends_once(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a")
    (a,) = queue.receipts.take(1, 1_000)
    queue.receipts.renew(a.receipt, 1_000)
    await asyncio.sleep(1.1)
    assert counts(queue) == (1, 0, 0)
    (a,) = queue.receipts.take(1, 1_000)
    assert a.attempts == 1


@on_queues
async def test_only_the_last_receipt_settles(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a")
    (first,) = queue.receipts.take(1, 1_000)
    await asyncio.sleep(1.1)
    (second,) = queue.receipts.take(1, 1_000)
    assert not queue.receipts.settle(first.receipt)
    assert counts(queue) == (0, 1, 0)
    with pytest.raises(NotLeased):
        queue.receipts.renew(first.receipt, 1_000)
    await asyncio.sleep(1.1)
    assert not queue.receipts.settle(first.receipt)
    assert queue.receipts.settle(second.receipt)  # Nobody else has it.
    assert counts(queue) == (0, 0, 1)
    assert not queue.receipts.settle(second.receipt)


@on_queues
async def test_what_others_have_is_not_settled_by_an_old_receipt(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a")
    (old,) = queue.receipts.take(1, 1_000)
    await asyncio.sleep(1.1)
    other = Eater()
    queue.add_consumer(other)
    await settle_down()
    assert other.has == "a"
    assert not queue.receipts.settle(old.receipt)
    assert counts(queue) == (0, 1, 0)


@pytest.mark.parametrize("name", ["", "x", "1-2-3-4-5", "-" * 20, "é", "1-2-3-4-" + "5" * 999])
@on_queues
async def test_what_is_no_receipt_is_refused(bed: Bed, name: str) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a")
    queue.receipts.take(1, 1_000)
    with pytest.raises(UnknownReceipt):
        queue.receipts.settle(name)
    with pytest.raises(UnknownReceipt):
        queue.receipts.renew(name, 1_000)


@on_queues
async def test_a_receipt_of_another_queue_is_refused(bed: Bed) -> None:
    queue = bed.queue()
    other = Queue("elsewhere", queue.spec, bed.lanes, bed.surroundings)
    await bed.publish(queue, "a")
    (a,) = queue.receipts.take(1, 1_000)
    with pytest.raises(UnknownReceipt):
        other.receipts.settle(a.receipt)


@on_queues
async def test_a_lease_that_ends_now_is_a_failed_delivery(bed: Bed) -> None:
    queue = bed.queue({"x-queue-type": "quorum", "x-delivery-limit": 1}, durable=True)
    await bed.publish(queue, "a")
    for attempts in (0, 1):
        (a,) = queue.receipts.take(1, 1_000)
        assert a.attempts == attempts
        queue.receipts.renew(a.receipt, 0)
        await settle_down()
    assert queue.receipts.take(1, 1_000) == []
    assert queue.dropped == {"delivery_limit": 1}


@on_queues
async def test_a_lease_has_a_longest_time(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a")
    (a,) = queue.receipts.take(1, limits.LEASE_MS_MAX)
    queue.receipts.renew(a.receipt, limits.LEASE_MS_MAX)
    await asyncio.sleep(1)
    queue.receipts.renew(a.receipt, limits.LEASE_MS_MAX - 1_000)
    with pytest.raises(LeaseTooLong):
        queue.receipts.renew(a.receipt, limits.LEASE_MS_MAX - 999)


@on_queues
async def test_who_waits_longest_is_served_first(bed: Bed) -> None:
    queue = bed.queue()
    first, second = queue.receipts.wait(2, 1_000), queue.receipts.wait(2, 1_000)
    await settle_down()
    assert queue.consumer_count == 1
    await bed.publish(queue, "a b c")
    assert (text(await first.found), text(await second.found)) == ("a b", "c")
    await settle_down()
    assert queue.consumer_count == 0
    assert counts(queue) == (0, 3, 0)


@on_queues
async def test_who_gives_up_leaves_nothing_behind(bed: Bed) -> None:
    queue = bed.queue()
    waiting, other = queue.receipts.wait(1, 1_000), queue.receipts.wait(1, 1_000)
    queue.receipts.give_up(waiting)
    await bed.publish(queue, "a")
    assert text(await other.found) == "a"
    queue.receipts.give_up(other)  # Its client was gone before it could be told.
    await settle_down()
    (a,) = queue.receipts.take(9, 1_000)
    assert (text([a]), a.attempts) == ("a", 0)
    assert counts(queue) == (0, 1, 0)


@pytest.mark.pure
@on_queues
async def test_who_gives_up_in_the_very_turn_of_a_delivery_leaves_nothing_behind(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = bed.queue()
    receipts = queue.receipts
    waiting, deliver = receipts.wait(5, 60_000), receipts.deliver

    def deliver_and_give_up(lane: int, taken: Taken) -> None:
        deliver(lane, taken)
        receipts.give_up(waiting)

    monkeypatch.setattr(receipts, "deliver", deliver_and_give_up)
    await bed.publish(queue, "a b")
    await settle_down()
    assert (counts(queue), receipts.count, queue.consumer_count) == ((2, 0, 0), 0, 0)


@on_queues
async def test_those_who_wait_for_a_queue_that_is_deleted_are_told(bed: Bed) -> None:
    queue = bed.queue()
    waiting = queue.receipts.wait(1, 1_000)
    queue.delete()
    with pytest.raises(UnknownQueue):
        await waiting.found


@on_queues
async def test_ten_thousand_wait_and_each_message_goes_to_one(bed: Bed) -> None:
    queue = bed.queue()
    waiting = [queue.receipts.wait(1, 60_000) for _ in range(10_000)]
    await bed.publish(queue, " ".join(str(number) for number in range(500)))
    await settle_down()
    found = [text(each.found.result()) for each in waiting if each.found.done()]
    assert found == [str(number) for number in range(500)]
    for each in waiting[500:]:
        queue.receipts.give_up(each)
    await settle_down()
    assert (queue.consumer_count, counts(queue)) == (0, (0, 500, 0))


@pytest.mark.slow
@on_queues
async def test_receipts_are_bounded_and_expire_in_turns(bed: Bed) -> None:
    queue = bed.queue()
    count = limits.QUEUE_RECEIPTS_MAX
    for start in range(0, count + 1, 10_000):
        numbers = range(start, min(start + 10_000, count + 1))
        await bed.publish(queue, " ".join(map(str, numbers)))
    received = queue.receipts.take(count + 1, 1_000)
    assert len(received) == queue.receipts.count == count
    with pytest.raises(TooManyLeases):
        queue.receipts.take(1, 1_000)
    waiting = queue.receipts.wait(1, 1_000)
    await settle_down()
    assert not waiting.found.done()
    assert queue.receipts.settle(received[5].receipt)
    assert text(await waiting.found) == str(count)
    await asyncio.sleep(0.9)
    assert counts(queue) == (0, count, 1)
    await asyncio.sleep(0.3)
    assert counts(queue) == (count, 0, 1)


@on_queues
async def test_all_that_are_leased_are_settled_at_once(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a b c")
    queue.receipts.take(2, 1_000)
    assert queue.receipts.settle_all() == 2
    assert counts(queue) == (1, 0, 2)
    await asyncio.sleep(2)
    assert counts(queue) == (1, 0, 2)
