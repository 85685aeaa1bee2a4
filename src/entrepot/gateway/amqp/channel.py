"""One channel: what its client publishes, consumes, acknowledges and has not committed.

Acknowledgements come in runs, and are given to the queues in runs: see `unacked`. When the
channel goes, everything that was delivered on it and not acknowledged is ready again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.broker.queue.queue import Queue
from entrepot.broker.sessions import ChannelFacts
from entrepot.core import limits
from entrepot.gateway.amqp.confirms import Confirms
from entrepot.gateway.amqp.consumer import Gets, QueueConsumer, ReplyConsumer
from entrepot.gateway.amqp.shared_room import SharedRoom
from entrepot.gateway.amqp.stream_consumer import StreamConsumer
from entrepot.gateway.amqp.transaction import Outcome, Transaction, conclude
from entrepot.gateway.amqp.unacked import Held, Unacked, unknown_tag
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.method import Method

if TYPE_CHECKING:
    from entrepot.gateway.amqp.connection import Connection

Consumer = QueueConsumer | StreamConsumer | ReplyConsumer


class Channel:
    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.is_open = True
        self.queue_last = ""  # The one that was declared last: an empty name means it.
        self.prefetch = 0  # Of consumers to come; 0: no bound.
        self.prefetch_global = 0  # Of all together.
        self._shared_room = SharedRoom(self)
        self.tag_next = 1
        self.unacked = Unacked()
        self.unacked_consumed = 0  # Of the unacked, those that were delivered to consumers.
        self.consumers: dict[str, Consumer] = {}
        self.reply_consumer: ReplyConsumer | None = None  # One of them.
        self._gets: Gets | None = None  # Of the queue that was asked last.
        self.confirms: Confirms | None = None
        self.transaction: Transaction | None = None

    def answer(self, method: Method) -> None:
        self.connection.outbox.method(self.number, method)

    def queue_name(self, name: str) -> str:
        """Raises AmqpError when the last one is meant and there is none."""
        if not name and not self.queue_last:
            raise AmqpError(ReplyCode.NOT_FOUND, "no previously declared queue")
        return name or self.queue_last

    # --- acknowledging

    def acknowledge(self, tags: list[int], *, is_multiple: bool) -> None:
        """Raises AmqpError for a tag that is not there; those before it are acknowledged."""
        if is_multiple:
            for tag in tags:
                self._conclude(self.unacked.take_through(tag), Outcome.SETTLED)
            return
        for first, end in _rows(tags):
            self._take(first, end, Outcome.SETTLED)

    def reject(self, tag: int, *, is_multiple: bool, requeue: bool) -> None:
        outcome = Outcome.REQUEUED if requeue else Outcome.REJECTED
        if is_multiple:
            self._conclude(self.unacked.take_through(tag), outcome)
        else:
            self._take(tag, tag + 1, outcome)

    def recover(self) -> None:
        """Everything that is not acknowledged goes back."""
        conclude(self.unacked.take_all(), Outcome.REQUEUED)

    def _take(self, first: int, end: int, outcome: Outcome) -> None:
        taken, known_end = self.unacked.take(first, end)
        self._conclude(taken, outcome)
        if known_end < end:
            raise unknown_tag(known_end)

    def _conclude(self, taken: list[Held], outcome: Outcome) -> None:
        if self.transaction is None:
            conclude(taken, outcome)
        else:
            self.transaction.hold_outcome(taken, outcome)

    # --- consuming

    def room(self, consumer: QueueConsumer, wanted: int) -> int:
        """How much of what a consumer could take the channel lets it have."""
        room = min(wanted, limits.AMQP_UNACKED_MAX - self.unacked.count)
        if self.prefetch_global:
            shared = self.prefetch_global - self.unacked_consumed
            room = self._shared_room.promise(consumer, room, shared)
        return room

    def delivered(self, consumer: QueueConsumer, count: int) -> None:
        """To be acknowledged."""
        self.unacked_consumed += count
        if self.prefetch_global:
            self._shared_room.used(consumer, count)

    def wake_consumers(self) -> None:
        for consumer in list(self.consumers.values()):
            consumer.wake()

    def consumer_cancelled(self, tag: str) -> None:
        self.consumers.pop(tag, None)

    def gets_of(self, queue: Queue) -> Gets:
        if self._gets is None or self._gets.queue is not queue:
            self._gets = Gets(self, queue)
        return self._gets

    # --- the end

    def release(self) -> None:
        """The client has closed it, or we have."""
        self.stop()
        self.give_back()

    def stop(self) -> None:
        """Nothing more comes to it."""
        self.is_open = False
        if self.confirms is not None:
            self.confirms.is_over = True
        for consumer in self.consumers.values():
            consumer.stop()
        self.consumers.clear()

    def give_back(self) -> None:
        """All that was delivered on it and not acknowledged."""
        held = self.unacked.take_all()
        if self.transaction is not None:
            held += self.transaction.taken()
        holders = {id(run.holder): run.holder for run in held}
        for holder in holders.values():
            holder.release()

    def facts(self) -> ChannelFacts:
        transaction = self.transaction
        return ChannelFacts(
            self.number,
            tuple(consumer.facts() for consumer in self.consumers.values()),
            self.unacked.count,
            self.confirms.waiting if self.confirms is not None else 0,
            transaction.message_count if transaction is not None else 0,
            transaction.outcome_count if transaction is not None else 0,
            self.prefetch,
            self.prefetch_global,
            self.confirms is not None,
            transaction is not None,
        )


def _rows(tags: list[int]) -> list[tuple[int, int]]:
    """Tags in a row as first and end; nearly always there is one row."""
    first = tags[0]
    if tags == list(range(first, first + len(tags))):
        return [(first, first + len(tags))]
    rows = []
    end = first
    for tag in tags:
        if tag != end:
            rows.append((first, end))
            first = tag
        end = tag + 1
    rows.append((first, end))
    return rows
