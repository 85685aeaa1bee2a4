"""A subscription: a consumer of one queue, and the holder of what it has not acknowledged.

Its messages are numbered from 1. The header `message-id`, which is also the header `ack` of
version 1.2, has the session, the number of the subscription on its connection, and the number of
the message. Acknowledgements of the mode `client` are for a message and all before it in the same
subscription.

A subscription has room for as many messages as its prefetch allows. A client that does not read
what it is sent gets no more.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from entrepot.broker.queue.lane import Waiter
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.selection import Selection
from entrepot.broker.sessions import ConsumerFacts
from entrepot.core.message import Envelope
from entrepot.core.ports import Buffer
from entrepot.gateway.unacked import Unacked
from entrepot.wire.stomp import limits as stomp_limits
from entrepot.wire.stomp.frames import V1_2, header_line

if TYPE_CHECKING:
    from entrepot.gateway.stomp.connection import Connection

COPIED_BYTES_MAX = 8_192  # A longer body is a chunk of its own, and is not copied.


class AckMode(Enum):
    AUTO = "auto"
    CLIENT = "client"  # An acknowledgement is for all messages before it, too.
    INDIVIDUAL = "client-individual"


class Subscription:
    """Implements `Consumer` for its queue, and `Holder` for what is not acknowledged."""

    is_exclusive = False

    def __init__(
        self,
        connection: Connection,
        queue: Queue,
        number: int,
        tag: str,
        mode: AckMode,
        *,
        prefetch: int = 0,
        priority: int = 0,
        is_named: bool = True,
        selection: Selection | None = None,
        owns_queue: bool = False,
    ) -> None:
        """`tag` is the id that the client gave it or, if it is not named, its destination.

        A prefetch of 0 means: no limit. `owns_queue` means: the queue was made for it. Without a
        `selection` the client gets all messages.
        """
        self.queue = queue
        self.number = number
        self.tag = tag
        self.mode = mode
        self.auto_ack = mode is AckMode.AUTO
        self.prefetch = prefetch
        self.priority = priority
        self.selection = selection
        self.owns_queue = owns_queue
        self.unacked = Unacked()
        # Messages that are delivered and not settled or returned: those of `unacked`, and those
        # that were answered in an open transaction.
        self.leased_count = 0
        self.is_active = not queue.settings.single_active
        self._connection = connection
        self._is_started = False
        self._next = 1  # The number of the next message.
        self._is_numbered_twice = connection.version == V1_2 and not self.auto_ack
        self._lead = b"".join(
            (
                b"MESSAGE\n",
                header_line("subscription", tag, connection.version) if is_named else b"",
                b"message-id:%s-%d-" % (connection.session.encode(), number),
            )
        )
        self._ack_lead = b"\nack:%s-%d-" % (connection.session.encode(), number)

    # --- called by the queue

    def room(self) -> int:
        if not self._is_started:
            return 0
        connection = self._connection
        room = connection.room()
        if not self.auto_ack:
            room = min(room, stomp_limits.UNACKED_MAX - connection.unacked_count)
            if self.prefetch:
                room = min(room, self.prefetch - self.leased_count)
        return max(room, 0)

    def deliver(self, lane: int, taken: Taken) -> None:
        """Deliver messages. An error closes this connection only: the queue goes on."""
        self._connection.guard(self._deliver, lane, taken)

    def _deliver(self, lane: int, taken: Taken) -> None:
        count = len(taken.offsets)
        if not self.auto_ack:  # Before sending: if that fails, they are requeued.
            self.leased_count += count
            self._connection.unacked_count += count
            self.unacked.add(self._next, self, lane, taken.offsets)
        self._connection.delivered(self._encode(taken), count)

    def _encode(self, taken: Taken) -> list[Buffer]:
        """Return the messages as chunks of bytes. Headers are encoded once for each envelope."""
        heads, version = self._connection.context.heads, self._connection.version
        lead, is_numbered_twice = self._lead, self._is_numbered_twice
        attempts = taken.attempts
        chunks: list[Buffer] = []
        pieces: list[Buffer] = []
        before: Envelope | None = None
        head = b""
        for place, (envelope, body) in enumerate(taken.run.messages):
            if envelope is not before:
                before, head = envelope, heads.of(envelope, version)
            digits = b"%d" % self._next
            self._next += 1
            pieces += (lead, digits)
            if is_numbered_twice:
                pieces += (self._ack_lead, digits)
            if attempts is not None and attempts[place]:
                pieces.append(b"\nredelivered:true")
            size = len(body)
            pieces += (b"\n", head, b"content-length:%d\n\n" % size)
            if size > COPIED_BYTES_MAX:
                chunks += (b"".join(pieces), body)
                pieces = [b"\0"]
            else:
                pieces += (body, b"\0")
        chunks.append(b"".join(pieces))
        return chunks

    def cancelled(self) -> None:
        self._connection.guard(self._connection.subscription_cancelled, self)

    def activated(self, is_active: bool) -> None:
        self.is_active = is_active

    # --- called by the connection

    def start(self) -> None:
        """Begin to deliver, after the client was told that it is subscribed."""
        self._is_started = True
        self.queue.dispatch()

    def pause(self) -> None:
        """Deliver nothing more. The subscription is going to be stopped."""
        self._is_started = False

    def stop(self) -> None:
        self.pause()
        self.queue.remove_consumer(self)

    def wake(self) -> None:
        self.queue.dispatch()

    def release(self) -> None:
        """Requeue everything that is not acknowledged, or was in an open transaction."""
        if self.leased_count:
            self.queue.release(self)

    # --- as a holder

    def settle(self, lane: int, offsets: range) -> None:
        self._freed(len(offsets))
        self.queue.settle(self, lane, offsets)

    def reject(self, lane: int, offsets: range) -> None:
        self._freed(len(offsets))
        self.queue.reject(self, lane, offsets)

    def requeue(self, lane: int, offsets: range) -> None:
        self._freed(len(offsets))
        self.queue.requeue(self, lane, offsets)

    def _freed(self, count: int) -> None:
        self.leased_count -= count
        self._connection.unacked_count -= count
        self._connection.has_room(self)

    def when_settled(self, waiter: Waiter) -> None:
        self.queue.when_settlements_committed(waiter)

    def facts(self) -> ConsumerFacts:
        return ConsumerFacts(
            self.tag,
            self.queue.name,
            self.auto_ack,
            is_active=self.is_active,
            prefetch=self.prefetch,
            priority=self.priority,
        )
