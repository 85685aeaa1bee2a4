"""What may be changed, and the events that a change consists of.

Each function looks at a router and changes nothing: it returns the events, in the order in
which they are to be recorded and applied, or none when everything is so already. A consequence
is an event of its own: a queue that goes takes its bindings with it, the last binding takes an
auto-delete exchange, and that the bindings that lead to it. So a fold needs no rules.

What cannot be is refused in RabbitMQ's words, which clients match on. Who may do it at all is
asked elsewhere.
"""

from __future__ import annotations

from entrepot.broker.router import duplicate
from entrepot.broker.router.event import (
    DEFAULT_EXCHANGE,
    Binding,
    Bound,
    Destination,
    Event,
    Exchange,
    ExchangeDeclared,
    ExchangeDeleted,
    ExchangeType,
    Kind,
    QueueAdded,
    QueueRemoved,
    Unbound,
)
from entrepot.broker.router.headers import MATCH, MODES
from entrepot.broker.router.ring import HASH_HEADER, HASH_PROPERTY, PROPERTIES
from entrepot.broker.router.router import Router
from entrepot.core import limits
from entrepot.core.errors import (
    ExchangeInUse,
    ExchangeMismatch,
    ExchangeRefused,
    InvalidBinding,
    InvalidExchange,
    UnknownExchange,
    UnknownQueue,
)
from entrepot.core.names import is_short
from entrepot.core.value import Frozen, FrozenTable, describe, lookup

Events = tuple[Event, ...]

_RESERVED = "amq."
_ALTERNATE = "alternate-exchange"
_DELAYED_TYPE = "x-delayed-type"


# Exchanges.


def exchange_type(name: str) -> ExchangeType:
    try:
        return ExchangeType(name)
    except ValueError:
        raise InvalidExchange(f"unknown exchange type '{name}'") from None


def find(router: Router, name: str) -> Exchange:
    """The exchange of that name: a passive declaration."""
    _check_not_default(name)
    exchange = router.exchange(name)
    if exchange is None:
        raise _unknown(router, Destination(Kind.EXCHANGE, name))
    return exchange


def declare(router: Router, wanted: Exchange) -> Events:
    _check_not_default(wanted.name)
    current = router.exchange(wanted.name)
    if current is not None:
        _check_equivalent(router, current, wanted)
        return ()
    _check_name(wanted.name)
    where = _place(router, Destination(Kind.EXCHANGE, wanted.name))
    alternate = _argument(wanted.arguments, _ALTERNATE)
    if alternate is not None and alternate[0] != "longstr":
        raise InvalidExchange(f"invalid type '{alternate[0]}' for arg '{_ALTERNATE}' in {where}")
    if wanted.alternate is not None and not is_short(wanted.alternate):
        raise InvalidExchange(
            f"invalid arg '{_ALTERNATE}' in {where}: more than {limits.NAME_BYTES_MAX} bytes"
        )
    if router.exchange_count >= limits.EXCHANGES_MAX:
        raise InvalidExchange(
            f"cannot declare {where}: exchange limit of {limits.EXCHANGES_MAX} is reached"
        )
    _check_arguments(wanted)
    return (ExchangeDeclared(wanted),)


def delete(router: Router, name: str, *, if_unused: bool = False) -> Events:
    """Nothing is done, and nothing is wrong, when there is none."""
    _check_not_default(name)
    destination = Destination(Kind.EXCHANGE, name)
    if name.startswith(_RESERVED):
        raise ExchangeRefused(f"deletion of system {_place(router, destination)} not allowed")
    if router.exchange(name) is None:
        return ()
    if if_unused and router.bindings_from(name):
        raise ExchangeInUse(f"{_place(router, destination)} in use")
    return _Removal(router).of_exchange(name)


# Queues and bindings.


def add_queue(router: Router, name: str, *, durable: bool) -> Events:
    return () if router.has_queue(name) else (QueueAdded(name, durable),)


def remove_queue(router: Router, name: str) -> Events:
    return _Removal(router).of_queue(name) if router.has_queue(name) else ()


