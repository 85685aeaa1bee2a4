"""The confirm class: from `confirm.select` on, every publish of the channel is confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.gateway.amqp.confirms import Confirms
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.methods.confirm import Select, SelectOk

if TYPE_CHECKING:
    from entrepot.gateway.amqp.channel import Channel


def select(channel: Channel, method: Select) -> None:
    if channel.transaction is not None:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = Confirms(channel.number)
    if not method.nowait:
        channel.answer(SelectOk())
