"""What there is to route by, and the events that change it.

An event has a name within its virtual host and a value, both of them text: the name is the
identity of what it speaks of, the value is None when that is gone. So events can be kept in a
compacted partition, where of one name the newest counts, and a binding's order among the
others is that of its making. To apply an event twice is to apply it once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from entrepot.core.value import Frozen, FrozenTable, from_json

DEFAULT_EXCHANGE = ""  # Everybody's: it leads to the queue that the key names.


class ExchangeType(Enum):
    """Values are persisted: never change one."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"
    CONSISTENT_HASH = "consistent-hash"
    DELAYED = "delayed-message"
    DEDUPLICATION = "message-deduplication"


class Kind(Enum):
    """What a binding leads to. Values are persisted: never change one."""

    QUEUE = "queue"
    EXCHANGE = "exchange"


class Match(Enum):
    """How many of a binding's conditions must hold. Values are persisted: never change one."""

    ALL = "all"
    ANY = "any"


class Destination(NamedTuple):
    kind: Kind
    name: str


class ExchangeSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rules of an exchange. None: without such a rule. Persisted: never change a name."""

    alternate: str | None = None  # The exchange to which a message goes that matches no binding.
    matches_as: ExchangeType = ExchangeType.FANOUT  # Of a delayed exchange.
    hash_header: str | None = None  # Of consistent hashing: what is hashed in place of the key.
    hash_property: str | None = None
    ids_max: int = 0  # Of a deduplicating exchange: how many ids are remembered for each queue,
    ids_ttl_ms: int | None = None  # and how long; None: as long as there is room.


PLAIN = ExchangeSettings()


@dataclass(frozen=True, slots=True)
class Exchange:
    name: str
    type: ExchangeType
    durable: bool = True
    auto_delete: bool = False  # Gone with the last of its bindings.
    internal: bool = False  # Reached through bindings only.
    settings: ExchangeSettings = PLAIN
    arguments: FrozenTable = ()  # In the words of the protocol; the broker only keeps them.

    @property
    def matching_type(self) -> ExchangeType:
        """How it matches: what a delayed exchange stands before, or what it is."""
        if self.type is ExchangeType.DEDUPLICATION:
            return ExchangeType.FANOUT
        return self.settings.matches_as if self.type is ExchangeType.DELAYED else self.type


@dataclass(frozen=True, slots=True)
class Binding:
    """Its identity is who is bound to whom, and the key and the arguments it was bound with."""

    source: str
    destination: Destination
    key: str = ""
    arguments: FrozenTable = ()  # In the words of the protocol; the broker only keeps them.
    # At a headers exchange: what is asked of a message's headers. A header's name, and its
    # value or None for any.
    conditions: FrozenTable = field(default=(), compare=False)
    match: Match = field(default=Match.ALL, compare=False)


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


class OlderRecords(Protocol):
    """Knows what arguments mean. Older releases stored nothing else."""

    def exchange_settings(self, kind: ExchangeType, arguments: FrozenTable) -> ExchangeSettings:
        """Return the settings of an exchange."""

    def header_conditions(self, arguments: FrozenTable) -> tuple[FrozenTable, Match]:
        """Return a binding's conditions, and how many of them must hold."""


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
            facts = {"match": binding.match.value, "conditions": binding.conditions}
            return _binding_name(binding), _text(facts)
        case Unbound(binding):
            return _binding_name(binding), None


def decode(name: str, value: str | None, older: OlderRecords | None = None) -> Event:
    """Return the event. What an older release left unsaid is unknown without `older`."""
    kind, *identity = from_json(json.loads(name))
    if kind == "queue":
        (queue,) = identity
        return QueueRemoved(queue) if value is None else QueueAdded(queue, **json.loads(value))
    if kind == "exchange":
        (exchange,) = identity
        if value is None:
            return ExchangeDeleted(exchange)
        return ExchangeDeclared(_exchange(exchange, json.loads(value), older))
    assert kind == "binding", kind
    source, destination_kind, destination, key, arguments = identity
    binding = Binding(source, Destination(Kind(destination_kind), destination), key, arguments)
    if value is None:
        return Unbound(binding)
    return Bound(_with_conditions(binding, json.loads(value), older))


def _facts(exchange: Exchange) -> dict[str, Frozen]:
    return {
        "type": exchange.type.value,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "settings": msgspec.to_builtins(exchange.settings),
        "arguments": exchange.arguments,
    }


def _exchange(name: str, facts: dict[str, Frozen], older: OlderRecords | None) -> Exchange:
    kind = ExchangeType(facts.pop("type").removeprefix("x-"))  # Which older releases wrote.
    arguments = from_json(facts.pop("arguments"))
    if "settings" in facts:
        settings = msgspec.convert(facts.pop("settings"), ExchangeSettings)
    elif older is not None:
        settings = older.exchange_settings(kind, arguments)
    else:
        settings = PLAIN
    return Exchange(name, kind, **facts, settings=settings, arguments=arguments)


def _with_conditions(
    binding: Binding, facts: dict[str, Frozen], older: OlderRecords | None
) -> Binding:
    if facts:
        conditions, match = from_json(facts["conditions"]), Match(facts["match"])
    elif older is not None:
        conditions, match = older.header_conditions(binding.arguments)
    else:
        return binding
    return replace(binding, conditions=conditions, match=match)


def _binding_name(binding: Binding) -> str:
    kind, name = binding.destination
    return _text(["binding", binding.source, kind.value, name, binding.key, binding.arguments])


def _text(value: object) -> str:
    """ASCII: a text that is not Unicode is kept in surrogates, which UTF-8 does not take."""
    return json.dumps(value, separators=(",", ":"))
