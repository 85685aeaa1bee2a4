"""What a channel's messages are delivered to: consumers, `basic.get`, and reply consumers.

A consumer has room for as many messages as its own prefetch and the channel's allow. A client
that does not read what it is sent gets no more. Nothing is delivered before the client was
sent `basic.consume-ok`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from entrepot.broker.queue.lane import Waiter
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.sessions import ConsumerFacts
from entrepot.core.message import Envelope
from entrepot.core.ports import Buffer
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.amqp.in_flight import raise_again
from entrepot.gateway.amqp.patience import patience
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.deliver import DeliverEncoder
from entrepot.wire.amqp.methods.basic import Cancel
from entrepot.wire.amqp.properties import PropertyView
from entrepot.wire.amqp.table import Int64

if TYPE_CHECKING:
    from entrepot.gateway.amqp.channel import Channel

_COUNT = "x-delivery-count"


class Delivering:
    """Sends messages to one consumer: assigns delivery tags and encodes frames."""

    def __init__(self, channel: Channel, tag: str) -> None:
        self.tag = tag
        self.unacked = 0
        self._channel = channel
        connection = channel.connection
        self._encoder = DeliverEncoder(
            channel.number, tag, connection.frame_bytes_max, AMQP.head_of, connection.tails
        )

    def send(self, taken: Taken) -> int:
        """Send messages; return the delivery tag of the first."""
        offsets, run, attempts = taken
        channel = self._channel
        first = channel.tag_next
        channel.tag_next = first + len(offsets)
        if attempts is None:
            messages = run.messages
            if len(messages) == 1:
                chunks = self._encoder.encode_one(first, messages[0])
            else:
                chunks = self._encoder.encode_run(first, messages)
        else:
            chunks = self._encode_again(first, taken)
        channel.connection.delivered(chunks, len(offsets))
        return first

    def _encode_again(self, first: int, taken: Taken) -> list[Buffer]:
        """Encode messages of which some were delivered before."""
        _, run, attempts = taken
        assert attempts is not None
        messages = enumerate(zip(run.messages, attempts, strict=True), first)
        return self._encoder.encode(
            [(tag, tried > 0, *message) for tag, (message, tried) in messages]
        )

    def cancelled(self) -> None:
        """Remove the consumer and notify the client, because the queue or stream is gone."""
        self._channel.connection.guard(self._notify_cancelled)

    def _notify_cancelled(self) -> None:
        self._channel.consumer_cancelled(self.tag)
        if self._channel.connection.can("consumer_cancel_notify"):
            notice = Cancel(self.tag, nowait=True)
            self._channel.connection.outbox.method(self._channel.number, notice)


class QueueConsumer(Delivering):
    """A consumer of a queue (its `Consumer`), and the `Holder` of what is delivered to it."""

    def __init__(
        self,
        channel: Channel,
        queue: Queue,
        tag: str,
        *,
        auto_ack: bool,
        is_exclusive: bool,
        arguments: Mapping[str, object],
    ) -> None:
        super().__init__(channel, tag)
        self.queue = queue
        self.auto_ack = auto_ack
        self.is_exclusive = is_exclusive
        self.arguments = arguments
        priority = arguments.get("x-priority")
        self.priority = priority if isinstance(priority, int) else 0
        self.prefetch = 0 if auto_ack else channel.prefetch  # 0 means: no limit.
        self._batching = patience(queue, arguments)
        self.is_started = False
        self._is_ending = False
        self.is_active = not queue.settings.single_active

    # --- called by the queue

    def room(self) -> int:
        if not self.is_started:
            return 0
        channel = self._channel
        room = channel.connection.room()
        if not self.auto_ack:
            # Compared rather than with `min`: it is asked for every message.
            left = amqp_limits.UNACKED_MAX - channel.unacked.count
            if self.prefetch and self.prefetch - self.unacked < left:
                left = self.prefetch - self.unacked
            if left < room:
                room = left
            if room > 0 and channel.prefetch_global:
                room = channel.shared_room(self, room)
        if room > 0 and self._batching is not None and not self._batching.is_over():
            return 0
        return room if room > 0 else 0

    def deliver(self, lane: int, taken: Taken) -> None:
        """Deliver messages. An error closes this connection only: the queue goes on."""
        try:
            self._deliver(lane, taken)
        except Exception as error:
            self._channel.connection.guard(raise_again, error)

    def _deliver(self, lane: int, taken: Taken) -> None:
        if not self.auto_ack:  # Before sending: if that fails, they are requeued.
            count = len(taken.offsets)
            self.unacked += count
            channel = self._channel
            channel.unacked_consumed += count
            if channel.prefetch_global:
                channel.shared_room_used(self, count)
            channel.unacked.add(channel.tag_next, self, lane, taken.offsets)
        self.send(taken if taken.attempts is None else with_counts(self.queue, taken))
        if self._batching is not None:
            self._batching.begin()

    def activated(self, is_active: bool) -> None:
        self.is_active = is_active

    def all_looked_at(self) -> None:
        """End the consumer, which was to be there until all of the queue was looked at."""
        if self._is_ending or not self.is_started:
            return
        self._is_ending = True
        asyncio.get_running_loop().call_soon(self._channel.connection.guard, self._end)

    def _end(self) -> None:
        if self.is_started:
            self.stop()
            self._notify_cancelled()

    # --- called by the channel

    def start(self) -> None:
        """Begin to deliver, after the client was sent `basic.consume-ok`."""
        self.is_started = True
        self.queue.dispatch()

    def stop(self) -> None:
        self.is_started = False
        if self._batching is not None:
            self._batching.begin()
        self.queue.remove_consumer(self)

    def release(self) -> None:
        """Requeue all unacknowledged messages."""
        self.queue.release(self)

    def wake(self) -> None:
        self.queue.dispatch()

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
        self.unacked -= count
        self._channel.unacked_consumed -= count
        self._channel.connection.queues_with_room[self.queue] = None

    def when_settled(self, waiter: Waiter) -> None:
        self.queue.when_settlements_committed(waiter)

    def facts(self) -> ConsumerFacts:
        return ConsumerFacts(
            self.tag,
            self.queue.name,
            self.auto_ack,
            self.is_exclusive,
            self.is_active,
            self.prefetch,
            self.priority,
            self.arguments,
        )


def with_counts(queue: Queue, taken: Taken) -> Taken:
    """Return the messages with a header that counts their earlier deliveries.

    Only quorum queues add it; those of other queues are returned as they are.
    """
    offsets, run, attempts = taken
    if not queue.settings.keeps_all or attempts is None:
        return taken
    messages = [
        (_counted(envelope, tried) if tried else envelope, body)
        for (envelope, body), tried in zip(run.messages, attempts, strict=True)
    ]
    return Taken(offsets, run._replace(messages=messages), attempts)


def _counted(envelope: Envelope, tried: int) -> Envelope:
    own = AMQP.own(envelope)
    return own.with_head(PropertyView(own.head).patch_headers({_COUNT: Int64(tried)}))


class Gets:
    """The `Holder` of messages that a channel got from one queue with `basic.get`."""

    def __init__(self, channel: Channel, queue: Queue) -> None:
        self._channel = channel
        self.queue = queue

    def settle(self, lane: int, offsets: range) -> None:
        self.queue.settle(self._channel, lane, offsets)

    def reject(self, lane: int, offsets: range) -> None:
        self.queue.reject(self._channel, lane, offsets)

    def requeue(self, lane: int, offsets: range) -> None:
        self.queue.requeue(self._channel, lane, offsets)

    def when_settled(self, waiter: Waiter) -> None:
        self.queue.when_settlements_committed(waiter)

    def release(self) -> None:
        self.queue.release(self._channel)


class ReplyConsumer(Delivering):
    """A consumer of direct replies: see `reply_to`."""

    def __init__(self, channel: Channel, tag: str) -> None:
        super().__init__(channel, tag)
        self._replies = channel.connection.context.replies
        self._vhost = channel.connection.vhost.name
        self.name = self._replies.add(self._vhost, self)

    def deliver(self, lane: int, taken: Taken) -> None:
        self._channel.connection.guard(self.send, taken)

    def start(self) -> None:
        """Do nothing: replies come by themselves."""

    def stop(self) -> None:
        self._replies.remove(self._vhost, self.name)

    def wake(self) -> None:
        """Do nothing: replies are never queued."""

    def facts(self) -> ConsumerFacts:
        return ConsumerFacts(self.tag, self.name, auto_ack=True)
