"""The records of virtual hosts and of what they route by, and their fold at a start.

    vhost:<name>                    empty
    routing:[<vhost>, <event>]      what the event speaks of (see `router.event`), as it is now

Of a name the newest record counts. With a virtual host, its routing is gone.
"""

from __future__ import annotations

import json

from entrepot.broker.router.event import (
    Bound,
    Event,
    ExchangeDeclared,
    OlderRecords,
    QueueAdded,
    QueueRemoved,
    decode,
    encode,
)
from entrepot.broker.router.router import Router
from entrepot.core.record import Record

DEFAULT_VHOST = "/"  # Always there.


def vhost_record(name: str) -> Record:
    return Record(_vhost_key(name), b"")


def vhost_deleted_record(name: str) -> Record:
    return Record(_vhost_key(name), None)


def _vhost_key(name: str) -> bytes:
    return b"vhost:" + json.dumps(name).encode()


def routing_records(router: Router, events: tuple[Event, ...]) -> list[Record]:
    """Of those events that survive; to be asked before they are applied.

    That there is a queue, its own record says.
    """
    return [
        _routing_record(router.vhost, event)
        for event in events
        if not isinstance(event, QueueAdded | QueueRemoved) and router.is_durable(event)
    ]


def routing_deleted_records(router: Router) -> list[Record]:
    """Of all that survives."""
    kept = routing_records(router, tuple(router.events()))
    return [Record(record.key, None) for record in kept]


def _routing_record(vhost: str, event: Event) -> Record:
    name, value = encode(event)
    key = b"routing:" + json.dumps([vhost, name]).encode()
    return Record(key, None if value is None else value.encode())


class KeptVhosts:
    """A view of the catalog, for the start; later, the virtual hosts themselves know."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {DEFAULT_VHOST: None}

    def apply(self, text: str, value: bytes | None) -> None:
        name = json.loads(text)
        if value is None:
            self.names.pop(name, None)
        else:
            self.names[name] = None


class KeptRouting:
    """A view of the catalog, for the start; later, the routers themselves know."""

    def __init__(self, older: OlderRecords | None = None) -> None:
        self._older = older
        self._values: dict[str, dict[str, str]] = {}  # By virtual host and event.

    def apply(self, text: str, value: bytes | None) -> None:
        vhost, name = json.loads(text)
        known = self._values.setdefault(vhost, {})
        known.pop(name, None)  # What is made anew comes after the others.
        if value is not None:
            known[name] = value.decode()

    def take(self, vhost: str) -> list[Event]:
        """In an order in which they can be applied: exchanges before what leads to them."""
        values = self._values.pop(vhost, {})
        found = [decode(name, value, self._older) for name, value in values.items()]
        exchanges = [event for event in found if isinstance(event, ExchangeDeclared)]
        return [*exchanges, *(event for event in found if isinstance(event, Bound))]
