"""Receipts: leases of single messages, for clients that ask for a few messages at a time.

Such a client has no connection that could end. Each message that it gets has a receipt, and is
leased until a time; before that the client settles the message, or changes the time. Otherwise the
message is ready again, which counts as a delivery that failed. The receipt of the last delivery
still settles the message then, unless somebody else has it; earlier receipts do nothing.

A client may wait for messages. All who wait are one consumer of the queue: what is delivered to
it goes to those who have waited longest, so ten thousand of them cost the queue no more than one.

All receipts share one lease in the ledger, whose owner is this object: what belongs to a single
message, its receipt and its time, is kept here. Nothing of it survives a restart: the messages
are ready again then, and receipts from before do nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from entrepot.broker.ledger import NEVER, Lease
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.timer import Timer
from entrepot.broker.turns import Turns
from entrepot.core import limits
from entrepot.core.errors import (
    LeaseTooLong,
    NotLeased,
    TooManyLeases,
    UnknownQueue,
    UnknownReceipt,
)
from entrepot.core.message import Message
from entrepot.core.ports import Clock

if TYPE_CHECKING:
    from entrepot.broker.queue.queue import Queue

_TIMES_STALE_MAX = 64  # Outdated times in the heap beyond the number of valid ones.


class Receipt:
    """One delivery of one message."""

    __slots__ = ("first_ms", "is_renewed", "lane", "number", "offset", "received_ms", "until_ms")

    def __init__(self, number: int, lane: int, offset: int, now_ms: int, first_ms: int) -> None:
        self.number = number
        self.lane = lane
        self.offset = offset
        self.received_ms = now_ms
        self.first_ms = first_ms  # When the message was first delivered, as far as is known.
        self.until_ms = NEVER
        self.is_renewed = False  # Whether its holder has changed the time.


class Received(NamedTuple):
    """A message, and how it was delivered."""

    receipt: str
    lane: int
    offset: int
    message: Message
    time_ms: int  # When it was published.
    attempts: int  # How often it was delivered before.
    first_ms: int  # When it was first delivered, as far as is known.


class Waiting:
    """A client that waits for messages. What it gets is the result of `found`."""

    __slots__ = ("found", "lasts_ms", "received", "room")

    def __init__(self, room: int, lasts_ms: int) -> None:
        self.room = room  # How many more messages it takes.
        self.lasts_ms = lasts_ms
        self.received: list[Received] = []
        self.found: asyncio.Future[list[Received]] = asyncio.get_running_loop().create_future()


class Receipts:
    """The receipts of one queue. Implements `Consumer` for all who wait."""

    tag = "receipts"
    auto_ack = False
    is_exclusive = False
    priority = 0

    def __init__(self, queue: Queue, clock: Clock, turns: Turns) -> None:
        self._queue = queue
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        # Begins each receipt: the queue, and this opening of it.
        self._name = f"{crc32(f'{queue.vhost}/{queue.name}'.encode('utf-8', 'replace')):08x}"
        self._opening = f"{clock.now_ms():x}"
        self._number = 0
        self._held: dict[tuple[int, int], Receipt] = {}  # By lane and offset: leased now.
        # The last receipts of messages that are ready again, the oldest first.
        # Ordered: of a dict from whose front much was deleted, the first key is far.
        self._kept: OrderedDict[tuple[int, int], Receipt] = OrderedDict()
        self._times: list[tuple[int, int, int, int]] = []  # A heap: ms, number, lane, offset.
        self._timer = Timer(clock, turns, partial(queue.guard, self._on_time))
        # Those with room, the longest waiting first.
        self._waiting: OrderedDict[Waiting, None] = OrderedDict()
        self._wanted = 0  # The room of all of them.
        # What requests that may be repeated got: when, and which receipts. The oldest first.
        self._attempts: OrderedDict[str, tuple[int, list[str]]] = OrderedDict()
        self._is_consumer = False

    @property
    def count(self) -> int:
        """Return how many messages are leased."""
        return len(self._held)

    # --- taking and waiting

    def take(self, count: int, lasts_ms: int) -> list[Received]:
        """Take the next messages, at most `count`, and lease them for `lasts_ms`.

        Returns fewer if they are large. Raises QueueDown; TooManyLeases if as many messages of
        the queue are leased as may be.
        """
        room = limits.QUEUE_RECEIPTS_MAX - len(self._held)
        if room <= 0:
            raise TooManyLeases(f"{len(self._held)} messages of this queue are in flight")
        self._queue.touch()
        received: list[Received] = []
        left, size = min(count, room), 0
        while left > 0 and size < limits.QUEUE_TURN_BYTES_MAX:
            found = self._queue.take(Lease(self), left)
            if not found:
                break
            for lane, taken in found:
                received += self._receive(lane, taken, range(len(taken.offsets)), lasts_ms)
                left -= len(taken.offsets)
                size += sum([len(body) for _, body in taken.run.messages])
        return received

    def remember(self, attempt: str, received: Sequence[Received]) -> None:
        """Remember what a request got, so that it can be repeated under the same name."""
        self._attempts.pop(attempt, None)
        self._attempts[attempt] = (self._clock.now_ms(), [each.receipt for each in received])
        if len(self._attempts) > limits.QUEUE_ATTEMPTS_KEPT_MAX:
            self._attempts.popitem(last=False)

    def repeat(self, attempt: str, lasts_ms: int) -> list[Received]:
        """Return what the request of that name got, and lease it for `lasts_ms` from now.

        Returns nothing if that is too long ago, or if any of the messages was settled, released or
        renewed since. Raises StorageError.
        """
        time_ms, names = self._attempts.get(attempt, (0, []))
        now_ms = self._clock.now_ms()
        if not names or now_ms - time_ms >= limits.QUEUE_ATTEMPTS_KEPT_MS:
            return []
        received: list[Received] = []
        for name in names:
            key, number = self._parse(name)
            held = self._held.get(key)
            if held is None or held.number != number or held.is_renewed:
                return []
            lane = self._queue.lanes[held.lane]
            for _, run in lane.read(range(held.offset, held.offset + 1)):
                attempts = lane.ledger.attempts(held.offset)
                message = run.messages[0]
                received.append(Received(name, *key, message, run.time_ms, attempts, held.first_ms))
        for each in received:
            self._set_time(self._held[each.lane, each.offset], now_ms + lasts_ms)
        return received

    def wait(self, count: int, lasts_ms: int) -> Waiting:
        """Wait for messages, at most `count`, which are then leased for `lasts_ms`.

        The result has at least one, unless `answer` is called before; it is UnknownQueue if the
        queue is deleted or stopped first. Who no longer wants them calls `give_up`.
        Raises QueueInUse, QueueDown.
        """
        waiting = Waiting(count, lasts_ms)
        if not self._is_consumer:
            self._queue.add_consumer(self)
            self._is_consumer = True
        self._waiting[waiting] = None
        self._wanted += count
        return waiting

    def give_up(self, waiting: Waiting) -> None:
        """End a wait. Messages that it has got and nobody has seen are ready again."""
        if waiting in self._waiting:
            self._remove(waiting)
        self.release(waiting.received)
        waiting.found.cancel()

    def _remove(self, waiting: Waiting) -> None:
        del self._waiting[waiting]
        self._wanted -= waiting.room
        if not self._waiting:
            self._loop.call_soon(self._queue.guard, self._leave)

    def _leave(self) -> None:
        """Be no consumer any more, unless somebody waits again."""
        if self._is_consumer and not self._waiting:
            self._is_consumer = False
            self._queue.remove_consumer(self)

    def _receive(
        self, lane: int, taken: Taken, places: Iterable[int], lasts_ms: int
    ) -> list[Received]:
        """Make receipts for those of the messages, which are leased already."""
        now_ms = self._clock.now_ms()
        offsets, (time_ms, messages), attempts = taken
        received: list[Received] = []
        for place in places:
            offset = offsets[place]
            before = self._kept.pop((lane, offset), None)
            self._number += 1
            first_ms = now_ms if before is None else before.first_ms
            receipt = Receipt(self._number, lane, offset, now_ms, first_ms)
            self._held[lane, offset] = receipt
            self._set_time(receipt, now_ms + lasts_ms)
            received.append(
                Received(
                    f"{self._name}-{self._opening}-{lane:x}-{offset:x}-{self._number:x}",
                    lane,
                    offset,
                    messages[place],
                    time_ms,
                    0 if attempts is None else attempts[place],
                    first_ms,
                )
            )
        return received

    # --- Consumer

    def room(self) -> int:
        wanted = self._wanted
        if wanted and self._queue.settings.has_groups:  # Messages of a group go to one receiver.
            wanted = next(iter(self._waiting)).room
        return min(wanted, limits.QUEUE_RECEIPTS_MAX - len(self._held))

    def deliver(self, lane: int, taken: Taken) -> None:
        place, count = 0, len(taken.offsets)
        while place < count:
            waiting = next(iter(self._waiting))
            end = min(count, place + waiting.room)
            if not waiting.received:  # More may be delivered to it in this turn.
                self._loop.call_soon(self._queue.guard, self.answer, waiting)
            waiting.received += self._receive(lane, taken, range(place, end), waiting.lasts_ms)
            waiting.room -= end - place
            self._wanted -= end - place
            place = end
            if not waiting.room:
                self.answer(waiting)

    def answer(self, waiting: Waiting) -> None:
        """End a wait, if it has not ended: its result is what it has got, perhaps nothing."""
        if waiting in self._waiting:
            self._remove(waiting)
            if not waiting.found.done():
                waiting.found.set_result(waiting.received)

    def cancelled(self) -> None:
        self._is_consumer = False
        gone, self._waiting, self._wanted = self._waiting, OrderedDict(), 0
        for waiting in gone:
            if waiting.found.done():
                continue
            if waiting.received:  # In this very turn.
                waiting.found.set_result(waiting.received)
            else:
                waiting.found.set_exception(UnknownQueue(f"queue '{self._queue.name}' is gone"))

    def activated(self, is_active: bool) -> None:
        pass

    # --- settling, renewing and releasing

    def settle(self, name: str) -> bool:
        """Settle the message of a receipt, if that is the last one and nobody else has it.

        Returns whether it is settled now. Raises UnknownReceipt, StorageError.
        """
        key, number = self._parse(name)
        lane, offset = key
        held = self._held.get(key)
        if held is not None and held.number == number:
            del self._held[key]
            self._queue.settle(self, lane, range(offset, offset + 1))
            if self._waiting:  # As many may have been leased as may be.
                self._queue.dispatch()
            return True
        kept = self._kept.get(key)
        if kept is None or kept.number != number:
            return False
        del self._kept[key]
        found, _ = self._queue.take_at(Lease(self), lane, range(offset, offset + 1))
        if not found:
            return False
        self._queue.settle(self, lane, range(offset, offset + 1))
        return True

    def renew(self, name: str, lasts_ms: int) -> None:
        """Let the lease of a receipt's message end `lasts_ms` from now.

        Raises UnknownReceipt, NotLeased; LeaseTooLong if it would last more than LEASE_MS_MAX since
        the message was delivered.
        """
        key, number = self._parse(name)
        held = self._held.get(key)
        if held is None or held.number != number:
            raise NotLeased("the message is not in flight by this receipt")
        now_ms = self._clock.now_ms()
        if now_ms + lasts_ms - held.received_ms > limits.LEASE_MS_MAX:
            raise LeaseTooLong(f"more than {limits.LEASE_MS_MAX} ms since the delivery")
        held.is_renewed = True
        if lasts_ms:
            self._set_time(held, now_ms + lasts_ms)
        else:
            del self._held[key]
            self._expire([held])

    def is_over(self, name: str) -> bool:
        """Return whether the receipt has no effect any more, and its message is not settled.

        Raises UnknownReceipt.
        """
        (lane, offset), number = self._parse(name)
        held = self._held.get((lane, offset))
        if held is not None and held.number == number:
            return False
        if not 0 <= lane < len(self._queue.lanes):
            return True
        return not self._queue.lanes[lane].ledger.is_settled(offset)

    def release(self, received: Iterable[Received]) -> None:
        """Make messages ready again that the client has not seen: that is no failed delivery."""
        for each in received:
            held = self._held.get((each.lane, each.offset))
            if held is not None and held.number == self._parse(each.receipt)[1]:
                del self._held[each.lane, each.offset]
                offsets = range(each.offset, each.offset + 1)
                self._queue.requeue(self, each.lane, offsets, is_attempt=False)

    def settle_all(self) -> int:
        """Settle all messages that are leased. Returns how many."""
        held, self._held = self._held, {}
        self._kept.clear()
        for lane, offsets in _by_lane(held.values()):
            self._queue.settle(self, lane, offsets)
        return len(held)

    def _parse(self, name: str) -> tuple[tuple[int, int], int]:
        """Return lane and offset of a receipt, and its number; 0 if it is of an earlier opening.

        Raises UnknownReceipt.
        """
        queue, _, rest = name.partition("-")
        opening, _, rest = rest.partition("-")
        parts = rest.split("-")
        if queue == self._name and len(name) <= limits.NAME_BYTES_MAX and len(parts) == 3:
            try:
                lane, offset, number = (int(each, 16) for each in parts)
            except ValueError:
                pass
            else:
                return (lane, offset), number if opening == self._opening else 0
        raise UnknownReceipt("this is no receipt of the queue")

    # --- time

    def _set_time(self, receipt: Receipt, until_ms: int) -> None:
        receipt.until_ms = until_ms
        heappush(self._times, (until_ms, receipt.number, receipt.lane, receipt.offset))
        if len(self._times) > 2 * len(self._held) + _TIMES_STALE_MAX:
            self._times = [
                (each.until_ms, each.number, each.lane, each.offset) for each in self._held.values()
            ]
            heapify(self._times)
        self._timer.set(until_ms)

    def _on_time(self) -> None:
        """End the leases whose time is over, at most as many as in one turn."""
        now_ms = self._clock.now_ms()
        over: list[Receipt] = []
        while self._times and self._times[0][0] <= now_ms:
            if len(over) >= limits.QUEUE_TURN_MESSAGES_MAX:
                break
            until_ms, number, lane, offset = heappop(self._times)
            held = self._held.get((lane, offset))
            if held is not None and held.number == number and held.until_ms == until_ms:
                del self._held[lane, offset]
                over.append(held)
        self._expire(over)
        if self._times:
            self._timer.set(self._times[0][0])

    def _expire(self, over: list[Receipt]) -> None:
        """Make these messages ready again, or dead letters if they were delivered too often."""
        for each in over:
            self._kept[each.lane, each.offset] = each
            if len(self._kept) > limits.QUEUE_RECEIPTS_KEPT_MAX:
                self._kept.popitem(last=False)
        for lane, offsets in _by_lane(over):
            self._queue.requeue(self, lane, offsets)

    def close(self) -> None:
        self._timer.stop()
        self._held.clear()
        self._kept.clear()
        self._times.clear()
        self._attempts.clear()


def _by_lane(receipts: Iterable[Receipt]) -> Iterable[tuple[int, list[int]]]:
    lanes: dict[int, list[int]] = {}
    for each in receipts:
        lanes.setdefault(each.lane, []).append(each.offset)
    return [(lane, sorted(offsets)) for lane, offsets in lanes.items()]
