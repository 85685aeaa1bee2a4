"""Random sequences of everything a queue can do, and nothing is ever missing.

A broker on a simulated disk has a queue with features that the seed chooses: times to live,
limits, dead letters, priorities, a single active consumer, consumers that select; and around it a
queue for dead letters, one that messages are moved to, a delayed and a deduplicating exchange.
Then come steps of chance, restarts and crashes among them. Turns are short, so that a few
messages take several.

After each step every queue's account must add up. At the end, every message that was confirmed
must have been given to somebody, or be in a queue, or be one of those that policies have counted
as dropped. `pytest tests/property/test_conservation.py --seeds 1000` runs many.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile
from random import Random
from typing import Any, Literal
from zlib import crc32

import pytest

from entrepot.broker.ledger import Ledger
from entrepot.broker.queue.conservation import DROPS, Account, Conservation
from entrepot.broker.queue.front import Front, Popped
from entrepot.broker.queue.message import Failure, Publication, Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.selection import Selection
from entrepot.broker.queue.timed_leases import TimedLease
from entrepot.core import limits
from entrepot.core.errors import QueueInUse, StorageError
from entrepot.core.message import Envelope
from entrepot.gateway.http.management import contents
from entrepot.wire.amqp.properties import BasicProperties, encode
from entrepot.wire.http.request import HttpError
from sim.loop import SimLoop, run
from tests.unit.broker.virtual_host.bed import Host, addressed, message

STEPS = 40
TURN = 4
TURN_BYTES = 6  # Some messages are larger, and then one is all that is read at once.
FAULTS: tuple[tuple[Literal["read", "write", "sync"], int], ...] = (
    ("read", errno.ENOMEM),
    ("read", errno.ENOMEM),
    ("write", errno.ENOSPC),
    ("sync", errno.EIO),
)
OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")


Held = list[tuple[int, range]]  # Lanes and offsets.


class Consumer:
    """Remembers what it was given, and holds what it has not answered."""

    is_exclusive = False

    def __init__(self, world: World, random: Random) -> None:
        self.tag = f"c{random.random()}"
        self.auto_ack = random.random() < 0.4
        self.priority = random.choice((0, 0, 1))
        self._room = random.choice((1, 10, 1_000, 1_000))
        self._world = world
        self._random = random
        self.held: Held = []

    def room(self) -> int:
        return self._room - sum(len(offsets) for _, offsets in self.held)

    def deliver(self, lane: int, taken: Taken) -> None:
        self._world.saw(taken)
        if not self.auto_ack:
            self.held.append((lane, taken.offsets))
        if self._random.random() < 0.3:  # Somebody else is quick, in the middle of a burst.
            asyncio.get_running_loop().call_soon(self._world.get)

    def cancelled(self) -> None:
        """The queue is gone."""

    def activated(self, is_active: bool) -> None:
        """Whether it is the one."""


class Some:
    """Wants about every other message; says that this takes more or less long."""

    def __init__(self, random: Random) -> None:
        self.cost = random.choice((0, 100))
        self._salt = random.randrange(1_000)

    def __call__(self, envelope: Envelope) -> bool:
        return crc32(envelope.head, self._salt) % 2 == 0


class World:
    def __init__(self, bed: Host, random: Random) -> None:
        self.bed = bed
        self.random = random
        self.is_durable = random.random() < 0.85
        self.arguments = self._choose()
        self.number = 0
        self.confirmed: dict[bytes, None] = {}
        self.seen: dict[bytes, None] = {}
        self.moved: dict[bytes, None] = {}
        self.consumed: dict[bytes, None] = {}  # As their publishers were told.
        self.dropped = 0  # In earlier lives.
        self.consumers: list[Consumer] = []
        self.got: Held = []
        self.leases: list[TimedLease] = []
        self.trace: list[str] = [str(self.arguments)]

    def _choose(self) -> dict[str, Any]:
        random = self.random
        options: dict[str, Any] = {
            "message_ttl": random.choice((None, None, 0, 0, 20, 50)),
            "max_length": random.choice((None, None, None, 0, 3, 10)),
            "max_length_bytes": random.choice((None, None, None, 60)),
            "overflow": random.choice((None, *OVERFLOWS)),
            "single_active_consumer": random.choice((None, None, True)),
            "dead_letter_exchange": random.choice((None, "", "", "", "nobody")),
        }
        if options["dead_letter_exchange"] == "":
            options["dead_letter_routing_key"] = random.choice(("dead", "dead", "dead", "q"))
        if self.is_durable and random.random() < 0.3:
            options["queue_type"] = "quorum"
            options["delivery_limit"] = random.choice((0, 1, 2))
            if options["overflow"] == OVERFLOWS[2]:
                options["overflow"] = OVERFLOWS[1]
            if options["overflow"] == OVERFLOWS[1] and options["dead_letter_exchange"] == "":
                options["dead_letter_strategy"] = "at-least-once"
        else:
            options["max_priority"] = random.choice((None, None, 2))
        return {name: value for name, value in options.items() if value is not None}

    @property
    def queue(self) -> Queue:
        return self.bed.vhost.queue("q")

    async def begin(self) -> None:
        bed = self.bed
        await bed.start()
        await bed.exchange("later", "x-delayed-message", arguments={"x-delayed-type": "direct"})
        await bed.exchange("once", "x-message-deduplication", arguments={"x-cache-size": 100})
        limit = {"max_length": 2, "overflow": "reject-publish"}
        await bed.declare("dead", **(limit if self.random.random() < 0.2 else {}))
        await bed.declare("other")
        await self._declare()

    async def _declare(self) -> None:
        await self.bed.declare("q", durable=self.is_durable, **self.arguments)
        for name in ("later", "once"):
            await self.bed.bind(name, "q", "q")

    async def live(self) -> None:
        await self.begin()
        steps = [name for name in dir(self) if name.startswith("do_")]
        often = ("do_publish", "do_burst", "do_burst", "do_consume", "do_answer")
        weights = [2 + 4 * often.count(name) for name in steps]
        for _ in range(STEPS):
            (name,) = self.random.choices(steps, weights)
            self.trace.append(name)
            await getattr(self, name)()
            self.check()
        self.check_final()

    # --- what must hold

    def queues(self) -> list[Queue]:
        delayed = self.bed.vhost.delayed
        assert delayed is not None
        return [*self.bed.vhost.queues.values(), delayed]

    def check(self) -> None:
        for queue in self.queues():
            account = queue.account()
            assert not account.wrong, (queue.name, account, self.trace)
            assert min(account[:-2]) >= 0, account
            assert set(account.dropped) <= set(DROPS)
        for body in self.consumed:
            assert body in self.seen or body in self.moved, (body, self.trace)

    def check_final(self) -> None:
        """Every confirmed message came out, is somewhere, or was counted when it was dropped."""
        self.bed.disk._faults.clear()
        left = {body for queue in self.queues() for body in present(queue)}
        lost = [body for body in self.confirmed if body not in self.seen and body not in left]
        dropped = self.dropped + dropped_count(self.queues())
        assert len(lost) <= dropped, (lost, dropped, self.trace)

    def saw(self, taken: Taken) -> None:
        for _, body in taken.run.messages:
            self.seen[bytes(body)] = None

    # --- publishing

    def _publish(self, count: int) -> None:
        random = self.random
        exchange = random.choice(("", "", "later", "once"))
        for _ in range(count):
            self.number += 1
            body = b"%d" % self.number
            headers: dict[str, object] = {}
            if exchange == "later":
                headers["x-delay"] = random.choice((1, 20, 1_000))
            if exchange == "once":
                body = b"once %d" % random.randrange(5)
                headers["x-deduplication-header"] = body.decode()
            until_consumed = exchange != "once" and random.random() < 0.05
            if until_consumed:
                headers["x-confirm"] = "consumed"
            sent = message(
                body,
                headers,
                expiration=random.choice((None, None, None, "0", "30")),
                priority=random.randrange(3),
            )
            if random.random() < 0.1:  # Not persistent.
                sent = (encode(BasicProperties(headers=headers, delivery_mode=1)), body)
            publication = Publication(partial(self._confirm, body, until_consumed))
            bed = self.bed
            bed.call(bed.vhost.publish, exchange, [addressed(exchange, "q", sent)], publication)
            bed.call(publication.arrived)

    def _confirm(self, body: bytes, until_consumed: bool, failure: Failure | None) -> None:
        if failure is None:
            self.confirmed[body] = None
            if until_consumed:
                self.consumed[body] = None

    async def do_publish(self) -> None:
        self._publish(self.random.randint(1, 4))
        await asyncio.sleep(0.01)

    async def do_burst(self) -> None:
        """More than a turn's, and others take messages in between."""
        self._publish(self.random.randint(TURN + 1, 6 * TURN))
        for _ in range(20):
            await asyncio.sleep(self.random.choice((0, 0, 0.001)))
            if self.random.random() < 0.3:
                self.get()
            if self.random.random() < 0.1:
                self.check()

    async def do_wait(self) -> None:
        await asyncio.sleep(self.random.choice((0, 0.001, 0.02, 0.06, 2)))

    async def do_jump(self) -> None:
        self.bed.clock.jump(self.random.choice((-20, 5, 60)))

    # --- taking

    def get(self) -> None:
        auto_ack = self.random.random() < 0.5
        found = self.bed.call(lambda: self.queue.get(self, auto_ack=auto_ack))
        if found is not None:
            lane, taken = found
            self.saw(taken)
            if not auto_ack:
                self.got.append((lane, taken.offsets))

    async def do_get(self) -> None:
        self.get()

    async def do_consume(self) -> None:
        consumer = Consumer(self, self.random)
        try:
            self.bed.call(self.queue.add_consumer, consumer, self._selection())
        except QueueInUse:
            return
        self.consumers.append(consumer)

    def _selection(self) -> Selection | None:
        if self.random.random() < 0.6:
            return None
        return Selection(Some(self.random), drops_others=self.random.random() < 0.2)

    async def do_leave(self) -> None:
        if self.consumers:
            consumer = self.consumers.pop(self.random.randrange(len(self.consumers)))
            self.bed.call(self.queue.remove_consumer, consumer)
            if self.random.random() < 0.5:
                await asyncio.sleep(0)
            self.bed.call(self.queue.release, consumer)

    async def do_answer(self) -> None:
        """A consumer, or who got messages, answers some of them."""
        queue = self.queue
        verbs: list[Callable[..., None]] = [
            queue.settle,
            queue.settle,
            queue.reject,
            queue.requeue,
        ]
        holders: list[tuple[object, Held]] = [(self, self.got)]
        holders += [(consumer, consumer.held) for consumer in self.consumers]
        for owner, held in holders:
            for lane, offsets in [*held]:
                if self.random.random() < 0.4:
                    continue
                held.remove((lane, offsets))
                place = self.random.randint(0, len(offsets))
                for part in (offsets[:place], [*offsets[place:]]):  # Of any step, and one by one.
                    self.bed.call(self.random.choice(verbs), owner, lane, part)
            self.bed.call(queue.dispatch)

    async def do_lease(self) -> None:
        leases = self.queue.timed_leases
        lease = self.bed.call(leases.open, self.random.choice((10, 1_000)))
        self.leases.append(lease)
        if self.random.random() < 0.5:
            found = self.bed.call(leases.take, lease, self.random.randint(1, 6))
        else:
            end = self.queue.lanes[0].offset_end
            first = self.random.randint(0, max(0, end))
            offsets = range(first, first + self.random.randint(1, 6))
            try:
                found, _ = self.bed.call(leases.take_at, lease, 0, offsets)
            except StorageError:
                found = []
        for _, taken in found:
            self.saw(taken)

    async def do_end_lease(self) -> None:
        if not self.leases:
            return
        lease = self.leases.pop(self.random.randrange(len(self.leases)))
        leases = self.queue.timed_leases
        for lane, held in enumerate(lease.held):
            for offsets in [*held]:
                roll = self.random.random()
                if roll < 0.5:
                    self.bed.call(leases.settle, lease, lane, offsets)
                elif roll < 0.7:
                    self.bed.call(leases.reject, lease, lane, offsets)
                else:
                    release = partial(leases.release, lease, lane, offsets, is_attempt=roll < 0.9)
                    self.bed.call(release)

    # --- what a keeper does

    async def do_purge(self) -> None:
        queue = self.random.choice((self.queue, self.bed.vhost.queue("dead")))
        self.bed.call(queue.purge)

    async def do_rewind(self) -> None:
        now_ms = self.bed.clock.now_ms()
        try:
            self.bed.call(lambda: self.queue.rewind(time_ms=now_ms - self.random.randrange(100)))
        except StorageError:
            return

    async def do_deferred(self) -> None:
        delayed = self.bed.vhost.delayed
        assert delayed is not None
        for lane, offset, _ in delayed.deferred(2):
            if self.random.random() < 0.3:
                self.bed.call(delayed.cancel_deferred, lane, offset)
            else:
                self.bed.call(delayed.change_deferred, lane, offset, self.bed.clock.now_ms() + 5)

    async def do_move(self) -> None:
        source, target = self.queue, self.bed.vhost.queue("other")
        if self.random.random() < 0.3:
            source, target = target, source
        count = self.random.randint(1, 5)
        with contextlib.suppress(StorageError, HttpError):
            # All of them: where the first have expired, those behind them are moved.
            for _, taken in source.peek(source.ready_count):
                self.moved.update({bytes(body): None for _, body in taken.run.messages})
            await self.bed.do(contents.move_some(source, target, count))

    # --- trouble

    async def do_fault(self) -> None:
        operation, error = self.random.choice(FAULTS)
        self.bed.disk.fail_next(operation, error, "*.log", self.random.choice((1, 2)))

    async def do_restart(self) -> None:
        before = self.queues()
        if not self.is_durable:
            self.confirmed.clear()
        self.bed.disk._faults.clear()
        await self.bed.restart(self.random.choice(("stop", "kill", "crash")))
        self.dropped += dropped_count(before)  # Not earlier: a stop takes time, and some expire.
        self.consumers, self.got, self.leases = [], [], []
        if not self.is_durable:
            await self._declare()


