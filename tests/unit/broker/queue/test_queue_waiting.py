"""What becomes of messages while they wait: they expire, come due, or are too many."""

import asyncio
from collections.abc import Sequence

import pytest

from entrepot.broker.queue.lane import Waiter
from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.queue.message import Refused, Run
from entrepot.broker.queue.queue import Queue
from entrepot.core import limits
from tests.unit.broker.queue.bed import (
    Bed,
    Eater,
    LaneAround,
    on_queues,
    properties,
    ready,
    settle_down,
    text_of,
    words,
)

DEAD = {"x-dead-letter-exchange": "dlx"}


class LateLane(LaneAround):
    """What is appended is seen when it is let in, as if it were committed then."""

    is_in_memory = False

    def __init__(self, memory_use: MemoryUse) -> None:
        super().__init__(memory_use)
        self._runs: Sequence[Run] = ()
        self._waiting: list[tuple[Sequence[Run], Waiter]] = []

    def append(self, runs: Sequence[Run]) -> int:
        self._runs = runs
        return self.offset_end + sum(len(run.messages) for run in runs)

    def when_committed(self, offset_end: int, waiter: Waiter) -> None:
        self._waiting.append((self._runs, waiter))

    def let_in(self) -> None:
        waiting, self._waiting = self._waiting, []
        for runs, waiter in waiting:
            self.lane.append(runs)
            waiter(None)


# --- times


async def first_turn(eater: Eater) -> None:
    """Until it is given something."""
    for _ in range(10):
        if not eater.held:
            await asyncio.sleep(0)


@on_queues
async def test_the_queues_ttl(bed: Bed) -> None:
    queue = bed.queue({"x-message-ttl": 100, "x-dead-letter-exchange": "dlx"})
    await bed.publish(queue, "a b")
    await asyncio.sleep(0.06)
    await bed.publish(queue, "c")
    await asyncio.sleep(0.05)
    assert (bed.dead, ready(queue)) == ("a b", "c")
    await asyncio.sleep(0.06)
    assert (bed.dead, ready(queue), queue.ready_count) == ("a b c", "", 0)
    assert (queue.unacked_count, queue.bytes_kept) == (0, 0)


@on_queues
async def test_a_messages_own_ttl_at_the_front_only(bed: Bed) -> None:
    queue, eater = bed.queue({"x-message-ttl": 200}), Eater(room=1)
    await bed.publish(queue, "long")
    await bed.publish(queue, "short", properties(expiration="50"))
    await asyncio.sleep(0.1)
    assert queue.ready_count == 2
    queue.add_consumer(eater)
    await settle_down()
    assert eater.has == "long"
    assert queue.ready_count == 0  # It came to the front.
    eater.prefetch = 0
    eater.nack(queue, "long")
    await asyncio.sleep(0.05)
    assert queue.ready_count == 1
    await asyncio.sleep(0.06)
    assert queue.ready_count == 0


@on_queues
async def test_ttl_zero_is_delivered_at_once_or_never(bed: Bed) -> None:
    queue, eater = bed.queue({"x-message-ttl": 0}), Eater(room=2)
    await bed.publish(queue, "nobody is here")
    assert queue.ready_count == 0
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c")
    assert (eater.has, queue.ready_count) == ("a b", 0)
    eater.ack(queue, "a b")
    await bed.publish(queue, "own", properties(expiration="0"))
    assert eater.has == "own"


@on_queues
async def test_get_passes_over_what_has_expired(bed: Bed) -> None:
    queue = bed.queue()
    await bed.publish(queue, "gone", properties(expiration="5"))
    await bed.publish(queue, "here")
    bed.clock.jump(10)  # No timer has rung.
    found = queue.get(object(), auto_ack=True)
    assert found is not None
    assert text_of(found[1].run.messages) == "here"


@on_queues
async def test_many_expire_in_several_turns(bed: Bed) -> None:
    queue = bed.queue({"x-message-ttl": 50})
    await bed.publish(queue, " ".join(map(str, range(2_500))))
    await asyncio.sleep(0.06)
    assert queue.ready_count == 0


