"""Messages of shared queues that are delivered exactly once: each belongs to one session.

A message that a shared queue hands out may go to another session when its receiver does not
answer. For exactly once it may not: whoever was told of it may have it. So it is *assigned*: its
lease passes from the connection to the session, and that is recorded, with its number, before the
receiver gets it. It stays with the session over connections and restarts, and is delivered again
with the same number; when the session ends it is settled, and nobody else gets it.

The receiver's answer (`received`) is recorded before the message is settled, and before the
number is released. The record is deleted when the receiver has completed it *and* the settlement
is committed, for these are in different partitions, of which a crash may keep either.

In a session that ends with its connection nothing is recorded: a crash ends it, and what it has
not settled goes to others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from entrepot.broker.ledger import Lease
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.record_store import RecordStore
from entrepot.broker.session.ports import Parcel, Quality, Receiver, Way
from entrepot.broker.session.records import StoredAssignment, assigned_record, unassigned_record
from entrepot.core.errors import NotEnoughReplicasAfterAppend, StorageError
from entrepot.core.faults import Faults
from entrepot.core.record import Record

if TYPE_CHECKING:
    from entrepot.broker.session.session import Session

log = logging.getLogger("entrepot.session")

_AT_ONCE_MAX = 32  # Messages that are read again in one turn.
_OVER_MAX = 100  # With so many, their records are deleted;
_OVER_S = 1.0  # otherwise after this time.


class _Assigned:
    __slots__ = ("is_received", "is_recorded", "offset", "queue", "way")

    def __init__(self, queue: Queue | None, offset: int, way: Way, *, is_recorded: bool) -> None:
        self.queue = queue  # None means: it is deleted.
        self.offset = offset
        self.way = way
        self.is_recorded = is_recorded  # The newest of its records is committed.
        self.is_received = False  # The receiver has it, and has not completed it.

    def settle(self, owner: object) -> None:
        if self.queue is not None and not self.queue.is_gone:
            self.queue.settle(owner, 0, _one(self.offset))

    def leave(self, owner: object) -> None:
        """Settle it if somebody may have been told of it; otherwise return it to its queue."""
        if self.is_recorded:
            self.settle(owner)
        elif self.queue is not None and not self.queue.is_gone:
            self.queue.requeue(owner, 0, [self.offset], is_attempt=False)


class Assignments:
    """What is assigned to one session. It owns the leases."""

    def __init__(self, session: Session, store: RecordStore, faults: Faults) -> None:
        self._session = session
        self._store = store
        self._faults = faults
        self._messages: dict[int, _Assigned] = {}  # By number, in the order of assignment.
        self._unsent: dict[int, None] = {}  # To be delivered again to the present receiver.
        self._coming = 0  # Messages that the receiver gets when they are recorded.
        self._failed: dict[int, None] = {}  # Those that could not be.
        self._over: dict[int, Queue | None] = {}  # Numbers that are over, and still recorded.
        self._has_timer = False  # Whether records are deleted after a while.
        self._is_reading = False  # Whether more is delivered in the next turn.

    def __contains__(self, number: int) -> bool:
        """Return whether the number is in use, or still recorded as such."""
        return number in self._messages or number in self._over

    @property
    def is_any(self) -> bool:
        return bool(self._messages or self._over)

    @property
    def numbers(self) -> list[int]:
        return [*self._messages, *self._over]

    @property
    def waiting_count(self) -> int:
        """Return how much of the receiver's room is taken by what it has not got yet."""
        return self._coming + len(self._failed) + len(self._unsent)

    # --- delivering

    def assign(
        self, queue: Queue, owner: object, way: Way, taken: Taken, numbers: list[int]
    ) -> None:
        """Take over messages that are leased to the owner, and deliver them when that is
        recorded."""
        session = self._session
        ledger, lease = queue.lanes[0].ledger, Lease(self)
        for number, offset in zip(numbers, taken.offsets, strict=True):
            ledger.hand_over(range(offset, offset + 1), owner, lease)
            self._messages[number] = _Assigned(queue, offset, way, is_recorded=False)
        self._coming += len(numbers)
        done = partial(self._recorded, queue, way, taken, numbers, session.receiver)
        if not session.is_durable:
            done(None)
            return
        for number, offset in zip(numbers, taken.offsets, strict=True):
            self._store.put(assigned_record(session.number, number, queue.name, offset))
        self._store.when_committed(done)

    def _recorded(
        self,
        queue: Queue,
        way: Way,
        taken: Taken,
        numbers: list[int],
        receiver: Receiver | None,
        failure: StorageError | None,
    ) -> None:
        self._coming -= len(numbers)
        kept = [number for number in numbers if number in self._messages]
        if failure is not None:
            self._failed |= dict.fromkeys(kept)
            return
        for number in kept:
            self._messages[number].is_recorded = True
        session = self._session
        if session.receiver is receiver and session.is_attached and kept == numbers:
            assert receiver is not None
            is_repeated = taken.attempts is not None and any(taken.attempts)
            receiver.deliver(Parcel(taken.run, numbers, way, is_repeated))
        elif session.is_attached:  # To another receiver, or without those that are over.
            self._unsent |= dict.fromkeys(kept)
            self.go_on()

    def begin(self) -> list[int]:
        """Begin with a new receiver. Returns the numbers that it has to be told are free."""
        committed = [(number, each) for number, each in self._messages.items() if each.is_recorded]
        self._unsent = {number: None for number, each in committed if not each.is_received}
        return [number for number, each in committed if each.is_received]

    def stop(self) -> None:
        """End with the receiver. What is assigned stays so; what could not be recorded, of which
        nobody was told, goes back to its queue."""
        self._unsent.clear()
        failed, self._failed = self._failed, {}
        for number in failed:
            self._messages.pop(number).leave(self)

    def go_on(self) -> None:
        """Deliver again, as far as there is room, in the next turn of the loop."""
        if self._unsent and not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().call_soon(
                self._faults.guard, "delivering messages again", self._deliver_some
            )

    def _deliver_some(self) -> None:
        self._is_reading = False
        session = self._session
        receiver = session.receiver
        if receiver is None or not session.is_attached:
            return
        for number in [*islice(self._unsent, _AT_ONCE_MAX)]:
            if receiver.room() <= 0:
                return  # The session will be woken.
            del self._unsent[number]
            each = self._messages.get(number)
            if each is not None and not each.is_received:
                self._deliver_again(receiver, number, each)
        self.go_on()

    def _deliver_again(self, receiver: Receiver, number: int, each: _Assigned) -> None:
        queue = each.queue
        try:
            is_there = queue is not None and not queue.is_gone
            found = queue.lanes[0].read(_one(each.offset)) if queue and is_there else []
        except StorageError as error:
            log.error("client %r does not get a message: %s", self._session.client_id, error)
            return
        if found:
            ((_, run),) = found
            receiver.deliver(Parcel(run, [number], each.way, True))
        else:
            self._end(number)

    # --- the receiver's answers

    def acknowledge(self, number: int) -> None:
        """Settle a message that the receiver has, or does not want."""
        if (each := self._messages.get(number)) is not None:
            each.settle(self)
            self._end(number)

    def received(self, numbers: Sequence[int]) -> None:
        """Record that the receiver has these messages, then settle them and release the numbers."""
        session, messages = self._session, self._messages
        new = [each for each in numbers if each in messages and not messages[each].is_received]
        self._release([each for each in numbers if each not in messages])
        for number in new:
            each = messages[number]
            each.is_received, each.is_recorded = True, False
            if session.is_durable and each.queue is not None:
                name, offset = each.queue.name, each.offset
                record = assigned_record(session.number, number, name, offset, is_received=True)
                self._store.put(record)
        done = partial(self._received, new)
        if session.is_durable:
            self._store.when_committed(done)
        else:
            done(None)

    def _received(self, numbers: Sequence[int], failure: StorageError | None) -> None:
        """Settle the messages and release their numbers. See `Session._released`."""
        if isinstance(failure, NotEnoughReplicasAfterAppend):
            failure = None
        kept = [number for number in numbers if number in self._messages]
        for number in kept:
            each = self._messages[number]
            each.is_recorded = True
            each.is_received = failure is None  # Otherwise it is delivered to the next receiver.
            if failure is None:
                each.settle(self)
        if failure is None:
            self._release(kept)

    def _release(self, numbers: Sequence[int]) -> None:
        session = self._session
        if numbers and session.receiver is not None and session.is_attached:
            session.receiver.release(numbers)

    def completed(self, number: int) -> None:
        """Note that the receiver has completed a number that was released."""
        if number in self._messages:
            self._end(number)

    # --- the end

    def _end(self, number: int) -> None:
        """Forget a message that is settled, and later the record of it."""
        each = self._messages.pop(number)
        if not self._session.is_durable:
            self._session.free([number])
            return
        if not self._has_timer:
            self._has_timer = True
            loop = asyncio.get_running_loop()
            loop.call_later(_OVER_S, self._faults.guard, "forgetting messages", self._on_time)
        self._over[number] = each.queue
        if len(self._over) >= _OVER_MAX:
            self._forget()

    def _on_time(self) -> None:
        self._has_timer = False
        self._forget()

    def _forget(self) -> None:
        """Delete records, of each queue when it is committed that its messages are settled."""
        by_queue: dict[Queue | None, list[int]] = {}
        for number, queue in self._over.items():
            by_queue.setdefault(queue, []).append(number)
        for queue, numbers in by_queue.items():
            done = partial(self._settled, numbers)
            if queue is None or queue.is_gone:
                done(None)
            else:
                queue.when_settlements_committed(done)

    def _settled(self, numbers: Sequence[int], failure: StorageError | None) -> None:
        if failure is None:
            over = [number for number in numbers if number in self._over]
            for number in over:
                del self._over[number]
                self._store.put(unassigned_record(self._session.number, number))
            self._session.free(over)

    def leave(self, queue: Queue) -> None:
        """Settle what is assigned of a queue that the session does not consume any more. What its
        receiver answers is still taken."""
        for number, each in [*self._messages.items()]:
            if each.queue is queue and not each.is_received:
                each.leave(self)
                self._unsent.pop(number, None)
                self._failed.pop(number, None)
                self._end(number)

    def end(self) -> Iterator[Record]:
        """Settle everything, for the session has ended. Yields what deletes its records."""
        for each in self._messages.values():
            each.leave(self)
        numbers = self.numbers
        for kept in (self._messages, self._over, self._unsent, self._failed):
            kept.clear()
        for number in numbers:
            yield unassigned_record(self._session.number, number)

    # --- at a start

    def restore(self, stored: Mapping[int, StoredAssignment], queues: Mapping[str, Queue]) -> None:
        """Lease what was assigned before the start. `queues` has those that there are."""
        for number, known in stored.items():
            queue = queues.get(known.queue)
            if queue is None and not known.is_received:
                self._store.put(unassigned_record(self._session.number, number))
                continue
            way = Way(Quality.EXACTLY_ONCE)
            each = self._messages[number] = _Assigned(queue, known.offset, way, is_recorded=True)
            each.is_received = known.is_received
            try:
                taken = queue and queue.take_at(Lease(self), 0, _one(known.offset))[0]
            except StorageError:
                continue  # The queue gives nothing to anybody, and says so.
            if known.is_received:
                each.settle(self)
            elif not taken:  # It is settled: that was committed before its record was deleted.
                self._end(number)


def _one(offset: int) -> range:
    return range(offset, offset + 1)
