"""The exchange class: exchanges, and bindings between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.broker.permissions import Right
from entrepot.broker.router import decision
from entrepot.broker.router.event import Binding, Destination, Exchange, Kind
from entrepot.core.value import freeze_table
from entrepot.wire.amqp.methods.exchange import (
    Bind,
    BindOk,
    Declare,
    DeclareOk,
    Delete,
    DeleteOk,
    Unbind,
    UnbindOk,
)

if TYPE_CHECKING:
    from entrepot.gateway.amqp.channel import Channel

_BREAKS = str.maketrans("", "", "\r\n")


def clean(name: str) -> str:
    """A line break in a name is left out, as in RabbitMQ."""
    return name.translate(_BREAKS)


async def declare(channel: Channel, method: Declare) -> None:
    connection = channel.connection
    name = clean(method.exchange)
    if method.passive:
        connection.check_any(Kind.EXCHANGE, name)
        decision.find(connection.vhost.router, name)
    else:
        exchange = _exchange(name, method)
        connection.check(Right.CONFIGURE, Kind.EXCHANGE, name)
        is_new = connection.vhost.router.exchange(name) is None
        if is_new and exchange.alternate is not None:
            connection.check(Right.READ, Kind.EXCHANGE, name)
            connection.check(Right.WRITE, Kind.EXCHANGE, exchange.alternate)
        await connection.vhost.declare_exchange(exchange)
    if not method.nowait:
        channel.answer(DeclareOk())


def _exchange(name: str, method: Declare) -> Exchange:
    return Exchange(
        name,
        decision.exchange_type(method.type),
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=freeze_table(method.arguments),
    )


async def delete(channel: Channel, method: Delete) -> None:
    name = clean(method.exchange)
    channel.connection.check(Right.CONFIGURE, Kind.EXCHANGE, name)
    await channel.connection.vhost.delete_exchange(name, if_unused=method.if_unused)
    if not method.nowait:
        channel.answer(DeleteOk())


async def bind(channel: Channel, method: Bind) -> None:
    await channel.connection.vhost.bind(_binding(channel, method))
    if not method.nowait:
        channel.answer(BindOk())


async def unbind(channel: Channel, method: Unbind) -> None:
    await channel.connection.vhost.unbind(_binding(channel, method))
    if not method.nowait:
        channel.answer(UnbindOk())


def _binding(channel: Channel, method: Bind | Unbind) -> Binding:
    source, destination = clean(method.source), clean(method.destination)
    check_binding(channel, source, Kind.EXCHANGE, destination)
    target = Destination(Kind.EXCHANGE, destination)
    return Binding(source, target, method.routing_key, freeze_table(method.arguments))


def check_binding(channel: Channel, source: str, kind: Kind, destination: str) -> None:
    """Whether the client may bind or unbind these."""
    connection = channel.connection
    connection.check(Right.WRITE, kind, destination)
    connection.check(Right.READ, Kind.EXCHANGE, source)
