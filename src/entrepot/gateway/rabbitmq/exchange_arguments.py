"""Translation of an exchange's type and arguments to the broker's settings.

Error texts are those of RabbitMQ or its plugins, because users search for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from entrepot.broker.router.event import (
    DEFAULT_EXCHANGE,
    Exchange,
    ExchangeSettings,
    ExchangeType,
)
from entrepot.core import limits
from entrepot.core.errors import ExchangeMismatch, ExchangeRefused, InvalidExchange
from entrepot.core.names import is_short
from entrepot.core.value import Frozen, FrozenTable, lookup
from entrepot.gateway.rabbitmq.difference import inequivalent, plain, truth, typed
from entrepot.gateway.rabbitmq.erlang import describe
from entrepot.gateway.rabbitmq.names import LINK_EXCHANGE, RESERVED_PREFIX

PREDECLARED = (  # In every virtual host.
    Exchange("amq.direct", ExchangeType.DIRECT),
    Exchange("amq.topic", ExchangeType.TOPIC),
    Exchange("amq.match", ExchangeType.HEADERS),
    Exchange("amq.headers", ExchangeType.HEADERS),
    Exchange("amq.fanout", ExchangeType.FANOUT),
    Exchange("amq.rabbitmq.trace", ExchangeType.TOPIC, internal=True),
)

# Where messages of other queue managers arrive: each goes once to the queue that its key names.
LINKS = Exchange(
    LINK_EXCHANGE,
    ExchangeType.DEDUPLICATION,
    settings=ExchangeSettings(alternate=DEFAULT_EXCHANGE, ids_max=limits.LINK_IDS_MAX),
)

_ALTERNATE = "alternate-exchange"
_DELAYED_TYPE = "x-delayed-type"
_HASH_HEADER, _HASH_PROPERTY = "hash-header", "hash-property"
_HASHED_PROPERTIES = ("correlation_id", "message_id", "timestamp")
_SIZE, _TTL, _PERSISTENCE = "x-cache-size", "x-cache-ttl", "x-cache-persistence"
_PERSISTENCES = (None, "disk", "memory")
_DIGITS = re.compile("[0-9]{1,19}")

_TYPES = {
    "direct": ExchangeType.DIRECT,
    "fanout": ExchangeType.FANOUT,
    "topic": ExchangeType.TOPIC,
    "headers": ExchangeType.HEADERS,
    "x-consistent-hash": ExchangeType.CONSISTENT_HASH,
    "x-delayed-message": ExchangeType.DELAYED,
    "x-message-deduplication": ExchangeType.DEDUPLICATION,
    "x-selector": ExchangeType.SELECTOR,
}
_TYPE_NAMES = {kind: name for name, kind in _TYPES.items()}


@dataclass(frozen=True, slots=True)
class ExchangeDeclaration:
    """An exchange as a client of RabbitMQ asks for it."""

    vhost: str
    name: str
    type: ExchangeType
    arguments: FrozenTable = ()
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False

    @property
    def alternate(self) -> str | None:
        """Return the exchange for messages that match no binding. None means: there is none."""
        return _text(self.arguments, _ALTERNATE)

    def exchange(self) -> Exchange:
        """Return the declared exchange. Raises InvalidExchange, ExchangeRefused."""
        if self.name.startswith(RESERVED_PREFIX):
            raise ExchangeRefused(
                f"exchange name '{self.name}' contains reserved prefix '{RESERVED_PREFIX}*'"
            )
        _check(self.type, self.arguments, _place(self.vhost, self.name))
        return Exchange(
            self.name,
            self.type,
            self.durable,
            self.auto_delete,
            self.internal,
            settings_of(self.type, self.arguments),
            self.arguments,
        )

    def check_same(self, current: Exchange) -> None:
        """Raise ExchangeMismatch if the current exchange differs from the declared one.

        Of the arguments only the alternate exchange counts, as in RabbitMQ.
        """
        facts = (
            ("type", _atom(current.type), _atom(self.type)),
            ("durable", truth(current.durable), truth(self.durable)),
            ("auto_delete", truth(current.auto_delete), truth(self.auto_delete)),
            ("internal", truth(current.internal), truth(self.internal)),
            (_ALTERNATE, *_difference(current.arguments, self.arguments, _ALTERNATE)),
        )
        for name, is_now, is_wanted in facts:
            if is_now != is_wanted:
                where = _place(self.vhost, self.name)
                raise ExchangeMismatch(inequivalent(name, where, is_wanted, is_now))


def exchange_type(name: str) -> ExchangeType:
    """Return the type with this name in RabbitMQ. Raises InvalidExchange."""
    if name not in _TYPES:
        raise InvalidExchange(f"unknown exchange type '{name}'")
    return _TYPES[name]


def type_name(kind: ExchangeType) -> str:
    """Return RabbitMQ's name of this type."""
    return _TYPE_NAMES[kind]


def check_deletable(vhost: str, name: str) -> None:
    """Raise ExchangeRefused if the exchange is one of the broker's own."""
    if name.startswith(RESERVED_PREFIX):
        raise ExchangeRefused(f"deletion of system {_place(vhost, name)} not allowed")


