"""Short words for tests: a router, and what is bound to what in it."""

from collections.abc import Mapping
from typing import Any

from entrepot.broker.router import decision
from entrepot.broker.router.event import Binding, Destination, DestinationKind
from entrepot.broker.router.router import Router
from entrepot.core.message import Envelope
from entrepot.core.value import freeze_table
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.rabbitmq.binding_arguments import BindingDeclaration
from entrepot.gateway.rabbitmq.exchange_arguments import (
    PREDECLARED,
    ExchangeDeclaration,
    exchange_type,
)
from entrepot.wire.amqp.properties import BasicProperties, encode


def queue(name: str) -> Destination:
    return Destination(DestinationKind.QUEUE, name)


def exchange(name: str) -> Destination:
    return Destination(DestinationKind.EXCHANGE, name)


def said(headers: Mapping[str, object], **properties: Any) -> Envelope:
    """An envelope with these headers and properties. A router is told the subject."""
    return Envelope("", "", encode(BasicProperties(headers=headers, **properties)), AMQP)


class Place:
    """A router in which things are made by saying so."""

    def __init__(self, *queues: str) -> None:
        self.router = Router(predeclared=PREDECLARED)
        for name in queues:
            self.add_queue(name)

    def add_queue(self, name: str, *, durable: bool = True) -> None:
        self.apply(decision.add_queue(self.router, name, durable=durable))

    def apply(self, events: decision.Events) -> decision.Events:
        for event in events:
            self.router.apply(event)
        return events

    def declare(
        self,
        name: str,
        kind: str,
        arguments: Mapping[str, object] | None = None,
        **facts: bool,
    ) -> decision.Events:
        table = freeze_table(arguments or {})
        wanted = ExchangeDeclaration("/", name, exchange_type(kind), table, **facts)
        return self.apply(decision.declare(self.router, wanted))

    def delete(self, name: str, *, if_unused: bool = False) -> decision.Events:
        return self.apply(decision.delete(self.router, name, if_unused=if_unused))

    def remove_queue(self, name: str) -> decision.Events:
        return self.apply(decision.remove_queue(self.router, name))

    def bind(
        self,
        source: str,
        to: str | Destination,
        key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> decision.Events:
        """To a queue, if it is only a name."""
        return self.apply(decision.bind(self.router, wanted(source, to, key, arguments)))

    def unbind(
        self,
        source: str,
        to: str | Destination,
        key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> decision.Events:
        return self.apply(decision.unbind(self.router, binding(source, to, key, arguments)))

    def reached(
        self,
        source: str,
        key: str = "",
        headers: Mapping[str, object] | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> tuple[str, ...]:
        """The queues, in alphabetical order."""
        envelope = said(headers or {}, **(properties or {}))
        return tuple(sorted(self.router.route(source, key, envelope).queues))


def binding(
    source: str,
    to: str | Destination,
    key: str = "",
    arguments: Mapping[str, object] | None = None,
) -> Binding:
    made = wanted(source, to, key, arguments)
    return Binding(made.source, made.destination, made.key, made.arguments)


def wanted(
    source: str,
    to: str | Destination,
    key: str = "",
    arguments: Mapping[str, object] | None = None,
) -> BindingDeclaration:
    destination = to if isinstance(to, Destination) else queue(to)
    return BindingDeclaration(source, destination, key, freeze_table(arguments or {}))
