"""The tx class: what a transaction is, is told in `transaction`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from entrepot.broker.queue.message import Failure, Publication
from entrepot.core.errors import StorageError
from entrepot.gateway.amqp.publishing import send
from entrepot.gateway.amqp.transaction import Transaction
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
        channel.transaction = Transaction()
    channel.answer(SelectOk())


async def commit(channel: Channel, method: Commit) -> None:
    transaction = _open(channel)
    channel.transaction = Transaction()
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

    all_of_it = Publication(finish)
    _publish(channel, transaction, all_of_it)
    for holder in transaction.conclude():
        all_of_it.expect()
        holder.when_settled(all_of_it.arrived)
    channel.connection.feed()
    all_of_it.arrived()
    await done
    if channel.is_open:
        channel.answer(CommitOk())


def _publish(channel: Channel, transaction: Transaction, all_of_it: Publication) -> None:
    for target, messages in transaction.published():
        all_of_it.expect()
        send(channel, target, messages, all_of_it.arrived)


def rollback(channel: Channel, method: Rollback) -> None:
    transaction = _open(channel)
    channel.unacked.restore(transaction.taken())
    channel.transaction = Transaction()
    channel.answer(RollbackOk())


def _open(channel: Channel) -> Transaction:
    if channel.transaction is None:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "channel is not transactional")
    return channel.transaction