def settings_of(kind: ExchangeType, arguments: FrozenTable) -> ExchangeSettings:
    """Return the settings for arguments that were checked before."""
    matches_as = ExchangeType.FANOUT
    if kind is ExchangeType.DELAYED:
        matches_as = exchange_type(lookup(arguments, _DELAYED_TYPE))
    hashes = ExchangeType.CONSISTENT_HASH in (kind, matches_as)
    deduplicates = kind is ExchangeType.DEDUPLICATION
    return ExchangeSettings(
        alternate=_text(arguments, _ALTERNATE),
        matches_as=matches_as,
        hash_header=_text(arguments, _HASH_HEADER) if hashes else None,
        hash_property=_text(arguments, _HASH_PROPERTY) if hashes else None,
        ids_max=_number(arguments, _SIZE) or 0 if deduplicates else 0,
        ids_ttl_ms=_number(arguments, _TTL) if deduplicates else None,
    )


# --- checking the arguments


def _check(kind: ExchangeType, arguments: FrozenTable, where: str) -> None:
    """Raise InvalidExchange unless the arguments are valid."""
    _check_alternate(arguments, where)
    if kind is ExchangeType.DELAYED:
        kind = _delayed_type(arguments)
    elif kind is ExchangeType.DEDUPLICATION:
        _check_deduplication(arguments)
    if kind is ExchangeType.CONSISTENT_HASH:
        _check_hashing(arguments)


def _check_alternate(arguments: FrozenTable, where: str) -> None:
    name = next((value for key, value in arguments if key == _ALTERNATE), "")
    if not isinstance(name, str):
        raise InvalidExchange(
            f"invalid type '{describe(name)[0]}' for arg '{_ALTERNATE}' in {where}"
        )
    if not is_short(name):
        raise InvalidExchange(
            f"invalid arg '{_ALTERNATE}' in {where}: more than {limits.NAME_BYTES_MAX} bytes"
        )


def _delayed_type(arguments: FrozenTable) -> ExchangeType:
    name = lookup(arguments, _DELAYED_TYPE)
    if not isinstance(name, str):
        raise InvalidExchange(
            f"Invalid argument, '{_DELAYED_TYPE}' must be an existing exchange type"
        )
    kind = exchange_type(name)
    if kind in (ExchangeType.DELAYED, ExchangeType.DEDUPLICATION):
        raise InvalidExchange(f"Invalid argument, '{name}' can't be used for '{_DELAYED_TYPE}'")
    return kind


def _check_deduplication(arguments: FrozenTable) -> None:
    size, ttl_ms = _number(arguments, _SIZE), _number(arguments, _TTL)
    if size is None:
        raise InvalidExchange(
            f"Missing or invalid argument, '{_SIZE}' must be an integer greater than 0"
        )
    if size > limits.DEDUPLICATION_IDS_MAX:
        raise InvalidExchange(
            f"Invalid argument, '{_SIZE}' must not exceed {limits.DEDUPLICATION_IDS_MAX}"
        )
    if ttl_ms is None and lookup(arguments, _TTL) is not None:
        raise InvalidExchange(f"Invalid argument, '{_TTL}' must be an integer greater than 0")
    if lookup(arguments, _PERSISTENCE) not in _PERSISTENCES:
        raise InvalidExchange(
            f"Invalid argument, '{_PERSISTENCE}' must be either 'disk' or 'memory'"
        )


def _check_hashing(arguments: FrozenTable) -> None:
    header, name = lookup(arguments, _HASH_HEADER), lookup(arguments, _HASH_PROPERTY)
    if header is not None and name is not None:
        raise InvalidExchange(f"{_HASH_HEADER} and {_HASH_PROPERTY} are mutually exclusive")
    if header is not None and not isinstance(header, str):
        raise InvalidExchange(f"invalid type '{describe(header)[0]}' for arg '{_HASH_HEADER}'")
    if name is not None and name not in _HASHED_PROPERTIES:
        raise InvalidExchange(f"Unsupported property: {plain(name)}")


def _place(vhost: str, name: str) -> str:
    return f"exchange '{name}' in vhost '{vhost}'"


# --- values


def _text(arguments: FrozenTable, name: str) -> str | None:
    value = lookup(arguments, name)
    return value if isinstance(value, str) else None


def _number(arguments: FrozenTable, name: str) -> int | None:
    """Return the argument if it is a number, or digits, in the allowed range; otherwise None."""
    value: Frozen = lookup(arguments, name)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    is_number = isinstance(value, int) and 0 < value <= limits.QUEUE_TTL_MS_MAX
    return value if is_number else None


# --- comparing with an earlier declaration


def _difference(current: FrozenTable, wanted: FrozenTable, name: str) -> tuple[str, str]:
    """Return both values as RabbitMQ writes them: with their types if one is missing."""
    found = [[value for key, value in each if key == name] for each in (current, wanted)]
    if all(found):
        first, second = (f"'{plain(value)}'" for (value,) in found)
    else:
        first, second = (typed(each[0]) if each else "none" for each in found)
    return first, second


def _atom(kind: ExchangeType) -> str:
    """Return the type's name in quotes; Erlang adds its own if it has more than letters."""
    name = type_name(kind)
    return f"'{name}'" if name.isalpha() else f"''{name}''"
