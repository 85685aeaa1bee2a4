"""The queue class: declares, deletes, purges and binds queues and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.catalog import Topic
from entrepot.broker.queue.queue import Queue
from entrepot.broker.router.event import DEFAULT_EXCHANGE, Binding, Destination, DestinationKind
from entrepot.core.errors import QueueDown, UnknownQueue
from entrepot.core.value import FrozenTable, freeze_table, lookup
from entrepot.gateway.amqp.exchange import check_binding, clean
from entrepot.gateway.amqp.format import REPLY_TO
from entrepot.gateway.amqp.reply_to import REPLY_PREFIX
from entrepot.gateway.rabbitmq.binding_arguments import BindingDeclaration
from entrepot.gateway.rabbitmq.erlang import describe
from entrepot.gateway.rabbitmq.queue_arguments import QueueDeclaration, check_queue_name
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.methods.queue import (
    Bind,
    BindOk,
    Declare,
    DeclareOk,
    Delete,
    DeleteOk,
    Purge,
    PurgeOk,
    Unbind,
    UnbindOk,
)

if TYPE_CHECKING:
    from entrepot.gateway.amqp.channel import Channel

_DEAD_LETTER_EXCHANGE = "x-dead-letter-exchange"
_DEAD_LETTER_KEY = "x-dead-letter-routing-key"


async def declare(channel: Channel, method: Declare) -> None:
    name = clean(method.queue)
    if name.startswith(REPLY_TO):
        message_count, consumer_count = 0, _reply_consumers(channel, name)
    else:
        if method.passive:
            found = _find(channel, name)
        else:
            found = await _declare(channel, name, method)
        name = found.name
        message_count, consumer_count = _counts(channel, found)
    channel.queue_last = name
    if not method.nowait:
        channel.answer(DeclareOk(name, message_count, consumer_count))


def _reply_consumers(channel: Channel, name: str) -> int:
    """Return the number of consumers of a direct reply-to name.

    The general name always exists. Raises UnknownQueue for another one without a consumer.
    """
    connection = channel.connection
    vhost = connection.vhost.name
    if name != REPLY_TO and not connection.context.replies.has(vhost, name):
        raise UnknownQueue(f"no queue '{name}' in vhost '{vhost}'")
    return 1


def _find(channel: Channel, name: str) -> Queue | Topic:
    connection = channel.connection
    connection.check(Operation.DESCRIBE, ResourceKind.QUEUE, name)
    stream = connection.vhost.stream(name)
    return stream if stream is not None else connection.vhost.queue(name, connection)


async def _declare(channel: Channel, name: str, method: Declare) -> Queue | Topic:
    connection = channel.connection
    check_queue_name(name)
    name = name or connection.context.name("amq.gen")
    arguments = freeze_table(method.arguments)
    connection.check(Operation.CREATE, ResourceKind.QUEUE, name)
    if name not in connection.vhost.queues:
        _check_dead_letters(channel, name, arguments)
    declaration = QueueDeclaration(
        connection.vhost.name,
        name,
        arguments,
        durable=method.durable and not method.exclusive,
        exclusive=method.exclusive,
        auto_delete=method.auto_delete,
    )
    return await connection.vhost.declare_queue(declaration, connection)


def _check_dead_letters(channel: Channel, name: str, arguments: FrozenTable) -> None:
    """Raise AmqpError unless the client itself may publish to the dead letter exchange."""
    connection = channel.connection
    exchange = lookup(arguments, _DEAD_LETTER_EXCHANGE)
    if exchange is None:
        return
    if not isinstance(exchange, str):
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED,
            f"invalid type '{describe(exchange)[0]}' for arg '{_DEAD_LETTER_EXCHANGE}' "
            f"in queue '{name}' in vhost '{connection.vhost.name}'",
        )
    connection.check(Operation.READ, ResourceKind.QUEUE, name)
    connection.check(Operation.WRITE, ResourceKind.EXCHANGE, exchange)
    key = lookup(arguments, _DEAD_LETTER_KEY)
    if exchange == DEFAULT_EXCHANGE and isinstance(key, str) and key not in connection.vhost.queues:
        # The key may name a topic, now or later.
        connection.check(Operation.WRITE, ResourceKind.QUEUE, key)


def _counts(channel: Channel, found: Queue | Topic) -> tuple[int, int]:
    """Return the numbers of messages and of consumers. Raises QueueDown."""
    if isinstance(found, Queue):
        found.check_up()
        return found.ready_count, found.consumer_count
    broker = channel.connection.context.broker
    check_stream(channel, found)
    return sum(each.record_count for each in broker.served_partitions(found)), 0


def check_stream(channel: Channel, topic: Topic) -> None:
    """Raise QueueDown if the topic has failed."""
    connection = channel.connection
    fault = connection.context.broker.fault_of(topic)
    if fault is not None:
        raise QueueDown(f"queue '{topic.name}' in vhost '{connection.vhost.name}' is down: {fault}")


async def delete(channel: Channel, method: Delete) -> None:
    name = clean(channel.queue_name(method.queue))
    connection = channel.connection
    connection.check(Operation.DELETE, ResourceKind.QUEUE, name)
    count = await connection.vhost.delete_queue(
        name, connection, if_unused=method.if_unused, if_empty=method.if_empty
    )
    if not method.nowait:
        channel.answer(DeleteOk(count))


def purge(channel: Channel, method: Purge) -> None:
    name = channel.queue_name(method.queue)
    connection = channel.connection
    connection.check(Operation.READ, ResourceKind.QUEUE, name)
    if connection.vhost.stream(name) is not None:
        raise AmqpError(
            ReplyCode.NOT_IMPLEMENTED,
            f"queue.purge not supported by stream queues "
            f"queue '{name}' in vhost '{connection.vhost.name}'",
        )
    count = connection.vhost.queue(name, connection).purge()
    if not method.nowait:
        channel.answer(PurgeOk(count))


async def bind(channel: Channel, method: Bind) -> None:
    wanted = BindingDeclaration(*_ends(channel, method), freeze_table(method.arguments))
    await channel.connection.vhost.bind(wanted, channel.connection)
    if not method.nowait:
        channel.answer(BindOk())


async def unbind(channel: Channel, method: Unbind) -> None:
    binding = Binding(*_ends(channel, method), freeze_table(method.arguments))
    await channel.connection.vhost.unbind(binding, channel.connection)
    channel.answer(UnbindOk())


def _ends(channel: Channel, method: Bind | Unbind) -> tuple[str, Destination, str]:
    """Return the source, the destination and the key.

    Without a queue's name the queue declared last is meant, and an empty key means its name.
    """
    name = channel.queue_name(method.queue)
    key = method.routing_key or ("" if method.queue else name)
    source, name = clean(method.exchange), clean(name)
    if name.startswith(REPLY_PREFIX):
        raise AmqpError(
            ReplyCode.ACCESS_REFUSED, "cannot bind or unbind to a volatile (direct reply-to) queue"
        )
    check_binding(channel, source, ResourceKind.QUEUE, name)
    return source, Destination(DestinationKind.QUEUE, name), key
