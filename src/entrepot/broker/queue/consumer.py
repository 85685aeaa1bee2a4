"""Who takes messages from a queue, and whose turn it is.

Consumers of one priority sit in a ring and are served in turn; who has no room is passed
over. Those of a lower priority get what the higher ones have no room for. A queue with a
single active consumer serves one of them, and the next when that one is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Protocol

from entrepot.broker.ledger import Lease
from entrepot.broker.queue.message import Taken
from entrepot.core import limits
from entrepot.core.errors import QueueInUse


class Consumer(Protocol):
    """Implemented by gateways. Compared by identity: it is also the owner of its leases."""

    @property
    def tag(self) -> str: ...

    @property
    def auto_ack(self) -> bool:
        """What is delivered counts as settled."""

    @property
    def is_exclusive(self) -> bool:
        """Wants to be the only one."""

    @property
    def priority(self) -> int:
        """Higher ones are served first, while they have room."""

    def room(self) -> int:
        """How many messages it takes now; 0: none."""

    def deliver(self, lane: int, taken: Taken) -> None:
        """At most as many as it has room for. Must not fail."""

    def cancelled(self) -> None:
        """The queue is gone."""

    def activated(self, is_active: bool) -> None:
        """Of a queue with a single active consumer: whether it is the one."""


class Seat:
    """A consumer's place in the ring."""

    __slots__ = ("auto_ack", "consumer", "lease")

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.auto_ack = consumer.auto_ack
        self.lease = Lease(consumer)


class Ring:
    """Consumers of one priority, in the order in which they came."""

    __slots__ = ("seats", "start")

    def __init__(self) -> None:
        self.seats: list[Seat] = []
        self.start = 0  # Whose turn is next.

    def candidates(self, count: int) -> list[tuple[Seat, int]]:
        """Those who have room and how much, the next one first; not more than so many."""
        found: list[tuple[Seat, int]] = []
        for seat in chain(self.seats[self.start :], self.seats[: self.start]):
            room = seat.consumer.room()
            if room > 0:
                found.append((seat, room))
                if len(found) == count:
                    break
        return found

    def served(self, seat: Seat) -> None:
        """It was the last one to get something. It may be gone since."""
        if len(self.seats) > 1 and seat in self.seats:
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
        self._exclusive: Consumer | None = None
        self.active: Consumer | None = None  # The single active one.
        self.count = 0

    def __iter__(self) -> Iterator[Consumer]:
        for ring in self._rings.values():
            for seat in ring.seats:
                yield seat.consumer

    def add(self, consumer: Consumer) -> None:
        """Raises QueueInUse."""
        if self._exclusive is not None or (
            consumer.is_exclusive and (self.count or self._single_active)
        ):
            raise QueueInUse(f"{self._where} in exclusive use")
        if self.count >= limits.QUEUE_CONSUMERS_MAX:
            raise QueueInUse(f"{self._where} has {self.count} consumers, and takes no more")
        ring = self._rings.get(consumer.priority)
        if ring is None:
            ring = self._rings[consumer.priority] = Ring()
            self._rings = dict(sorted(self._rings.items(), reverse=True))
        ring.seats.append(Seat(consumer))
        self.count += 1
        if consumer.is_exclusive:
            self._exclusive = consumer
        if self._single_active:
            if self.active is None:
                self.active = consumer
            consumer.activated(self.active is consumer)

    def remove(self, consumer: Consumer) -> bool:
        """False when it is not there."""
        ring = self._rings.get(consumer.priority)
        if ring is None or not ring.remove(consumer):
            return False
        if not ring.seats:
            del self._rings[consumer.priority]
        self.count -= 1
        if self._exclusive is consumer:
            self._exclusive = None
        if self.active is consumer:
            self.active = next(iter(self), None)
            if self.active is not None:
                self.active.activated(True)
        return True

    def next_ones(self, count: int) -> tuple[Ring, list[tuple[Seat, int]]] | None:
        """The ring whose turn it is, and who in it has room, for so many messages."""
        for ring in self._rings.values():
            found = self._active_in(ring) if self._single_active else ring.candidates(count)
            if found:
                return ring, found
        return None

    def room(self) -> int:
        """Of all who are served."""
        if self._single_active:
            return 0 if self.active is None else self.active.room()
        return sum(consumer.room() for consumer in self)

    def _active_in(self, ring: Ring) -> list[tuple[Seat, int]]:
        found = [
            (seat, seat.consumer.room()) for seat in ring.seats if seat.consumer is self.active
        ]
        return [(seat, room) for seat, room in found if room > 0]
