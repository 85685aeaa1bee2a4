"""The side of a queue where messages come in.

What is published in a turn of the loop is gathered and appended together, one append for
each lane. A queue that is full and refuses is asked before, one that drops is not: it takes
everything, and its front goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from entrepot.broker.queue.arrival import Arrival, by_priority
from entrepot.broker.queue.front import Front
from entrepot.broker.queue.message import PropertyReader, Refused, Run
from entrepot.broker.queue.overflow import Overflow
from entrepot.broker.queue.settlement_watch import SettlementWatch
from entrepot.core import limits
from entrepot.core.errors import StorageError


class Counter(NamedTuple):
    """What the other side of the queue is asked, and told."""

    room: Callable[[], int]  # Of all its consumers.
    refused: Callable[[Run], None]  # These found no room.
    committed: Callable[[], None]  # There is something to be handed out.
    guard: Callable[..., None]  # Calls what runs later on the queue's behalf.


class Intake:
    def __init__(
        self,
        fronts: Sequence[Front],
        watches: Sequence[SettlementWatch],
        overflow: Overflow,
        reader: PropertyReader,
        counter: Counter,
    ) -> None:
        self._fronts = fronts
        self._watches = watches
        self._overflow = overflow
        self._reader = reader
        self._counter = counter
        self._arrivals: list[Arrival] = []
        self._is_closed = False
        self._is_preparing = False  # A large message, before it is appended.

    def add(self, arrival: Arrival) -> None:
        if arrival.publication is not None:
            arrival.publication.expect()
        if not self._arrivals:
            asyncio.get_running_loop().call_soon(self._counter.guard, self._append)
        self._arrivals.append(arrival)

    def close(self) -> None:
        """From now on, everything is refused."""
        self._is_closed = True

    def _append(self) -> None:
        """All that came, but for what comes after a large message: that waits for it."""
        if self._is_preparing:
            return
        arrivals, self._arrivals = self._arrivals, []
        try:
            self._append_all(arrivals)
        except Exception:
            for arrival in arrivals:
                arrival.arrived(Refused("internal error"))
            raise

    def _append_all(self, arrivals: list[Arrival]) -> None:
        if self._is_closed:
            for arrival in arrivals:
                arrival.arrived(Refused("the queue is gone"))
            return
        place = next((at for at, each in enumerate(arrivals) if each.is_large), len(arrivals))
        self._arrivals = arrivals[place + 1 :]  # What comes from now on comes after these.
        self._append_admitted(self._admitted(arrivals[:place]))
        for large in self._admitted(arrivals[place : place + 1]):
            self._is_preparing = True
            work = asyncio.ensure_future(self._append_large(large))
            work.add_done_callback(lambda done: done.cancelled() or done.result())
            return
        if self._arrivals:  # There was no room for the large one.
            self._append()

    async def _append_large(self, arrival: Arrival) -> None:
        parts = by_priority([arrival], len(self._fronts) - 1, self._reader)
        for number, (part,) in parts.items():  # One message, so there is one.
            await self._fronts[number].lane.prepare(part.run)
        self._is_preparing = False
        if self._is_closed:
            arrival.arrived(Refused("the queue is gone"))
        else:
            self._append_admitted([arrival])
        self._append()

    def _admitted(self, arrivals: list[Arrival]) -> list[Arrival]:
        """Those there is memory and room for."""
        arrivals = [each for each in arrivals if each.is_simple or self._has_memory(each)]
        return self._admit(arrivals) if self._overflow.refuses else arrivals

    def _append_admitted(self, arrivals: list[Arrival]) -> None:
        if not arrivals:
            return
        parts = by_priority(arrivals, len(self._fronts) - 1, self._reader)
        for number, part in parts.items():
            self._append_to(self._fronts[number], self._watches[number], part)

    def _append_to(self, front: Front, watch: SettlementWatch, arrivals: list[Arrival]) -> None:
        try:
            places = front.append(arrivals)
        except StorageError as failure:
            for arrival in arrivals:
                arrival.arrived(failure)
            return
        for arrival, offsets in zip(arrivals, places, strict=True):
            if arrival.until_settled and arrival.publication is not None:
                watch.add(offsets, arrival.publication)
        waiter = partial(self._counter.guard, self._committed, watch, arrivals, places)
        front.lane.when_committed(front.appended_end, waiter)

    def _committed(
        self,
        watch: SettlementWatch,
        arrivals: list[Arrival],
        places: list[range],
        failure: StorageError | None,
    ) -> None:
        for arrival, offsets in zip(arrivals, places, strict=True):
            if failure is not None:
                watch.forget(offsets)
            if failure is not None or not arrival.until_settled:
                arrival.arrived(failure)
        if failure is None:
            self._counter.committed()

    def _has_memory(self, arrival: Arrival) -> bool:
        """What waits for a time or is watched takes memory, each message for itself."""
        deferred = watched = 0
        if arrival.due_ms is not None:
            deferred = sum(len(front.ledger.deferred) for front in self._fronts)
        if arrival.until_settled:
            watched = sum(map(len, self._watches))
        if deferred < limits.QUEUE_DEFERRED_MAX and watched < limits.QUEUE_WATCHED_MAX:
            return True
        arrival.arrived(Refused("the queue has too many messages that wait"))
        return False

    def _admit(self, arrivals: list[Arrival]) -> list[Arrival]:
        """Those there is room for."""
        waiting = sum(front.waiting_count for front in self._fronts)
        size = 0
        if self._overflow.counts_bytes:
            size = sum(front.ready_bytes for front in self._fronts)
        room = self._counter.room()
        admitted: list[Arrival] = []
        for arrival in arrivals:
            places = self._overflow.refused(arrival.run.messages, waiting, size, room)
            rest = self._refuse(arrival, places) if places else arrival
            waiting += len(rest.run.messages)
            size += sum(len(body) for _, body in rest.run.messages)
            if rest.run.messages:
                admitted.append(rest)
            else:
                rest.arrived()
        return admitted

    def _refuse(self, arrival: Arrival, places: Sequence[int]) -> Arrival:
        """Some of its messages; the others are what is left of it."""
        messages = arrival.run.messages
        self._counter.refused(arrival.part([messages[place] for place in places]).run)
        if arrival.publication is not None:
            arrival.publication.expect()
            arrival.publication.arrived(Refused("the queue is full", places))
        refused = dict.fromkeys(places)
        return arrival.part([each for at, each in enumerate(messages) if at not in refused])
