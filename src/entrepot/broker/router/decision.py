"""Checks changes of exchanges and bindings, and returns the events that they consist of.

Each function reads a router and does not change it: it returns the events, in the order in
which they are to be recorded and applied, or none if there is nothing to change. Consequences
are events of their own: a deleted queue loses its bindings, an auto-delete exchange is deleted
with its last binding, and then the bindings that lead to it. So applying events needs no rules.

Gateways check arguments and write the error texts, because clients match on the words of their
protocol. Permissions are checked elsewhere.
"""

from __future__ import annotations

from typing import Protocol

from entrepot.broker.router.event import (
    DEFAULT_EXCHANGE,
    Binding,
    Bound,
    Destination,
    DestinationKind,
    Event,
    Exchange,
    ExchangeDeclared,
    ExchangeDeleted,
    ExchangeType,
    QueueAdded,
    QueueRemoved,
    Unbound,
)
from entrepot.broker.router.router import Router
from entrepot.core import limits
from entrepot.core.errors import (
    ExchangeInUse,
    ExchangeRefused,
    InvalidBinding,
    InvalidExchange,
    UnknownExchange,
    UnknownQueue,
)
from entrepot.core.names import is_short

Events = tuple[Event, ...]


class WantedExchange(Protocol):
    """An exchange as a client asks for it."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> ExchangeType: ...

    def exchange(self) -> Exchange:
        """Return the exchange to declare. Raises InvalidExchange, ExchangeRefused."""

    def check_same(self, current: Exchange) -> None:
        """Raise ExchangeMismatch if the existing exchange differs from what is asked for."""


class WantedBinding(Protocol):
    """A binding as a client asks for it."""

    @property
    def source(self) -> str: ...

    @property
    def destination(self) -> Destination: ...

    @property
    def key(self) -> str: ...

    def binding(self, source: Exchange) -> Binding:
        """Return the binding to make at this exchange. Raises InvalidBinding."""


# Exchanges.


def find(router: Router, name: str) -> Exchange:
    """Return the exchange of that name, for a passive declaration.

    Raises UnknownExchange; ExchangeRefused for the default exchange.
    """
    _check_not_default(name)
    exchange = router.exchange(name)
    if exchange is None:
        raise _unknown(router, Destination(DestinationKind.EXCHANGE, name))
    return exchange


def declare(router: Router, wanted: WantedExchange) -> Events:
    """Return the events that declare an exchange; none if it is declared already.

    Raises InvalidExchange, ExchangeRefused, ExchangeMismatch.
    """
    _check_not_default(wanted.name)
    current = router.exchange(wanted.name)
    if current is not None:
        wanted.check_same(current)
        return ()
    if not is_short(wanted.name):
        raise InvalidExchange(f"an exchange's name has at most {limits.NAME_BYTES_MAX} bytes")
    exchange = wanted.exchange()
    if router.exchange_count >= limits.EXCHANGES_MAX:
        where = _place(router, Destination(DestinationKind.EXCHANGE, wanted.name))
        raise InvalidExchange(
            f"cannot declare {where}: exchange limit of {limits.EXCHANGES_MAX} is reached"
        )
    return (ExchangeDeclared(exchange),)


def delete(router: Router, name: str, *, if_unused: bool = False) -> Events:
    """Return the events that delete an exchange; none if there is no such exchange.

    Raises ExchangeRefused, ExchangeInUse.
    """
    _check_not_default(name)
    destination = Destination(DestinationKind.EXCHANGE, name)
    if router.is_predeclared(name):
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


def bind(router: Router, wanted: WantedBinding) -> Events:
    """Return the events that make a binding; none if there is the same binding already.

    Raises UnknownExchange, UnknownQueue, ExchangeRefused, InvalidBinding.
    """
    _check_ends(wanted.source, wanted.destination)
    source = router.exchange(wanted.source)
    if source is None:
        raise _unknown(router, Destination(DestinationKind.EXCHANGE, wanted.source))
    kind, name = wanted.destination
    found = (
        router.has_queue(name)
        if kind is DestinationKind.QUEUE
        else router.exchange(name) is not None
    )
    if not found:
        raise _unknown(router, wanted.destination)
    if not is_short(wanted.key):
        raise InvalidBinding(f"a binding's key has at most {limits.NAME_BYTES_MAX} bytes")
    binding = wanted.binding(source)
    bindings = router.bindings()
    if binding in bindings:
        return ()
    if len(bindings) >= limits.BINDINGS_MAX:
        raise InvalidBinding(f"binding limit of {limits.BINDINGS_MAX} is reached")
    return (Bound(binding),)


def unbind(router: Router, binding: Binding) -> Events:
    """Return the events that remove a binding; none if there is no such binding.

    Raises ExchangeRefused for the default exchange.
    """
    _check_ends(binding.source, binding.destination)
    return _Removal(router).of_binding(binding) if binding in router.bindings() else ()


class _Removal:
    """Collects the events of a removal and of everything that is removed in consequence."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._events: list[Event] = []
        self._unbound: dict[Binding, None] = {}  # Bindings that the events remove.
        self._deleted: dict[str, None] = {}  # Exchanges that they delete.

    def of_exchange(self, name: str) -> Events:
        self._delete([name])
        return tuple(self._events)

    def of_queue(self, name: str) -> Events:
        bindings = self._router.bindings_to(Destination(DestinationKind.QUEUE, name))
        self._delete(self._unbind(bindings))
        self._events.append(QueueRemoved(name))
        return tuple(self._events)

    def of_binding(self, binding: Binding) -> Events:
        self._delete(self._unbind((binding,)))
        return tuple(self._events)

    def _delete(self, names: list[str]) -> None:
        """Delete these exchanges, and auto-delete exchanges that lose their last binding."""
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in self._deleted:
                continue
            self._deleted[name] = None
            self._unbind(self._router.bindings_from(name))
            leading_here = self._router.bindings_to(Destination(DestinationKind.EXCHANGE, name))
            pending += self._unbind(leading_here)
            self._events.append(ExchangeDeleted(name))

    def _unbind(self, bindings: tuple[Binding, ...]) -> list[str]:
        """Remove bindings. Returns the auto-delete exchanges that have no more bindings now."""
        going = [binding for binding in bindings if binding not in self._unbound]
        self._unbound.update(dict.fromkeys(going))
        self._events += [Unbound(binding) for binding in going]
        sources = dict.fromkeys(binding.source for binding in going)
        return [name for name in sources if self._is_unused(name)]

    def _is_unused(self, name: str) -> bool:
        exchange = self._router.exchange(name)
        assert exchange is not None, name
        return exchange.auto_delete and all(
            binding in self._unbound for binding in self._router.bindings_from(name)
        )


# Checks and error texts.


def _check_not_default(name: str) -> None:
    if name == DEFAULT_EXCHANGE:
        raise ExchangeRefused("operation not permitted on the default exchange")


def _check_ends(source: str, destination: Destination) -> None:
    if destination.kind is DestinationKind.EXCHANGE:
        _check_not_default(destination.name)
    _check_not_default(source)


def _place(router: Router, destination: Destination) -> str:
    return f"{destination.kind.value} '{destination.name}' in vhost '{router.vhost}'"


def _unknown(router: Router, destination: Destination) -> UnknownExchange | UnknownQueue:
    text = f"no {_place(router, destination)}"
    return (
        UnknownQueue(text) if destination.kind is DestinationKind.QUEUE else UnknownExchange(text)
    )
