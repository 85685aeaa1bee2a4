"""The exchange class: exchanges, and bindings between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.router import decision
from entrepot.broker.router.event import Binding, Destination, DestinationKind
from entrepot.core.value import freeze_table
from entrepot.gateway.rabbitmq.binding_arguments import BindingDeclaration
from entrepot.gateway.rabbitmq.exchange_arguments import (
    ExchangeDeclaration,
    check_deletable,
    exchange_type,
)
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
    """Return the name without line breaks, as RabbitMQ does."""
    return name.translate(_BREAKS)


async def declare(channel: Channel, method: Declare) -> None:
    connection = channel.connection
    name = clean(method.exchange)
    if method.passive:
        connection.check(Operation.DESCRIBE, ResourceKind.EXCHANGE, name)
        decision.find(connection.vhost.router, name)
    else:
        declaration = ExchangeDeclaration(
            connection.vhost.name,
            name,
            exchange_type(method.type),
            freeze_table(method.arguments),
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
        )
        connection.check(Operation.CREATE, ResourceKind.EXCHANGE, name)
        is_new = connection.vhost.router.exchange(name) is None
        if is_new and declaration.alternate is not None:
            connection.check(Operation.READ, ResourceKind.EXCHANGE, name)
            connection.check(Operation.WRITE, ResourceKind.EXCHANGE, declaration.alternate)
        await connection.vhost.declare_exchange(declaration)
    if not method.nowait:
        channel.answer(DeclareOk())


async def delete(channel: Channel, method: Delete) -> None:
    connection = channel.connection
    name = clean(method.exchange)
    connection.check(Operation.DELETE, ResourceKind.EXCHANGE, name)
    check_deletable(connection.vhost.name, name)
    await connection.vhost.delete_exchange(name, if_unused=method.if_unused)
    if not method.nowait:
        channel.answer(DeleteOk())


async def bind(channel: Channel, method: Bind) -> None:
    wanted = BindingDeclaration(*_ends(channel, method), freeze_table(method.arguments))
    await channel.connection.vhost.bind(wanted)
    if not method.nowait:
        channel.answer(BindOk())


async def unbind(channel: Channel, method: Unbind) -> None:
    binding = Binding(*_ends(channel, method), freeze_table(method.arguments))
    await channel.connection.vhost.unbind(binding)
    if not method.nowait:
        channel.answer(UnbindOk())


def _ends(channel: Channel, method: Bind | Unbind) -> tuple[str, Destination, str]:
    """Return source, destination and key. Raises AmqpError unless the client may bind them."""
    source, destination = clean(method.source), clean(method.destination)
    check_binding(channel, source, ResourceKind.EXCHANGE, destination)
    return source, Destination(DestinationKind.EXCHANGE, destination), method.routing_key


def check_binding(channel: Channel, source: str, kind: ResourceKind, destination: str) -> None:
    """Raise AmqpError unless the client may bind the destination to the source, or unbind it."""
    connection = channel.connection
    connection.check(Operation.WRITE, kind, destination)
    connection.check(Operation.READ, ResourceKind.EXCHANGE, source)
