"""Exchanges: list, show, declare, delete, publish."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.message import Publication, Refused
from entrepot.broker.router.event import DEFAULT_EXCHANGE, Exchange
from entrepot.core.errors import StorageError, UnknownExchange
from entrepot.core.value import freeze_table, thaw_table
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.fields import Fields, bad
from entrepot.gateway.http.management.messages import read, to_json
from entrepot.gateway.rabbitmq.exchange_arguments import (
    ExchangeDeclaration,
    exchange_type,
    type_name,
)
from entrepot.gateway.rabbitmq.rights import DEFAULT_EXCHANGE_NAME
from entrepot.wire.http.response import NO_CONTENT, Response

Row = dict[str, Any]


async def list_all(call: Call) -> list[Row]:
    return await call.in_turns(
        describe(vhost.name, exchange)
        for vhost in call.vhosts
        for exchange in sorted(vhost.router.exchanges(), key=lambda each: each.name)
    )


def show(call: Call) -> Row:
    return describe(call.vhost.name, find(call))


def describe(vhost: str, exchange: Exchange) -> Row:
    return {
        "name": exchange.name,
        "vhost": vhost,
        "type": type_name(exchange.type),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": to_json(thaw_table(exchange.arguments)),
    }


def find(call: Call) -> Exchange:
    """Return the exchange that the path names. Raises UnknownExchange."""
    name = exchange_name(call.path["name"])
    found = call.vhost.router.exchange(name)
    if found is None:
        raise UnknownExchange(f"no exchange '{name}' in vhost '{call.vhost.name}'")
    return found


def exchange_name(segment: str) -> str:
    """Return the name of an exchange; in a path the default exchange has a name, too."""
    return DEFAULT_EXCHANGE if segment == DEFAULT_EXCHANGE_NAME else segment


async def declare(call: Call) -> Response:
    name, fields = exchange_name(call.path["name"]), call.fields
    call.require(Operation.CREATE, ResourceKind.EXCHANGE, name)
    declaration = declared(call.vhost.name, name, fields)
    if declaration.alternate is not None:  # As over AMQP: messages of the one go to the other.
        call.require(Operation.READ, ResourceKind.EXCHANGE, name)
        call.require(Operation.WRITE, ResourceKind.EXCHANGE, declaration.alternate)
    is_there = call.vhost.router.exchange(name) is not None
    await call.vhost.declare_exchange(declaration)
    return Response(NO_CONTENT if is_there else 201)


def declared(vhost: str, name: str, fields: Fields) -> ExchangeDeclaration:
    """Return the declaration in the fields. Raises InvalidExchange for an unknown type."""
    return ExchangeDeclaration(
        vhost,
        name,
        exchange_type(fields.text("type", "direct")),
        freeze_table(fields.table("arguments")),
        durable=fields.truth("durable", default=True),
        auto_delete=fields.truth("auto_delete"),
        internal=fields.truth("internal"),
    )


async def delete(call: Call) -> None:
    name = find(call).name
    call.require(Operation.DELETE, ResourceKind.EXCHANGE, name)
    await call.vhost.delete_exchange(name, if_unused=call.query.get("if-unused") == "true")


async def publish(call: Call) -> Row:
    """Publish a message; answer when all queues have it: a transient one at once, others when
    permanent."""
    exchange = find(call)
    call.require(Operation.WRITE, ResourceKind.EXCHANGE, exchange.name)
    call.fields.require("routing_key")
    key, bytes_max = call.fields.short_text("routing_key"), call.context.message_bytes_max
    message = await call.broker.turns.run(read(exchange.name, key, call.fields, bytes_max))
    user_id = message[0].properties.user_id
    if user_id not in (None, call.user):
        raise bad(f"user_id property set to '{user_id}' but authenticated user was '{call.user}'")
    done: asyncio.Future[StorageError | Refused | None] = asyncio.Future()

    def arrived(failure: StorageError | Refused | None) -> None:
        if not done.done():
            done.set_result(failure)

    publication = Publication(arrived)
    check = partial(call.require, Operation.WRITE, ResourceKind.QUEUE)
    lost = call.vhost.publish(exchange.name, [message], publication, check)
    publication.arrived()
    failure = await done
    if isinstance(failure, Refused):
        raise bad("a queue takes no more")
    if failure is not None:
        raise failure
    return {"routed": not lost}
