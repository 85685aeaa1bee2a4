"""Messages that wait at a delayed exchange, in a queue that clients do not see.

A message is stored with the name of the exchange it waits at, in a header of its own, and
becomes ready in the queue when its delay is over. Then it is consumed, routed from that exchange,
and settled when all its destinations have it: so it survives a crash, and what became due while
the broker was down is published at the start. A message that a destination refuses is rejected
here, as if it had not been delayed; one that could not be written is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from entrepot.broker.queue.message import (
    Failure,
    Publication,
    Refused,
    Run,
    Taken,
)
from entrepot.broker.queue.queue import Queue
from entrepot.broker.router.router import Held
from entrepot.core import limits
from entrepot.core.errors import StorageError, UnknownExchange
from entrepot.core.message import Envelope, Message, distinct

_RETRY_S = 1.0

# Routes messages from the exchange of that name, after their delay.
Release = Callable[[str, Sequence[Message], Publication], None]


class DelayStore:
    """Publishes delayed messages to the delay queue, and is its only consumer."""

    tag = "delayed"
    auto_ack = False
    is_exclusive = True
    priority = 0

    def __init__(self, queue: Queue, release: Release) -> None:
        self.queue = queue
        self._release = release
        self._out = 0  # Messages that were consumed and are not yet at their destinations.
        queue.add_consumer(self)

    def hold(
        self, held: Held, run: Run, publication: Publication | None, until_settled: bool
    ) -> None:
        """Publish a run to the delay queue, deferred until its delay is over."""
        kept = {id(each): _delayed(each, held) for each in distinct(run.messages)}
        messages = [(kept[id(envelope)], body) for envelope, body in run.messages]
        self.queue.publish(
            run._replace(messages=messages),
            publication,
            until_settled=until_settled,
            due_ms=run.time_ms + held.delay_ms,
        )

    # --- as a consumer

    def room(self) -> int:
        return limits.DELAYED_IN_FLIGHT_MAX - self._out

    def deliver(self, lane: int, taken: Taken) -> None:
        """Route messages whose delay is over, each from the exchange where it waited."""
        self._out += len(taken.offsets)
        known = {id(each): _after_delay(each) for each in distinct(taken.run.messages)}
        found: list[tuple[str, Message]] = []
        for envelope, body in taken.run.messages:
            exchange, seen = known[id(envelope)]
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
        except UnknownExchange as error:  # It was deleted meanwhile: its messages are dropped.
            publication.arrived(Refused(str(error)))
        else:
            publication.arrived()

    def _done(self, lane: int, offsets: range, failure: Failure | None) -> None:
        if isinstance(failure, StorageError):
            loop = asyncio.get_running_loop()
            loop.call_later(_RETRY_S, self.queue.guard, self._return, lane, offsets)
            return
        self._out -= len(offsets)
        if failure is not None:
            places = range(len(offsets)) if failure.places is None else failure.places
            self.queue.reject(self, lane, [offsets[place] for place in places])
        self.queue.settle(self, lane, offsets)  # Without effect on those just rejected.
        self.queue.dispatch()

    def _return(self, lane: int, offsets: range) -> None:
        self._out -= len(offsets)
        self.queue.requeue(self, lane, offsets, is_attempt=False)
        self.queue.dispatch()

    def cancelled(self) -> None:
        """Do nothing: the queue is deleted only together with the virtual host."""

    def activated(self, is_active: bool) -> None:
        """Do nothing: this is the only consumer, and always active."""


def _delayed(envelope: Envelope, held: Held) -> Envelope:
    return envelope.with_head(envelope.format.delayed_at(envelope.head, held.exchange))


def _after_delay(envelope: Envelope) -> tuple[str, Envelope]:
    """Return the exchange where the message waited, and the envelope it is routed with."""
    exchange, head = envelope.format.after_delay(envelope.head)
    return exchange, envelope.with_head(head)
