"""Exchanges and bindings, and the events that change them.

An event is stored as a name and a value, both text. The name identifies the queue, exchange or
binding within its virtual host; the value describes it, and is None when it is deleted. So events
can be kept in a compacted partition, where the newest value of a name counts; bindings are in the
order in which they were made. Applying an event twice is the same as applying it once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from entrepot.broker.queue.settings import QueueSettings
from entrepot.core.value import Frozen, FrozenTable, from_json

DEFAULT_EXCHANGE = ""  # It leads to the queue whose name is the routing key.


class ExchangeType(Enum):
    """Values are persisted: never change one."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"
    CONSISTENT_HASH = "consistent-hash"
    DELAYED = "delayed-message"
    DEDUPLICATION = "message-deduplication"
    SELECTOR = "selector"


class DestinationKind(Enum):
    """What a binding leads to. Values are persisted: never change one."""

    QUEUE = "queue"
    EXCHANGE = "exchange"


class Match(Enum):
    """How many of a binding's conditions must hold. Values are persisted: never change one."""

    ALL = "all"
    ANY = "any"


class Destination(NamedTuple):
    kind: DestinationKind
    name: str


class ExchangeSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rules of an exchange. None means: no such rule. Persisted: never change a name."""

    alternate: str | None = None  # The exchange that gets messages which match no binding.
    # For a delayed exchange: the type whose rules it matches by.
    matches_as: ExchangeType = ExchangeType.FANOUT
    # For consistent hashing: the header or the property that is hashed instead of the key.
    hash_header: str | None = None
    hash_property: str | None = None
    # For a deduplicating exchange: how many ids are remembered for each queue, and for how long.
    ids_max: int = 0
    ids_ttl_ms: int | None = None  # None means: no limit in time.


PLAIN = ExchangeSettings()


@dataclass(frozen=True, slots=True)
class Exchange:
    name: str
    type: ExchangeType
    durable: bool = True
    auto_delete: bool = False  # Deleted with the last of its bindings.
    internal: bool = False  # Clients cannot publish to it; it is reached through bindings only.
    settings: ExchangeSettings = PLAIN
    arguments: FrozenTable = ()  # As the client declared them; the broker only stores them.

    @property
    def matching_type(self) -> ExchangeType:
        """Return the type whose rules decide which bindings a message matches."""
        if self.type is ExchangeType.DEDUPLICATION:
            return ExchangeType.FANOUT
        return self.settings.matches_as if self.type is ExchangeType.DELAYED else self.type


@dataclass(frozen=True, slots=True)
class Binding:
    """Identified by its source, destination, key and arguments."""

    source: str
    destination: Destination
    key: str = ""
    arguments: FrozenTable = ()  # As the client sent them; the broker only stores them.
    # For a headers exchange: names of headers, each with the value that a message must have.
    # None means: any value. For a selector exchange: the selector, under an empty name.
    conditions: FrozenTable = field(default=(), compare=False)
    match: Match = field(default=Match.ALL, compare=False)


@dataclass(frozen=True, slots=True)
class QueueAdded:
    """A queue or a stream was made. It can be bound, and the default exchange leads to it."""

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


class Dialect(Protocol):
    """Reserved names, and settings derived from arguments in the words of a protocol.

    The latter is needed for what older releases stored: only the arguments of a declaration.
    """

    @property
    def delay_queue(self) -> str:
        """Return the name of the queue in which delayed messages wait. Persisted."""

    @property
    def subject_exchange(self) -> str:
        """Return the name of the exchange whose keys are subjects, for all protocols."""

    def is_reserved(self, name: str) -> bool:
        """Return whether the name is reserved. A queue of that name cannot be read as a topic."""

    def queue_settings(self, arguments: FrozenTable, where: str) -> QueueSettings:
        """Return the settings of a queue. Raises InvalidQueue."""

    def exchange_settings(self, kind: ExchangeType, arguments: FrozenTable) -> ExchangeSettings:
        """Return the settings of an exchange."""

    def header_conditions(self, arguments: FrozenTable) -> tuple[FrozenTable, Match]:
        """Return a binding's conditions, and how many of them must hold."""


def encode(event: Event) -> tuple[str, str | None]:
    """Return an event's name and value, as they are stored."""
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


def decode(name: str, value: str | None, dialect: Dialect | None = None) -> Event:
    """Return the event with this name and value.

    Without `dialect`, an exchange or binding that an older release stored gets no settings.
    """
    kind, *identity = from_json(json.loads(name))
    if kind == "queue":
        (queue,) = identity
        return QueueRemoved(queue) if value is None else QueueAdded(queue, **json.loads(value))
    if kind == "exchange":
        (exchange,) = identity
        if value is None:
            return ExchangeDeleted(exchange)
        return ExchangeDeclared(_exchange(exchange, json.loads(value), dialect))
    assert kind == "binding", kind
    source, destination_kind, destination, key, arguments = identity
    binding = Binding(
        source, Destination(DestinationKind(destination_kind), destination), key, arguments
    )
    if value is None:
        return Unbound(binding)
    return Bound(_with_conditions(binding, json.loads(value), dialect))


def _facts(exchange: Exchange) -> dict[str, Frozen]:
    return {
        "type": exchange.type.value,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "settings": msgspec.to_builtins(exchange.settings),
        "arguments": exchange.arguments,
    }


def _exchange(name: str, facts: dict[str, Frozen], dialect: Dialect | None) -> Exchange:
    kind = ExchangeType(facts.pop("type").removeprefix("x-"))  # Older releases stored this prefix.
    arguments = from_json(facts.pop("arguments"))
    if "settings" in facts:
        settings = msgspec.convert(facts.pop("settings"), ExchangeSettings)
    elif dialect is not None:
        settings = dialect.exchange_settings(kind, arguments)
    else:
        settings = PLAIN
    return Exchange(name, kind, **facts, settings=settings, arguments=arguments)


def _with_conditions(
    binding: Binding, facts: dict[str, Frozen], dialect: Dialect | None
) -> Binding:
    if facts:
        conditions, match = from_json(facts["conditions"]), Match(facts["match"])
    elif dialect is not None:
        conditions, match = dialect.header_conditions(binding.arguments)
    else:
        return binding
    return replace(binding, conditions=conditions, match=match)


def _binding_name(binding: Binding) -> str:
    kind, name = binding.destination
    return _text(["binding", binding.source, kind.value, name, binding.key, binding.arguments])


def _text(value: object) -> str:
    """Return ASCII JSON: texts may have surrogates (for bytes that are no UTF-8), which cannot be
    encoded as UTF-8."""
    return json.dumps(value, separators=(",", ":"))
