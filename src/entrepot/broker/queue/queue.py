"""A queue: it takes what is published, and hands it out.

What comes in a turn of the loop is appended together. Once that is committed it is ready,
and goes to the consumers that have room; what nobody has room for waits, and may meanwhile
expire or be too much. All of this happens in `dispatch`, whatever the occasion: something was
committed, a consumer came or has room again, messages came back, a time is over. It first
hands out what can be handed out and then looks at what is left, so that a message for which
somebody is waiting is never too old, nor one too many.

A message that dies stays leased by the queue itself until its dead letter is committed
elsewhere. So it may come twice after a crash, but it is never lost on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from typing import NamedTuple, Protocol

from entrepot.broker.ledger import Lease
from entrepot.broker.queue.arrival import Arrival
from entrepot.broker.queue.burial import Burials
from entrepot.broker.queue.conservation import CANCELLED, CONSUMED, PURGED, Account
from entrepot.broker.queue.consumer import Consumer, Consumers, Seat
from entrepot.broker.queue.dead_letter import DELIVERY_LIMIT, REJECTED
from entrepot.broker.queue.deal import Deal
from entrepot.broker.queue.front import NOTHING, Front, Popped
from entrepot.broker.queue.intake import Counter, Intake
from entrepot.broker.queue.lane import Lane, Waiter
from entrepot.broker.queue.lease_desk import LeaseDesk
from entrepot.broker.queue.message import PropertyReader, Publication, Run, Taken
from entrepot.broker.queue.outcome import Outcome
from entrepot.broker.queue.overflow import Overflow
from entrepot.broker.queue.settings import QueueSpec
from entrepot.broker.queue.settlement_watch import SettlementWatch
from entrepot.broker.queue.slices import Slices
from entrepot.broker.queue.timer import Timer
from entrepot.broker.turns import Turns
from entrepot.core import limits
from entrepot.core.envelope import Message
from entrepot.core.errors import InvalidQueue, QueueDown, StorageError
from entrepot.core.faults import Faults, Uncaught
from entrepot.core.ports import Clock
from entrepot.core.ranges import Ranges

Delivery = tuple[Seat, int, Taken]


class DeadLetters(Protocol):
    def __call__(
        self, queue: Queue, run: Run, avoided: Sequence[str], publication: Publication | None
    ) -> Sequence[Message]:
        """Publish these: their exchange is the dead letter exchange, all of them.

        They must not come to the queues that are avoided, or they would go round in circles.
        Returns those that went nowhere, which is no failure.
        """


class Surroundings(NamedTuple):
    """What the queues of a virtual host have in common."""

    clock: Clock
    reader: PropertyReader
    dead_letters: DeadLetters
    on_unused: Callable[[Queue], None]  # The queue's time is over; it is to be deleted.
    turns: Turns
    faults: Faults = Uncaught()


class Deferred(NamedTuple):
    lane: int
    offset: int
    due_ms: int


class Queue:
    def __init__(
        self,
        vhost: str,
        spec: QueueSpec,
        lanes: Sequence[Lane],
        surroundings: Surroundings,
        owner: object | None = None,
    ) -> None:
        settings = spec.settings
        assert len(lanes) == settings.lane_count
        self.vhost = vhost
        self.name = spec.name
        self.spec = spec
        self.settings = settings
        self.owner = owner  # The connection whose own the queue is.
        self._clock, self._reader = surroundings.clock, surroundings.reader
        self._on_unused = surroundings.on_unused
        self._faults = surroundings.faults
        self._stopped: str | None = None  # Why; the next start tries again.
        self._fronts = [Front(lane, settings, self._reader) for lane in lanes]
        self._by_priority = [*enumerate(self._fronts)][::-1]  # The highest first.
        self._watches = [SettlementWatch(lane) for lane in lanes]
        self._consumers = Consumers(self._text, single_active=settings.single_active)
        self._overflow = Overflow(settings)
        publish = partial(surroundings.dead_letters, self)
        burials = Burials(
            spec.name, settings, self._clock, self._reader, publish, self.guard, self._faults
        )
        self._outcome = Outcome(self._fronts, self._watches, burials)
        counter = Counter(self._consumers.room, self._outcome.refused, self.dispatch, self.guard)
        self._intake = Intake(self._fronts, self._watches, self._overflow, self._reader, counter)
        self.desk = LeaseDesk(self._fronts, self._outcome, self, self._clock)
        self._slices = Slices(surroundings.turns, self.guard, self._sliced)
        self._waiting_for_slices: list[Waiter] = []
        self._turn_count = limits.QUEUE_TURN_MESSAGES_MAX  # Messages that are read at once.
        self._is_dispatching = False
        self._is_continuing = False  # Another turn of dispatching is asked for.
        self._is_gone = False
        self._loop = asyncio.get_running_loop()
        self._timer = Timer(self._clock, partial(self.guard, self._on_time))
        self._unused = Timer(self._clock, partial(self.guard, self._on_expiry))
        self.touch()
        self._continue()  # Not at once: at a start, the queues that dead letters go to come later.

    @property
    def _text(self) -> str:
        return f"queue '{self.name}' in vhost '{self.vhost}'"

    # --- our own mistakes

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        """Call it on the queue's behalf: a mistake of ours there stops this queue only."""
        try:
            call(*arguments)
        except Exception as error:
            self._faults.caught(f"{self._text} is stopped", error)
            self.stop()

    def stop(self, reason: str = "a mistake of the broker's own; the log has more") -> None:
        """Serve nobody any more: what is ready, leased or settled is not known.

        The next start finds all that is permanent.
        """
        self._stopped = reason
        self.close()
        self._send_away()

    @property
    def is_stopped(self) -> bool:
        return self._stopped is not None

    def _check_running(self) -> None:
        """Raises QueueDown, in RabbitMQ's words."""
        if self.is_stopped:
            raise QueueDown(f"{self._text} has crashed and failed to restart")

    # --- what there is

    @property
    def ready_count(self) -> int:
        return sum(front.ready_count for front in self._fronts)

    @property
    def unacked_count(self) -> int:
        leased = sum(len(front.ledger.leased) for front in self._fronts)
        return leased - self._outcome.dying_count

    @property
    def deferred_count(self) -> int:
        return sum(len(front.ledger.deferred) for front in self._fronts)

    @property
    def bytes_kept(self) -> int:
        """Settled messages that are still kept among them."""
        return sum(front.lane.bytes_kept for front in self._fronts)

    @property
    def consumer_count(self) -> int:
        return self._consumers.count

    @property
    def consumers(self) -> Iterator[Consumer]:
        return iter(self._consumers)

    @property
    def active_consumer(self) -> Consumer | None:
        """Of a queue with a single active consumer."""
        return self._consumers.active

    @property
    def fault(self) -> str | None:
        """Why it is down: it was stopped, or its messages, or what was settled of them, cannot be
        read."""
        if self._stopped is not None:
            return self._stopped
        return next((front.lane.fault for front in self._fronts if front.lane.fault), None)

    def check_up(self) -> None:
        """Raises QueueDown."""
        self._check_running()
        if self.fault is not None:
            raise QueueDown(f"{self._text} is down: {self.fault}")

    @property
    def lanes(self) -> Sequence[Lane]:
        return [front.lane for front in self._fronts]

    @property
    def is_gone(self) -> bool:
        """It does nothing more, and what it says of itself is old."""
        return self._is_gone

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many messages policies have dropped since the queue was opened, by reason."""
        return self._outcome.dropped

    def account(self) -> Account:
        """Say where all messages are, and what does not add up."""
        return self._outcome.account()

    def peek(self, count: int) -> Iterator[tuple[int, Taken]]:
        """The next messages, each with its lane, read when they are asked for. They stay where
        they are. Raises StorageError."""
        for number, front in self._by_priority:
            self.check_up()
            for taken in front.peek(count):
                yield number, taken
                count -= len(taken.offsets)

    # --- publishing

    def publish(
        self,
        run: Run,
        publication: Publication | None,
        *,
        until_settled: bool = False,
        due_ms: int | None = None,
    ) -> None:
        """The publication ends when the run is committed, or consumed if `until_settled`."""
        self._intake.add(Arrival(run, publication, until_settled, due_ms))

    # --- handing out

    def add_consumer(self, consumer: Consumer) -> None:
        """Raises QueueInUse, QueueDown."""
        self._check_running()
        self._consumers.add(consumer)
        self._unused.stop()
        self._continue()

    def remove_consumer(self, consumer: Consumer) -> None:
        """What it has stays with it until it is settled or released."""
        if not self._consumers.remove(consumer):
            return
        if not self._consumers.count:
            if self.spec.auto_delete:
                self._on_unused(self)
            else:
                self.touch()
        self._continue()

    def dispatch(self) -> None:
        """Hand out what can be handed out, then see to what is left.

        While messages are being handed back nobody gets any: these come first.
        """
        is_busy = self._is_dispatching or self._slices
        if not is_busy and not self._is_gone and self.fault is None:
            self.guard(self._dispatch)

    def _dispatch(self) -> None:
        self._is_dispatching = True
        left = limits.QUEUE_TURN_MESSAGES_MAX
        try:
            while left > 0 and self._consumers.count:
                popped = self._hand_out(left)
                if not popped:
                    break
                left -= popped
        finally:
            self._is_dispatching = False
        if left > 0:
            self._see_to_the_rest()
        else:
            self._continue()

    def _continue(self) -> None:
        """Dispatch in the next turn."""
        if not self._is_continuing:
            self._is_continuing = True
            self._loop.call_soon(self._continued)

    def _continued(self) -> None:
        self._is_continuing = False
        self.dispatch()

    def _hand_out(self, count: int) -> int:
        """One round of dealing; how many messages came out of the lanes."""
        count = min(count, sum(front.ready_count_most for front in self._fronts))
        found = self._consumers.next_ones(count) if count else None
        if found is None:
            return 0
        ring, players = found
        count = min(count, sum(room for _, room in players), self._turn_count)
        deal, now_ms = Deal(players), self._clock.now_ms()
        deliveries: list[Delivery] = []
        popped_count = 0
        for number, front in self._by_priority:
            if count and front.ready_count_most:
                popped = self._pop(front, count, now_ms)
                popped_count += popped.size
                deliveries += self._deal(number, popped, deal)
                self._note_size(popped)
                count -= sum(len(taken.offsets) for taken in popped.good)
        for seat, number, taken in deliveries:
            seat.consumer.deliver(number, taken)
        if deal.last is not None:
            ring.served(deal.last)
        return popped_count

    def _note_size(self, popped: Popped) -> None:
        """Large messages are read a few at a time; the last ones tell how large they are."""
        if popped.good:
            _, body = popped.good[-1].run.messages[-1]
            self._turn_count = max(1, limits.QUEUE_TURN_BYTES_MAX // max(1, len(body)))

    def _deal(self, number: int, popped: Popped, deal: Deal[Seat]) -> list[Delivery]:
        """Lease or settle all that was popped. The deliveries are still to be made."""
        ledger = self._fronts[number].ledger
        deliveries: list[Delivery] = []
        consumed: list[range] = []
        for whole in popped.good:
            count = len(whole.offsets)
            for seat, hand in deal.hands(count):
                taken = whole
                if hand != slice(0, count, 1):
                    taken = whole.part(hand)
                deliveries.append((seat, number, taken))
                if seat.auto_ack:
                    consumed.append(taken.offsets)
                else:
                    ledger.lease(taken.offsets, seat.lease)
        self._outcome.finish(number, popped, consumed)
        return deliveries

    def get(self, owner: object, *, auto_ack: bool) -> tuple[int, Taken] | None:
        """The next message and its lane; None: there is none. Raises QueueDown."""
        self.check_up()
        self.touch()
        for number, front in self._by_priority:
            while front.ready_count_most:
                popped = self._pop(front, 1, self._clock.now_ms())
                consumed = [taken.offsets for taken in popped.good] if auto_ack else []
                if popped.good and not auto_ack:
                    front.ledger.lease(popped.good[0].offsets, Lease(owner))
                self._outcome.finish(number, popped, consumed)
                if popped.good:
                    self._look_ahead()
                    return number, popped.good[0]
                if not popped.size:
                    break
        self.check_up()
        return None

    def _pop(self, front: Front, count: int, now_ms: int) -> Popped:
        """None of them when the log cannot be read: it says so itself, and they stay."""
        try:
            return front.pop(count, now_ms)
        except StorageError:
            self._unreadable()
            return NOTHING

    def _unreadable(self) -> None:
        """If it is down for good, consumers are sent away: they would wait for nothing."""
        if self.fault is not None:
            self._loop.call_soon(self._send_away)

    def _send_away(self) -> None:
        for consumer in [*self._consumers]:
            self._consumers.remove(consumer)
            consumer.cancelled()

    # --- what is left

    def _see_to_the_rest(self) -> None:
        for front in self._fronts:
            front.came_up()
        if any(front.count_more() for front in self._fronts):
            self._continue()
        if self._overflow.drops:
            self._drop_excess()
        self._look_ahead()

    def _drop_excess(self) -> None:
        """A turn's at once. The rest has the next turn."""
        left = limits.QUEUE_TURN_MESSAGES_MAX
        excess = self._overflow.excess(self.ready_count)
        for number, front in self._by_priority:
            while min(excess, left) > 0 and front.ready_count_most:
                popped = self._drop(number, min(excess, left))
                if not popped:
                    break
                excess -= popped
                left -= popped
            while left > 0 and self._is_too_large and self._drop(number, 1):
                left -= 1
        if left <= 0:
            self._continue()

    @property
    def _is_too_large(self) -> bool:
        if not self._overflow.counts_bytes:
            return False
        return self._overflow.is_too_large(sum(front.ready_bytes for front in self._fronts))

    def _drop(self, number: int, count: int) -> int:
        popped = self._pop(self._fronts[number], count, now_ms=0)  # Too much before too late.
        excess = [(taken.offsets, taken.run) for taken in popped.good]
        self._outcome.finish(number, popped, excess=excess)
        return popped.size

    def _look_ahead(self) -> None:
        """Let go of what has expired, and wake up when the next one does or a delay ends."""
        now_ms = self._clock.now_ms()
        for number, front in enumerate(self._fronts):
            if front.may_expire:
                self._expire(number, front, now_ms)
            self._timer.set(front.ledger.next_time_ms)

    def _expire(self, number: int, front: Front, now_ms: int) -> None:
        try:
            popped = front.pop_overdue(now_ms)
            if popped.size:
                self._outcome.finish(number, popped)
            self._timer.set(front.expiry_ms())
        except StorageError:
            self._unreadable()  # The log says so itself. What cannot be read cannot expire.

    def _on_time(self) -> None:
        if self.fault is not None:
            return
        now_ms = self._clock.now_ms()
        for front in self._fronts:
            front.end_times(now_ms)
        self.dispatch()

    # --- what consumers say

    def settle(self, owner: object, lane: int, offsets: Sequence[int]) -> None:
        """The owner is done with them. What it does not have is not its to settle."""
        if not self._slices and len(offsets) <= limits.QUEUE_TURN_MESSAGES_MAX:
            self._settle(owner, lane, offsets)  # Nearly always.
        else:
            self._slices.do(partial(self._settle, owner, lane), offsets)

    def _settle(self, owner: object, lane: int, offsets: Sequence[int]) -> None:
        ledger = self._fronts[lane].ledger
        for each in _ranges(offsets):
            settled = ledger.settle(each, owner)
            if len(settled) > 1 and sum(map(len, settled)) == len(each):
                settled = [each]  # As it was dealt: every other one, perhaps.
            self._outcome.settled(lane, settled, CONSUMED)

    def reject(self, owner: object, lane: int, offsets: Sequence[int]) -> None:
        """The owner wants nobody to have them."""

        def kill(some: Sequence[int]) -> None:
            self._outcome.kill(lane, _ranges(some), owner, REJECTED)

        self._slices.do(kill, offsets)

    def requeue(
        self, owner: object, lane: int, offsets: Sequence[int], *, is_attempt: bool = True
    ) -> None:
        """The owner hands them back, to their old place."""
        self._slices.do(partial(self._requeue, owner, lane, is_attempt), offsets)

    def _requeue(self, owner: object, lane: int, is_attempt: bool, offsets: Sequence[int]) -> None:
        ledger, limit = self._fronts[lane].ledger, self.settings.delivery_limit
        if limit is not None and is_attempt:
            spent = [each for each in offsets if ledger.attempts(each) >= limit]
            self._outcome.kill(lane, _ranges(spent), owner, DELIVERY_LIMIT)
        for each in _ranges(offsets):
            self._outcome.release(lane, each, owner, is_attempt=is_attempt)
        if self._overflow.drops and not self._is_gone:
            self._drop_excess()
        self._continue()

    def release(self, owner: object) -> None:
        """The owner is gone: all it has comes back."""
        for number, front in enumerate(self._fronts):
            leases = front.ledger.leased.items()
            held = sorted(offset for offset, lease in leases if lease.owner is owner)
            if held:
                self.requeue(owner, number, held)

    def when_settlements_committed(self, waiter: Waiter) -> None:
        """Call back once all that was settled so far is permanent, or will not be."""
        if self._slices:
            self._waiting_for_slices.append(waiter)
            return
        waiting = len(self._fronts)
        failed: StorageError | None = None

        def one_done(failure: StorageError | None) -> None:
            nonlocal waiting, failed
            waiting -= 1
            failed = failed or failure
            if not waiting:
                waiter(failed)

        for front in self._fronts:
            front.lane.when_settlements_committed(one_done)

    def _sliced(self) -> None:
        """All that was settled, handed back or rejected is where it belongs."""
        waiters, self._waiting_for_slices = self._waiting_for_slices, []
        for waiter in waiters:
            self.when_settlements_committed(waiter)
        self._continue()

    # --- what its keeper does

    def purge(self) -> int:
        """Drop all that is ready; how many that are. Raises QueueDown."""
        self.check_up()
        count = 0
        for number, front in enumerate(self._fronts):
            dropped = front.discard()
            count += sum(map(len, dropped))
            self._outcome.settled(number, dropped, PURGED)
        return count

    def rewind(self, *, offset: int | None = None, time_ms: int | None = None) -> None:
        """From there on, everything is ready again that is still kept.

        Raises InvalidQueue when there is no such place, QueueDown.
        """
        self.check_up()
        if offset is not None and len(self._fronts) > 1:
            raise InvalidQueue(f"{self._text} has priorities: rewind it to a time")
        for number, front in enumerate(self._fronts):
            to_offset = front.lane.offset_for_time(time_ms) if time_ms is not None else offset
            assert to_offset is not None, "neither an offset nor a time"
            self._outcome.rewind(number, to_offset)
        self._continue()

    def deferred(self, count: int) -> list[Deferred]:
        """Messages that wait for a time, the soonest first. Raises QueueDown."""
        self.check_up()
        every = (
            Deferred(number, offset, due_ms)
            for number, front in enumerate(self._fronts)
            for offset, due_ms in front.ledger.deferred.items()
        )
        return nsmallest(count, every, key=lambda each: (each.due_ms, each.lane, each.offset))

    def change_deferred(self, lane: int, offset: int, due_ms: int) -> bool:
        """Another time; False when the message waits for none."""
        front = self._front_of(lane, offset)
        if front is None:
            return False
        front.defer(offset, due_ms)
        self._look_ahead()
        return True

    def cancel_deferred(self, lane: int, offset: int) -> bool:
        """It will not be handed out; False when the message waits for no time."""
        front = self._front_of(lane, offset)
        if front is None:
            return False
        self._outcome.settled(lane, front.cancel(offset), CANCELLED)
        return True

    def _front_of(self, lane: int, offset: int) -> Front | None:
        """The front where that message waits for its time, if it does. Raises QueueDown."""
        self.check_up()
        front = self._fronts[lane] if 0 <= lane < len(self._fronts) else None
        return front if front is not None and front.is_deferred(offset) else None

    def touch(self) -> None:
        """Somebody uses it: the time after which it is deleted begins again."""
        if self.settings.expires_ms is not None and not self._consumers.count:
            self._unused.stop()
            self._unused.set(self._clock.now_ms() + self.settings.expires_ms)

    def _on_expiry(self) -> None:
        if self.fault is None:  # What nobody can use is not unused.
            self._on_unused(self)

    def delete(self) -> int:
        """Everything goes; how many messages were ready."""
        count = self.ready_count
        self.close()
        for front in self._fronts:
            front.lane.drop()
        self._send_away()
        return count

    def close(self) -> None:
        """Nothing more is done, nor told to the lanes."""
        self._is_gone = True
        self._timer.stop()
        self._unused.stop()
        self._intake.close()
        self.desk.close()
        self._outcome.close()
        self._slices.close()


def _ranges(offsets: Sequence[int]) -> Iterable[range]:
    if isinstance(offsets, range):
        return (offsets,)
    return Ranges(range(offset, offset + 1) for offset in offsets)
