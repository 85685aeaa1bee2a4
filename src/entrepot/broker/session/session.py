"""One session: the subscriptions of a client, and the messages in flight to it.

Messages that are answered wait in the session's queue, which is in the log if the session
outlives its connection, and otherwise in memory. The queue has each message as it was published;
by which subscriptions the session gets it is found out again when it is delivered.

The number of a message is given by its offset in the queue. So the same message has the same
number after a restart, and nothing needs to be stored for that; but messages in flight must have
offsets within `_SPAN` of each other. Numbers above it are for messages of other queues, which
the session shares with others, and for those that pass its own queue by.

For exactly once, the receiver's first answer (`received`) is recorded before it is told that the
number is free, and the message is settled after that: whatever a crash leaves of it, the message
is not delivered again, and the receiver is told again that the number is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain

from entrepot.broker.ledger import Lease
from entrepot.broker.queue.message import Run, Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.session.assigned import Assignments
from entrepot.broker.session.ports import (
    Broadcast,
    Granted,
    Parcel,
    Quality,
    Receiver,
    Subscription,
    Way,
    Will,
)
from entrepot.broker.session.records import StoredAssignment, released_record
from entrepot.broker.session.sender import Sender
from entrepot.broker.session.surroundings import Feed, Home, Member
from entrepot.broker.session.ways import Ways
from entrepot.core.errors import NotEnoughReplicasAfterAppend, StorageError
from entrepot.core.message import distinct

RETAINED = "$retained"  # Stands for the exchange of a retained message. Persisted.
_SPAN = 32_768
_NUMBER_LAST = 65_535
_COMPLETED_MAX = 100  # With so many, their records are deleted;
_COMPLETED_S = 1.0  # otherwise after this time.

_Origin = tuple[Member, int, int]  # Of a message from a queue that is shared: lane and offset.
KEEP = -1  # As an expiry: the one that the session has.


class Session(Sender):
    tag = "session"
    auto_ack = False
    is_exclusive = False
    priority = 0

    def __init__(
        self,
        number: int,
        client_id: str,
        user: str,
        home: Home,
        *,
        is_durable: bool,
        is_restored: bool = False,
    ) -> None:
        super().__init__(number, home.store, is_durable=is_durable, is_restored=is_restored)
        self.client_id = client_id
        self.user = user
        self.was_connected = False  # Whether it was connected when the broker ended.
        self.expiry_ms: int | None = 0  # None means: it never expires.
        self.ended_ms: int | None = None  # When its connection ended, if it has none.
        self.will: Will | None = None
        self.subscriptions: dict[str, Subscription] = {}  # By filter.
        self.members: dict[str, Member] = {}  # By filter, of subscriptions that are shared.
        self.queue: Queue | None = None  # Made when a subscription needs it.
        self.feeds: dict[Feed, None] = {}  # Of retained messages that are to be delivered.
        self.receiver: Receiver | None = None
        self.is_attached = False  # Whether the receiver takes messages yet.
        self.released_offsets: dict[int, int] = {}  # By number: received and not completed.
        self._recording: dict[int, None] = {}  # Those of them whose record is not committed.
        self._home = home
        self._ways = Ways()
        self._in_flight: dict[int, int] = {}  # Number -> offset in the queue.
        # Offsets that are completed, and still recorded as received.
        self._completed: dict[int, None] = {}
        self._is_starved = False  # Whether something waits until there is room.
        self._low = 0  # No offset in flight or released is below it.
        self._shared: dict[int, _Origin | None] = {}  # By number. None means: of no queue.
        self._shared_last = _SPAN  # The last number that was given for these.
        self.assigned = Assignments(self, home.store, home.faults)

    # --- the verbs of a gateway

    def subscribe_now(self, wanted: Sequence[Subscription]) -> list[Granted] | None:
        """Subscribe to filters, which must be valid, if nothing has to be awaited for that.

        None means: nothing is done, and `subscribe` must be called.
        """
        return self._home.subscribe_now(self, wanted)

    async def subscribe(self, wanted: Sequence[Subscription]) -> list[Granted]:
        """Subscribe to filters, which must be valid. Returns when that is committed.

        Raises StorageError.
        """
        return await self._home.subscribe(self, wanted)

    async def unsubscribe(self, filters: Sequence[str]) -> list[bool]:
        """End subscriptions. Returns which of them there were. Raises StorageError."""
        return await self._home.unsubscribe(self, filters)

    def send_retained(self, wanted: Sequence[Subscription], granted: Sequence[Granted]) -> None:
        """Deliver the retained messages that these subscriptions want, in turns."""
        self._home.send_retained(self, wanted, granted)

    def attach(self, receiver: Receiver) -> None:
        """Begin to deliver to the receiver that the session was opened with."""
        if self.receiver is not receiver or self.is_attached:
            return
        self.is_attached = True
        released = sorted(self.released_offsets.items(), key=lambda each: each[1])
        numbers = [number for number, _ in released if number not in self._recording]
        numbers += self.assigned.begin()
        if numbers:
            receiver.release(numbers)
        if self.queue is not None:
            self.queue.add_consumer(self)
        self.assigned.go_on()
        for member in self.members.values():
            member.attach()

    def detach(
        self, receiver: Receiver, *, expiry_ms: int | None = KEEP, with_will: bool = False
    ) -> None:
        """End the connection. Without effect if another one has the session.

        `expiry_ms` may change when the session expires. `with_will` says whether the client's
        will is published; otherwise it is forgotten.
        """
        self._home.detach(self, receiver, expiry_ms, with_will)

    def stop(self) -> None:
        """Deliver nothing more, and return what is in flight to the queues."""
        self.receiver, was_attached = None, self.is_attached
        self.is_attached = False
        if not was_attached:
            return
        if self.queue is not None:
            self.queue.remove_consumer(self)
            self.queue.release(self)
        for member in [*self.members.values()]:
            member.detach()
        self.feeds.clear()
        self._in_flight.clear()
        self.assigned.stop()
        self._shared = dict.fromkeys(self.assigned.numbers)

    def wake(self) -> None:
        """Deliver more, if there is room."""
        self._is_starved = False
        if self.is_attached:
            for feed in [*self.feeds]:
                feed.go_on()
            self.assigned.go_on()
            if self.queue is not None and self.queue.has_waiting:
                self.queue.dispatch()
            for member in self.members.values():
                member.wake()

    def _wake_if_starved(self) -> None:
        """Deliver more if something waits for room; otherwise there is nothing to deliver."""
        if self._is_starved:
            self.wake()

    # --- the receiver's answers

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Settle messages that the receiver has. Unknown numbers are passed over."""
        offsets: list[int] = []
        in_flight, assigned, shared = self._in_flight, self.assigned, self._shared
        is_any_assigned = assigned.is_any
        for number in numbers:
            offset = in_flight.pop(number, None)
            if offset is not None:
                offsets.append(offset)
            elif is_any_assigned and number in assigned:
                assigned.acknowledge(number)
            elif (origin := shared.pop(number, None)) is not None:
                member, lane, place = origin
                member.settle(lane, place)
        if offsets:
            assert self.queue is not None
            self.queue.settle(self, 0, _row(offsets))
        if self._is_starved:  # Otherwise there is nothing to deliver.
            self.wake()

    def received(self, numbers: Sequence[int]) -> None:
        """Record that the receiver has these messages, and then release their numbers."""
        known: list[int] = []
        others: list[int] = []
        assigned: list[int] = []
        for number in numbers:
            offset = self._in_flight.pop(number, None)
            if number in self.assigned:
                assigned.append(number)
            elif offset is not None:
                known.append(number)
                self.released_offsets[number] = offset
                self._recording[number] = None
            elif number not in self._recording:
                others.append(number)
                if (origin := self._shared.get(number)) is not None:
                    member, lane, place = origin
                    member.settle(lane, place)
                    self._shared[number] = None  # In use until it is completed.
        if others and self.receiver is not None:
            self.receiver.release(others)
        if assigned:
            self.assigned.received(assigned)
        if not known:
            return
        offsets = [self.released_offsets[number] for number in known]
        done = partial(self._released, known, offsets)
        if self.is_durable:
            store = self._home.store
            store.put(*[released_record(self.number, offset) for offset in offsets])
            store.when_committed(done)
        else:
            done(None)

    def _released(
        self, numbers: Sequence[int], offsets: Sequence[int], failure: StorageError | None
    ) -> None:
        """Settle the messages, and tell the receiver that their numbers are free.

        It may be another receiver by now. After a failure they stay in flight, and are delivered
        again to the next one. A record that is on too few nodes counts: who leads next has it.
        """
        if isinstance(failure, NotEnoughReplicasAfterAppend):
            failure = None
        for number in numbers:
            del self._recording[number]
        if failure is not None:
            for number in numbers:
                self.released_offsets.pop(number, None)
            return
        self.discard(offsets)
        if self.receiver is not None and self.is_attached:
            self.receiver.release(numbers)

    def discard(self, offsets: Iterable[int]) -> None:
        """Settle messages, whether they are in flight or ready again."""
        queue = self.queue
        if queue is None or queue.is_gone:
            return
        lease = Lease(self)
        for offset in offsets:
            queue.take_at(lease, 0, range(offset, offset + 1))
            queue.settle(self, 0, range(offset, offset + 1))

    def restore_released(self, offsets: Iterable[int]) -> None:
        """Set which messages were received and not completed, and settle them if they are not."""
        self.released_offsets = {offset % _SPAN + 1: offset for offset in offsets}
        self._low = min(self.released_offsets.values(), default=0)
        self.discard(self.released_offsets.values())

    def completed(self, numbers: Sequence[int]) -> None:
        """Forget numbers that were released and that the receiver has completed.

        Their records are deleted later, some together, when it is committed that the messages
        are settled: without either, a crash would deliver them again.
        """
        offsets = [self.released_offsets.pop(each, None) for each in numbers]
        for each in numbers:
            if each in self.assigned:
                self.assigned.completed(each)
            elif each > _SPAN:
                self._shared.pop(each, None)
        if self.is_durable:
            if not self._completed:
                loop = asyncio.get_running_loop()
                loop.call_later(_COMPLETED_S, self._forget_completed)
            self._completed |= {each: None for each in offsets if each is not None}
            if len(self._completed) >= _COMPLETED_MAX:
                self._forget_completed()
        self._wake_if_starved()

    def _forget_completed(self) -> None:
        queue = self.queue
        if self._completed and queue is not None and not queue.is_gone:
            done = partial(self._settled, [*self._completed])
            queue.when_settlements_committed(done)

    def _settled(self, offsets: Sequence[int], failure: StorageError | None) -> None:
        if failure is None and self.queue is not None:
            store, number = self._home.store, self.number
            for offset in offsets:
                if self._completed.pop(offset, self) is None:
                    store.put(released_record(number, offset, is_over=True))

    @property
    def offsets_recorded(self) -> list[int]:
        """Return the offsets of the messages that are recorded as received."""
        return [*self.released_offsets.values(), *self._completed]

    # --- as the consumer of its queue

    def room(self) -> int:
        if self.receiver is None or not self.is_attached:
            return 0
        room = self.receiver.room() - self.assigned.waiting_count
        if room > 0:
            room = min(room, self._room_in_span())
        if room <= 0:
            self._is_starved = True
            return 0
        return room

    def _room_in_span(self) -> int:
        """Return how many offsets the next messages may lie beyond the oldest in flight."""
        assert self.queue is not None
        ledger = self.queue.lanes[0].ledger
        next_one = ledger.offset_fresh
        if ledger.returned:
            self._low = min(self._low, ledger.returned.first)
        if next_one - self._low >= _SPAN // 2:
            held = chain(self._in_flight.values(), self.offsets_recorded)
            self._low = min(held, default=next_one)
            if ledger.returned:
                self._low = min(self._low, ledger.returned.first)
        return _SPAN - (next_one - self._low)

    def deliver(self, lane: int, taken: Taken) -> None:
        offsets, run, attempts = taken
        numbers = [offset % _SPAN + 1 for offset in offsets]
        if self.released_offsets:
            known = [self.released_offsets.get(number) for number in numbers]
            if any(found == offset for found, offset in zip(known, offsets, strict=True)):
                self._deliver_others(taken, known)
                return
        self._low = min(self._low, offsets[0])
        self._in_flight.update(zip(numbers, offsets, strict=True))
        is_repeated = attempts is not None and any(attempts)
        if self.was_connected and not is_repeated:
            assert self.queue is not None
            is_repeated = offsets[0] < self.queue.lanes[0].offset_recovered
        self._hand_over(run, numbers, is_repeated)

    def _deliver_others(self, taken: Taken, known: Sequence[int | None]) -> None:
        """Deliver all but those that the receiver has received already; these are settled."""
        for place, (offset, found) in enumerate(zip(taken.offsets, known, strict=True)):
            if found == offset:
                if offset % _SPAN + 1 not in self._recording:  # Otherwise when it is recorded.
                    assert self.queue is not None
                    self.queue.settle(self, 0, range(offset, offset + 1))
            else:
                rest = taken.part(slice(place, place + 1))
                numbers = [offset % _SPAN + 1]
                self._in_flight[numbers[0]] = offset
                self._low = min(self._low, offset)
                is_repeated = rest.attempts is not None and any(rest.attempts)
                self._hand_over(rest.run, numbers, is_repeated)

    def _hand_over(self, run: Run, numbers: Sequence[int], is_repeated: bool) -> None:
        """Give messages to the receiver, in parcels of those that go the same way."""
        receiver = self.receiver
        assert receiver is not None
        ways = {
            id(each): self._way_of(each.exchange, each.subject) for each in distinct(run.messages)
        }
        first, *others = ways.values()
        if all(way == first for way in others):
            receiver.deliver(Parcel(run, numbers, first, is_repeated))
            return
        start = 0
        found = [ways[id(envelope)] for envelope, _ in run.messages]
        for place in range(1, len(found) + 1):
            if place == len(found) or found[place] != found[start]:
                part = run._replace(messages=run.messages[start:place])
                if self.receiver is receiver:
                    receiver.deliver(Parcel(part, numbers[start:place], found[start], is_repeated))
                start = place

    def cancelled(self) -> None:
        """Do nothing: the queue is deleted only with the session, or it has stopped."""

    def activated(self, is_active: bool) -> None:
        """Do nothing: the queue has no other consumer."""

    # --- messages of queues that it shares

    def shared_room(self) -> int:
        if self.receiver is None or not self.is_attached:
            return 0
        room = self._room_for_others(self.receiver)
        if room <= 0:
            self._is_starved = True
            return 0
        return room

    def deliver_shared(self, member: Member, way: Way, lane: int, taken: Taken) -> None:
        """Deliver messages of a shared queue, with numbers of their own."""
        assert self.receiver is not None
        if way.quality == Quality.EXACTLY_ONCE:
            own = [self._next_shared() for _ in taken.offsets]
            self.assigned.assign(member.queue, member, way, taken, own)
            return
        numbers = [self._next_shared((member, lane, offset)) for offset in taken.offsets]
        is_repeated = taken.attempts is not None and any(taken.attempts)
        self.receiver.deliver(Parcel(taken.run, numbers, way, is_repeated))

    def _room_for_others(self, receiver: Receiver) -> int:
        room = receiver.room() - self.assigned.waiting_count
        return min(room, _NUMBER_LAST - _SPAN - len(self._shared))

    def free(self, numbers: Iterable[int]) -> None:
        """Let numbers of other queues' messages be used again."""
        for number in numbers:
            self._shared.pop(number, None)

    def restore_assigned(self, stored: Mapping[int, StoredAssignment]) -> None:
        """Take back what was assigned to it before the start."""
        self.assigned.restore(stored, {name: each.queue for name, each in self.members.items()})
        self._shared = dict.fromkeys(self.assigned.numbers)

    def _next_shared(self, origin: _Origin | None = None) -> int:
        """Give a number to a message of another queue, or of none."""
        number = self._shared_last
        while True:
            number = number + 1 if number < _NUMBER_LAST else _SPAN + 1
            if number not in self._shared:
                self._shared_last = number
                self._shared[number] = origin
                return number

    # --- hearing what is published

    def hear(self, broadcast: Broadcast) -> None:
        """Take messages that match its subscriptions: for the queue, or for the receiver now."""
        way: Way | None = None
        is_stored = False
        ways = self._ways
        for envelope in broadcast.envelopes:
            own = ways.only or ways.of(envelope.subject)
            stores = own.quality > 0 and envelope.handling.is_persistent
            if way is None:
                way, is_stored = own, stores
            elif stores is not is_stored or (own is not way and own != way):
                self._hear_each(broadcast)
                return
        assert way is not None
        if way.no_local and broadcast.sender is self:
            return
        if is_stored and self.queue is not None:
            if self.is_durable or not self._deliver_now(self.queue, broadcast, way):
                broadcast.store(self.queue, broadcast.run, broadcast.publication)
        elif self.is_attached and self.receiver is not None:
            self.receiver.receive(broadcast, way)

    def _deliver_now(self, queue: Queue, broadcast: Broadcast, way: Way) -> bool:
        """Deliver messages past the queue, if none waits there and the receiver has room.

        Only for a session that ends with its connection: nothing is delivered a second time, so
        nothing has to be kept. Returns whether they are delivered.
        """
        receiver, run = self.receiver, broadcast.run
        if receiver is None or not self.is_attached or self.feeds or not broadcast.is_first:
            return False
        if queue.has_waiting or self._room_for_others(receiver) < len(run.messages):
            return False
        receiver.deliver(Parcel(run, [self._next_shared() for _ in run.messages], way, False))
        return True

    def _hear_each(self, broadcast: Broadcast) -> None:
        """Divide messages that differ: those for the queue, and by way those for the receiver."""
        stored: list[int] = []
        direct: list[tuple[int, Way]] = []
        run = broadcast.run
        for place, (envelope, _) in enumerate(run.messages):
            way = self._ways.of(envelope.subject)
            if way.no_local and broadcast.sender is self:
                continue
            if way.quality and envelope.handling.is_persistent and self.queue is not None:
                stored.append(place)
            else:
                direct.append((place, way))
        self._receive(direct, broadcast)
        if not stored or self.queue is None:
            return
        part = run._replace(messages=[run.messages[place] for place in stored])
        publication = broadcast.publication
        if publication is None or len(stored) == len(run.messages):
            broadcast.store(self.queue, part, publication)
        else:
            own = publication.part(stored)
            broadcast.store(self.queue, part, own)
            own.arrived()

    def _receive(self, direct: Sequence[tuple[int, Way]], broadcast: Broadcast) -> None:
        """Give the receiver messages at these places, together where places and ways allow it."""
        if not direct or not self.is_attached:
            return
        start, first = direct[0]
        end = start
        for place, way in (*direct, (-1, first)):
            if place == end and way == first:
                end += 1
                continue
            if self.receiver is not None:
                self.receiver.receive(broadcast.part(start, end), first)
            start, end, first = place, place + 1, way

    # --- subscriptions

    def subscribed(self, wanted: Subscription) -> None:
        """Add a subscription, or replace the one to the same filter."""
        self.subscriptions[wanted.filter] = wanted
        if wanted.filter not in self.members:
            self._ways.add(wanted)

    def unsubscribed(self, filter: str) -> None:
        del self.subscriptions[filter]
        if filter not in self.members:
            self._ways.remove(filter)

    def _way_of(self, exchange: str, subject: str) -> Way:
        way = self._ways.of(subject)
        return way._replace(is_retained=True, keeps_retain=True) if exchange == RETAINED else way


def _row(offsets: list[int]) -> Sequence[int]:
    """Return the offsets as a range if they are consecutive."""
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets) and all(
        offset == first + place for place, offset in enumerate(offsets)
    ):
        return range(first, last + 1)
    return sorted(offsets)
