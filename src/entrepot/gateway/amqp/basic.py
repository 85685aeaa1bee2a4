"""The basic class without publishing (see `publishing`): consuming, getting, acknowledging."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.catalog import Topic
from entrepot.broker.queue.selection import Everything, Selection
from entrepot.broker.selector import Selector
from entrepot.core.errors import InvalidSelector
from entrepot.core.value import freeze
from entrepot.gateway.amqp.consumer import QueueConsumer, ReplyConsumer, with_counts
from entrepot.gateway.amqp.format import AMQP, REPLY_TO
from entrepot.gateway.amqp.queue import check_stream
from entrepot.gateway.amqp.stream_consumer import StreamConsumer
from entrepot.gateway.rabbitmq.erlang import describe
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.methods.basic import (
    Ack,
    Cancel,
    CancelOk,
    Consume,
    ConsumeOk,
    Get,
    GetEmpty,
    GetOk,
    Nack,
    Qos,
    QosOk,
    Recover,
    RecoverAsync,
    RecoverOk,
    Reject,
)

if TYPE_CHECKING:
    from entrepot.gateway.amqp.channel import Channel, Consumer

_SELECTOR, _UNTIL_END, _BROWSE = "x-selector", "x-until-end", "x-browse"


def qos(channel: Channel, method: Qos) -> None:
    """Set the prefetch of consumers created from now on or, if global, of the whole channel."""
    if method.prefetch_size:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})")
    if method.is_global:
        channel.prefetch_global = method.prefetch_count
    else:
        channel.prefetch, channel.prefetch_global = method.prefetch_count, 0
    channel.answer(QosOk())
    channel.wake_consumers()


# Consuming.


def consume(channel: Channel, method: Consume) -> None:
    name = channel.queue_name(method.queue)
    if method.consumer_tag in channel.consumers:
        raise AmqpError(
            ReplyCode.NOT_ALLOWED, f"attempt to reuse consumer tag '{method.consumer_tag}'"
        )
    if len(channel.consumers) >= amqp_limits.CONSUMERS_MAX:
        raise AmqpError(
            ReplyCode.NOT_ALLOWED,
            f"reached maximum ({amqp_limits.CONSUMERS_MAX}) of consumers per channel",
        )
    tag = method.consumer_tag or channel.connection.context.name("amq.ctag")
    if name == REPLY_TO:
        consumer: Consumer = _reply_consumer(channel, tag, method)
    else:
        consumer = _consumer(channel, name, tag, method)
    channel.consumers[tag] = consumer
    if not method.nowait:
        channel.answer(ConsumeOk(tag))
    consumer.start()


def _reply_consumer(channel: Channel, tag: str, method: Consume) -> ReplyConsumer:
    if not method.no_ack:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
    if channel.reply_consumer is not None:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "reply consumer already set")
    channel.reply_consumer = ReplyConsumer(channel, tag)
    return channel.reply_consumer


def _consumer(
    channel: Channel, name: str, tag: str, method: Consume
) -> QueueConsumer | StreamConsumer:
    connection = channel.connection
    connection.check(Operation.READ, ResourceKind.QUEUE, name)
    stream = connection.vhost.stream(name)
    if stream is not None:
        return _stream_consumer(channel, stream, tag, method)
    queue = connection.vhost.queue(name, connection)
    queue.check_up()
    _check_priority(channel, name, method)
    selection = _selection(name, method)
    consumer = QueueConsumer(
        channel,
        queue,
        tag,
        auto_ack=method.no_ack,
        is_exclusive=method.exclusive,
        arguments=method.arguments,
    )
    if selection is not None and method.arguments.get(_UNTIL_END) is True:
        selection.on_end = consumer.all_looked_at
    queue.add_consumer(consumer, selection)
    return consumer


def _selection(name: str, method: Consume) -> Selection | None:
    """Return which messages a consumer wants. None means: all. Raises InvalidSelector, AmqpError.

    A consumer that is only there until the end of the queue always has one: it is what notices;
    and so has one that browses.
    """
    text = method.arguments.get(_SELECTOR)
    browses = method.arguments.get(_BROWSE) is True
    if browses and not method.no_ack:
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED,
            f"invalid arg '{_BROWSE}' for queue '{name}': who browses cannot acknowledge",
        )
    if text is not None and not isinstance(text, str):
        kind, _ = describe(freeze(text))
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED,
            f"invalid arg '{_SELECTOR}' for queue '{name}': expected a text, got {kind}",
        )
    if text:
        try:
            return Selection(Selector(text), browses=browses)
        except InvalidSelector as error:
            raise InvalidSelector(
                f"invalid arg '{_SELECTOR}' for queue '{name}': {error}"
            ) from None
    if browses or method.arguments.get(_UNTIL_END) is True:
        return Selection(Everything(), browses=browses)
    return None


def _check_priority(channel: Channel, name: str, method: Consume) -> None:
    priority = method.arguments.get("x-priority")
    if isinstance(priority, int) and not isinstance(priority, bool):
        return
    if "x-priority" in method.arguments:
        kind, _ = describe(freeze(priority))
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED,
            f"invalid arg 'x-priority' for queue '{name}' in vhost "
            f"'{channel.connection.vhost.name}': \"expected integer, got {kind}\"",
        )


def _stream_consumer(channel: Channel, topic: Topic, tag: str, method: Consume) -> StreamConsumer:
    where = f"queue '{topic.name}' in vhost '{channel.connection.vhost.name}'"
    if not channel.prefetch:
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED,
            f"consumer prefetch count is not set for stream {where}",
        )
    if method.no_ack:
        raise AmqpError(
            ReplyCode.NOT_IMPLEMENTED,
            f"automatic acknowledgement not supported by stream {where}",
        )
    if channel.prefetch_global:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, f"{where} does not support global qos")
    check_stream(channel, topic)
    return StreamConsumer(channel, topic, tag, method.arguments)


def cancel(channel: Channel, method: Cancel) -> None:
    """Remove a consumer; an unknown tag is no error.

    Its unacknowledged messages stay with the channel.
    """
    consumer = channel.consumers.pop(method.consumer_tag, None)
    if consumer is not None:
        consumer.stop()
        if consumer is channel.reply_consumer:
            channel.reply_consumer = None
    if not method.nowait:
        channel.answer(CancelOk(method.consumer_tag))


def cancel_ok(channel: Channel, method: CancelOk) -> None:
    """Ignore the answer to a `basic.cancel` that we sent because a queue is gone."""


def get(channel: Channel, method: Get) -> None:
    name = channel.queue_name(method.queue)
    connection = channel.connection
    connection.check(Operation.READ, ResourceKind.QUEUE, name)
    if connection.vhost.stream(name) is not None:
        raise AmqpError(
            ReplyCode.NOT_IMPLEMENTED,
            "basic.get not supported by stream queues "
            f"queue '{name}' in vhost '{connection.vhost.name}'",
        )
    queue = connection.vhost.queue(name, connection)
    if not method.no_ack and channel.unacked.count >= amqp_limits.UNACKED_MAX:
        raise AmqpError(ReplyCode.RESOURCE_ERROR, "too many messages are not acknowledged")
    found = queue.get(channel, auto_ack=method.no_ack)
    if found is None:
        channel.answer(GetEmpty())
        return
    lane, taken = found
    offsets, run, attempts = with_counts(queue, taken)
    tag = channel.tag_next
    channel.tag_next += 1
    if not method.no_ack:
        channel.unacked.add(tag, channel.gets_of(queue), lane, offsets)
    redelivered = attempts is not None and attempts[0] > 0
    envelope, body = run.messages[0]
    answer = GetOk(tag, redelivered, envelope.exchange, envelope.subject, queue.ready_count)
    head = AMQP.head_of(envelope)
    chunks = content(channel.number, answer, head, body, connection.frame_bytes_max)
    connection.context.messages.delivered += 1
    connection.outbox.send(chunks)


# Acknowledging.


def ack(channel: Channel, method: Ack) -> None:
    channel.acknowledge([method.delivery_tag], is_multiple=method.multiple)


def nack(channel: Channel, method: Nack) -> None:
    channel.reject(method.delivery_tag, is_multiple=method.multiple, requeue=method.requeue)


def reject(channel: Channel, method: Reject) -> None:
    channel.reject(method.delivery_tag, is_multiple=False, requeue=method.requeue)


def recover(channel: Channel, method: Recover) -> None:
    _recover(channel, method.requeue)
    channel.answer(RecoverOk())


def recover_async(channel: Channel, method: RecoverAsync) -> None:
    _recover(channel, method.requeue)


def _recover(channel: Channel, requeue: bool) -> None:
    if not requeue:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, "requeue=false")
    channel.recover()