@pytest.mark.parametrize("ttl_ms", [0, 20])
@on_queues
async def test_a_get_in_the_middle_of_a_burst_loses_nothing(bed: Bed, ttl_ms: int) -> None:
    """More came than is handed out in a turn: what arrives has not expired, nor gone."""
    queue = bed.queue({"x-message-ttl": ttl_ms, "x-dead-letter-exchange": "dlx"})
    eater = Eater(room=limits.QUEUE_TURN_MESSAGES_MAX + 500)
    sent = [f"m{number}" for number in range(3_000)]
    queue.add_consumer(eater)
    await settle_down()
    bed.publish_run(queue, words(" ".join(sent)), "burst")
    bed.clock.jump(30)
    await first_turn(eater)
    assert len(eater.held) == limits.QUEUE_TURN_MESSAGES_MAX, "one turn"
    got = []
    for _ in range(3):
        found = queue.get(bed, auto_ack=True)
        assert found is not None
        got += text_of(found[1].run.messages).split()
    await asyncio.sleep(0.1)
    assert queue.ready_count == 0
    assert sorted(eater.has.split() + got + bed.dead.split()) == sorted(sent)


@on_queues
async def test_changing_a_deferred_message_in_the_middle_of_a_burst(bed: Bed) -> None:
    queue = bed.queue({"x-message-ttl": 0, "x-dead-letter-exchange": "dlx"})
    await bed.publish(queue, "later", due_ms=bed.clock.now_ms() + 1_000_000)
    queue.add_consumer(eater := Eater())
    await settle_down()
    sent = [f"m{number}" for number in range(3_000)]
    bed.publish_run(queue, words(" ".join(sent)), "burst")
    await first_turn(eater)
    assert queue.change_deferred(0, 0, bed.clock.now_ms() + 2_000_000)
    await settle_down()
    assert eater.has.split() + bed.dead.split() == sent


@on_queues
async def test_a_rewind_before_the_commit_of_what_may_expire(bed: Bed) -> None:
    queue = bed.queue(DEAD)
    lane = LateLane(bed.memory_use)
    queue = Queue("/", queue.spec, [lane], bed.surroundings)
    bed.publish_run(queue, words("a", properties(expiration="10")), "a")
    await settle_down()
    assert (lane.offset_end, queue.ready_count) == (0, 0)
    queue.rewind(offset=0)
    lane.let_in()
    await settle_down()
    assert queue.ready_count == 1
    await asyncio.sleep(0.02)
    assert (queue.ready_count, bed.dead) == (0, "a")


@on_queues
async def test_what_is_gone_from_the_front_does_not_keep_others_from_expiring(bed: Bed) -> None:
    queue = bed.queue({"x-message-ttl": 50, "x-dead-letter-exchange": "dlx"})
    await bed.publish(queue, "a b c")
    bed.lane.gone = range(1)
    await asyncio.sleep(0.1)
    assert (bed.dead, queue.ready_count) == ("b c", 0)


