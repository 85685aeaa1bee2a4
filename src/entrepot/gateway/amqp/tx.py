"""The tx class: begins, commits and rolls back transactions (see `transaction`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from entrepot.broker.queue.message import Failure, Publication
from entrepot.core.errors import StorageError
from entrepot.gateway.amqp.in_flight import InFlight
from entrepot.gateway.amqp.publishing import send, uncommitted_size
from entrepot.gateway.amqp.transaction import ChannelTransaction
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.methods.tx import (
    Commit,
    CommitOk,
    Rollback,
    RollbackOk,
    Select,
    SelectOk,
)

if TYPE_CHECKING:
    from entrepot.gateway.amqp.channel import Channel


def select(channel: Channel, method: Select) -> None:
    if channel.confirms is not None:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = ChannelTransaction()
    channel.answer(SelectOk())


async def commit(channel: Channel, method: Commit) -> None:
    transaction = _open(channel)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(failure: Failure | None) -> None:
        if done.done():
            return
        if failure is None:
            done.set_result(None)
        elif isinstance(failure, StorageError):
            done.set_exception(failure)
        else:
            error = AmqpError(ReplyCode.PRECONDITION_FAILED, "partial tx completion")
            done.set_exception(error)

    publication = Publication(finish)
    _publish(channel, transaction, publication)
    # Only now: if it failed, the channel returns what the transaction has acknowledged.
    channel.transaction = ChannelTransaction()
    for holder in transaction.conclude():
        publication.expect()
        holder.when_settled(publication.arrived)
    channel.connection.dispatch()
    publication.arrived()
    await done
    if channel.is_open:
        channel.answer(CommitOk())


def _publish(channel: Channel, transaction: ChannelTransaction, publication: Publication) -> None:
    for target, messages in transaction.published():
        publication.expect()
        size = uncommitted_size(messages)
        in_flight = InFlight(channel.connection, size, publication.arrived)
        send(channel, target, messages, in_flight)


def rollback(channel: Channel, method: Rollback) -> None:
    transaction = _open(channel)
    channel.unacked.restore(transaction.taken())
    channel.transaction = ChannelTransaction()
    channel.answer(RollbackOk())


def _open(channel: Channel) -> ChannelTransaction:
    if channel.transaction is None:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "channel is not transactional")
    return channel.transaction
