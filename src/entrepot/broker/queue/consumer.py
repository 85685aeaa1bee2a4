"""The consumers of a queue, and which of them gets which messages.

Consumers of one priority are served in turn (a ring); one that has no room is left out.
Consumers of a lower priority get what those of higher priority have no room for. A queue with a
single active consumer serves one of them, and the next one when that is gone.

Messages are divided by slices and not one by one: in a stretch of messages, each of m consumers
gets every m-th, which is one slice, however long the stretch is. A stretch ends where the first
of the consumers has no more room. The result is the same as if messages were divided one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from entrepot.broker.ledger import Lease
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.selection import Selection
from entrepot.core import limits
from entrepot.core.errors import QueueInUse


class Consumer(Protocol):
    """Implemented by gateways. Compared by identity: it is also the owner of its leases."""

    @property
    def tag(self) -> str: ...

    @property
    def auto_ack(self) -> bool:
        """Return whether messages are settled when they are delivered."""

    @property
    def is_exclusive(self) -> bool:
        """Return whether it must be the only consumer of the queue."""

    @property
    def priority(self) -> int:
        """Return its priority. Consumers of higher priority are served first, if they have room."""

    def room(self) -> int:
        """Return how many more messages can be delivered to it now."""

    def deliver(self, lane: int, taken: Taken) -> None:
        """Deliver messages to it, at most as many as it has room for. Must not fail."""

    def cancelled(self) -> None:
        """Handle that the queue was deleted or has stopped: nothing more is delivered."""

    def activated(self, is_active: bool) -> None:
        """Handle that it is the active consumer now, or is not.

        Called only if the queue has a single active consumer.
        """


class Seat:
    """A consumer in a ring, with the lease that its messages share."""

    __slots__ = ("auto_ack", "consumer", "lease", "selection")

    def __init__(self, consumer: Consumer, selection: Selection | None = None) -> None:
        self.consumer = consumer
        self.auto_ack = consumer.auto_ack
        self.lease = Lease(consumer)
        self.selection = selection


class RoundRobin:
    """Divides messages among consumers, one each in turn, as long as they have room."""

    __slots__ = ("_rooms", "_seats", "last")

    def __init__(self, seats: Sequence[tuple[Seat, int]]) -> None:
        """Begin with these consumers and their room; the first one is the next to be served."""
        self._seats = [seat for seat, _ in seats]
        self._rooms = [room for _, room in seats]
        self.last = self._seats[0]  # The one that was served last, after `shares`.

    def shares(self, count: int) -> list[tuple[Seat, slice]]:
        """Divide the next `count` messages. There must be room for all of them.

        The slices are in the order of stretches, and within one in that of their first messages.
        """
        shares: list[tuple[Seat, slice]] = []
        start = 0
        while start < count:
            width, rounds = len(self._seats), min(self._rooms)
            stop = min(count, start + rounds * width)
            for place, seat in enumerate(self._seats[: stop - start]):
                shares.append((seat, slice(start + place, stop, width)))
            self._pass_on(stop - start)
            start = stop
        return shares

    def _pass_on(self, count: int) -> None:
        """Note that so many messages were divided: reduce the rooms, and put the next one first."""
        seats = self._seats
        width = len(seats)
        whole, extra = divmod(count, width)
        self.last = seats[(count - 1) % width]
        rooms = [
            room - whole - (1 if place < extra else 0) for place, room in enumerate(self._rooms)
        ]
        order = [*range(extra, width), *range(extra)]
        self._seats = [seats[place] for place in order if rooms[place] > 0]
        self._rooms = [rooms[place] for place in order if rooms[place] > 0]


class Ring:
    """Consumers of one priority, in the order in which they were added."""

    __slots__ = ("seats", "start")

    def __init__(self) -> None:
        self.seats: list[Seat] = []
        self.start = 0  # The index of the one that is served next.

    def candidates(self, count: int) -> list[tuple[Seat, int]]:
        """Return at most `count` consumers that have room, with their room, the next one first."""
        found: list[tuple[Seat, int]] = []
        seats = self.seats
        if self.start:
            seats = [*seats[self.start :], *seats[: self.start]]
        for seat in seats:
            room = seat.consumer.room()
            if room > 0:
                found.append((seat, room))
                if len(found) == count:
                    break
        return found

    def served(self, seat: Seat) -> None:
        """Note that this consumer was the last one served. It may have been removed since."""
        if seat in self.seats:
            self.start = (self.seats.index(seat) + 1) % len(self.seats)

    def remove(self, consumer: Consumer) -> bool:
        place = next((i for i, seat in enumerate(self.seats) if seat.consumer is consumer), None)
        if place is None:
            return False
        del self.seats[place]
        if place < self.start:
            self.start -= 1
        if self.start == len(self.seats):
            self.start = 0
        return True


class Consumers:
    """All consumers of one queue."""

    def __init__(self, where: str, *, single_active: bool) -> None:
        self._where = where  # For error texts.
        self._single_active = single_active
        self._rings: dict[int, Ring] = {}  # By priority, the highest first.
        # Those that want some messages only, in no ring: the next one to be served first.
        self.selecting: list[Seat] = []
        self._exclusive: Consumer | None = None
        self.active: Consumer | None = None  # Only of a queue with a single active consumer.
        self.count = 0
        self.only: Seat | None = None  # If there is one consumer, and every one may be active.

    def __iter__(self) -> Iterator[Consumer]:
        for ring in self._rings.values():
            for seat in ring.seats:
                yield seat.consumer
        for seat in self.selecting:
            yield seat.consumer

    def add(self, consumer: Consumer, selection: Selection | None = None) -> None:
        """Add a consumer, with a selection if it does not want all messages. Raises QueueInUse."""
        if selection is not None and self._single_active:
            raise QueueInUse(f"{self._where} has a single active consumer, which cannot select")
        if self._exclusive is not None or (
            consumer.is_exclusive and (self.count or self._single_active)
        ):
            raise QueueInUse(f"{self._where} in exclusive use")
        if self.count >= limits.QUEUE_CONSUMERS_MAX:
            raise QueueInUse(f"{self._where} has {self.count} consumers, and takes no more")
        if selection is not None:
            self._add_selecting(Seat(consumer, selection))
        else:
            ring = self._rings.get(consumer.priority)
            if ring is None:
                ring = self._rings[consumer.priority] = Ring()
                self._rings = dict(sorted(self._rings.items(), reverse=True))
            ring.seats.append(Seat(consumer))
        self.count += 1
        self._find_only()
        if consumer.is_exclusive:
            self._exclusive = consumer
        if self._single_active:
            if self.active is None:
                self.active = consumer
            consumer.activated(self.active is consumer)

    def remove(self, consumer: Consumer) -> bool:
        """Remove a consumer. Returns whether it was there."""
        ring = self._rings.get(consumer.priority)
        if ring is not None and ring.remove(consumer):
            if not ring.seats:
                del self._rings[consumer.priority]
        elif not self._remove_selecting(consumer):
            return False
        self.count -= 1
        self._find_only()
        if self._exclusive is consumer:
            self._exclusive = None
        if self.active is consumer:
            self.active = next(iter(self), None)
            if self.active is not None:
                self.active.activated(True)
        return True

    def _add_selecting(self, seat: Seat) -> None:
        self.selecting.append(seat)
        self.selecting.sort(key=lambda each: -each.consumer.priority)

    def _remove_selecting(self, consumer: Consumer) -> bool:
        others = [seat for seat in self.selecting if seat.consumer is not consumer]
        is_there = len(others) < len(self.selecting)
        self.selecting = others
        return is_there

    def served_selecting(self, seat: Seat) -> None:
        """Let the others of the same priority come first next time."""
        if len(self.selecting) > 1 and self._remove_selecting(seat.consumer):
            self._add_selecting(seat)

    def _find_only(self) -> None:
        seats = [seat for ring in self._rings.values() for seat in ring.seats[:2]]
        self.only = seats[0] if len(seats) == 1 and not self._single_active else None

    def next_ones(self, count: int) -> tuple[Ring, list[tuple[Seat, int]]] | None:
        """Return the consumers that get the next `count` messages, with their room and ring.

        They are of the highest priority that has room. None means: no consumer has room.
        """
        for ring in self._rings.values():
            found = self._active_in(ring) if self._single_active else ring.candidates(count)
            if found:
                return ring, found
        return None

    def room(self) -> int:
        """Return the room of all consumers that take any message, or of the single active one."""
        if self._single_active:
            return 0 if self.active is None else self.active.room()
        return sum(seat.consumer.room() for ring in self._rings.values() for seat in ring.seats)

    def _active_in(self, ring: Ring) -> list[tuple[Seat, int]]:
        found = [
            (seat, seat.consumer.room()) for seat in ring.seats if seat.consumer is self.active
        ]
        return [(seat, room) for seat, room in found if room > 0]
