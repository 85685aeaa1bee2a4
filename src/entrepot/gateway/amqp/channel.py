"""One channel: its consumers, unacknowledged deliveries, publisher confirms and transaction.

Acknowledgements of consecutive delivery tags are passed to the queues together: see `unacked`.
When the channel is closed, everything delivered on it and not acknowledged is requeued.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.broker.queue.queue import Queue
from entrepot.broker.sessions import ChannelFacts
from entrepot.gateway.amqp.confirms import Confirms
from entrepot.gateway.amqp.consumer import Gets, QueueConsumer, ReplyConsumer
from entrepot.gateway.amqp.shared_room import SharedRoom
from entrepot.gateway.amqp.stream_consumer import StreamConsumer
from entrepot.gateway.amqp.transaction import ChannelTransaction
from entrepot.gateway.unacked import Disposition, Held, Unacked, UnknownTag, conclude
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
        self.queue_last = ""  # Name of the queue declared last; an empty name refers to it.
        self.prefetch = 0  # Of each consumer created from now on. 0 means: no limit.
        self.prefetch_global = 0  # Of all consumers together. 0 means: no limit.
        self._shared_room = SharedRoom(self)
        self.tag_next = 1
        self.unacked = Unacked()
        self.unacked_consumed = 0  # Those of `unacked` that consumers got, not `basic.get`.
        self.consumers: dict[str, Consumer] = {}
        self.reply_consumer: ReplyConsumer | None = None  # Also in `consumers`.
        self._gets: Gets | None = None  # Of the queue of the last `basic.get`.
        self.confirms: Confirms | None = None
        self.transaction: ChannelTransaction | None = None

    def answer(self, method: Method) -> None:
        self.connection.outbox.method(self.number, method)

    def queue_name(self, name: str) -> str:
        """Return the name or, if it is empty, that of the queue declared last. Raises AmqpError."""
        if not name and not self.queue_last:
            raise AmqpError(ReplyCode.NOT_FOUND, "no previously declared queue")
        return name or self.queue_last

    # --- acknowledging

    def acknowledge(self, tags: list[int], *, is_multiple: bool) -> None:
        """Settle these deliveries. Raises UnknownTag, after settling those before it."""
        if len(tags) == 1 and not is_multiple and self.transaction is None:
            held = self.unacked.take_first(tags[0])
            if held is not None:
                held.holder.settle(held.lane, held.offsets)
                return
        if is_multiple:
            for tag in tags:
                self._conclude(self.unacked.take_through(tag), Disposition.SETTLED)
            return
        for first, end in _rows(tags):
            self._take(first, end, Disposition.SETTLED)

    def reject(self, tag: int, *, is_multiple: bool, requeue: bool) -> None:
        disposition = Disposition.REQUEUED if requeue else Disposition.REJECTED
        if is_multiple:
            self._conclude(self.unacked.take_through(tag), disposition)
        else:
            self._take(tag, tag + 1, disposition)

    def recover(self) -> None:
        """Requeue everything that is not acknowledged."""
        conclude(self.unacked.take_all(), Disposition.REQUEUED)

    def _take(self, first: int, end: int, disposition: Disposition) -> None:
        taken, known_end = self.unacked.take(first, end)
        self._conclude(taken, disposition)
        if known_end < end:
            raise UnknownTag(known_end)

    def _conclude(self, taken: list[Held], disposition: Disposition) -> None:
        if self.transaction is None:
            conclude(taken, disposition)
        else:
            self.transaction.hold_disposition(taken, disposition)

    # --- consuming

    def shared_room(self, consumer: QueueConsumer, wanted: int) -> int:
        """Return how many messages the prefetch that all consumers share lets this one have now;
        at most `wanted`."""
        shared = self.prefetch_global - self.unacked_consumed
        return self._shared_room.reserve(consumer, wanted, shared)

    def shared_room_used(self, consumer: QueueConsumer, count: int) -> None:
        """Note that messages were delivered to a consumer, of those it had room for."""
        self._shared_room.used(consumer, count)

    def wake_consumers(self) -> None:
        for consumer in list(self.consumers.values()):
            consumer.wake()

    def consumer_cancelled(self, tag: str) -> None:
        self.consumers.pop(tag, None)

    def gets_of(self, queue: Queue) -> Gets:
        """Return the holder of messages that `basic.get` takes from this queue."""
        if self._gets is None or self._gets.queue is not queue:
            self._gets = Gets(self, queue)
        return self._gets

    # --- closing

    def release(self) -> None:
        """Stop the channel and requeue what is not acknowledged."""
        self.stop()
        self.give_back()

    def stop(self) -> None:
        """Stop all deliveries and confirms."""
        self.is_open = False
        if self.confirms is not None:
            self.confirms.is_over = True
        for consumer in self.consumers.values():
            consumer.stop()
        self.consumers.clear()

    def give_back(self) -> None:
        """Requeue all messages that were delivered on this channel and not acknowledged."""
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
            transaction.disposition_count if transaction is not None else 0,
            self.prefetch,
            self.prefetch_global,
            self.confirms is not None,
            transaction is not None,
        )


def _rows(tags: list[int]) -> list[tuple[int, int]]:
    """Return the rows of consecutive tags, as first and end; usually there is only one."""
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
