"""Consumers that want only some of a queue's messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.queue.conservation import UNSELECTED
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.selection import Everything, Selection
from entrepot.broker.selector import Selector
from entrepot.core import limits
from entrepot.core.errors import QueueInUse
from sim.clock import SimClock
from sim.loop import SimLoop, run
from tests.unit.broker.queue.bed import Bed, Eater, on_queues, properties, ready, settle_down

A, B = properties({"kind": "a"}), properties({"kind": "b"})


def wants(kind: str, **options: Any) -> Selection:
    return Selection(Selector(f"kind = '{kind}'"), **options)


def check_account(queue: Queue) -> None:
    account = queue.account()
    assert not account.wrong
    assert not account.missing


async def mixed(bed: Bed, queue: Queue) -> None:
    """Publish a1 b1 a2 b2 a3 b3."""
    for number in "123":
        await bed.publish(queue, f"a{number}", A)
        await bed.publish(queue, f"b{number}", B)


@on_queues
async def test_each_gets_what_it_wants(bed: Bed) -> None:
    queue, one, other = bed.queue(), Eater("a"), Eater("b")
    await mixed(bed, queue)
    queue.add_consumer(one, wants("a"))
    queue.add_consumer(other, wants("b"))
    await settle_down()
    assert (one.has, other.has, ready(queue)) == ("a1 a2 a3", "b1 b2 b3", "")
    await bed.publish(queue, "a4", A)
    await bed.publish(queue, "c1", properties({"kind": "c"}))
    assert (one.has, other.has, ready(queue)) == ("a1 a2 a3 a4", "b1 b2 b3", "c1")


@on_queues
async def test_others_stay_for_who_takes_all(bed: Bed) -> None:
    queue, one, plain = bed.queue(), Eater("a", 2), Eater("all")
    await mixed(bed, queue)
    queue.add_consumer(one, wants("a"))
    await settle_down()
    assert (one.has, ready(queue)) == ("a1 a2", "b1 b2 a3 b3")
    queue.add_consumer(plain)
    await settle_down()
    assert plain.has == "b1 b2 a3 b3"


@on_queues
async def test_it_goes_on_when_there_is_room(bed: Bed) -> None:
    queue, one = bed.queue(), Eater("a", 1)
    queue.add_consumer(one, wants("a"))
    await mixed(bed, queue)
    assert one.has == "a1"
    one.ack(queue, "a1")
    assert one.has == "a2"
    one.ack(queue, "a2")
    one.ack(queue, "a3")
    assert ready(queue) == "b1 b2 b3"
    check_account(queue)


@on_queues
async def test_what_comes_back_is_looked_at_again(bed: Bed) -> None:
    queue, one, other = bed.queue(), Eater("a"), Eater("a2")
    await mixed(bed, queue)
    queue.add_consumer(one, wants("a"))
    await settle_down()
    queue.add_consumer(other, wants("a"))
    await settle_down()
    assert other.has == ""
    queue.remove_consumer(one)
    queue.release(one)
    await settle_down()
    assert other.has == "a1 a2 a3"
    assert other.attempts == [1, 1, 1]


@on_queues
async def test_equal_ones_take_turns(bed: Bed) -> None:
    queue, one, other = bed.queue(), Eater("1"), Eater("2")
    queue.add_consumer(one, wants("a"))
    queue.add_consumer(other, wants("a"))
    await mixed(bed, queue)
    assert (one.has, other.has) == ("a1 a3", "a2")


@on_queues
async def test_a_higher_priority_comes_first(bed: Bed) -> None:
    queue, low, high = bed.queue(), Eater("low"), Eater("high", 2, priority=1)
    queue.add_consumer(low, wants("a"))
    queue.add_consumer(high, wants("a"))
    await mixed(bed, queue)
    assert (low.has, high.has) == ("a3", "a1 a2")


@on_queues
async def test_the_only_consumer_of_a_queue_drops_the_others(bed: Bed) -> None:
    queue, one = bed.queue(), Eater("a", 1)
    queue.add_consumer(one, wants("a", drops_others=True))
    await mixed(bed, queue)
    assert (one.has, ready(queue)) == ("a1", "b1 a2 b2 a3 b3")
    one.ack(queue, "a1")
    one.ack(queue, "a2")
    assert (one.has, ready(queue)) == ("a3", "")
    assert queue.dropped[UNSELECTED] == 3
    check_account(queue)


@on_queues
async def test_acknowledged_by_delivery(bed: Bed) -> None:
    queue, one = bed.queue(), Eater("a", auto_ack=True)
    queue.add_consumer(one, wants("a"))
    await mixed(bed, queue)
    assert (one.has, ready(queue), queue.unacked_count) == ("a1 a2 a3", "b1 b2 b3", 0)


@on_queues
async def test_browsing(bed: Bed) -> None:
    queue, one = bed.queue(), Eater("browser", 4)
    await mixed(bed, queue)
    queue.add_consumer(one, Selection(Everything(), browses=True))
    await settle_down()
    assert (one.has, ready(queue), queue.unacked_count) == ("a1 b1 a2 b2", "a1 b1 a2 b2 a3 b3", 0)
    one.ack(queue, "a1 b1")  # Has no effect on them.
    assert (one.has, ready(queue)) == ("a2 b2 a3 b3", "a1 b1 a2 b2 a3 b3")
    check_account(queue)


@on_queues
async def test_expired_ones_die(bed: Bed) -> None:
    queue, one = bed.queue({"x-dead-letter-exchange": "dlx"}), Eater("a")
    await bed.publish(queue, "b1", B)
    await bed.publish(queue, "a1", properties({"kind": "a"}, expiration="5"))
    await bed.publish(queue, "a2", A)
    await asyncio.sleep(0.01)
    queue.add_consumer(one, wants("a"))
    await settle_down()
    assert (one.has, bed.dead) == ("a2", "a1")


@on_queues
async def test_delayed_ones_come_when_they_are_due(bed: Bed) -> None:
    queue, one = bed.queue(), Eater("a")
    queue.add_consumer(one, wants("a"))
    await bed.publish(queue, "a1", A, due_ms=bed.clock.now_ms() + 20)
    await bed.publish(queue, "a2", A)
    assert one.has == "a2"
    await asyncio.sleep(0.1)
    assert one.has == "a2 a1"


@on_queues
async def test_a_higher_lane_comes_first(bed: Bed) -> None:
    queue, one = bed.queue({"x-max-priority": 2}), Eater("a")
    await bed.publish(queue, "a1", A)
    await bed.publish(queue, "a2", properties({"kind": "a"}, priority=2))
    queue.add_consumer(one, wants("a"))
    await settle_down()
    assert one.has == "a2 a1"


@on_queues
async def test_after_a_rewind_everything_is_looked_at(bed: Bed) -> None:
    queue, one = bed.queue(), Eater("a")
    queue.add_consumer(one, wants("a"))
    await mixed(bed, queue)
    one.held.clear()
    queue.rewind(offset=2)
    await settle_down()
    assert one.has == "a2 a3"


@on_queues
async def test_a_single_active_consumer_cannot_select(bed: Bed) -> None:
    queue = bed.queue({"x-single-active-consumer": True})
    with pytest.raises(QueueInUse, match="cannot select"):
        queue.add_consumer(Eater("a"), wants("a"))
    assert not queue.consumer_count


@on_queues
async def test_a_long_queue_is_looked_at_in_turns(bed: Bed) -> None:
    queue, one, ends = bed.queue(), Eater("a"), 0

    def ended() -> None:
        nonlocal ends
        ends += 1

    count = 3 * limits.QUEUE_TURN_MESSAGES_MAX
    await bed.publish(queue, " ".join(f"b{number}" for number in range(count)), B)
    await bed.publish(queue, "a1", A)
    queue.add_consumer(one, wants("a", on_end=ended))
    await asyncio.sleep(0)
    assert (one.has, ends) == ("", 0)
    await settle_down()
    assert one.has == "a1"
    assert ends > 0


@on_queues
async def test_what_retention_took_is_lost(bed: Bed) -> None:
    queue, one = bed.queue(), Eater("a")
    await mixed(bed, queue)
    bed.lane.gone = range(2)
    queue.add_consumer(one, wants("a"))
    await settle_down()
    assert (one.has, ready(queue)) == ("a2 a3", "b2 b3")
    assert queue.dropped["lost"] == 2


@on_queues
async def test_a_queue_that_cannot_be_read_for_a_while(bed: Bed) -> None:
    queue, one = bed.queue(), Eater("a")
    await mixed(bed, queue)
    bed.lane.cannot_read = True
    queue.add_consumer(one, wants("a"))
    await settle_down()
    assert one.has == ""
    bed.lane.cannot_read = False
    queue.dispatch()
    assert one.has == "a1 a2 a3"


STEP = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from("abc"), st.integers(1, 4)),
    st.tuples(st.just("come"), st.integers(0, 3)),
    st.tuples(st.just("go"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["ack", "nack", "reject"]), st.integers(0, 3)),
    st.tuples(st.just("defer"), st.sampled_from("abc")),
    st.tuples(st.just("wait")),
    st.tuples(st.just("rewind")),
    st.tuples(st.just("get")),
)


class Story:
    """Two consumers want a, one wants b, the last takes all that the others leave."""

    kinds = "aab*"

    def __init__(self, bed: Bed, queue: Queue) -> None:
        self.bed, self.queue = bed, queue
        rooms = zip(self.kinds, (1, 3, 9, 2), strict=True)
        self.eaters = [Eater(kind, room) for kind, room in rooms]
        self.here: dict[int, None] = {}
        self.count = 0

    async def step(self, name: str, *arguments: Any) -> None:
        await getattr(self, name)(*arguments)
        await settle_down()
        check_account(self.queue)
        waiting = dict.fromkeys(word[0] for word in ready(self.queue).split())
        for number in self.here:
            eater = self.eaters[number]
            assert all(self.kinds[number] in ("*", word[0]) for word in eater.has.split())
            if eater.room() > 0:
                assert not waiting if self.kinds[number] == "*" else eater.tag not in waiting

    def words(self, count: int, kind: str) -> str:
        self.count += count
        return " ".join(f"{kind}{self.count - place}" for place in range(count))

    async def publish(self, kind: str, count: int) -> None:
        await self.bed.publish(self.queue, self.words(count, kind), properties({"kind": kind}))

    async def defer(self, kind: str) -> None:
        due_ms = self.bed.clock.now_ms() + 20
        head = properties({"kind": kind})
        await self.bed.publish(self.queue, self.words(1, kind), head, due_ms=due_ms)

    async def come(self, number: int) -> None:
        if number not in self.here:
            self.here[number] = None
            kind = self.kinds[number]
            selection = None if kind == "*" else wants(kind)
            self.queue.add_consumer(self.eaters[number], selection)

    async def go(self, number: int) -> None:
        if number in self.here:
            del self.here[number]
            self.queue.remove_consumer(self.eaters[number])
            self.queue.release(self.eaters[number])
            self.eaters[number].held.clear()

    async def ack(self, number: int) -> None:
        self.eaters[number].ack(self.queue, self.eaters[number].has)

    async def nack(self, number: int) -> None:
        self.eaters[number].nack(self.queue, " ".join(self.eaters[number].has.split()[:1]))

    async def reject(self, number: int) -> None:
        self.eaters[number].reject(self.queue, self.eaters[number].has)
        self.queue.dispatch()

    async def wait(self) -> None:
        await asyncio.sleep(0.03)

    async def rewind(self) -> None:
        for eater in self.eaters:
            eater.ack(self.queue, eater.has)
        self.queue.rewind(offset=max(0, self.count - 5))

    async def get(self) -> None:
        self.queue.get(self, auto_ack=True)


@given(st.lists(STEP, max_size=25))
def test_nobody_with_room_misses_a_message(steps: list[tuple[Any, ...]]) -> None:
    async def main(loop: SimLoop) -> None:
        bed = Bed(SimClock(loop))
        story = Story(bed, bed.queue())
        for step in steps:
            await story.step(*step)

    run(0, main)
