"""Queues and bindings that frames ask for: what headers say about them, and making them.

A queue of `/queue/NAME` is declared when it is first used: durable, and for everybody. One that
exists is used as it is; if a SUBSCRIBE names settings for it, it must have these. A subscription
to a topic or an exchange has a queue of its own, in memory and only as long as it lasts, unless
it is durable. Rights are asked for as AMQP's gateway does for the same steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import QueueSettings, QueueSpec
from entrepot.broker.router.event import (
    DEFAULT_EXCHANGE,
    Binding,
    DestinationKind,
    Exchange,
    ExchangeType,
)
from entrepot.broker.router.event import Destination as BindingEnd
from entrepot.core import limits
from entrepot.core.errors import InvalidBinding, PeerError, QueueMismatch, QueueNameRefused
from entrepot.core.value import Frozen, FrozenTable, freeze_table, lookup
from entrepot.gateway.stomp.destination import TOPIC_EXCHANGE, Destination, Kind
from entrepot.gateway.stomp.headers import read_flag, read_number
from entrepot.gateway.virtual_topics import pattern_of
from entrepot.wire.stomp.frames import Headers

if TYPE_CHECKING:
    from entrepot.gateway.stomp.connection import Connection

_SUBSCRIPTION_PREFIX = "stomp-subscription-"  # As in RabbitMQ, where rights may name it.
_REPLY_PREFIX = "amq.gen-"  # The same.
_DEAD_LETTER_EXCHANGE, _DEAD_LETTER_KEY = "x-dead-letter-exchange", "x-dead-letter-routing-key"
_NAME_BYTES = 16


def _number(name: str, text: str) -> Frozen:
    return read_number(name, text, 2**63 - 1)


def _flag(name: str, text: str) -> Frozen:
    return read_flag({name: text}, name, False)


def _text(name: str, text: str) -> Frozen:
    return text


# Headers that are arguments of a queue, and how they are read.
_ARGUMENTS: dict[str, Callable[[str, str], Frozen]] = {
    **dict.fromkeys(
        (
            "x-expires",
            "x-message-ttl",
            "x-max-length",
            "x-max-length-bytes",
            "x-max-priority",
            "x-delivery-limit",
            "x-retention-ms",
            "x-retention-bytes",
        ),
        _number,
    ),
    **dict.fromkeys(
        (
            _DEAD_LETTER_EXCHANGE,
            _DEAD_LETTER_KEY,
            "x-dead-letter-strategy",
            "x-overflow",
            "x-queue-type",
        ),
        _text,
    ),
    "x-single-active-consumer": _flag,
}


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A queue as a client of STOMP asks for it. Implements `Declaration`."""

    name: str
    settings: QueueSettings
    arguments: FrozenTable = ()
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False

    def spec(self) -> QueueSpec:
        return QueueSpec(
            self.name,
            self.durable,
            self.exclusive,
            self.auto_delete,
            self.settings,
            self.arguments,
        )

    def check_same(self, current: QueueSpec) -> None:
        """Raise QueueMismatch if the queue does not have the arguments that are asked for."""
        for name, value in self.arguments:
            if lookup(current.arguments, name) != value:
                raise QueueMismatch(f"queue '{self.name}' exists with another {name}")


@dataclass(frozen=True, slots=True)
class WantedBinding:
    """The binding of a subscription's queue. Implements the router's protocol of that name."""

    source: str
    queue: str
    key: str

    @property
    def destination(self) -> BindingEnd:
        return BindingEnd(DestinationKind.QUEUE, self.queue)

    def binding(self, source: Exchange) -> Binding:
        if source.matching_type is ExchangeType.CONSISTENT_HASH and not _is_weight(self.key):
            raise InvalidBinding(
                f"exchange '{source.name}' needs a weight from 1 to {limits.BINDING_WEIGHT_MAX}"
            )
        return Binding(self.source, self.destination, self.key)


def _is_weight(key: str) -> bool:
    is_number = key.isascii() and key.isdigit() and len(key) < 10
    return is_number and 1 <= int(key) <= limits.BINDING_WEIGHT_MAX


def find(connection: Connection, name: str) -> Queue | None:
    """Return a queue of that name if there is one. Raises PeerError for a topic, QueueLocked."""
    vhost = connection.vhost
    if name in vhost.queues:
        return vhost.queue(name, connection)
    if vhost.stream(name) is not None:
        raise PeerError(f"'{name}' is a topic, which cannot be subscribed to over STOMP")
    return None


async def queue_for(connection: Connection, destination: Destination, headers: Headers) -> Queue:
    """Return the queue that a subscription reads, made and bound if need be. Raises PeerError."""
    match destination.kind:
        case Kind.QUEUE:
            queue = await declare(connection, destination.key, headers)
            pattern = pattern_of(queue.name)
            if pattern is not None:
                await _bind(connection, queue.name, TOPIC_EXCHANGE, pattern)
            return queue
        case Kind.EXISTING_QUEUE:
            found = find(connection, destination.key)
            if found is None:
                where = f"queue '{destination.key}' in vhost '{connection.vhost.name}'"
                raise PeerError(f"no {where}")
            return found
        case Kind.TOPIC | Kind.EXCHANGE:
            return await _own_queue(connection, destination, headers)
    raise PeerError(f"{destination.kind.value}… cannot be subscribed to")


