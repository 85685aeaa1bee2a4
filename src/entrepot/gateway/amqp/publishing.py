"""Publishing: a run of messages to one exchange is checked, sent to the queues, and counted.

The messages of a run usually share an envelope, which is then checked once. An invalid message
closes the channel; those before it in the run are published, and those after it are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from typing import TYPE_CHECKING

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.message import Publication
from entrepot.broker.router.event import DEFAULT_EXCHANGE
from entrepot.core import limits
from entrepot.core.errors import PeerError, UnknownExchange
from entrepot.core.message import Envelope, Message, distinct, subjects
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.amqp.in_flight import InFlight
from entrepot.gateway.amqp.reply_to import REPLY_PREFIX
from entrepot.gateway.timing import timed
from entrepot.wire.amqp.deliver import returned
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.properties import PropertyView
from entrepot.wire.amqp.publish_method import PublishTarget

if TYPE_CHECKING:
    from entrepot.gateway.amqp.channel import Channel


def publish(channel: Channel, target: PublishTarget, messages: list[Message]) -> None:
    """Publish messages, up to the first that is invalid. Raises a PeerError."""
    if target.immediate:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, "immediate=true")
    if not channel.connection.is_unlimited:
        channel.connection.check(Operation.WRITE, ResourceKind.EXCHANGE, target.exchange)
    if len(messages) == 1:
        ((envelope, body),) = messages
        if not envelope.is_checked:
            seen = _check(channel, envelope)
            if seen is not envelope:
                messages = [(seen, body)]
        _take(channel, target, messages)
        return
    accepted, error = _checked(channel, messages)
    if accepted:
        for part in _parts(target, accepted):
            _take(channel, target, part)
    if error is not None:
        raise error


def _parts(target: PublishTarget, messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Yield the messages in parts that are published together; usually there is only one.

    Direct replies to one consumer are a part of their own, and so is each large message, which
    is written in slices.
    """
    is_default = target.exchange == DEFAULT_EXCHANGE
    has_replies = is_default and any(map(_reply_name, subjects(messages)))
    if not has_replies and sum([len(body) for _, body in messages]) <= limits.LARGE_BYTES:
        yield messages
        return

    def kind(message: Message) -> tuple[bool, str]:
        envelope, body = message
        return len(body) > limits.LARGE_BYTES, _reply_name(envelope.subject) if is_default else ""

    for (is_large, _), some in groupby(messages, kind):
        if is_large:
            yield from ([each] for each in some)
        else:
            yield list(some)


def _reply_name(key: str) -> str:
    """Return the key if it is the name of a reply consumer; otherwise an empty text."""
    return key if key.startswith(REPLY_PREFIX) else ""


def _take(channel: Channel, target: PublishTarget, messages: Sequence[Message]) -> None:
    """Send messages to the queues; in a transaction, hold them until the commit."""
    connection = channel.connection
    if channel.transaction is None:
        size = uncommitted_size(messages)
        if channel.confirms is None:
            send(channel, target, messages, InFlight(connection, size, None))
        else:
            in_flight = channel.confirms.expect(connection, size, len(messages))
            send(channel, target, messages, in_flight)
        return
    vhost = connection.vhost
    if vhost.router.exchange(target.exchange) is None:
        raise UnknownExchange(f"no exchange '{target.exchange}' in vhost '{vhost.name}'")
    check = connection.topic_check if target.exchange == DEFAULT_EXCHANGE else None
    if check is not None:  # Now: at the commit, some messages could be published already.
        for key in subjects(messages):
            if vhost.stream(key) is not None:
                check(key)
    channel.transaction.hold(target, messages)


def uncommitted_size(messages: Sequence[Message]) -> int | None:
    """Return the bytes of a run that count as uncommitted. None means: they do not count."""
    if len(messages) == 1:
        ((envelope, body),) = messages
        if not envelope.is_plain and envelope.handling.confirms_when_consumed:
            return None
        return len(body)
    if any(each.handling.confirms_when_consumed for each in distinct(messages)):
        return None
    return sum([len(body) for _, body in messages])


def send(
    channel: Channel, target: PublishTarget, messages: Sequence[Message], in_flight: InFlight
) -> None:
    """Send messages to the queues, and return unroutable ones to the client if it asked for that.

    `in_flight` ends when all are committed or have failed, after unroutable ones were returned.
    """
    connection = channel.connection
    counted = connection.context.messages
    counted.published += len(messages)
    timing: Publication = in_flight
    if counted.answering.is_due:
        timing = timed(in_flight, counted.answering, connection.context.clock)
    vhost, exchange = connection.vhost, target.exchange
    name = messages[0][0].subject
    try:
        unroutable: Sequence[Message]
        if exchange == DEFAULT_EXCHANGE and name.startswith(REPLY_PREFIX):
            unroutable = connection.context.replies.deliver(vhost.name, name, messages)
        else:
            unroutable = vhost.publish(exchange, messages, timing, connection.topic_check)
    except PeerError:
        in_flight.give_up()
        raise
    if unroutable and target.mandatory:
        _return_unroutable(channel, unroutable)
    if timing is not in_flight:
        timing.arrived()
    in_flight.arrived()


def _return_unroutable(channel: Channel, messages: Sequence[Message]) -> None:
    connection = channel.connection
    for message in messages:
        chunks = returned(channel.number, ReplyCode.NO_ROUTE, message, connection.frame_bytes_max)
        connection.outbox.send(chunks)


# Checking messages.


def _checked(
    channel: Channel, messages: Sequence[Message]
) -> tuple[Sequence[Message], PeerError | None]:
    """Return the messages before the first invalid one with checked envelopes, and its error."""
    if len(messages) == 1 and messages[0][0].is_checked:
        return messages, None
    checked: dict[int, Envelope] = {}
    failure: PeerError | None = None
    has_changed = False
    for envelope in distinct(messages):
        try:
            seen = envelope if envelope.is_checked else _check(channel, envelope)
        except PeerError as error:
            messages = [*takewhile(lambda each: id(each[0]) in checked, messages)]
            failure = error
            break
        checked[id(envelope)] = seen
        has_changed = has_changed or seen is not envelope
    if has_changed:
        messages = [(checked[id(envelope)], body) for envelope, body in messages]
    return messages, failure


def _check(channel: Channel, envelope: Envelope) -> Envelope:
    """Check an envelope; return the one to publish. Raises a PeerError.

    It is another one if `reply_to` has to be replaced by the name of the reply consumer.
    """
    found = AMQP.inspect(envelope.head)
    envelope.handling = found.handling
    if found.asks_reply:
        consumer = channel.reply_consumer
        if consumer is None:
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, "fast reply consumer does not exist")
        patched = PropertyView(envelope.head).patch({"reply_to": consumer.name})
        envelope = envelope.with_head(patched)
    else:
        envelope.is_checked = not found.refusal and found.user_id is None
    if found.refusal:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, found.refusal)
    if found.user_id is not None and found.user_id != (user := channel.connection.terms.user):
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED,
            f"user_id property set to '{found.user_id}' but authenticated user was '{user}'",
        )
    return envelope
