"""Dead letters on their way, and what happens to the dead meanwhile."""

import asyncio

from entrepot.broker.queue.message import Refused, Run
from entrepot.core.errors import StorageError
from tests.unit.broker.queue.bed import (
    Bed,
    Eater,
    on_queues,
    properties,
    ready,
    settle_down,
    words,
)

ARGUMENTS = {"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "k"}
AT_LEAST_ONCE = ARGUMENTS | {
    "x-queue-type": "quorum",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


@on_queues
async def test_the_dead_are_settled_when_their_letters_have_arrived(bed: Bed) -> None:
    queue, eater = bed.queue(ARGUMENTS), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c")
    eater.reject(queue, "b")
    [ledger] = [lane.ledger for lane in queue.lanes]
    assert bed.dead == "b"
    assert list(ledger.leased) == [0, 2, 1]
    assert queue.unacked_count == 2
    await settle_down()
    assert list(ledger.leased) == [0, 2]
    [(run, avoided)] = bed.letters
    [(letter, _)] = run.messages
    assert (letter.exchange, letter.subject, avoided) == ("dlx", "k", [])


@on_queues
async def test_a_letter_that_is_refused_is_dropped(bed: Bed) -> None:
    queue, eater = bed.queue(ARGUMENTS), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a")
    bed.letter_failures.append(Refused("full"))
    eater.reject(queue, "a")
    await asyncio.sleep(10)
    assert (bed.dead, queue.unacked_count, queue.bytes_kept) == ("a", 0, 0)


@on_queues
async def test_it_is_sent_again_when_it_must_arrive(bed: Bed) -> None:
    for arguments, failure in ((ARGUMENTS, StorageError("x")), (AT_LEAST_ONCE, Refused("full"))):
        queue, eater = bed.queue(arguments, durable=True), Eater()
        queue.add_consumer(eater)
        await bed.publish(queue, "a")
        bed.letter_failures += [failure, failure]
        bed.letters.clear()
        eater.reject(queue, "a")
        await asyncio.sleep(0.5)
        assert bed.dead == "a"
        assert queue.bytes_kept > 0
        await asyncio.sleep(2)
        assert bed.dead == "a a a"
        assert (queue.unacked_count, queue.bytes_kept) == (0, 0)


@on_queues
async def test_a_deleted_queue_sends_nothing_again(bed: Bed) -> None:
    queue, eater = bed.queue(ARGUMENTS), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a")
    bed.letter_failures.append(StorageError("x"))
    eater.reject(queue, "a")
    await settle_down()
    queue.delete()
    await asyncio.sleep(10)
    assert bed.dead == "a"


@on_queues
async def test_without_an_exchange_the_dead_are_gone(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater(room=2)
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c")
    eater.reject(queue, "a")
    assert (bed.dead, queue.unacked_count, ready(queue)) == ("", 1, "c")


@on_queues
async def test_a_message_that_died_in_too_many_queues_is_dropped_and_counted(bed: Bed) -> None:
    queue = bed.queue(ARGUMENTS | {"x-message-ttl": 1})
    died = [{"queue": f"q{n}", "reason": "expired"} for n in range(99)]
    queue.publish(Run(0, words("far", properties({"x-death": died}))), None)
    queue.publish(Run(0, words("near", properties({"x-death": died[1:]}))), None)
    await asyncio.sleep(1)
    assert bed.dead == "near"
    assert queue.dropped == {"dead_letter_unroutable": 1}