async def declare(connection: Connection, name: str, headers: Headers) -> Queue:
    """Return the queue of that name; make it if there is none. Raises PeerError."""
    found = find(connection, name)
    arguments = _arguments(headers)
    if found is not None and not arguments:
        return found
    settings = _settings(connection, name, arguments)
    is_exclusive = read_flag(headers, "exclusive", False)
    declaration = QueueDeclaration(
        name,
        settings,
        arguments,
        durable=read_flag(headers, "durable", True) and not is_exclusive,
        exclusive=is_exclusive,
        auto_delete=read_flag(headers, "auto-delete", False),
    )
    if found is not None:
        declaration.check_same(found.spec)
        return found
    if connection.context.dialect.is_reserved(name):
        raise QueueNameRefused(f"queue name '{name}' is reserved")
    return await _make(connection, declaration)


async def declare_reply_queue(connection: Connection) -> Queue:
    """Return a new queue of the connection alone, for replies. Raises PeerError."""
    name = _REPLY_PREFIX + connection.context.token()
    settings = QueueSettings()
    declaration = QueueDeclaration(name, settings, durable=False, exclusive=True, auto_delete=True)
    return await _make(connection, declaration)


async def _own_queue(connection: Connection, destination: Destination, headers: Headers) -> Queue:
    """Return the queue of a subscription to a topic or an exchange, bound to it."""
    is_durable = is_durable_subscription(headers)
    name = headers.get("x-queue-name")
    if name is None:
        name = _SUBSCRIPTION_PREFIX + connection.context.token()
        if is_durable:
            name = _durable_name(headers)
    found = find(connection, name)
    arguments = _arguments(headers)
    declaration = QueueDeclaration(
        name,
        _settings(connection, name, arguments),
        arguments,
        durable=is_durable,
        exclusive=read_flag(headers, "exclusive", not is_durable),
        auto_delete=read_flag(headers, "auto-delete", not is_durable),
    )
    if found is None:
        if connection.context.dialect.is_reserved(name):
            raise QueueNameRefused(f"queue name '{name}' is reserved")
        found = await _make(connection, declaration)
    else:
        declaration.check_same(found.spec)
    await _bind(connection, name, destination.exchange, destination.key)
    return found


async def _bind(connection: Connection, queue: str, exchange: str, key: str) -> None:
    connection.check(Operation.WRITE, ResourceKind.QUEUE, queue)
    connection.check(Operation.READ, ResourceKind.EXCHANGE, exchange)
    await connection.vhost.bind(WantedBinding(exchange, queue, key), connection)


def is_durable_subscription(headers: Headers) -> bool:
    """Return whether a subscription's queue outlives it. Raises PeerError."""
    is_durable = read_flag(headers, "durable", False) or read_flag(headers, "persistent", False)
    if is_durable and "id" not in headers:
        raise PeerError("a durable subscription needs the header id")
    return is_durable


def _durable_name(headers: Headers) -> str:
    """Return a name that is the same whenever the same client subscribes again."""
    text = f"{headers['destination']}\0{headers['id']}"
    return _SUBSCRIPTION_PREFIX + blake2b(text.encode(), digest_size=_NAME_BYTES).hexdigest()


def _arguments(headers: Headers) -> FrozenTable:
    found = {
        name: read(name, headers[name]) for name, read in _ARGUMENTS.items() if name in headers
    }
    return freeze_table(found) if found else ()


def _settings(connection: Connection, name: str, arguments: FrozenTable) -> QueueSettings:
    if not arguments:
        return QueueSettings()
    where = f"queue '{name}' in vhost '{connection.vhost.name}'"
    settings = connection.context.dialect.queue_settings(arguments, where)
    if settings.is_stream:
        raise PeerError(f"{where} is a stream, which cannot be made over STOMP")
    return settings


async def _make(connection: Connection, declaration: QueueDeclaration) -> Queue:
    name, arguments = declaration.name, declaration.arguments
    connection.check(Operation.CREATE, ResourceKind.QUEUE, name)
    exchange = lookup(arguments, _DEAD_LETTER_EXCHANGE)
    if exchange is not None:
        connection.check(Operation.READ, ResourceKind.QUEUE, name)
        connection.check(Operation.WRITE, ResourceKind.EXCHANGE, exchange)
        key = lookup(arguments, _DEAD_LETTER_KEY)
        if exchange == DEFAULT_EXCHANGE and key is not None and key not in connection.vhost.queues:
            # The key may name a topic, now or later.
            connection.check(Operation.WRITE, ResourceKind.QUEUE, key)
    made = await connection.vhost.declare_queue(declaration, connection)
    if not isinstance(made, Queue):  # A topic was made in the meantime.
        raise PeerError(f"'{name}' is a topic")
    return made
