"""Bindings: list them in various ways, create and delete them.

A binding between a given source and destination is identified by its properties key: its routing
key, and a checksum of its arguments if it has any. Clients take it from a list and do not make
it themselves.
"""

from __future__ import annotations

import json
import zlib
from base64 import urlsafe_b64encode
from typing import Any
from urllib.parse import quote

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.router.event import DEFAULT_EXCHANGE, Binding, Destination, DestinationKind
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core.errors import UnknownQueue
from entrepot.core.value import freeze_table, thaw_table
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.exchanges import exchange_name, find
from entrepot.gateway.http.management.messages import to_json
from entrepot.gateway.http.management.queues import streams_of
from entrepot.gateway.rabbitmq.binding_arguments import BindingDeclaration
from entrepot.wire.http.request import HttpError
from entrepot.wire.http.response import Response

Row = dict[str, Any]

_KINDS = {"q": DestinationKind.QUEUE, "e": DestinationKind.EXCHANGE}


async def list_all(call: Call) -> list[Row]:
    return await call.in_turns(
        describe(vhost.name, binding)
        for vhost in call.vhosts
        for binding in [*_implicit(call, vhost), *vhost.router.bindings()]
    )


def of_queue(call: Call) -> list[Row]:
    name, router = call.path["name"], call.vhost.router
    if not router.has_queue(name):
        raise UnknownQueue(f"no queue '{name}' in vhost '{call.vhost.name}'")
    bound = router.bindings_to(Destination(DestinationKind.QUEUE, name))
    return [describe(call.vhost.name, each) for each in (_by_name(name), *bound)]


def from_exchange(call: Call) -> list[Row]:
    exchange = find(call)
    if exchange.name == DEFAULT_EXCHANGE:
        found = _implicit(call, call.vhost)
    else:
        found = list(call.vhost.router.bindings_from(exchange.name))
    return [describe(call.vhost.name, each) for each in found]


def to_exchange(call: Call) -> list[Row]:
    destination = Destination(DestinationKind.EXCHANGE, find(call).name)
    return [describe(call.vhost.name, b) for b in call.vhost.router.bindings_to(destination)]


def between(call: Call) -> list[Row]:
    return [describe(call.vhost.name, each) for each in _between(call)]


def show(call: Call) -> Row:
    return describe(call.vhost.name, _find(call))


def describe(vhost: str, binding: Binding) -> Row:
    return {
        "source": binding.source,
        "vhost": vhost,
        "destination": binding.destination.name,
        "destination_type": binding.destination.kind.value,
        "routing_key": binding.key,
        "arguments": to_json(thaw_table(binding.arguments)),
        "properties_key": properties_key(binding),
    }


def properties_key(binding: Binding | BindingDeclaration) -> str:
    """Return the name of a binding among those between the same source and destination."""
    key = quote(binding.key.encode("utf-8", "surrogateescape"), safe="").replace("~", "%7E")
    if not binding.arguments:
        return key or "~"
    digest = zlib.crc32(json.dumps(binding.arguments).encode()).to_bytes(4, "big")
    return f"{key}~{urlsafe_b64encode(digest).decode().rstrip('=')}"


def _by_name(queue: str) -> Binding:
    """Return the implicit binding of a queue to the default exchange."""
    return Binding(DEFAULT_EXCHANGE, Destination(DestinationKind.QUEUE, queue), queue)


def _implicit(call: Call, vhost: VirtualHost) -> list[Binding]:
    """Return the implicit bindings of all queues and streams."""
    return [_by_name(name) for name in (*vhost.queues, *streams_of(call, vhost))]


def _ends(call: Call) -> tuple[str, Destination]:
    """Return the source and the destination that the path names. Raises HttpError."""
    kind = _KINDS.get(call.path["kind"])
    if kind is None:
        raise HttpError(404, "Not Found")
    name = call.path["destination"]
    if kind is DestinationKind.EXCHANGE:
        name = exchange_name(name)
    return exchange_name(call.path["source"]), Destination(kind, name)


def _between(call: Call) -> list[Binding]:
    source, destination = _ends(call)
    if source == DEFAULT_EXCHANGE:
        return [each for each in _implicit(call, call.vhost) if each.destination == destination]
    bound = call.vhost.router.bindings_to(destination)
    return [binding for binding in bound if binding.source == source]


def _find(call: Call) -> Binding:
    for binding in _between(call):
        if properties_key(binding) == call.path["properties"]:
            return binding
    raise HttpError(404, "Not Found")


def _require_rights(call: Call, source: str, destination: Destination) -> None:
    call.require(Operation.WRITE, ResourceKind(destination.kind.value), destination.name)
    call.require(Operation.READ, ResourceKind.EXCHANGE, source)


async def bind(call: Call) -> Response:
    source, destination = _ends(call)
    _require_rights(call, source, destination)
    arguments = freeze_table(call.fields.table("arguments"))
    wanted = BindingDeclaration(source, destination, call.fields.text("routing_key"), arguments)
    await call.vhost.bind(wanted)
    place = quote(properties_key(wanted), safe="")
    return Response(201, headers=(("Location", place),))


async def unbind(call: Call) -> None:
    source, destination = _ends(call)
    _require_rights(call, source, destination)
    await call.vhost.unbind(_find(call))
