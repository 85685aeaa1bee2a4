"""Publishing: a run of messages to one exchange, looked at, sent on, and accounted for.

Nothing here looks at messages one by one when they have the same properties, as those of a
run nearly always do, under whatever keys. What is wrong with one message closes the channel;
those before it in the run are published all the same, and those after it are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, takewhile
from typing import TYPE_CHECKING

from entrepot.broker.permissions import Right
from entrepot.broker.queue.message import Failure, Publication
from entrepot.broker.router.event import DEFAULT_EXCHANGE, Kind
from entrepot.core import limits
from entrepot.core.envelope import Message, kinds, routing_keys
from entrepot.core.errors import PeerError, UnknownExchange
from entrepot.gateway.amqp.property_reader import may_be_patient
from entrepot.gateway.amqp.reply_to import REPLY_PREFIX
from entrepot.wire.amqp.deliver import returned
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.place import Target
from entrepot.wire.amqp.properties import PropertyView

if TYPE_CHECKING:
    from entrepot.gateway.amqp.channel import Channel
    from entrepot.gateway.amqp.connection import Connection

Told = Callable[[Failure | None], None]


def publish(channel: Channel, target: Target, messages: list[Message]) -> None:
    """Raises a PeerError."""
    if target.immediate:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, "immediate=true")
    channel.connection.check(Right.WRITE, Kind.EXCHANGE, target.exchange)
    accepted, error = _checked(channel, messages)
    if accepted:
        for some in _replies_apart(target, accepted):
            for part in _large_apart(some):
                _take(channel, target, part)
    if error is not None:
        raise error


def _replies_apart(target: Target, messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """All of them, nearly always; or the answers to each one who waits for some by themselves."""
    if target.exchange != DEFAULT_EXCHANGE or not any(map(_reply_name, routing_keys(messages))):
        yield messages
        return
    for _, some in groupby(messages, lambda message: _reply_name(message[0].routing_key)):
        yield list(some)


def _large_apart(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """All of them, nearly always; or each large one by itself: it is written in slices."""
    if len(messages) == 1 or sum([len(body) for _, body in messages]) <= limits.LARGE_BYTES:
        yield messages
        return
    for is_large, some in groupby(messages, lambda each: len(each[1]) > limits.LARGE_BYTES):
        if is_large:
            yield from ([each] for each in some)
        else:
            yield list(some)


def _reply_name(key: str) -> str:
    """Who waits for what has this key; empty when it is a message like others."""
    return key if key.startswith(REPLY_PREFIX) else ""


def _take(channel: Channel, target: Target, messages: Sequence[Message]) -> None:
    if channel.transaction is None:
        told = None if channel.confirms is None else channel.confirms.depart(len(messages))
        send(channel, target, messages, told)
        return
    vhost = channel.connection.vhost
    if vhost.router.exchange(target.exchange) is None:
        raise UnknownExchange(f"no exchange '{target.exchange}' in vhost '{vhost.name}'")
    check = channel.connection.topic_check() if target.exchange == DEFAULT_EXCHANGE else None
    if check is not None:  # Now rather than at the commit, where a part could be published.
        for key in routing_keys(messages):
            if vhost.stream(key) is not None:
                check(key)
    channel.transaction.hold(target, messages)


class Flight:
    """A run on its way to the queues. Keeps its weight until it is there.

    One that is confirmed when it is consumed has none: that may take long, and the connection
    may be needed for the consuming. The queues have a bound of their own for those.
    """

    __slots__ = ("_connection", "_size", "_told", "publication")

    def __init__(self, connection: Connection, size: int | None, told: Told | None) -> None:
        self._connection = connection
        self._size = size
        self._told = told
        self.publication = Publication(partial(connection.guard, self._landed))
        if size is not None:
            connection.departed(size)

    def _landed(self, failure: Failure | None) -> None:
        if self._told is not None:
            self._told(failure)
        self.end()

    def end(self) -> None:
        """It has arrived, or was never sent because something is wrong with it."""
        self._connection.landed(self._size)


def send(
    channel: Channel,
    target: Target,
    messages: Sequence[Message],
    told: Told | None,
) -> None:
    """To the queues, and back what went nowhere, where that was asked for.

    `told` hears when all of it has arrived, after what is returned was sent.
    """
    connection = channel.connection
    size = None
    if not any(map(may_be_patient, kinds(messages))):
        size = sum([len(body) for _, body in messages])
    flight = Flight(connection, size, told)
    vhost, exchange = connection.vhost, target.exchange
    try:
        nowhere: Sequence[Message]
        if exchange == DEFAULT_EXCHANGE and (name := _reply_name(messages[0][0].routing_key)):
            nowhere = connection.context.replies.deliver(vhost.name, name, messages)
        else:
            check = connection.topic_check()
            nowhere = vhost.publish(exchange, messages, flight.publication, check)
    except PeerError:
        flight.end()
        raise
    if nowhere and target.mandatory:
        _give_back(channel, nowhere)
    flight.publication.arrived()


def _give_back(channel: Channel, messages: Sequence[Message]) -> None:
    connection = channel.connection
    for message in messages:
        chunks = returned(channel.number, ReplyCode.NO_ROUTE, message, connection.frame_bytes_max)
        connection.outbox.send(chunks)


# What is wrong with a message.


def _checked(
    channel: Channel, messages: list[Message]
) -> tuple[Sequence[Message], AmqpError | None]:
    """Those up to the first that is wrong, and what is wrong with it."""
    checked: dict[bytes, bytes] = {}
    failure: AmqpError | None = None
    for properties in kinds(messages):
        try:
            checked[properties] = _check(channel, properties)
        except AmqpError as error:
            messages = [*takewhile(lambda each: each[0].properties in checked, messages)]
            failure = error
            break
    if any(before is not after for before, after in checked.items()):
        messages = [
            (envelope._replace(properties=checked[envelope.properties]), body)
            for envelope, body in messages
        ]
    return messages, failure


def _check(channel: Channel, properties: bytes) -> bytes:
    """Raises AmqpError."""
    found = channel.connection.context.reader.inspect(properties)
    if found.asks_reply:
        consumer = channel.reply_consumer
        if consumer is None:
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, "fast reply consumer does not exist")
        properties = PropertyView(properties).patch({"reply_to": consumer.name})
    if found.refusal:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, found.refusal)
    user = channel.connection.terms.user
    if found.user_id is not None and found.user_id != user:
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED,
            f"user_id property set to '{found.user_id}' but authenticated user was '{user}'",
        )
    return properties