@on_queues
async def test_deferred_messages_come_when_they_are_due(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater()
    queue.add_consumer(eater)
    now = bed.clock.now_ms()
    await bed.publish(queue, "later", due_ms=now + 100)
    await bed.publish(queue, "now")
    await bed.publish(queue, "soon", due_ms=now + 50)
    assert eater.has == "now"
    assert (queue.ready_count, queue.deferred_count) == (0, 2)
    assert [(each.offset, each.due_ms - now) for each in queue.deferred(9)] == [(2, 50), (0, 100)]
    await asyncio.sleep(0.06)
    assert eater.has == "now soon"
    await asyncio.sleep(0.05)
    assert eater.has == "now soon later"


@on_queues
async def test_deferred_messages_are_changed_and_cancelled(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater()
    now = bed.clock.now_ms()
    await bed.publish(queue, "a b c", due_ms=now + 1_000)
    await bed.publish(queue, "d")
    assert queue.change_deferred(0, 1, now)
    assert queue.cancel_deferred(0, 2)
    assert not queue.cancel_deferred(0, 2)
    assert not queue.change_deferred(0, 3, now)
    assert not queue.change_deferred(7, 0, now)
    queue.add_consumer(eater)
    await asyncio.sleep(0.01)
    assert sorted(eater.has.split()) == ["b", "d"]
    await asyncio.sleep(1)
    assert eater.has.endswith("a")
    eater.ack(queue, "a b d")
    assert queue.bytes_kept == 0


@on_queues
async def test_what_waits_is_bounded(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUE_DEFERRED_MAX", 2)
    monkeypatch.setattr(limits, "QUEUE_WATCHED_MAX", 2)
    queue = bed.queue()
    for _ in range(2):
        await bed.publish(queue, "a b", due_ms=bed.clock.now_ms() + 100)
    assert [type(failure) for _, failure in bed.confirms] == [type(None), Refused]
    for _ in range(2):
        await bed.publish(queue, "a b", until_settled=True)
    assert [type(failure) for _, failure in bed.confirms[2:]] == [Refused]


# --- too much


@on_queues
async def test_drop_head(bed: Bed) -> None:
    queue = bed.queue({"x-max-length": 2, "x-dead-letter-exchange": "dlx"})
    await bed.publish(queue, "a b c d")
    assert bed.confirms == [("a b c d", None)]
    assert (ready(queue), bed.dead) == ("c d", "a b")
    eater = Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "e f g")
    assert (eater.has, bed.dead) == ("c d e f g", "a b")
    queue.remove_consumer(eater)
    eater.nack(queue, "c d e")
    await settle_down()
    assert (ready(queue), bed.dead) == ("d e", "a b c")


@on_queues
async def test_what_comes_back_to_a_full_queue_pushes_out_its_head_at_once(bed: Bed) -> None:
    queue, channel = bed.queue({"x-max-length": 2}), object()
    await bed.publish(queue, "a b")
    got = [queue.get(channel, auto_ack=False) for _ in range(2)]
    await bed.publish(queue, "c d")
    for found in got:
        assert found is not None
        queue.requeue(channel, found[0], found[1].offsets)
    assert ready(queue) == "c d"


@on_queues
async def test_drop_head_by_bytes(bed: Bed) -> None:
    queue, eater = bed.queue({"x-max-length-bytes": 6}), Eater()
    await bed.publish(queue, "aa bb cc dd")
    assert ready(queue) == "bb cc dd"
    await bed.publish(queue, "fffff")
    assert ready(queue) == "fffff"
    queue.add_consumer(eater)
    await bed.publish(queue, "gg")
    assert eater.has == "fffff gg"
    queue.remove_consumer(eater)
    eater.nack(queue, "gg")
    await bed.publish(queue, "hhhhh")
    assert ready(queue) == "hhhhh"


@on_queues
async def test_drop_head_takes_the_highest_priority_first(bed: Bed) -> None:
    queue = bed.queue({"x-max-length": 2, "x-max-priority": 3})
    await bed.publish(queue, "low1 low2")
    await bed.publish(queue, "high", properties(priority=3))
    assert ready(queue) == "low1 low2"


@on_queues
async def test_reject_publish_refuses_what_is_too_much(bed: Bed) -> None:
    queue, eater = bed.queue({"x-max-length": 2, "x-overflow": "reject-publish"}), Eater(room=1)
    await bed.publish(queue, "a b c d")
    refused = bed.confirms[-1][1]
    assert isinstance(refused, Refused)
    assert list(refused.places or ()) == [2, 3]
    assert ready(queue) == "a b"
    await bed.publish(queue, "e")
    assert isinstance(bed.confirms[-1][1], Refused)
    queue.add_consumer(eater)
    await settle_down()
    await bed.publish(queue, "f")
    assert bed.confirms[-1] == ("f", None)
    assert (eater.has, ready(queue)) == ("a", "b f")


@on_queues
async def test_what_goes_straight_through_is_never_too_much(bed: Bed) -> None:
    queue, eater = bed.queue({"x-max-length": 1, "x-overflow": "reject-publish"}), Eater(room=3)
    queue.add_consumer(eater)
    await bed.publish(queue, "a b c d e")
    refused = bed.confirms[-1][1]
    assert isinstance(refused, Refused)
    assert list(refused.places or ()) == [4]
    assert (eater.has, ready(queue)) == ("a b c", "d")


@on_queues
async def test_reject_publish_with_dead_letters(bed: Bed) -> None:
    arguments = {"x-max-length-bytes": 4, "x-overflow": "reject-publish-dlx"}
    queue = bed.queue(arguments | {"x-dead-letter-exchange": "dlx"})
    await bed.publish(queue, "aa bbb cc d")
    assert (ready(queue), bed.dead) == ("aa cc", "bbb d")
    refused = bed.confirms[-1][1]
    assert isinstance(refused, Refused)
    assert list(refused.places or ()) == [1, 3]


# --- publishers who wait


@on_queues
async def test_confirmed_when_consumed(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater()
    queue.add_consumer(eater)
    await bed.publish(queue, "a b", until_settled=True)
    await bed.publish(queue, "c", until_settled=True)
    await bed.publish(queue, "d", until_settled=True)
    assert bed.confirms == []
    eater.ack(queue, "b")
    assert bed.confirms == []
    eater.ack(queue, "a")
    assert bed.confirms == [("a b", None)]
    eater.reject(queue, "c")
    assert isinstance(bed.confirms[-1][1], Refused)
    queue.delete()
    assert bed.confirms[-1][0] == "d"
    assert isinstance(bed.confirms[-1][1], Refused)
