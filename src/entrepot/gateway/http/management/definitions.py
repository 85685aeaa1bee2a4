"""Definitions: everything that is declared, exported as one document or imported from one.

The format is RabbitMQ's, so that its exports can be imported. Virtual hosts, permissions, durable
queues and exchanges, and bindings are imported. Passwords are not in our exports and cannot be
imported from RabbitMQ's; the names of users only say who has to be added.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from entrepot.broker.permissions import Permission, permission_record
from entrepot.broker.router.event import Destination, DestinationKind
from entrepot.broker.turns import gathered
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core.value import freeze_table
from entrepot.gateway.http.management import bindings, exchanges, queues, users, vhosts
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.fields import Fields, bad
from entrepot.gateway.http.management.overview import RABBITMQ_VERSION
from entrepot.gateway.rabbitmq.binding_arguments import BindingDeclaration
from entrepot.gateway.rabbitmq.queue_arguments import STREAM, QueueDeclaration, check_queue_name
from entrepot.wire.http.response import Response

Row = dict[str, Any]

_QUEUE = ("name", "vhost", "durable", "auto_delete", "arguments")
_EXCHANGE = ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments")
_BINDING = ("source", "vhost", "destination", "destination_type", "routing_key", "arguments")


async def export(call: Call) -> Row:
    call.require_administrator()
    document: Row = {
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "entrepot",
        "product_version": call.context.version,
    }
    if "vhost" not in call.path:
        document["users"] = users.list_all(call)
        document["vhosts"] = [{"name": vhost.name} for vhost in call.vhosts]
        document["permissions"] = vhosts.list_permissions(call)
    kept = [row for row in await queues.list_all(call) if row["durable"] and not row["exclusive"]]
    names = {(row["vhost"], row["name"]): None for row in kept}
    document["queues"] = await call.in_turns(_some(row, _QUEUE) for row in kept)
    made = [
        row
        for row in await exchanges.list_all(call)
        if row["durable"] and row["name"] and not row["name"].startswith("amq.")
    ]
    document["exchanges"] = [_some(row, _EXCHANGE) for row in made]
    bound = await bindings.list_all(call)
    document["bindings"] = await call.in_turns(
        _some(row, _BINDING) for row in bound if row["source"] and _is_kept(row, names)
    )
    return document


def _some(row: Row, names: tuple[str, ...]) -> Row:
    return {name: row[name] for name in names}


def _is_kept(row: Row, names: Mapping[tuple[str, str], None]) -> bool:
    return row["destination_type"] != "queue" or (row["vhost"], row["destination"]) in names


async def take(call: Call) -> Response:
    """Import a document. What exists must be the same. What was imported before an error stays."""
    call.require_administrator()
    for name, change in _CHANGES.items():
        rows = call.fields.rows(name)
        await gathered(change(call, Fields(row)) for row in rows)  # Many share a commit.
    return Response(204)


async def _create_vhost(call: Call, row: Fields) -> None:
    await call.broker.vhosts.create(_named(row))


async def _permit(call: Call, row: Fields) -> None:
    permission = Permission(row.text("configure"), row.text("write"), row.text("read"))
    vhost = call.broker.vhosts.get(row.text("vhost")).name
    await call.broker.change_security(permission_record(row.text("user"), vhost, permission))


async def _declare_exchange(call: Call, row: Fields) -> None:
    vhost = _vhost(call, row)
    await vhost.declare_exchange(exchanges.declared(vhost.name, _named(row), row))


async def _bind(call: Call, row: Fields) -> None:
    await _vhost(call, row).bind(_binding(row))


def _named(row: Fields) -> str:
    if not row.text("name"):
        raise bad("name: missing")
    return row.text("name")


def _vhost(call: Call, row: Fields) -> VirtualHost:
    return call.broker.vhosts.get(call.path.get("vhost") or row.text("vhost", "/"))


async def _declare_queue(call: Call, row: Fields) -> None:
    vhost, name = _vhost(call, row), _named(row)
    arguments = row.table("arguments")
    if arguments.get("x-queue-type") == STREAM and vhost.stream(name) is not None:
        return  # A topic, which has its own settings.
    check_queue_name(name)
    declaration = QueueDeclaration(
        vhost.name,
        name,
        freeze_table(arguments),
        durable=row.truth("durable", default=True),
        auto_delete=row.truth("auto_delete"),
    )
    await vhost.declare_queue(declaration, call)


def _binding(row: Fields) -> BindingDeclaration:
    kind = (
        DestinationKind.EXCHANGE
        if row.text("destination_type") == "exchange"
        else DestinationKind.QUEUE
    )
    return BindingDeclaration(
        row.text("source"),
        Destination(kind, row.text("destination")),
        row.text("routing_key"),
        freeze_table(row.table("arguments")),
    )


# In this order, because each needs those before it.
_CHANGES: Mapping[str, Callable[[Call, Fields], Awaitable[None]]] = {
    "vhosts": _create_vhost,
    "permissions": _permit,
    "queues": _declare_queue,
    "exchanges": _declare_exchange,
    "bindings": _bind,
}
