"""What there is to route by, and the events that change it.

An event has a name within its virtual host and a value, both of them text: the name is the
identity of what it speaks of, the value is None when that is gone. So events can be kept in a
compacted partition, where of one name the newest counts, and a binding's order among the
others is that of its making. To apply an event twice is to apply it once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from entrepot.core.value import Frozen, FrozenTable, from_json, lookup

DEFAULT_EXCHANGE = ""  # Everybody's: it leads to the queue that the key names.


class ExchangeType(Enum):
    """Values are spoken by clients and persisted: never change one."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"
    CONSISTENT_HASH = "x-consistent-hash"
    DELAYED = "x-delayed-message"
    DEDUPLICATION = "x-message-deduplication"


class Kind(Enum):
    """What a binding leads to. Values are persisted: never change one."""

    QUEUE = "queue"
    EXCHANGE = "exchange"


class Destination(NamedTuple):
    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Exchange:
    name: str
    type: ExchangeType
    durable: bool = True
    auto_delete: bool = False  # Gone with the last of its bindings.
    internal: bool = False  # Reached through bindings only.
    arguments: FrozenTable = ()

    @property
    def alternate(self) -> str | None:
        """Where a message goes for which there is no binding."""
        name = lookup(self.arguments, "alternate-exchange")
        return name if isinstance(name, str) else None

    @property
    def matching_type(self) -> ExchangeType:
        """How it matches: what a delayed exchange stands before, or what it is."""
        if self.type is ExchangeType.DEDUPLICATION:
            return ExchangeType.FANOUT
        if self.type is not ExchangeType.DELAYED:
            return self.type
        return ExchangeType(lookup(self.arguments, "x-delayed-type"))


@dataclass(frozen=True, slots=True)
class Binding:
    """All of it is its identity, the arguments too."""

    source: str
    destination: Destination
    key: str = ""
    arguments: FrozenTable = ()


@dataclass(frozen=True, slots=True)
class QueueAdded:
    """There is a queue, or a stream, that can be bound and is reached by its name."""

    name: str
    durable: bool = True


@dataclass(frozen=True, slots=True)
class QueueRemoved:
    name: str


@dataclass(frozen=True, slots=True)
class ExchangeDeclared:
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class ExchangeDeleted:
    name: str


@dataclass(frozen=True, slots=True)
class Bound:
    binding: Binding


@dataclass(frozen=True, slots=True)
class Unbound:
    binding: Binding


Event: TypeAlias = QueueAdded | QueueRemoved | ExchangeDeclared | ExchangeDeleted | Bound | Unbound

_NOTHING = "{}"  # The value of what has no facts beside its name.


def encode(event: Event) -> tuple[str, str | None]:
    """The name of what the event speaks of, and what it is now."""
    match event:
        case QueueAdded(name, durable):
            return _text(["queue", name]), _text({"durable": durable})
        case QueueRemoved(name):
            return _text(["queue", name]), None
        case ExchangeDeclared(exchange):
            return _text(["exchange", exchange.name]), _text(_facts(exchange))
        case ExchangeDeleted(name):
            return _text(["exchange", name]), None
        case Bound(binding):
            return _binding_name(binding), _NOTHING
        case Unbound(binding):
            return _binding_name(binding), None


def decode(name: str, value: str | None) -> Event:
    kind, *identity = from_json(json.loads(name))
    if kind == "queue":
        (queue,) = identity
        return QueueRemoved(queue) if value is None else QueueAdded(queue, **json.loads(value))
    if kind == "exchange":
        (exchange,) = identity
        return ExchangeDeleted(exchange) if value is None else _exchange(exchange, value)
    assert kind == "binding", kind
    source, destination_kind, destination, key, arguments = identity
    binding = Binding(source, Destination(Kind(destination_kind), destination), key, arguments)
    return Unbound(binding) if value is None else Bound(binding)


def _facts(exchange: Exchange) -> dict[str, Frozen]:
    return {
        "type": exchange.type.value,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
    }


def _exchange(name: str, value: str) -> ExchangeDeclared:
    facts = json.loads(value)
    facts["type"] = ExchangeType(facts["type"])
    facts["arguments"] = from_json(facts["arguments"])
    return ExchangeDeclared(Exchange(name, **facts))


def _binding_name(binding: Binding) -> str:
    kind, name = binding.destination
    return _text(["binding", binding.source, kind.value, name, binding.key, binding.arguments])


def _text(value: object) -> str:
    """ASCII: a text that is not Unicode is kept in surrogates, which UTF-8 does not take."""
    return json.dumps(value, separators=(",", ":"))
