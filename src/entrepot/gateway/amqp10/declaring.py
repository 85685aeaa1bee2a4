"""Queues and bindings that links need, and making them.

A queue with a plain name is declared when it is first used: durable, and for everybody. A
receiver from an exchange or a topic has a queue of its own, in memory and only as long as its
connection, unless the client asks for one that is kept. Rights are asked for as for the same
steps in AMQP 0-9-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import quote

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import QueueSettings, QueueSpec
from entrepot.broker.router.event import (
    DEFAULT_EXCHANGE,
    Binding,
    Destination,
    DestinationKind,
    Exchange,
    ExchangeType,
)
from entrepot.core.errors import InvalidBinding, QueueNameRefused
from entrepot.gateway.amqp10.address import TOPIC_EXCHANGE, Address, Kind
from entrepot.gateway.virtual_topics import pattern_of
from entrepot.wire.amqp10.errors import Amqp10Error, Condition, Scope

if TYPE_CHECKING:
    from entrepot.gateway.amqp10.connection import Connection

_TEMPORARY = "amq.gen-"  # As in RabbitMQ, where rights may name it.
_SUBSCRIPTION = "amqp-subscription-"
_NAME_BYTES = 16
_DEAD_LETTERS = "/$DeadLetterQueue"  # Behind the name of a queue, in Azure Service Bus,
_DELIVERIES_MAX = 10  # where a message becomes one after so many.
_PLAIN = QueueSettings()
_KEPT = QueueSettings(keeps_all=True)  # Messages of Azure Service Bus do not say so themselves.


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A queue as a link needs it. Implements `Declaration`."""

    name: str
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    settings: QueueSettings = _PLAIN

    def spec(self) -> QueueSpec:
        return QueueSpec(
            self.name, self.durable, self.exclusive, self.auto_delete, self.settings, ()
        )

    def check_same(self, current: QueueSpec) -> None:
        """Accept any queue of that name: it is used as it is."""


@dataclass(frozen=True, slots=True)
class WantedBinding:
    """The binding of a receiver's queue. Implements the router's protocol of that name."""

    source: str
    queue: str
    key: str

    @property
    def destination(self) -> Destination:
        return Destination(DestinationKind.QUEUE, self.queue)

    def binding(self, source: Exchange) -> Binding:
        if source.matching_type is ExchangeType.CONSISTENT_HASH:
            raise InvalidBinding(f"exchange '{source.name}' needs a weight")
        return Binding(self.source, self.destination, self.key)


def find(connection: Connection, name: str) -> Queue | None:
    """Return a queue of that name if there is one. Raises PeerError, also for a topic."""
    vhost = connection.vhost
    if name in vhost.queues:
        return vhost.queue(name, connection)
    if vhost.stream(name) is not None:
        text = f"'{name}' is a topic: what is published there from now on is at /topics/{name}"
        raise Amqp10Error(Condition.NOT_IMPLEMENTED, text, Scope.LINK)
    return None


async def queue_named(connection: Connection, address: Address) -> Queue:
    """Return the queue of an address; make it if that is allowed. Raises PeerError."""
    name = address.key
    found = find(connection, name)
    if found is not None:
        return found
    if address.kind is Kind.EXISTING_QUEUE:
        text = f"no queue '{name}' in vhost '{connection.vhost.name}'"
        raise Amqp10Error(Condition.NOT_FOUND, text, Scope.LINK)
    if connection.context.dialect.is_reserved(name):
        raise QueueNameRefused(f"queue name '{name}' is reserved")
    if address.is_service_bus:
        return await _service_bus_queue(connection, name)
    return await _make(connection, QueueDeclaration(name))


async def _service_bus_queue(connection: Connection, name: str) -> Queue:
    """Make a queue as Azure Service Bus has it, and the one for its dead letters."""
    if name.lower().endswith(_DEAD_LETTERS.lower()):
        return await _make(connection, QueueDeclaration(name, settings=_KEPT))
    dead_letters = name + _DEAD_LETTERS
    if find(connection, dead_letters) is None:
        await _make(connection, QueueDeclaration(dead_letters, settings=_KEPT))
    settings = QueueSettings(
        keeps_all=True,
        dead_letter_exchange=DEFAULT_EXCHANGE,
        dead_letter_key=dead_letters,
        dead_letter_at_least_once=True,
        dead_letters_expired=False,
        delivery_limit=_DELIVERIES_MAX - 1,  # Of deliveries after the first.
    )
    return await _make(connection, QueueDeclaration(name, settings=settings))


async def consumed_queue(connection: Connection, address: Address) -> Queue:
    """Return the queue of a receiver's address, bound if its name asks for that. Raises
    PeerError."""
    queue = await queue_named(connection, address)
    pattern = pattern_of(queue.name)
    if pattern is not None:
        await _bind(connection, queue.name, TOPIC_EXCHANGE, pattern)
    return queue


async def temporary_queue(connection: Connection) -> Queue:
    """Return a new queue of the connection alone."""
    name = _TEMPORARY + connection.context.token()
    return await _make(connection, QueueDeclaration(name, durable=False, exclusive=True))


async def subscription_queue(
    connection: Connection, address: Address, kept_name: str | None
) -> Queue:
    """Return a queue that is bound to the address. Raises PeerError.

    `kept_name` is that of a queue that outlives its link. None means: it does not.
    """
    if kept_name is None:
        queue = await temporary_queue(connection)
    else:
        found = find(connection, kept_name)
        queue = found or await _make(connection, QueueDeclaration(kept_name))
    await _bind(connection, queue.name, address.exchange, address.key)
    return queue


async def _bind(connection: Connection, queue: str, exchange: str, key: str) -> None:
    connection.check(Operation.WRITE, ResourceKind.QUEUE, queue)
    connection.check(Operation.READ, ResourceKind.EXCHANGE, exchange)
    await connection.vhost.bind(WantedBinding(exchange, queue, key), connection)


def subscription_name(container: str, link: str) -> str:
    """Return the name of the queue of a subscription that is kept for a client."""
    digest = blake2b(f"{container}\0{link}".encode(), digest_size=_NAME_BYTES)
    return _SUBSCRIPTION + digest.hexdigest()


def address_of(queue: Queue) -> str:
    return "/queues/" + quote(queue.name.encode("utf-8", "surrogateescape"), safe="")


async def delete(connection: Connection, name: str) -> None:
    await connection.vhost.delete_queue(name, connection)


async def _make(connection: Connection, declaration: QueueDeclaration) -> Queue:
    connection.check(Operation.CREATE, ResourceKind.QUEUE, declaration.name)
    made = await connection.vhost.declare_queue(declaration, connection)
    if not isinstance(made, Queue):  # A topic was made in the meantime.
        text = f"'{declaration.name}' is a topic"
        raise Amqp10Error(Condition.NOT_IMPLEMENTED, text, Scope.LINK)
    return made
