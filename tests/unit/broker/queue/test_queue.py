"""What a queue does with messages and consumers."""

import asyncio
from itertools import pairwise

import pytest

from entrepot.broker.queue.message import Publication, Refused, Run
from entrepot.core import limits
from entrepot.core.errors import InvalidQueue, QueueInUse
from tests.unit.broker.queue.bed import (
    Bed,
    Eater,
    envelope,
    on_queues,
    properties,
    ready,
    settle_down,
    text_of,
    words,
)

# --- handing out


@on_queues
async def test_messages_wait_for_a_consumer_and_are_settled_by_it(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater()
    await bed.publish(queue, "a b c")
    assert bed.confirms == [("a b c", None)]
    assert (queue.ready_count, queue.unacked_count) == (3, 0)
    queue.add_consumer(eater)
    await settle_down()
    assert eater.has == "a b c"
    assert eater.attempts == [0, 0, 0]
    assert (queue.ready_count, queue.unacked_count, queue.consumer_count) == (0, 3, 1)
    eater.ack(queue, "b a")
    assert (queue.ready_count, queue.unacked_count) == (0, 1)
    assert queue.bytes_kept > 0
    eater.ack(queue, "c")
    assert queue.bytes_kept == bed.memory_use.size == 0


@on_queues
async def test_auto_ack_settles_at_once(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater(auto_ack=True)
    queue.add_consumer(eater)
    await bed.publish(queue, "a b")
    assert eater.has == "a b"
    assert (queue.ready_count, queue.unacked_count, queue.bytes_kept) == (0, 0, 0)


@on_queues
async def test_nobody_gets_more_than_there_is_room_for(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater(room=2)
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c d")
    assert eater.has == "a b"
    eater.ack(queue, "a")
    assert eater.has == "b c"
    assert queue.ready_count == 1


@on_queues
async def test_round_robin_is_exact_with_unequal_room(bed: Bed) -> None:
    queue = bed.queue()
    ana, ben, cyd = Eater("a", 1), Eater("b", 3), Eater("c", 10)
    for eater in (ana, ben, cyd):
        queue.add_consumer(eater)
    await bed.publish(queue, "0 1 2 3 4 5 6 7 8")
    assert (ana.has, ben.has, cyd.has) == ("0", "1 3 5", "2 4 6 7 8")
    ana.ack(queue, "0")
    ben.ack(queue, "1 3 5")
    for number in range(4):
        await bed.publish(queue, f"n{number}")
    assert (ana.has, ben.has, cyd.has) == ("n0", "n1 n3", "2 4 6 7 8 n2")


@on_queues
async def test_consumers_that_acknowledge_and_such_that_do_not_share(bed: Bed) -> None:
    queue = bed.queue()
    auto, manual = Eater(auto_ack=True), Eater()
    queue.add_consumer(auto)
    queue.add_consumer(manual)
    await bed.publish(queue, "0 1 2 3 4 5")
    assert (auto.has, manual.has) == ("0 2 4", "1 3 5")
    assert queue.unacked_count == 3
    queue.release(manual)
    queue.remove_consumer(auto)
    manual.held.clear()
    await settle_down()
    assert manual.has == "1 3 5"
    manual.ack(queue, "5 3 1")
    assert queue.bytes_kept == 0


@on_queues
async def test_higher_priority_first_while_it_has_room(bed: Bed) -> None:
    queue = bed.queue()
    low, high, other = Eater(priority=-1), Eater(room=2, priority=5), Eater(room=1, priority=5)
    for eater in (low, high, other):
        queue.add_consumer(eater)
    await bed.publish(queue, "a b c d e")
    assert (high.has, other.has, low.has) == ("a c", "b", "d e")


@on_queues
async def test_a_thousand_messages_a_turn(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater(auto_ack=True)
    await bed.publish(queue, " ".join(map(str, range(2_500))))
    queue.add_consumer(eater)
    counts = []
    for _ in range(5):
        await asyncio.sleep(0)
        counts.append(len(eater.held))
    assert counts[-1] == 2_500
    assert max(later - now for now, later in pairwise(counts)) <= 1_000


@on_queues
async def test_a_consumer_may_ask_again_while_it_is_served(bed: Bed) -> None:
    class Eager(Eater):
        def deliver(self, lane: int, taken: object) -> None:
            super().deliver(lane, taken)  # type: ignore[arg-type]
            queue.dispatch()

    queue, eater = bed.queue(), Eager()
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c")
    assert eater.has == "a b c"


# --- who may consume


@on_queues
async def test_an_exclusive_consumer_is_alone(bed: Bed) -> None:
    queue, first = bed.queue(), Eater(exclusive=True)
    queue.add_consumer(first)
    with pytest.raises(QueueInUse, match="queue 'q' in vhost '/' in exclusive use"):
        queue.add_consumer(Eater())
    queue.remove_consumer(first)
    queue.remove_consumer(first)  # Unknown by now: nothing happens.
    queue.add_consumer(Eater())
    with pytest.raises(QueueInUse, match="in exclusive use"):
        queue.add_consumer(first)


@on_queues
async def test_too_many_consumers(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUE_CONSUMERS_MAX", 1)
    queue = bed.queue()
    queue.add_consumer(Eater())
    with pytest.raises(QueueInUse, match="takes no more"):
        queue.add_consumer(Eater())


@on_queues
async def test_a_single_active_consumer_and_its_successor(bed: Bed) -> None:
    queue = bed.queue({"x-single-active-consumer": True})
    first, second, third = Eater(), Eater(), Eater(priority=1)
    for eater in (first, second, third):
        queue.add_consumer(eater)
    with pytest.raises(QueueInUse):
        queue.add_consumer(Eater(exclusive=True))
    await bed.publish(queue, "a b")
    assert (first.has, second.has, third.has) == ("a b", "", "")
    assert queue.active_consumer is first
    queue.remove_consumer(first)
    await bed.publish(queue, "c")
    queue.release(first)
    await settle_down()
    assert third.has == "c a b"
    queue.remove_consumer(third)
    queue.remove_consumer(second)
    assert queue.active_consumer is None
    stories = (first.story, second.story, third.story)
    assert stories == (["active"], ["waiting", "active"], ["waiting", "active"])


# --- giving back


@on_queues
async def test_what_is_requeued_is_in_its_old_place_and_counts_attempts(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater(room=3)
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c d")
    eater.prefetch = 0
    eater.nack(queue, "b a")
    eater.nack(queue, "c", is_attempt=False)
    await settle_down()
    assert ready(queue) == "a b c d"
    eater.prefetch, eater.runs = 10, []
    queue.dispatch()
    assert eater.has == "a b c d"
    assert eater.attempts == [1, 1, 0, 0]


@on_queues
async def test_settling_what_somebody_else_has_does_nothing(bed: Bed) -> None:
    queue, eater, thief = bed.queue(), Eater(), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a b")
    queue.settle(thief, 0, [0, 1])
    queue.reject(thief, 0, range(2))
    queue.requeue(thief, 0, range(2))
    assert queue.unacked_count == 2
    queue.settle(eater, 0, [1, 0, 7])
    assert queue.unacked_count == 0


@on_queues
async def test_get(bed: Bed) -> None:
    queue, channel = bed.queue(), object()
    assert queue.get(channel, auto_ack=True) is None
    await bed.publish(queue, "a b")
    found = queue.get(channel, auto_ack=False)
    assert found is not None
    lane, taken = found
    assert (lane, text_of(taken.run.messages), taken.attempts) == (0, "a", None)
    assert queue.unacked_count == 1
    assert queue.get(channel, auto_ack=True) is not None
    assert queue.get(channel, auto_ack=True) is None
    queue.requeue(channel, lane, taken.offsets)
    again = queue.get(channel, auto_ack=False)
    assert again is not None
    assert again[1].attempts == [1]
    queue.release(channel)
    assert (queue.ready_count, queue.unacked_count) == (1, 0)


@on_queues
async def test_the_delivery_limit(bed: Bed) -> None:
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 2, "x-dead-letter-exchange": "dlx"}
    queue, eater = bed.queue(arguments, durable=True), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a")
    for _ in range(3):
        assert eater.has == "a"
        eater.nack(queue, "a")
        await settle_down()
    assert eater.has == ""
    assert (bed.dead, queue.ready_count, queue.unacked_count) == ("a", 0, 0)
    assert eater.attempts == [0, 1, 2]


# --- priorities


@on_queues
async def test_priorities(bed: Bed) -> None:
    queue, eater = bed.queue({"x-max-priority": 5}), Eater(room=1)
    messages = words("none") + [
        (envelope(properties(priority=number)), str(number).encode()) for number in (1, 9, 5, 3)
    ]
    bed.publish_run(queue, messages, "mixed")
    await settle_down()
    assert bed.confirms == [("mixed", None)]
    assert ready(queue) == "9 5 3 1 none"
    queue.add_consumer(eater)
    await settle_down()
    assert eater.held[0][0] == 5
    for word in ("9", "5", "3", "1"):
        eater.ack(queue, word)
    assert eater.has == "none"
    assert queue.purge() == 0


# --- its keeper


@on_queues
async def test_purge_leaves_what_somebody_has(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater(room=1)
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c")
    assert queue.purge() == 2
    assert (queue.ready_count, queue.unacked_count) == (0, 1)
    eater.ack(queue, "a")
    await bed.publish(queue, "d")
    assert eater.has == "d"


@on_queues
async def test_peek_changes_nothing(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a b c")
    assert text_of(next(queue.peek(2))[1].run.messages) == "a b"
    assert ready(queue) == "a b c"
    assert queue.ready_count == 3


@on_queues
async def test_rewind(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater()
    await bed.publish(queue, "a")
    await asyncio.sleep(1)
    await bed.publish(queue, "b c")
    queue.add_consumer(eater)
    await settle_down()
    eater.ack(queue, "b")
    assert eater.has == "a c"
    queue.rewind(offset=0)
    eater.held.clear()
    await settle_down()
    assert "a" in eater.has
    queue.rewind(time_ms=bed.clock.now_ms())
    eater.held.clear()
    await settle_down()
    assert eater.has.endswith("c")
    assert "a" not in eater.has
    with pytest.raises(InvalidQueue, match="rewind it to a time"):
        bed.queue({"x-max-priority": 1}).rewind(offset=0)


@on_queues
async def test_a_rewind_takes_nothing_away(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater()
    await bed.publish(queue, "a b c d")
    queue.rewind(offset=3)
    assert queue.ready_count == 4
    queue.add_consumer(eater)
    await settle_down()
    eater.ack(queue, "b")
    eater.ack(queue, "d")
    queue.rewind(offset=2)
    await settle_down()
    eater.ack(queue, "a")
    queue.release(eater)
    assert queue.ready_count + queue.unacked_count == 2
    assert [bytes(body) for _, taken in queue.peek(9) for _, body in taken.run.messages] == [
        b"c",
        b"d",
    ]


@on_queues
async def test_auto_delete_and_expires(bed: Bed) -> None:
    queue, eater = bed.queue(auto_delete=True), Eater()
    queue.add_consumer(eater)
    assert bed.unused == []
    queue.remove_consumer(eater)
    assert bed.unused == [queue]
    lasting = bed.queue({"x-expires": 100})
    await asyncio.sleep(0.06)
    lasting.touch()
    await asyncio.sleep(0.06)
    lasting.get(object(), auto_ack=True)
    await asyncio.sleep(0.06)
    lasting.add_consumer(eater)
    await asyncio.sleep(1)
    assert bed.unused == [queue]
    lasting.remove_consumer(eater)
    await asyncio.sleep(0.11)
    assert bed.unused == [queue, lasting]


@on_queues
async def test_a_deleted_queue_tells_its_consumers_and_takes_nothing(bed: Bed) -> None:
    queue, eater = bed.queue({"x-dead-letter-exchange": "dlx"}), Eater(room=1)
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c")
    assert queue.delete() == 2
    assert eater.story == ["cancelled"]
    assert queue.consumer_count == bed.memory_use.size == 0
    eater.ack(queue, "a")
    queue.release(eater)
    await bed.publish(queue, "d")
    assert isinstance(bed.confirms[-1][1], Refused)
    publication = Publication(lambda _: None)
    queue.publish(Run(0, words("e")), publication)
    queue.publish(Run(0, words("e")), None)
    await settle_down()
    assert bed.dead == ""
