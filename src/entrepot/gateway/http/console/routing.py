"""Where would this message go? The way from an exchange to queues, topics and who listens."""

from __future__ import annotations

from itertools import islice
from typing import Any

from entrepot.broker.router.event import DestinationKind
from entrepot.broker.router.matching import Routed
from entrepot.broker.router.router import Hop
from entrepot.broker.session.session import Session
from entrepot.broker.subject.name import landing_names
from entrepot.core.properties import Properties
from entrepot.gateway.http.management.bindings import describe
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.exchanges import find
from entrepot.gateway.rabbitmq.exchange_arguments import type_name

Row = dict[str, Any]

_ROWS_MAX = 500
_LISTENERS_MAX = 50


async def trace(call: Call) -> Row:
    """Return the exchanges that a message would visit, with the bindings that it matches there,
    and who would get it in the end."""
    exchange, fields, vhost = find(call), call.fields, call.vhost
    key, headers = fields.short_text("routing_key"), fields.table("headers")
    delay_ms = fields.number("delay_ms")
    message = Routed((key,), Properties(headers=headers), delay_ms)
    hops = await call.broker.turns.run(vhost.router.hops(exchange.name, message))
    queues: dict[str, None] = {}
    for hop in hops:
        queues.update(dict.fromkeys(hop.queues))
        if not hop.is_held:
            kind = DestinationKind.QUEUE
            bound = (each.destination for each in hop.bindings)
            queues.update((each.name, None) for each in bound if each.kind is kind)
    landing, listeners = _subject(call, exchange.name, key)
    if landing is not None:
        queues[landing] = None
    return {
        "hops": [_row(call, hop) for hop in hops],
        "queues": [target(call, name) for name in islice(queues, _ROWS_MAX)],
        "queue_count": len(queues),
        "landing": landing,
        "listeners": listeners,
    }


def _row(call: Call, hop: Hop) -> Row:
    return {
        "exchange": hop.exchange.name,
        "type": type_name(hop.exchange.type),
        "alternate": hop.alternate,
        "held": hop.is_held,
        "queues": list(hop.queues),
        "bindings": [describe(call.vhost.name, each) for each in hop.bindings[:_ROWS_MAX]],
        "binding_count": len(hop.bindings),
    }


def target(call: Call, name: str) -> Row:
    """Return whether a name is that of a queue or of a topic."""
    return {"name": name, "kind": "queue" if name in call.vhost.queues else "topic"}


def _subject(call: Call, exchange: str, key: str) -> tuple[str | None, Row]:
    """Return where a message lands by its own subject, and who listens to it."""
    vhost = call.vhost
    if vhost is not call.broker.vhosts.default or exchange != vhost.subject_exchange:
        return None, {"count": 0, "clients": []}
    landing = next((name for name in landing_names(key) if vhost.router.has_queue(name)), None)
    listeners = vhost.subjects.listeners(key)
    clients = [each.client_id for each in listeners if isinstance(each, Session)]
    return landing, {"count": len(listeners), "clients": clients[:_LISTENERS_MAX]}
