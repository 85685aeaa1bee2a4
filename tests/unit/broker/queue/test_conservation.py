"""Everything a queue accepted is in exactly one place, and a queue where it is not says so."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.ledger import Lease
from entrepot.broker.queue.conservation import Account, _without
from entrepot.broker.queue.message import Refused
from entrepot.broker.queue.queue import Queue
from entrepot.core import limits
from entrepot.core.ranges import Ranges
from tests.unit.broker.queue.bed import Bed, Eater, on_queues, properties, settle_down
from tests.unit.broker.virtual_host.bed import Host
from tests.unit.log.bed import simulated

DEAD = {"x-dead-letter-exchange": "dlx"}


def adds_up(queue: Queue) -> Account:
    account = queue.account()
    assert account.wrong == []
    came = account.found + account.accepted + account.rewound
    present = account.ready + account.unacked + account.deferred + account.dying
    assert came == present + account.settled + sum(account.dropped.values())
    assert min(*account[:9], *account.dropped.values(), 0) == 0
    return account


@on_queues
async def test_a_message_is_in_one_place(bed: Bed) -> None:
    queue, eater = bed.queue(DEAD), Eater(room=4)
    queue.add_consumer(eater)
    await bed.publish(queue, "later", due_ms=bed.clock.now_ms() + 1_000)
    await bed.publish(queue, "a b c d e f")
    bed.letter_failures.append(Refused("full"))
    eater.ack(queue, "a")
    eater.reject(queue, "b")
    account = adds_up(queue)
    assert (account.found, account.accepted, account.rewound) == (0, 7, 0)
    assert (account.ready, account.unacked, account.deferred, account.dying) == (1, 3, 1, 1)
    assert (account.consumed, account.dead_lettered, account.dropped) == (1, 0, {})
    await settle_down()
    eater.reject(queue, "c")
    await settle_down()
    account = adds_up(queue)
    assert (account.dying, account.settled, account.dropped) == (0, 2, {"dead_letter_refused": 1})


@on_queues
async def test_what_is_dropped_is_counted_by_its_reason(bed: Bed) -> None:
    quorum = {"x-queue-type": "quorum", "x-delivery-limit": 1}
    queue, eater = bed.queue({"x-max-length": 3, **quorum}, durable=True), Eater(room=2)
    await bed.publish(queue, "one two three four")
    await bed.publish(queue, "later", due_ms=bed.clock.now_ms() + 1_000)
    assert queue.cancel_deferred(0, 4)
    queue.add_consumer(eater)
    await settle_down()
    eater.reject(queue, "two")
    for _ in range(2):
        eater.nack(queue, "three")
        await settle_down()
    eater.prefetch = 0
    await bed.publish(queue, "short", properties(expiration="0"))
    await bed.publish(queue, "five")
    assert queue.purge() == 1
    expected = {"expired": 1, "maxlen": 1, "rejected": 1, "delivery_limit": 1, "purged": 1}
    assert adds_up(queue).dropped == expected | {"cancelled": 1}
    assert queue.dropped == expected | {"cancelled": 1}


@on_queues
async def test_what_does_not_survive_is_counted(bed: Bed) -> None:
    queue = bed.queue(durable=True)
    await bed.publish(queue, "a b")
    queue = bed.again(queue, recovered=2)
    await bed.publish(queue, "c d")
    bed.lane.gone = range(2, 3)
    queue.add_consumer(Eater())
    await settle_down()
    account = adds_up(queue)
    assert (account.found, account.accepted, account.unacked) == (2, 2, 1)
    assert account.dropped == {"lost": 3}


@simulated
async def test_dead_letters_that_lead_nowhere_are_counted(bed: Host) -> None:
    await bed.start()
    queue = await bed.queue("q", dead_letter_exchange="nobody", message_ttl=0)
    circle = await bed.queue(
        "circle", dead_letter_exchange="", dead_letter_routing_key="circle", message_ttl=0
    )
    for name in ("q", "circle"):
        await bed.publish("", name, b"1", b"2")
    await asyncio.sleep(0.1)
    for each in (queue, circle):
        assert adds_up(each).dropped == {"dead_letter_unroutable": 2}


@on_queues
async def test_a_rewind_while_messages_are_out_and_dying(bed: Bed) -> None:
    queue, eater = bed.queue(DEAD), Eater(room=3)
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c d")
    eater.ack(queue, "b")
    eater.reject(queue, "c")
    assert adds_up(queue).dying == 1
    eater.prefetch = 0
    queue.rewind(offset=0)
    account = adds_up(queue)
    assert (account.dying, account.unacked, account.ready, account.rewound) == (0, 0, 4, 1)
    await settle_down()
    assert bed.dead == "c", "its letter was on its way"
    eater.ack(queue, "a d")  # It has them no longer.
    assert adds_up(queue).ready == 4


@on_queues
async def test_a_rewind_of_what_dies_again(bed: Bed) -> None:
    queue = bed.queue(DEAD | {"x-message-ttl": 5})
    await bed.publish(queue, "a b")
    bed.clock.jump(10)
    queue.dispatch()
    assert adds_up(queue).dying == 2
    queue.rewind(offset=0)
    queue.dispatch()
    assert adds_up(queue).dying == 2
    await settle_down()
    account = adds_up(queue)
    assert (account.dying, account.dead_lettered, bed.dead) == (0, 2, "a b a b")


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_what_is_in_one_and_not_in_the_other(these: set[int], others: set[int]) -> None:
    rest = _without(*(Ranges(range(each, each + 1) for each in all_) for all_ in (these, others)))
    assert {offset for each in rest for offset in each} == these - others


# --- planted mistakes


@on_queues
async def test_a_message_that_was_taken_out_and_forgotten(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "a b c")
    bed.lane.ledger.pop(2, bed.lane.offset_end)
    assert queue.account().wrong == ["missing: 2 messages"]


@on_queues
async def test_a_message_that_is_settled_and_still_there(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c")
    queue._settled(0, [range(1)], "consumed")
    assert queue.account().wrong == ["counted twice: 1 message"]


@on_queues
async def test_a_message_in_two_places(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c d e f g h i")
    bed.lane.ledger.returned.add(0, 1)
    bed.lane.ledger.defer(1, 10**15)
    bed.lane.ledger.leased[20] = Lease(eater)
    del bed.lane.ledger.leased[5]
    assert queue.account().wrong == [
        "counted twice: 2 messages",
        "leased and ready: 1 message, at offsets 0",
        "leased and deferred: 1 message, at offsets 1",
        "leased and never handed out: 1 message, at offsets 20",
    ]


@on_queues
async def test_dying_messages_that_are_not_counted(bed: Bed) -> None:
    queue, eater = bed.queue(DEAD), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a")
    eater.reject(queue, "a")
    queue._dying_count = 0
    assert queue.account().wrong == ["dying: 1 message, and 0 were counted"]


@simulated
async def test_a_lane_in_the_log_knows_which_ones(bed: Host) -> None:
    await bed.start()
    queue = await bed.queue("q", max_priority=2)
    await bed.publish("", "q", *(b"%d" % number for number in range(10)))
    ledger = queue.lanes[0].ledger
    ledger.pop(3, 10)
    ledger.lease(range(1, 2), Lease(bed))
    assert queue.account().wrong == [
        "missing: 2 messages",
        "in lane 0: nobody has them, and nobody settled them: 2 messages, at offsets 0, 2",
    ]
    queue.lanes[0].settled([range(1, 2), range(0, 3, 2)])
    assert queue.account().wrong == [
        "missing: 2 messages",
        "in lane 0: recorded as settled, and not settled: 1 message, at offsets 1",
    ]


@on_queues
async def test_very_many_are_only_counted(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUE_OFFSETS_CHECKED_MAX", 2)
    queue, eater = bed.queue(), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c")
    bed.lane.ledger.returned.add(0, 1)
    assert queue.account().wrong == ["counted twice: 1 message"]