def dropped_count(queues: Iterable[Queue]) -> int:
    return sum(sum(queue.dropped.values()) for queue in queues)


def present(queue: Queue) -> Iterable[bytes]:
    """Bodies of all that is not settled."""
    for lane in queue.lanes:
        ledger = lane.ledger
        fresh = [range(ledger.offset_fresh, lane.offset_end)]
        for offsets in [*ledger.unsettled(), *fresh]:
            if offsets.start < offsets.stop:
                for _, found in lane.read(offsets):
                    yield from (bytes(body) for _, body in found.messages)


def simulate(seed: int) -> None:
    async def main(loop: SimLoop) -> None:
        await World(Host(loop), loop.random("steps")).live()

    run(seed, main)


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUE_TURN_MESSAGES_MAX", TURN)
    monkeypatch.setattr(limits, "QUEUE_TURN_BYTES_MAX", TURN_BYTES)


def test_nothing_is_missing_and_nothing_is_there_twice(seed: int) -> None:
    simulate(seed)


# --- planted mistakes


def is_found_out(text: str) -> None:
    def simulate_some() -> None:
        for seed in range(30):
            simulate(seed)

    with pytest.raises(AssertionError, match=text):
        simulate_some()


pop_overdue = Front.pop_overdue


def judge_twice(self: Front, now_ms: int) -> tuple[Popped, int]:
    """Count what is overdue by one rule, and take it out by another."""
    runs = [*self.peek(TURN)] if self.may_expire else []
    expiries = [
        self._expiry_ms(taken.part(slice(place, None)))
        for taken in runs
        for place in range(len(taken.offsets))
    ]
    count = len([*takewhile(lambda expiry: expiry <= now_ms, expiries)])
    return (self.pop(count, now_ms), now_ms) if count else pop_overdue(self, now_ms)


