"""A queue beside a naive one: a list, from which one message at a time goes to its consumer."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.ledger import NEVER
from entrepot.broker.queue.queue import Queue
from sim.clock import SimClock
from sim.loop import SimLoop, run
from tests.unit.broker.queue.bed import Bed, Eater, properties, ready, settle_down, text_of

ROOMS = (1, 3, 5, 1_000_000)
AUTO = 3  # This one acknowledges nothing.


class Naive:
    """Words in their order. A word is published once, so it tells the message."""

    def __init__(self, length_max: int | None) -> None:
        self.length_max = length_max
        self.number: dict[str, int] = {}  # The order in which they came.
        self.expiry: dict[str, int] = {}
        self.attempts: dict[str, int] = {}
        self.ready: list[str] = []
        self.held: dict[int, list[str]] = {}  # By consumer; in the order of the ring.
        self.next = 0
        self.dead: list[str] = []

    def publish(self, words: list[str], expiry: int) -> None:
        for word in words:
            self.number[word] = len(self.number)
            self.expiry[word] = expiry
            self.attempts[word] = 0
            self.ready.append(word)

    def back(self, words: list[str]) -> None:
        for word in words:
            self.attempts[word] += 1
        self.ready = sorted(self.ready + words, key=lambda word: self.number[word])
        self.drop_excess()

    def drop_excess(self) -> None:
        while self.length_max is not None and len(self.ready) > self.length_max:
            self.dead.append(self.ready.pop(0))

    def dispatch(self, now: int, arriving: list[str]) -> None:
        while self.ready and (taker := self._taker()) is not None:
            word = self.ready.pop(0)
            if self.expiry[word] <= now and word not in arriving:
                self.dead.append(word)
                continue
            ring = list(self.held)
            self.held[taker].append(word)
            self.next = (ring.index(taker) + 1) % len(ring)
        self.drop_excess()
        while self.ready and self.expiry[self.ready[0]] <= now:
            self.dead.append(self.ready.pop(0))

    def _taker(self) -> int | None:
        ring = list(self.held)
        for taker in ring[self.next :] + ring[: self.next]:
            if len(self.held[taker]) < ROOMS[taker]:
                return taker
        return None

    def remove(self, taker: int) -> list[str]:
        place = list(self.held).index(taker)
        held = self.held.pop(taker)
        if place < self.next:
            self.next -= 1
        self.next = self.next if self.next < len(self.held) else 0
        return held


STEP = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 6), st.sampled_from([None, None, 0, 20, 50])),
    st.tuples(st.just("come"), st.sampled_from([0, 0, 1, 1, 2, AUTO])),
    st.tuples(st.just("go"), st.sampled_from([0, 1, 2, AUTO, AUTO])),
    st.tuples(
        st.sampled_from(["ack", "nack", "reject"]),
        st.sampled_from(range(3)),
        st.lists(st.integers(0, 9), min_size=1, max_size=3),
    ),
    st.tuples(st.just("wait"), st.sampled_from([5, 30])),
    st.tuples(st.just("get")),
    st.tuples(st.just("purge")),
)


class Both:
    def __init__(self, bed: Bed, arguments: dict[str, object], length_max: int | None) -> None:
        self.bed = bed
        self.queue: Queue = bed.queue(arguments)
        self.naive = Naive(length_max)
        self.eaters = [Eater(str(at), room, auto_ack=at == AUTO) for at, room in enumerate(ROOMS)]
        self.arriving: list[str] = []

    def now(self) -> int:
        return self.bed.clock.now_ms()

    async def step(self, name: str, *arguments: Any) -> None:
        self.arriving = []
        await getattr(self, name)(*arguments)
        await settle_down()
        self.naive.dispatch(self.now(), self.arriving)
        self.compare()

    def compare(self) -> None:
        naive, queue = self.naive, self.queue
        assert ready(queue).split() == naive.ready
        for taker, eater in enumerate(self.eaters):
            assert eater.has.split() == naive.held.get(taker, [])
            for taken in eater.runs:
                assert taken.attempts is None or len(taken.attempts) == len(taken.offsets)
            eater.runs.clear()
        assert self.bed.dead.split() == naive.dead
        assert queue.ready_count == len(naive.ready)
        held = [len(words) for taker, words in naive.held.items() if taker != AUTO]
        assert queue.unacked_count == sum(held)
        attempts = {
            text_of([message]): 0 if taken.attempts is None else taken.attempts[place]
            for _, taken in queue.peek(1_000)
            for place, message in enumerate(taken.run.messages)
        }
        assert attempts == {word: naive.attempts[word] for word in naive.ready}

    async def publish(self, count: int, ttl: int | None) -> None:
        first = len(self.naive.number)
        self.arriving = [f"m{number}" for number in range(first, first + count)]
        self.naive.publish(self.arriving, NEVER if ttl is None else self.now() + ttl)
        head = properties() if ttl is None else properties(expiration=str(ttl))
        await self.bed.publish(self.queue, " ".join(self.arriving), head)

    async def come(self, taker: int) -> None:
        if taker not in self.naive.held:
            self.naive.held[taker] = []
            self.queue.add_consumer(self.eaters[taker])

    async def go(self, taker: int) -> None:
        if taker in self.naive.held:
            held = self.naive.remove(taker)
            self.naive.back([] if taker == AUTO else held)
            self.queue.remove_consumer(self.eaters[taker])
            self.queue.release(self.eaters[taker])
            self.eaters[taker].held.clear()

    def _chosen(self, taker: int, places: list[int]) -> list[str]:
        held = self.naive.held.get(taker, [])
        chosen = list(dict.fromkeys(held[place % len(held)] for place in places)) if held else []
        for word in chosen:
            held.remove(word)
        return chosen

    async def ack(self, taker: int, places: list[int]) -> None:
        self.eaters[taker].ack(self.queue, " ".join(self._chosen(taker, places[:1])))

    async def nack(self, taker: int, places: list[int]) -> None:
        chosen = self._chosen(taker, places)
        for word in chosen:
            self.naive.back([word])
        self.eaters[taker].nack(self.queue, " ".join(chosen))

    async def reject(self, taker: int, places: list[int]) -> None:
        chosen = self._chosen(taker, places)
        self.naive.dead += chosen
        self.eaters[taker].reject(self.queue, " ".join(chosen))
        self.queue.dispatch()

    async def wait(self, milliseconds: int) -> None:
        """Times differ by more than timers are late."""
        for _ in range(milliseconds):
            await asyncio.sleep(0.001)
            self.naive.dispatch(self.now(), [])

    async def get(self) -> None:
        found = self.queue.get(self, auto_ack=True)
        assert (found is None) == (not self.naive.ready)
        if found is not None:
            assert text_of(found[1].run.messages) == self.naive.ready.pop(0)

    async def purge(self) -> None:
        assert self.queue.purge() == len(self.naive.ready)
        self.naive.ready.clear()


@given(st.sampled_from([None, 0, 2, 4]), st.lists(STEP, max_size=30))
def test_both_agree(length_max: int | None, steps: list[tuple[Any, ...]]) -> None:
    arguments: dict[str, object] = {"x-dead-letter-exchange": "dlx"}
    if length_max is not None:
        arguments["x-max-length"] = length_max

    async def main(loop: SimLoop) -> None:
        both = Both(Bed(SimClock(loop)), arguments, length_max)
        for step in steps:
            await both.step(*step)

    run(0, main)
