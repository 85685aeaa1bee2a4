"""The ledger, the lane, who watches and the dead letters agree about every message."""

import asyncio

from entrepot.core.errors import StorageError
from tests.unit.broker.queue.bed import Bed, Eater, on_queues, properties, ready, settle_down

DEAD = {"x-dead-letter-exchange": "dlx"}


@on_queues
async def test_rejected_and_gone_from_the_log(bed: Bed) -> None:
    queue, eater = bed.queue(DEAD), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c")
    bed.lane.gone = range(1, 2)
    queue.reject(eater, 0, range(3))
    await settle_down()
    assert bed.dead == "a c"
    assert queue.unacked_count == len(bed.lane.ledger.leased) == 0


@on_queues
async def test_rejected_and_not_to_be_read(bed: Bed) -> None:
    queue, eater = bed.queue(DEAD), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a")
    bed.lane.cannot_read = True
    queue.reject(eater, 0, range(1))
    assert (bed.dead, queue.ready_count, queue.account().dying) == ("", 0, 1)
    await asyncio.sleep(3)
    bed.lane.cannot_read = False
    assert (bed.dead, ready(queue)) == ("", "")
    await asyncio.sleep(3)
    assert (bed.dead, queue.account().dying) == ("a", 0)


@on_queues
async def test_what_came_back_too_often_and_cannot_be_read_is_not_delivered_again(bed: Bed) -> None:
    arguments = DEAD | {"x-queue-type": "quorum", "x-delivery-limit": 1}
    queue, eater = bed.queue(arguments, durable=True), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a")
    eater.nack(queue, "a")
    await settle_down()
    bed.lane.cannot_read = True
    eater.nack(queue, "a")
    await settle_down()
    bed.lane.cannot_read = False
    await asyncio.sleep(3)
    assert (eater.attempts, eater.has, bed.dead) == ([0, 1], "", "a")


@on_queues
async def test_a_rewind_while_the_dying_cannot_be_read(bed: Bed) -> None:
    queue, eater = bed.queue(DEAD), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a")
    queue.remove_consumer(eater)
    bed.lane.cannot_read = True
    eater.reject(queue, "a")
    queue.rewind(offset=0)
    bed.lane.cannot_read = False
    await asyncio.sleep(3)
    assert (bed.dead, ready(queue), queue.account().wrong) == ("", "a", [])


@on_queues
async def test_what_its_delivery_settles_is_written_without_delay(bed: Bed) -> None:
    """At most once: who acknowledges nothing gets nothing again, also after a crash."""
    queue, eater = bed.queue(), Eater(auto_ack=True)
    queue.add_consumer(eater)
    await bed.publish(queue, "a")
    assert bed.lane.told == ["hurry"]
    queue.remove_consumer(eater)
    await bed.publish(queue, "b")
    assert bed.lane.told == ["hurry"]
    assert queue.get(eater, auto_ack=True) is not None
    assert bed.lane.told == ["hurry", "hurry"]


@on_queues
async def test_the_lane_is_told_what_came_back_and_counts(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c d")
    eater.ack(queue, "a")
    assert bed.lane.told == []
    eater.nack(queue, "b", is_attempt=False)
    queue.requeue(eater, 0, range(10, 20))  # It has none of them.
    assert bed.lane.told == []
    eater.nack(queue, "c")
    assert bed.lane.told == [("attempted", range(2, 3))]
    queue.remove_consumer(eater)
    queue.delete()
    queue.release(eater)
    assert bed.lane.told == [("attempted", range(2, 3))]


@on_queues
async def test_every_way_out_leaves_nothing_behind(bed: Bed) -> None:
    for arguments in ({}, DEAD):
        queue, eater = bed.queue(arguments | {"x-max-length": 3}), Eater(room=4)
        await bed.publish(queue, "too much is here now")
        queue.add_consumer(eater)
        await bed.publish(queue, "again and again")
        eater.ack(queue, "is")
        eater.reject(queue, "here")
        queue.purge()
        queue.settle(eater, 0, range(100))
        await settle_down()
        assert (queue.ready_count, queue.unacked_count, queue.bytes_kept) == (0, 0, 0)
        assert bed.lane.ledger.offset_low == bed.lane.offset_end


@on_queues
async def test_some_expired_and_some_consumed_at_once(bed: Bed) -> None:
    queue, eater = bed.queue(DEAD), Eater(auto_ack=True)
    await bed.publish(queue, "old", properties(expiration="5"))
    await bed.publish(queue, "new")
    bed.clock.jump(10)  # No timer has rung.
    bed.letter_failures.append(StorageError("later"))
    queue.add_consumer(eater)
    await settle_down()
    assert (eater.has, bed.dead) == ("new", "old")
    assert list(bed.lane.ledger.leased) == [0]
    assert bed.lane.ledger.offset_low == 0
    await asyncio.sleep(2)
    assert bed.lane.ledger.offset_low == 2