@pytest.mark.pure
def test_expiry_that_is_judged_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Front, "pop_overdue", judge_twice)
    is_found_out("missing: ")


@pytest.mark.pure
def test_the_same_without_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """A confirmed message did not come out, whatever the queue says of itself."""
    account = Conservation.account

    def blind(self: Conservation, dying_count: int) -> Account:
        return account(self, dying_count)._replace(wrong=[])

    monkeypatch.setattr(Conservation, "account", blind)
    monkeypatch.setattr(Front, "pop_overdue", judge_twice)
    is_found_out(r"\[b'\d+'")


@pytest.mark.pure
def test_what_comes_back_and_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    give_back = Ledger._return

    def forget_one(self: Ledger, offsets: range, *, is_attempt: bool) -> None:
        give_back(self, offsets[1:], is_attempt=is_attempt)

    monkeypatch.setattr(Ledger, "_return", forget_one)
    is_found_out("nobody has them, and nobody settled them")


@pytest.mark.pure
def test_what_is_settled_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    purge = Front.discard

    def keep(self: Front) -> list[range]:
        dropped = purge(self)
        for each in dropped:
            self.ledger.returned.add(each.start, each.stop)
        return dropped

    monkeypatch.setattr(Front, "discard", keep)
    is_found_out("counted twice: ")
