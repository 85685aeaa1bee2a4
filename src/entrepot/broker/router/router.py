"""The router of one virtual host: its exchanges and bindings, and the routes of messages.

A message visits each exchange at most once, however the exchanges are bound to each other,
and a queue gets it at most once. An exchange where no binding matches passes the message to its
alternate exchange, if that exists. At a delayed exchange a message may have to wait: then the
route names the exchange, and the message is routed again from there after its delay.

Routes that depend only on keys are cached until an exchange or a binding changes. A cached route
is the same object each time, so callers can cache by its identity.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

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
    decode,
    encode,
)
from entrepot.broker.router.headers import HeadersMatcher
from entrepot.broker.router.matching import (
    NO_MATCHES,
    DirectMatcher,
    FanoutMatcher,
    Matcher,
    Routed,
)
from entrepot.broker.router.ring import RingMatcher
from entrepot.broker.router.selecting import SelectorMatcher
from entrepot.broker.router.topic import TopicMatcher
from entrepot.core import limits
from entrepot.core.errors import ExchangeRefused, UnknownExchange
from entrepot.core.message import Envelope
from entrepot.core.steps import Steps

if TYPE_CHECKING:
    from entrepot.broker.subject.listener import Listener

_DEFAULT = Exchange(DEFAULT_EXCHANGE, ExchangeType.DIRECT)


class Held(NamedTuple):
    """A delayed exchange that a message waits at. After the delay it is routed from there."""

    exchange: str
    delay_ms: int


class Route(NamedTuple):
    queues: tuple[str, ...]  # Each once.
    held: tuple[Held, ...] = ()
    listeners: tuple[Listener, ...] = ()  # Who hears it besides; the router knows none.

    @property
    def width(self) -> int:
        """Return how many destinations there are."""
        return len(self.queues) + len(self.held) + len(self.listeners)


NOWHERE = Route(())


class Hop(NamedTuple):
    """What becomes of a message at one exchange on its way, for somebody who asks."""

    exchange: Exchange
    bindings: tuple[Binding, ...]  # Those that it matches.
    alternate: str | None = None  # The exchange that it goes on to because it matches none.
    is_held: bool = False  # It waits here for its delay.
    queues: tuple[str, ...] = ()  # Queues that are found by their names.


class _Node:
    """An exchange with its bindings and their index."""

    __slots__ = (
        "alternate",
        "bindings",
        "exchange",
        "is_delayed",
        "leads_to",
        "matcher",
        "may_read_headers",
        "reads_headers",
        "routes",
    )

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.alternate = exchange.settings.alternate
        self.is_delayed = exchange.type is ExchangeType.DELAYED
        self.bindings: dict[Binding, None] = {}  # Those whose source it is.
        self.leads_to: dict[str, int] = {}  # Exchanges, and the number of bindings to each.
        self.matcher = _matcher(exchange)
        needs_headers = self.is_delayed or exchange.type is ExchangeType.DEDUPLICATION
        self.reads_headers = needs_headers or self.matcher.reads_headers
        self.routes: dict[str, Route] = {}  # A cache, by key.
        # Whether it or any exchange reached through it reads headers. None means: to be computed.
        self.may_read_headers: bool | None = None

    def add(self, binding: Binding) -> None:
        self.bindings[binding] = None
        self.matcher.add(binding)
        kind, name = binding.destination
        if kind is DestinationKind.EXCHANGE:
            self.leads_to[name] = self.leads_to.get(name, 0) + 1

    def remove(self, binding: Binding) -> None:
        del self.bindings[binding]
        self.matcher.remove(binding)
        kind, name = binding.destination
        if kind is DestinationKind.EXCHANGE:
            count = self.leads_to.pop(name)
            if count > 1:
                self.leads_to[name] = count - 1


def _matcher(exchange: Exchange) -> Matcher:
    match exchange.matching_type:
        case ExchangeType.DIRECT:
            return DirectMatcher()
        case ExchangeType.FANOUT:
            return FanoutMatcher()
        case ExchangeType.TOPIC:
            return TopicMatcher()
        case ExchangeType.HEADERS:
            return HeadersMatcher()
        case ExchangeType.SELECTOR:
            return SelectorMatcher()
        case _:
            return RingMatcher(exchange)


class Router:
    def __init__(self, vhost: str = "/", predeclared: Sequence[Exchange] = ()) -> None:
        """Make a router with the default exchange and the predeclared ones, which stay."""
        self.vhost = vhost
        self._nodes = {each.name: _Node(each) for each in (_DEFAULT, *predeclared)}
        self._predeclared = frozenset(self._nodes)
        self._queues: dict[str, bool] = {}  # By name, whether each is durable.
        self._queue_routes: dict[str, Route] = {}  # Of the default exchange: one per queue.
        # Returns the queue for a key of the default exchange that names no queue here.
        self.elsewhere: Callable[[str], str | None] | None = None
        self.version = 0  # Counts all changes.
        self.names_version = 0  # Counts the queues that are added and removed.
        self._bindings: dict[Binding, None] = {}  # All, in the order in which they were made.
        self._by_destination: dict[Destination, dict[Binding, None]] = {}
        self._caching: dict[str, _Node] = {}  # Exchanges that have anything in their caches.
        self._cached_names = 0  # Keys and queues in the cached routes.

    # Finding exchanges, queues and bindings.

    def exchange(self, name: str) -> Exchange | None:
        node = self._nodes.get(name)
        return None if node is None else node.exchange

    def exchanges(self) -> Iterator[Exchange]:
        return (node.exchange for node in self._nodes.values())

    @property
    def exchange_count(self) -> int:
        return len(self._nodes)

    def is_predeclared(self, exchange: str) -> bool:
        return exchange in self._predeclared

    def has_queue(self, name: str) -> bool:
        return name in self._queues

    def bindings(self) -> Mapping[Binding, None]:
        """Return all bindings, in the order in which they were made. The default exchange has
        none."""
        return MappingProxyType(self._bindings)

    def bindings_from(self, exchange: str) -> tuple[Binding, ...]:
        node = self._nodes.get(exchange)
        return () if node is None else tuple(node.bindings)

    def bindings_to(self, destination: Destination) -> tuple[Binding, ...]:
        return tuple(self._by_destination.get(destination, ()))

    # Routing.

    def route(
        self,
        exchange: str,
        key: str,
        envelope: Envelope | None = None,
        *,
        inside: bool = False,
    ) -> Route:
        """Return the route of a message from that exchange.

        The envelope is needed if the route depends on more than the key: see `reads_headers`.
        `inside` means: published by the broker itself, which internal exchanges allow. Raises
        UnknownExchange, ExchangeRefused.
        """
        node = self._nodes.get(exchange)
        if node is None:
            raise UnknownExchange(f"no exchange '{exchange}' in vhost '{self.vhost}'")
        if node.exchange.internal and not inside:
            raise ExchangeRefused(
                f"cannot publish to internal exchange '{exchange}' in vhost '{self.vhost}'"
            )
        if envelope is not None and (handling := envelope.handling).has_copies:
            keys = (key, *handling.copies, *handling.blind_copies)
            return self._walk(node, Routed(keys, envelope.properties, handling.delay_ms))[0]
        if exchange == DEFAULT_EXCHANGE:
            return self._queue_routes.get(self._queue_named(key), NOWHERE)
        route = node.routes.get(key)
        if route is None:
            routed = Routed((key,))
            if envelope is not None:
                routed = Routed((key,), envelope.properties, envelope.handling.delay_ms)
            route, depends_on_key_only = self._walk(node, routed)
            if depends_on_key_only:
                self._cache_route(node, key, route)
        return route

    def known_route(self, exchange: str, key: str) -> Route | None:
        """Return the route of a client's message without copies, if it needs no search.

        None means: `route` has to be asked.
        """
        if exchange == DEFAULT_EXCHANGE:
            return self._queue_routes.get(key)
        node = self._nodes.get(exchange)
        if node is None or node.may_read_headers is not False or node.exchange.internal:
            return None
        return node.routes.get(key)

    def reads_headers(self, exchange: str) -> bool:
        """Return whether this exchange, or one reached through it, looks at more than the key.

        If not, the properties of a message without copies need not be decoded.
        """
        start = self._nodes.get(exchange)
        if start is None:
            return False
        if start.may_read_headers is None:
            start.may_read_headers = any(node.reads_headers for node in self._reachable(start))
            self._caching[exchange] = start
        return start.may_read_headers

    def _reachable(self, start: _Node) -> Iterator[_Node]:
        """Yield the exchange and all exchanges that a message could reach through it."""
        pending = [start]
        seen = {start.exchange.name: None}
        while pending:
            node = pending.pop()
            yield node
            names = list(node.leads_to)
            if node.alternate is not None:
                names.append(node.alternate)
            for name in names:
                if name not in seen and name in self._nodes:
                    seen[name] = None
                    pending.append(self._nodes[name])

    def _walk(self, start: _Node, message: Routed) -> tuple[Route, bool]:
        """Find the route of a message. Also returns whether it depends only on the keys."""
        if self.leads_by_name(start.exchange.name):
            return Route(self._queues_named(message.keys)), False
        found: list[tuple[str, ...]] = []
        held: list[Held] = []
        seen = {start.exchange.name: None}
        pending = [start]
        by_keys = True
        while pending:
            node = pending.pop()
            by_keys = by_keys and not node.reads_headers
            if node.is_delayed and message.delay_ms:
                held.append(Held(node.exchange.name, message.delay_ms))
                continue
            queues, exchanges = node.matcher.match(message)
            if queues:
                found.append(queues)
            elif not exchanges and node.alternate is not None:
                exchanges = (node.alternate,)
            for name in exchanges:
                if name not in seen and name in self._nodes:
                    seen[name] = None
                    pending.append(self._nodes[name])
        return Route(_joined(found), tuple(held)), by_keys

    def hops(self, exchange: str, message: Routed) -> Steps[list[Hop]]:
        """Return the way of a message, exchange by exchange, as `route` would go it.

        Raises UnknownExchange.
        """
        if exchange not in self._nodes:
            raise UnknownExchange(f"no exchange '{exchange}' in vhost '{self.vhost}'")
        if self.leads_by_name(exchange):
            queues = self._queues_named(message.keys)
            return [Hop(self._nodes[exchange].exchange, (), queues=queues)]
        hops: list[Hop] = []
        seen = {exchange: None}
        pending = [exchange]
        while pending:
            node = self._nodes.get(pending.pop(0))
            if node is None:  # It was deleted between two steps.
                continue
            alternate: str | None = None
            matched = yield from _matched(node, message)
            is_held = node.is_delayed and message.delay_ms > 0
            if not matched and not is_held:
                alternate = node.alternate
            hops.append(Hop(node.exchange, tuple(matched), alternate, is_held))
            kind = DestinationKind.EXCHANGE
            names = [each.destination.name for each in matched if each.destination.kind is kind]
            if alternate is not None:
                names.append(alternate)
            for name in names if not is_held else []:
                if name not in seen and name in self._nodes:
                    seen[name] = None
                    pending.append(name)
        return hops

    def leads_by_name(self, exchange: str) -> bool:
        """Return whether an exchange leads to every queue and topic by its name.

        That is the default exchange, or one of the broker's own that has it as its alternate.
        """
        if exchange == DEFAULT_EXCHANGE:
            return True
        node = self._nodes.get(exchange)
        is_alternate = node is not None and node.alternate == DEFAULT_EXCHANGE
        return is_alternate and exchange in self._predeclared

    def _queues_named(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the queues that the default exchange leads to, each once."""
        names = map(self._queue_named, keys)
        return tuple(dict.fromkeys(name for name in names if name in self._queues))

    def _queue_named(self, key: str) -> str:
        if key in self._queues or self.elsewhere is None:
            return key
        return self.elsewhere(key) or key

    def is_elsewhere(self, key: str) -> bool:
        """Return whether a key names a queue of another broker, and none here."""
        return key not in self._queues and self._queue_named(key) in self._queues

    # Caching.

    def _cache_route(self, node: _Node, key: str, route: Route) -> None:
        size = 1 + len(route.queues)
        if size > limits.ROUTE_CACHED_NAMES_MAX:
            return  # Publishing to so many queues costs far more than finding them again.
        if self._cached_names + size > limits.ROUTES_CACHED_NAMES_MAX:
            self._clear_caches()
        self._cached_names += size
        self._caching[node.exchange.name] = node
        node.routes[key] = route

    def _clear_caches(self) -> None:
        for node in self._caching.values():
            node.routes.clear()
            node.may_read_headers = None
        self._caching.clear()
        self._cached_names = 0

    # Changing.

    def apply(self, event: Event) -> None:
        """Change the router by an event. Without effect if it was applied already."""
        self.version += 1
        match event:
            case QueueAdded(name, durable):
                self._queues[name] = durable
                self.names_version += 1
                self._queue_routes.setdefault(name, Route((name,)))
            case QueueRemoved(name):
                assert not self.bindings_to(Destination(DestinationKind.QUEUE, name)), name
                self._queues.pop(name, None)
                self.names_version += 1
                self._queue_routes.pop(name, None)
            case ExchangeDeclared(exchange):
                self._declare(exchange)
            case ExchangeDeleted(name):
                assert not self.bindings_to(Destination(DestinationKind.EXCHANGE, name)), name
                assert not self.bindings_from(name), name
                self._nodes.pop(name, None)
                self._clear_caches()
            case Bound(binding):
                self._bind(binding)
            case Unbound(binding):
                self._unbind(binding)

    def _declare(self, exchange: Exchange) -> None:
        node = self._nodes.get(exchange.name)
        if node is None:
            self._nodes[exchange.name] = _Node(exchange)
            self._clear_caches()  # It may be the alternate of another exchange.
        else:
            assert node.exchange == exchange, (node.exchange, exchange)

    def _bind(self, binding: Binding) -> None:
        if binding in self._bindings:
            return
        assert self._exists(binding.destination), binding
        self._nodes[binding.source].add(binding)
        self._bindings[binding] = None
        self._by_destination.setdefault(binding.destination, {})[binding] = None
        self._clear_caches()

    def _unbind(self, binding: Binding) -> None:
        if binding not in self._bindings:
            return
        self._nodes[binding.source].remove(binding)
        del self._bindings[binding]
        others = self._by_destination[binding.destination]
        del others[binding]
        if not others:
            del self._by_destination[binding.destination]
        self._clear_caches()

    def _exists(self, destination: Destination) -> bool:
        kind, name = destination
        return name in (self._queues if kind is DestinationKind.QUEUE else self._nodes)

    # Durability.

    def is_durable(self, event: Event) -> bool:
        """Return whether the event must survive a restart. Call this before `apply`."""
        match event:
            case QueueAdded(_, durable):
                return durable
            case QueueRemoved(name):
                return self._queues.get(name, False)
            case ExchangeDeclared(exchange):
                return exchange.durable
            case ExchangeDeleted(name):
                return self._is_durable_exchange(name)
            case Bound(binding) | Unbound(binding):
                kind, name = binding.destination
                return self._is_durable_exchange(binding.source) and (
                    self._queues.get(name, False)
                    if kind is DestinationKind.QUEUE
                    else self._is_durable_exchange(name)
                )

    def _is_durable_exchange(self, name: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and node.exchange.durable

    def events(self) -> Iterator[Event]:
        """Yield events that, applied to a new router, make an equal one."""
        yield from (QueueAdded(name, durable) for name, durable in self._queues.items())
        for exchange in self.exchanges():
            if not self.is_predeclared(exchange.name):
                yield ExchangeDeclared(exchange)
        yield from map(Bound, self._bindings)

    def snapshot(self, durable_only: bool = False) -> str:
        kept = [event for event in self.events() if not durable_only or self.is_durable(event)]
        return json.dumps({"vhost": self.vhost, "events": [encode(event) for event in kept]})

    @classmethod
    def restored(cls, snapshot: str, predeclared: Sequence[Exchange] = ()) -> Router:
        stored = json.loads(snapshot)
        router = cls(stored["vhost"], predeclared)
        for name, value in stored["events"]:
            router.apply(decode(name, value))
        return router


def _matched(node: _Node, message: Routed) -> Steps[list[Binding]]:
    """Return the bindings of an exchange that a message matches, one looked at in each step."""
    queues, exchanges = node.matcher.match(message)
    names = {DestinationKind.QUEUE: queues, DestinationKind.EXCHANGE: exchanges}
    found = []
    for binding in list(node.bindings):
        kind, name = binding.destination
        if name in names[kind]:
            alone = _matcher(node.exchange)
            alone.add(binding)
            if alone.match(message) != NO_MATCHES:
                found.append(binding)
        yield
    return found


def _joined(found: list[tuple[str, ...]]) -> tuple[str, ...]:
    if len(found) == 1:
        return found[0]
    return tuple(dict.fromkeys(name for names in found for name in names))
