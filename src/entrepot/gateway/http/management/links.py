"""Links to other queue managers: list, add and remove them. RabbitMQ's API has no such calls."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from entrepot.broker.links import Links, StoredLink
from entrepot.core.errors import InvalidLink
from entrepot.gateway.http.management.call import Call
from entrepot.wire.http.request import HttpError

Row = dict[str, Any]


async def list_all(call: Call) -> list[Row]:
    """List the links to other queue managers."""
    found = call.broker.links
    return [] if found is None else [each._asdict() for each in found.links()]


async def add(call: Call) -> None:
    call.require_administrator()
    given = {name: call.fields.text(name) for name in ("vhost", "user", "password")}
    link = StoredLink(
        call.path["name"],
        call.fields.text("address"),
        tls=call.fields.truth("tls"),
        **{name: text for name, text in given.items() if text},
    )
    await _changed(_manager(call).add(link))


async def remove(call: Call) -> None:
    call.require_administrator()
    await _changed(_manager(call).remove(call.path["name"]))


def _manager(call: Call) -> Links:
    if call.broker.links is None:
        raise HttpError(400, "this broker is no queue manager: it has no name (manager.name)")
    return call.broker.links


async def _changed(change: Awaitable[None]) -> None:
    try:
        await change
    except InvalidLink as error:
        raise HttpError(400, str(error)) from None


async def list_routes(call: Call) -> list[Row]:
    """List the routing table of this queue manager."""
    found = call.broker.links
    return [] if found is None else [each._asdict() for each in found.routes()]
