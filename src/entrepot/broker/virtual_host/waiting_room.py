"""Messages that wait at a delayed exchange, in a queue that nobody else sees.

A message is kept with the name of the exchange it waits at, in a header of its own, and goes
back to the queue's ready ones when it is due. Then it is taken, routed on from that exchange,
and settled when all queues have it that it leads to: so it survives a crash, and what was
due while the broker was down goes out at the start. A message that a queue refuses is rejected
here, as it would be if it had not waited; one that could not be written is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from entrepot.broker.queue.message import (
    Failure,
    PropertyReader,
    Publication,
    Refused,
    Run,
    Taken,
)
from entrepot.broker.queue.queue import Queue
from entrepot.broker.router.delay import released
from entrepot.broker.router.router import Held
from entrepot.core import limits
from entrepot.core.envelope import Envelope, Message, distinct
from entrepot.core.errors import StorageError, UnknownExchange

QUEUE_NAME = "amq.delayed"  # No client's queue is called like that.
HELD_AT = "x-entrepot-held-at"  # The exchange a message waits at.
_RETRY_S = 1.0

# Routes on: where they waited, and the messages.
Release = Callable[[str, Sequence[Message], Publication], None]


class WaitingRoom:
    """The only consumer of that queue."""

    tag = "delayed"
    auto_ack = False
    is_exclusive = True
    priority = 0

    def __init__(self, queue: Queue, reader: PropertyReader, release: Release) -> None:
        self.queue = queue
        self._reader = reader
        self._release = release
        self._out = 0  # Messages that are on their way.
        queue.add_consumer(self)

    def hold(
        self, held: Held, run: Run, publication: Publication | None, until_settled: bool
    ) -> None:
        kept = {each: self._held(each, held) for each in distinct(run.messages)}
        messages = [(kept[envelope], body) for envelope, body in run.messages]
        self.queue.publish(
            run._replace(messages=messages),
            publication,
            until_settled=until_settled,
            due_ms=run.time_ms + held.delay_ms,
        )

    def _held(self, envelope: Envelope, held: Held) -> Envelope:
        properties = envelope.properties
        headers = {**self._reader.headers(properties), HELD_AT: held.exchange}
        return envelope._replace(properties=self._reader.with_headers(properties, headers))

    # --- as a consumer

    def room(self) -> int:
        return limits.DELAYED_IN_FLIGHT_MAX - self._out

    def deliver(self, lane: int, taken: Taken) -> None:
        self._out += len(taken.offsets)
        known = {each: self._released(each) for each in distinct(taken.run.messages)}
        found: list[tuple[str, Message]] = []
        for envelope, body in taken.run.messages:
            exchange, seen = known[envelope]
            found.append((exchange, (seen, body)))
        publication = Publication(partial(self.queue.guard, self._done, lane, taken.offsets))
        start = 0
        for exchange, group in groupby(found, lambda each: each[0]):
            messages = [message for _, message in group]
            part = publication.part(range(start, start + len(messages)))
            self._route(exchange, messages, part)
            start += len(messages)
        publication.arrived()

    def _route(self, exchange: str, messages: Sequence[Message], publication: Publication) -> None:
        try:
            self._release(exchange, messages, publication)
        except UnknownExchange as error:  # It was deleted meanwhile, they with it.
            publication.arrived(Refused(str(error)))
        else:
            publication.arrived()

    def _released(self, envelope: Envelope) -> tuple[str, Envelope]:
        headers = released(self._reader.headers(envelope.properties))
        exchange = headers.pop(HELD_AT)
        assert isinstance(exchange, str), exchange
        properties = self._reader.with_headers(envelope.properties, headers)
        return exchange, envelope._replace(properties=properties)

    def _done(self, lane: int, offsets: range, failure: Failure | None) -> None:
        if isinstance(failure, StorageError):
            loop = asyncio.get_running_loop()
            loop.call_later(_RETRY_S, self.queue.guard, self._return, lane, offsets)
            return
        self._out -= len(offsets)
        if failure is not None:
            places = range(len(offsets)) if failure.places is None else failure.places
            self.queue.reject(self, lane, [offsets[place] for place in places])
        self.queue.settle(self, lane, offsets)  # The others: what was rejected is not its own.
        self.queue.dispatch()

    def _return(self, lane: int, offsets: range) -> None:
        self._out -= len(offsets)
        self.queue.requeue(self, lane, offsets, is_attempt=False)
        self.queue.dispatch()

    def cancelled(self) -> None:
        """With the virtual host."""

    def activated(self, is_active: bool) -> None:
        """It is always the one."""
