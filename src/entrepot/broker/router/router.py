"""The router of one virtual host: what there is, and where a message goes from there.

A message visits each exchange at most once, however the exchanges are bound to each other,
and a queue gets it at most once. An exchange without a binding for it passes it to its
alternate exchange, if that is there. At a delayed exchange it may have to wait: then the
answer names the exchange, and the message is routed again from there when it is time.

The answers that keys alone decide are remembered until an exchange or a binding changes.
The same answer is then the same object, for those who want to remember more about it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from entrepot.broker.router.delay import delay_ms
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
    decode,
    encode,
)
from entrepot.broker.router.headers import HeadersMatcher
from entrepot.broker.router.matching import DirectMatcher, FanoutMatcher, Matcher, Message
from entrepot.broker.router.ring import RingMatcher
from entrepot.broker.router.topic import TopicMatcher
from entrepot.core import limits
from entrepot.core.errors import ExchangeRefused, InvalidRoutingHeader, UnknownExchange
from entrepot.core.value import describe, freeze

COPY_HEADERS = ("CC", "BCC")  # More routing keys. A receiver sees the first and never the second.
_DEFAULT = Exchange(DEFAULT_EXCHANGE, ExchangeType.DIRECT)
_NONE: Mapping[str, object] = MappingProxyType({})


class Held(NamedTuple):
    """The message waits at a delayed exchange, to be routed from there."""

    exchange: str
    delay_ms: int


class Route(NamedTuple):
    queues: tuple[str, ...]  # Each once.
    held: tuple[Held, ...] = ()


NOWHERE = Route(())


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
        self.bindings: dict[Binding, None] = {}  # Those that lead away from it.
        self.leads_to: dict[str, int] = {}  # Exchanges, and how many bindings there are to each.
        self.matcher = _matcher(exchange)
        is_choosy = self.is_delayed or exchange.type is ExchangeType.DEDUPLICATION
        self.reads_headers = is_choosy or self.matcher.reads_headers
        self.routes: dict[str, Route] = {}  # Remembered, by key.
        self.may_read_headers: bool | None = None  # Remembered. Of all that is behind it, too.

    def add(self, binding: Binding) -> None:
        self.bindings[binding] = None
        self.matcher.add(binding)
        kind, name = binding.destination
        if kind is Kind.EXCHANGE:
            self.leads_to[name] = self.leads_to.get(name, 0) + 1

    def remove(self, binding: Binding) -> None:
        del self.bindings[binding]
        self.matcher.remove(binding)
        kind, name = binding.destination
        if kind is Kind.EXCHANGE:
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
        case _:
            return RingMatcher(exchange)


class Router:
    def __init__(self, vhost: str = "/", predeclared: Sequence[Exchange] = ()) -> None:
        """The predeclared exchanges are always there, beside the default one."""
        self.vhost = vhost
        self._nodes = {each.name: _Node(each) for each in (_DEFAULT, *predeclared)}
        self._predeclared = frozenset(self._nodes)
        self._queues: dict[str, bool] = {}  # Whether each is durable.
        self._queue_routes: dict[str, Route] = {}  # Of the default exchange: one per queue.
        self._bindings: dict[Binding, None] = {}  # All, in the order of their making.
        self._leading_to: dict[Destination, dict[Binding, None]] = {}
        self._remembering: dict[str, _Node] = {}  # Exchanges that remember anything.
        self._remembered_names = 0  # Keys and queues in what they remember.

    # What there is.

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
        """In the order of their making, without those of the default exchange."""
        return MappingProxyType(self._bindings)

    def bindings_from(self, exchange: str) -> tuple[Binding, ...]:
        node = self._nodes.get(exchange)
        return () if node is None else tuple(node.bindings)

    def bindings_to(self, destination: Destination) -> tuple[Binding, ...]:
        return tuple(self._leading_to.get(destination, ()))

    # Where a message goes.

    def route(
        self,
        exchange: str,
        key: str,
        headers: Mapping[str, object] | None = None,
        properties: Mapping[str, object] | None = None,
        *,
        inside: bool = False,
    ) -> Route:
        """`inside` is for the broker's own publishing, which internal exchanges take.

        Of `properties` those are read that consistent hashing was told to hash. Raises
        UnknownExchange, ExchangeRefused, InvalidRoutingHeader.
        """
        node = self._nodes.get(exchange)
        if node is None:
            raise UnknownExchange(f"no exchange '{exchange}' in vhost '{self.vhost}'")
        if node.exchange.internal and not inside:
            raise ExchangeRefused(
                f"cannot publish to internal exchange '{exchange}' in vhost '{self.vhost}'"
            )
        if headers and ("CC" in headers or "BCC" in headers):
            message = Message(routing_keys(key, headers), headers, properties or _NONE)
            return self._walk(node, message)[0]
        if exchange == DEFAULT_EXCHANGE:
            return self._queue_routes.get(key, NOWHERE)
        route = node.routes.get(key)
        if route is None:
            message = Message((key,), headers or _NONE, properties or _NONE)
            route, depends_on_key_only = self._walk(node, message)
            if depends_on_key_only:
                self._remember(node, key, route)
        return route

    def reads_headers(self, exchange: str) -> bool:
        """Whether anything but routing keys may decide, at this exchange or behind it.

        If not, who knows that a message has neither CC nor BCC need not decode its headers.
        """
        start = self._nodes.get(exchange)
        if start is None:
            return False
        if start.may_read_headers is None:
            start.may_read_headers = any(node.reads_headers for node in self._behind(start))
            self._remembering[exchange] = start
        return start.may_read_headers

    def _behind(self, start: _Node) -> Iterator[_Node]:
        """The exchange and all that a message could reach through it."""
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

    def _walk(self, start: _Node, message: Message) -> tuple[Route, bool]:
        """The answer, and whether it depends on nothing but the keys."""
        if start.exchange.name == DEFAULT_EXCHANGE:
            return Route(tuple(dict.fromkeys(k for k in message.keys if k in self._queues))), False
        found: list[tuple[str, ...]] = []
        held: list[Held] = []
        seen = {start.exchange.name: None}
        pending = [start]
        by_keys = True
        while pending:
            node = pending.pop()
            by_keys = by_keys and not node.reads_headers
            if node.is_delayed and (delay := delay_ms(message.headers)):
                held.append(Held(node.exchange.name, delay))
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

    # What is remembered.

    def _remember(self, node: _Node, key: str, route: Route) -> None:
        size = 1 + len(route.queues)
        if size > limits.ROUTE_CACHED_NAMES_MAX:
            return  # To deliver to so many costs far more than to find them again.
        if self._remembered_names + size > limits.ROUTES_CACHED_NAMES_MAX:
            self._forget()
        self._remembered_names += size
        self._remembering[node.exchange.name] = node
        node.routes[key] = route

    def _forget(self) -> None:
        for node in self._remembering.values():
            node.routes.clear()
            node.may_read_headers = None
        self._remembering.clear()
        self._remembered_names = 0

    # How it changes.

    def apply(self, event: Event) -> None:
        """The only way. What is so already stays so."""
        match event:
            case QueueAdded(name, durable):
                self._queues[name] = durable
                self._queue_routes.setdefault(name, Route((name,)))
            case QueueRemoved(name):
                assert not self.bindings_to(Destination(Kind.QUEUE, name)), name
                self._queues.pop(name, None)
                self._queue_routes.pop(name, None)
            case ExchangeDeclared(exchange):
                self._declare(exchange)
            case ExchangeDeleted(name):
                assert not self.bindings_to(Destination(Kind.EXCHANGE, name)), name
                assert not self.bindings_from(name), name
                self._nodes.pop(name, None)
                self._forget()
            case Bound(binding):
                self._bind(binding)
            case Unbound(binding):
                self._unbind(binding)

    def _declare(self, exchange: Exchange) -> None:
        node = self._nodes.get(exchange.name)
        if node is None:
            self._nodes[exchange.name] = _Node(exchange)
            self._forget()  # It may be somebody's alternate.
        else:
            assert node.exchange == exchange, (node.exchange, exchange)

    def _bind(self, binding: Binding) -> None:
        if binding in self._bindings:
            return
        assert self._exists(binding.destination), binding
        self._nodes[binding.source].add(binding)
        self._bindings[binding] = None
        self._leading_to.setdefault(binding.destination, {})[binding] = None
        self._forget()

    def _unbind(self, binding: Binding) -> None:
        if binding not in self._bindings:
            return
        self._nodes[binding.source].remove(binding)
        del self._bindings[binding]
        others = self._leading_to[binding.destination]
        del others[binding]
        if not others:
            del self._leading_to[binding.destination]
        self._forget()

    def _exists(self, destination: Destination) -> bool:
        kind, name = destination
        return name in (self._queues if kind is Kind.QUEUE else self._nodes)

    # What is kept.

    def is_durable(self, event: Event) -> bool:
        """Whether the event is to survive a restart. To be asked before it is applied."""
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
                    if kind is Kind.QUEUE
                    else self._is_durable_exchange(name)
                )

    def _is_durable_exchange(self, name: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and node.exchange.durable

    def events(self) -> Iterator[Event]:
        """Those that make this router out of a new one."""
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


def routing_keys(key: str, headers: Mapping[str, object]) -> tuple[str, ...]:
    """The message's key, and those of further receivers that its headers name."""
    keys = [key]
    for name in COPY_HEADERS:
        if name not in headers:
            continue
        more = headers[name]
        if not isinstance(more, list | tuple):
            kind = describe(freeze(more))[0]
            raise InvalidRoutingHeader(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}'
            )
        keys += [item for item in more if isinstance(item, str)]
    return tuple(keys)


def _joined(found: list[tuple[str, ...]]) -> tuple[str, ...]:
    if len(found) == 1:
        return found[0]
    return tuple(dict.fromkeys(name for names in found for name in names))
