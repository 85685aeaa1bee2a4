"""Methods that change nothing: `channel.flow`, and the access tickets of AMQP 0-8.

A client cannot stop deliveries with `channel.flow`, here as in RabbitMQ; it has a prefetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.methods.access import Request, RequestOk
from entrepot.wire.amqp.methods.channel import Flow, FlowOk

if TYPE_CHECKING:
    from entrepot.gateway.amqp.channel import Channel


def flow(channel: Channel, method: Flow) -> None:
    if not method.active:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, "active=false")
    channel.answer(FlowOk(active=True))


def request_access(channel: Channel, method: Request) -> None:
    channel.answer(RequestOk(ticket=1))
