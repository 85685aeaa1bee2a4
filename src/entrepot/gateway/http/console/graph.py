"""Exchanges, bindings and subjects as a graph: what leads where, for a page that draws it.

All bindings between the same two are one edge, with the first of their keys. The graph is of a
whole virtual host, or of what leads to one exchange and from it. It is cut when it has more edges
than anybody could look at, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from entrepot.broker.router.event import Binding, Destination, DestinationKind
from entrepot.core.steps import Steps
from entrepot.gateway.http.console.routing import target
from entrepot.gateway.http.management import subjects
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.exchanges import exchange_name
from entrepot.gateway.http.management.messages import to_json

Row = dict[str, Any]

_EDGES_MAX = 120
_KEYS_MAX = 3  # Shown of one edge.
_LOOKED_AT_MAX = 20_000  # Bindings and subscriptions.
_STEP = 200
_BOUND = "bound"


class _End(NamedTuple):
    kind: str  # "exchange", "queue", "topic", "session".
    name: str


# From, to, how, and the key or filter. How: "bound", or "unmatched" (to the alternate exchange), or
# "dead" (dead letters of a queue).
_Edge = tuple[_End, _End, str, str]


async def show(call: Call) -> Row:
    """Return the edges; those near the exchange that `exchange` names, or all."""
    return await call.broker.turns.run(_graph(call))


def _graph(call: Call) -> Steps[Row]:
    found: dict[tuple[_End, _End, str], dict[str, None]] = {}  # The keys of each edge.
    is_cut = False
    for looked_at, (start, end, how, key) in enumerate(_edges(call)):
        way = start, end, how
        if looked_at >= _LOOKED_AT_MAX or (way not in found and len(found) >= _EDGES_MAX):
            is_cut = True
            break
        found.setdefault(way, {})[key] = None
        if looked_at % _STEP == 0:
            yield
    rows = [
        {
            "from": {"kind": source.kind, "name": to_json(source.name)},
            "to": {"kind": destination.kind, "name": to_json(destination.name)},
            "how": how,
            "keys": list(keys)[:_KEYS_MAX],
            "count": len(keys),
        }
        for (source, destination, how), keys in found.items()
    ]
    return {"edges": rows, "cut": is_cut}


def _edges(call: Call) -> Iterator[_Edge]:
    vhost, start = call.vhost, call.query.get("exchange")
    if start is None:
        for name in [each.name for each in vhost.router.exchanges() if each.name]:
            yield from _from_exchange(call, name)
        return
    name = exchange_name(start)
    for each in vhost.router.bindings_to(Destination(DestinationKind.EXCHANGE, name)):
        yield _End("exchange", each.source), _End("exchange", name), _BOUND, _condition(each)
    reached = {name: None}
    for each_name in islice(_growing(reached), _EDGES_MAX):
        for edge in _from_exchange(call, each_name):
            if edge[1].kind == "exchange":
                reached[edge[1].name] = None
            yield edge


def _condition(binding: Binding) -> str:
    """Return what a message must have: a key, headers, or what a selector says."""
    if not binding.conditions:
        return binding.key
    texts = [
        f"{name}={value}" if name and value is not None else name or str(value)
        for name, value in binding.conditions
    ]
    return ", ".join(texts)


def _growing(names: dict[str, None]) -> Iterator[str]:
    """Yield names, also those that are added meanwhile."""
    done = 0
    while done < len(names):
        yield list(names)[done]
        done += 1


def _from_exchange(call: Call, name: str) -> Iterator[_Edge]:
    vhost, source = call.vhost, _End("exchange", name)
    for each in vhost.router.bindings_from(name):
        if each.destination.kind is DestinationKind.EXCHANGE:
            yield source, _End("exchange", each.destination.name), _BOUND, _condition(each)
        else:
            end = _target(call, each.destination.name)
            yield source, end, _BOUND, _condition(each)
            yield from _dead_letters(call, end)
    exchange = vhost.router.exchange(name)
    if exchange is not None and exchange.settings.alternate is not None:
        yield source, _End("exchange", exchange.settings.alternate), "unmatched", ""
    default = call.broker.vhosts.default
    if call.broker.has_queues and vhost is default and name == default.subject_exchange:
        for session in subjects.visible(call):
            for text in list(session.subscriptions):  # They change between two steps.
                yield source, _End("session", session.client_id), _BOUND, text


def _target(call: Call, name: str) -> _End:
    found = target(call, name)
    return _End(found["kind"], found["name"])


def _dead_letters(call: Call, end: _End) -> Iterator[_Edge]:
    """Yield where the dead letters of a queue go, if it keeps them."""
    queue = call.vhost.queues.get(end.name) if end.kind == "queue" else None
    exchange = None if queue is None else queue.settings.dead_letter_exchange
    if queue is None or exchange is None:
        return
    key = queue.settings.dead_letter_key
    to = _End("exchange", exchange) if exchange else _target(call, key or queue.name)
    yield end, to, "dead", key or ""
