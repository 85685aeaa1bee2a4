"""The catalog's records of virtual hosts, exchanges and bindings, and how they are read at a start.

    vhost:<name>                    empty
    routing:[<vhost>, <event>]      the exchange or binding (see `router.event`) as it is now

The newest record of a key counts. A virtual host is deleted together with its routing records.
"""

from __future__ import annotations

import json

from entrepot.broker.router.event import (
    Bound,
    Dialect,
    Event,
    ExchangeDeclared,
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
    """Return the records of the durable events. Must be called before the events are applied.

    Events of queues are left out: queues have records of their own.
    """
    return [
        _routing_record(router.vhost, event)
        for event in events
        if not isinstance(event, QueueAdded | QueueRemoved) and router.is_durable(event)
    ]


def routing_deleted_records(router: Router) -> list[Record]:
    """Return records that delete all durable exchanges and bindings of a virtual host."""
    kept = routing_records(router, tuple(router.events()))
    return [Record(record.key, None) for record in kept]


def _routing_record(vhost: str, event: Event) -> Record:
    name, value = encode(event)
    key = b"routing:" + json.dumps([vhost, name]).encode()
    return Record(key, None if value is None else value.encode())


class KeptVhosts:
    """The names of the virtual hosts in the catalog. Used when queues are opened."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {DEFAULT_VHOST: None}

    def apply(self, text: str, value: bytes | None) -> None:
        name = json.loads(text)
        if value is None:
            self.names.pop(name, None)
        else:
            self.names[name] = None


class KeptRouting:
    """The exchanges and bindings in the catalog. Used when queues are opened."""

    def __init__(self, dialect: Dialect | None = None, *, is_taken_once: bool = True) -> None:
        self._dialect = dialect
        self._is_taken_once = is_taken_once
        self._values: dict[str, dict[str, str]] = {}  # By virtual host and name.

    def apply(self, text: str, value: bytes | None) -> None:
        vhost, name = json.loads(text)
        known = self._values.setdefault(vhost, {})
        known.pop(name, None)  # So that a binding that was made again comes last.
        if value is not None:
            known[name] = value.decode()

    def take(self, vhost: str) -> list[Event]:
        """Return the events of a virtual host, exchanges first, then bindings; and forget them, if
        they are taken once."""
        values = self._values.get(vhost, {})
        if self._is_taken_once:
            self._values.pop(vhost, None)
        found = [decode(name, value, self._dialect) for name, value in values.items()]
        exchanges = [event for event in found if isinstance(event, ExchangeDeclared)]
        return [*exchanges, *(event for event in found if isinstance(event, Bound))]