def bind(router: Router, binding: Binding) -> Events:
    _check_ends(binding)
    source = router.exchange(binding.source)
    if source is None:
        raise _unknown(router, Destination(Kind.EXCHANGE, binding.source))
    kind, name = binding.destination
    found = router.has_queue(name) if kind is Kind.QUEUE else router.exchange(name) is not None
    if not found:
        raise _unknown(router, binding.destination)
    if not is_short(binding.key):
        raise InvalidBinding(f"a binding's key has at most {limits.NAME_BYTES_MAX} bytes")
    _check_binding(source, binding)
    bindings = router.bindings()
    if binding in bindings:
        return ()
    if len(bindings) >= limits.BINDINGS_MAX:
        raise InvalidBinding(f"binding limit of {limits.BINDINGS_MAX} is reached")
    return (Bound(binding),)


def unbind(router: Router, binding: Binding) -> Events:
    """Nothing is done, and nothing is wrong, when it is not bound."""
    _check_ends(binding)
    return _Removal(router).of_binding(binding) if binding in router.bindings() else ()


class _Removal:
    """Something goes, and what goes with it."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._events: list[Event] = []
        self._unbound: dict[Binding, None] = {}
        self._deleted: dict[str, None] = {}

    def of_exchange(self, name: str) -> Events:
        self._delete([name])
        return tuple(self._events)

    def of_queue(self, name: str) -> Events:
        bindings = self._router.bindings_to(Destination(Kind.QUEUE, name))
        self._delete(self._unbind(bindings))
        self._events.append(QueueRemoved(name))
        return tuple(self._events)

    def of_binding(self, binding: Binding) -> Events:
        self._delete(self._unbind((binding,)))
        return tuple(self._events)

    def _delete(self, names: list[str]) -> None:
        """These exchanges, and those that are without bindings then."""
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in self._deleted:
                continue
            self._deleted[name] = None
            self._unbind(self._router.bindings_from(name))
            leading_here = self._router.bindings_to(Destination(Kind.EXCHANGE, name))
            pending += self._unbind(leading_here)
            self._events.append(ExchangeDeleted(name))

    def _unbind(self, bindings: tuple[Binding, ...]) -> list[str]:
        """Returns the auto-delete exchanges that have no more bindings now."""
        going = [binding for binding in bindings if binding not in self._unbound]
        self._unbound.update(dict.fromkeys(going))
        self._events += [Unbound(binding) for binding in going]
        sources = dict.fromkeys(binding.source for binding in going)
        return [name for name in sources if self._is_over(name)]

    def _is_over(self, name: str) -> bool:
        exchange = self._router.exchange(name)
        assert exchange is not None, name
        return exchange.auto_delete and all(
            binding in self._unbound for binding in self._router.bindings_from(name)
        )


# What is refused.


def _check_not_default(name: str) -> None:
    if name == DEFAULT_EXCHANGE:
        raise ExchangeRefused("operation not permitted on the default exchange")


def _check_ends(binding: Binding) -> None:
    if binding.destination.kind is Kind.EXCHANGE:
        _check_not_default(binding.destination.name)
    _check_not_default(binding.source)


def _check_name(name: str) -> None:
    if not is_short(name):
        raise InvalidExchange(f"an exchange's name has at most {limits.NAME_BYTES_MAX} bytes")
    if name.startswith(_RESERVED):
        raise ExchangeRefused(f"exchange name '{name}' contains reserved prefix '{_RESERVED}*'")


def _check_arguments(exchange: Exchange) -> None:
    if exchange.type is ExchangeType.DELAYED:
        inner = lookup(exchange.arguments, _DELAYED_TYPE)
        if inner in (ExchangeType.DELAYED.value, ExchangeType.DEDUPLICATION.value):
            raise InvalidExchange(
                f"Invalid argument, '{inner}' can't be used for '{_DELAYED_TYPE}'"
            )
        if not isinstance(inner, str):
            raise InvalidExchange(
                f"Invalid argument, '{_DELAYED_TYPE}' must be an existing exchange type"
            )
        exchange_type(inner)
    if exchange.type is ExchangeType.DEDUPLICATION:
        duplicate.terms(exchange.arguments)
    if exchange.matching_type is ExchangeType.CONSISTENT_HASH:
        _check_hashing(exchange.arguments)


def _check_hashing(arguments: FrozenTable) -> None:
    header, name = lookup(arguments, HASH_HEADER), lookup(arguments, HASH_PROPERTY)
    if header is not None and name is not None:
        raise InvalidExchange(f"{HASH_HEADER} and {HASH_PROPERTY} are mutually exclusive")
    if header is not None and not isinstance(header, str):
        raise InvalidExchange(f"invalid type '{describe(header)[0]}' for arg '{HASH_HEADER}'")
    if name is not None and name not in PROPERTIES:
        text = name if isinstance(name, str) else describe(name)[1]
        raise InvalidExchange(f"Unsupported property: {text}")


def _check_binding(source: Exchange, binding: Binding) -> None:
    if source.matching_type is ExchangeType.HEADERS:
        found = _argument(binding.arguments, MATCH)
        if found is not None and found[0] != "longstr":
            raise InvalidBinding(
                f"Invalid {MATCH} field type {found[0]} (value {found[1]}); expected longstr"
            )
        if found is not None and lookup(binding.arguments, MATCH) not in MODES:
            raise InvalidBinding(
                f"Invalid {MATCH} field value {found[1]}; "
                "expected all, any, all-with-x, or any-with-x"
            )
    elif source.matching_type is ExchangeType.CONSISTENT_HASH:
        _check_weight(binding.key)


def _check_weight(key: str) -> None:
    digits = key[1:] if key[:1] in ("+", "-") else key
    if not (digits.isascii() and digits.isdigit()):
        raise InvalidBinding(f"The binding key must be an integer: {describe(key)[1]}")
    if int(key) < 1:
        raise InvalidBinding("The binding key must be greater than 0")
    if int(key) > limits.BINDING_WEIGHT_MAX:
        raise InvalidBinding(f"The binding key must not exceed {limits.BINDING_WEIGHT_MAX}")


def _check_equivalent(router: Router, current: Exchange, wanted: Exchange) -> None:
    """Of the arguments only the alternate exchange counts, as in RabbitMQ."""
    facts = (
        ("type", _atom(current.type.value), _atom(wanted.type.value)),
        ("durable", _truth(current.durable), _truth(wanted.durable)),
        ("auto_delete", _truth(current.auto_delete), _truth(wanted.auto_delete)),
        ("internal", _truth(current.internal), _truth(wanted.internal)),
        (_ALTERNATE, *_difference(current.arguments, wanted.arguments, _ALTERNATE)),
    )
    for name, is_now, is_wanted in facts:
        if is_now != is_wanted:
            where = _place(router, Destination(Kind.EXCHANGE, current.name))
            raise ExchangeMismatch(
                f"inequivalent arg '{name}' for {where}: "
                f"received {is_wanted} but current is {is_now}"
            )


def _difference(current: FrozenTable, wanted: FrozenTable, name: str) -> tuple[str, str]:
    """Both values as RabbitMQ writes them: with their types if one of them is not there."""
    first, second = _argument(current, name), _argument(wanted, name)
    if first is None or second is None:
        return _typed(current, name), _typed(wanted, name)
    return f"'{_plain(current, name)}'", f"'{_plain(wanted, name)}'"


def _typed(arguments: FrozenTable, name: str) -> str:
    found = _argument(arguments, name)
    if found is None:
        return "none"
    return f"the value '{_plain(arguments, name)}' of type '{found[0]}'"


def _plain(arguments: FrozenTable, name: str) -> str:
    value: Frozen = lookup(arguments, name)
    return value if isinstance(value, str) else describe(value)[1]


def _argument(arguments: FrozenTable, name: str) -> tuple[str, str] | None:
    """Type and text, or None if the argument is not there."""
    return next((describe(value) for key, value in arguments if key == name), None)


def _truth(value: bool) -> str:
    return f"'{str(value).lower()}'"


def _atom(name: str) -> str:
    """Erlang quotes an atom that has more than letters."""
    return f"'{name}'" if name.isalpha() else f"''{name}''"


def _place(router: Router, destination: Destination) -> str:
    return f"{destination.kind.value} '{destination.name}' in vhost '{router.vhost}'"


def _unknown(router: Router, destination: Destination) -> UnknownExchange | UnknownQueue:
    text = f"no {_place(router, destination)}"
    return UnknownQueue(text) if destination.kind is Kind.QUEUE else UnknownExchange(text)
