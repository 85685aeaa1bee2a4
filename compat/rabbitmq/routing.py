"""Do AMQP brokers route as our router says? Random worlds, built in all and compared.

    python compat/rabbitmq/routing.py HOST:PORT [HOST:PORT...] [--cases 10000] [--seed 1]

A world is a few queues, exchanges and bindings. Every step is taken by each broker and by the
router: what one refuses the others must refuse, with the same code and the same words. Then
messages are published, and every queue must hold exactly those that the router sent there. A
case is one such message. Types of exchanges that a broker does not have are left out.
"""

import argparse
import os
import random
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pika
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from entrepot.broker.router import decision
from entrepot.broker.router.event import Binding, Destination, DestinationKind, Event, ExchangeType
from entrepot.broker.router.router import Router
from entrepot.core import errors
from entrepot.core.message import Envelope
from entrepot.core.value import freeze_table
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.rabbitmq.binding_arguments import BindingDeclaration
from entrepot.gateway.rabbitmq.exchange_arguments import (
    PREDECLARED,
    ExchangeDeclaration,
    type_name,
)
from entrepot.wire.amqp.properties import BasicProperties, encode

CODES = {
    errors.UnknownExchange: (404, "NOT_FOUND"),
    errors.UnknownQueue: (404, "NOT_FOUND"),
    errors.ExchangeRefused: (403, "ACCESS_REFUSED"),
    errors.ExchangeMismatch: (406, "PRECONDITION_FAILED"),
    errors.ExchangeInUse: (406, "PRECONDITION_FAILED"),
    errors.InvalidExchange: (406, "PRECONDITION_FAILED"),
    errors.InvalidBinding: (406, "PRECONDITION_FAILED"),
    errors.InvalidRoutingHeader: (406, "PRECONDITION_FAILED"),
}
TYPES = [kind for kind in ExchangeType if kind is not ExchangeType.DELAYED]
MODES = ("all", "any", "all-with-x", "any-with-x", None, None, "some", 3)
HEADERS = ("a", "b", "c", "x-a", "x-b")
# No fractions: pika cannot write them. (RabbitMQ 3 calls 1 and 1.0 equal, 4 does not.)
VALUES = ("", "v", "w", b"v", 1, 2, 70_000, 2**40, -1, True, False, None, ["v", 1], {"k": 1},
          Decimal("1.5"))  # fmt: skip
TIMES = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC))
WORDS = ("a", "b", "c", "", "*", "#", "ä")
PUBLISHES_PER_WORLD = 40

Ask = Callable[[pika.adapters.blocking_connection.BlockingChannel], object]
Refusal = tuple[int, str] | None


class Side:
    """One of the brokers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
        self.version = self._version()
        self.types = [kind for kind in TYPES if self._has(kind)]
        self.channel = self._open()

    def _version(self) -> str:
        told = self.connection._impl.server_properties
        return f"{told.get('product')} {told.get('version')}"

    def _has(self, kind: ExchangeType) -> bool:
        """Asked on a connection of its own: an unknown type may cost it."""
        parameters = self.connection._impl.params
        connection = pika.BlockingConnection(parameters)
        try:
            connection.channel().exchange_declare(
                "routing-probe", type_name(kind), auto_delete=True
            )
            connection.channel().exchange_delete("routing-probe")
            connection.close()
        except pika.exceptions.AMQPError:
            return False
        return True

    def _open(self) -> pika.adapters.blocking_connection.BlockingChannel:
        channel = self.connection.channel()
        channel.confirm_delivery()
        return channel

    def asked(self, ask: Ask) -> Refusal:
        try:
            ask(self.channel)
        except ChannelClosedByBroker as closed:
            self.channel = self._open()
            return closed.reply_code, closed.reply_text
        return None

    def published(self, ask: Ask) -> tuple[Refusal, bool]:
        """What was said, and whether the message reached a queue."""
        try:
            said = self.asked(ask)
        except UnroutableError:
            return None, False
        return said, said is None

    def drain(self, queue: str) -> list[str]:
        bodies = []
        while (got := self.channel.basic_get(queue, auto_ack=True))[0] is not None:
            bodies.append(got[2].decode())
        return bodies


class Twins:
    """The brokers and the router, side by side."""

    def __init__(self, addresses: list[str]) -> None:
        self.sides = [Side(address) for address in addresses]
        self.types = [kind for kind in TYPES if all(kind in side.types for side in self.sides)]
        self.router = Router("/", PREDECLARED)
        self.differences: list[str] = []
        self.refusals = 0
        self.deliveries = 0

    @property
    def are_times_compared(self) -> bool:
        """In headers; RabbitMQ from 4 on never finds them equal."""
        return not any(side.version.startswith("RabbitMQ 4.") for side in self.sides)

    def step(self, what: str, decide: Callable[[], tuple[Event, ...]], ask: Ask) -> None:
        ours: Refusal = None
        events: tuple[Event, ...] = ()
        try:
            events = decide()
        except errors.PeerError as error:
            ours = refusal(error)
        for side in self.sides:
            theirs = side.asked(ask)
            if ours != theirs:
                self.differences.append(f"{side.version}: {what}: {theirs}, and here {ours}")
        self.refusals += ours is not None
        for event in events:
            self.router.apply(event)

    # The verbs.

    def add_queue(self, name: str) -> None:
        self.step(
            f"declare queue {name}",
            lambda: decision.add_queue(self.router, name, durable=False),
            lambda channel: channel.queue_declare(name, exclusive=True),
        )

    def remove_queue(self, name: str) -> None:
        self.step(
            f"delete queue {name}",
            lambda: decision.remove_queue(self.router, name),
            lambda channel: channel.queue_delete(name),
        )

    def declare(self, name: str, kind: ExchangeType, arguments: dict, **facts: bool) -> None:
        exchange = ExchangeDeclaration("/", name, kind, freeze_table(arguments), **facts)
        self.step(
            f"declare {exchange}",
            lambda: decision.declare(self.router, exchange),
            lambda channel: channel.exchange_declare(
                name, type_name(kind), arguments=arguments, **facts
            ),
        )

    def delete(self, name: str, if_unused: bool) -> None:
        self.step(
            f"delete {name}, {if_unused=}",
            lambda: decision.delete(self.router, name, if_unused=if_unused),
            lambda channel: channel.exchange_delete(name, if_unused=if_unused),
        )

    def bind(self, source: str, to: Destination, key: str, arguments: dict, undo: bool) -> None:
        table = freeze_table(as_read(arguments))
        wanted = BindingDeclaration(source, to, key, table)

        def decide() -> tuple[Event, ...]:
            if undo:
                return decision.unbind(self.router, Binding(source, to, key, table))
            return decision.bind(self.router, wanted)

        verb = ("queue_" if to.kind is DestinationKind.QUEUE else "exchange_") + (
            "unbind" if undo else "bind"
        )
        self.step(
            f"{verb} {wanted}",
            decide,
            lambda channel: getattr(channel, verb)(
                to.name, source, routing_key=key, arguments=arguments
            ),
        )

    def publish(self, body: str, exchange: str, key: str, told: dict) -> tuple[str, ...]:
        """The queues that the message should be in."""
        properties = pika.BasicProperties(**told)
        facts = {name: as_read(value) for name, value in told.items() if name != "headers"}
        ours: Refusal = None
        queues: tuple[str, ...] = ()
        try:
            head = encode(BasicProperties(**facts, headers=as_read(told.get("headers", {}))))
            AMQP.inspect(head)
            queues = self.router.route(exchange, key, Envelope(exchange, key, head, AMQP)).queues
        except errors.PeerError as error:
            ours = refusal(error)
        for side in self.sides:
            theirs, is_routed = side.published(
                lambda channel: channel.basic_publish(
                    exchange, key, body.encode(), properties, mandatory=True
                )
            )
            if ours != theirs or is_routed != bool(queues):
                self.differences.append(
                    f"{side.version}: publish to {exchange!r} {key!r} {told}: {theirs}, "
                    f"{is_routed=}, and here {ours}, {queues}; "
                    f"bound: {self.router.bindings_from(exchange)}"
                )
        return queues

    def compare(self, queue: str, wanted: list[str]) -> None:
        for side in self.sides:
            found = side.drain(queue)
            self.deliveries += len(found)
            if found != wanted:
                self.differences.append(f"{side.version}: {queue} has {found}, and here {wanted}")


def refusal(error: errors.PeerError) -> tuple[int, str]:
    code, name = CODES[type(error)]
    return code, f"{name} - {error}"


def as_read(value: object) -> object:
    """What a broker reads when pika has written the value."""
    if isinstance(value, dict):
        return {name: as_read(item) for name, item in value.items()}
    return int(value.timestamp()) if isinstance(value, datetime) else value


class World:
    def __init__(self, twins: Twins, chance: random.Random, number: int) -> None:
        self.twins = twins
        self.chance = chance
        prefix = f"routing-{os.getpid()}-{number}"  # An earlier run may have left something.
        self.queues = [f"{prefix}-q{i}" for i in range(5)]
        self.exchanges = [f"{prefix}-x{i}" for i in range(4)]
        self.values = VALUES + (TIMES if twins.are_times_compared else ())

    def build(self) -> None:
        for name in self.queues:
            self.twins.add_queue(name)
        for name in self.exchanges:
            self.declare(name)
        for _ in range(self.chance.randint(3, 40)):
            self.bind(undo=False)

    def run(self, case_first: int, count: int) -> None:
        wanted: dict[str, list[str]] = {name: [] for name in self.queues}
        for case in range(case_first, case_first + count):
            if self.chance.random() < 0.15:
                self.change()
            for queue in self.publish(case):
                wanted[queue].append(str(case))
        for name in self.queues:
            self.twins.compare(name, wanted[name])

    def demolish(self) -> None:
        for name in self.chance.sample(self.exchanges, len(self.exchanges)):
            self.twins.delete(name, if_unused=False)
        for name in self.queues:
            self.twins.remove_queue(name)

    def declare(self, name: str) -> None:
        arguments: dict[str, object] = {}
        if self.chance.random() < 0.4:
            others = (*self.exchanges, "nowhere", "", "amq.fanout", 7)
            arguments["alternate-exchange"] = self.chance.choice(others)
        kind = self.chance.choice(self.twins.types)
        if kind is ExchangeType.CONSISTENT_HASH and self.chance.random() < 0.3:
            names = ("message_id", "correlation_id", "timestamp", "reply_to")
            arguments["hash-property"] = self.chance.choice(names)
        facts = {
            "durable": self.chance.random() < 0.5,
            "auto_delete": self.chance.random() < 0.2,
            "internal": self.chance.random() < 0.1,
        }
        self.twins.declare(name, kind, arguments, **facts)

    def bind(self, undo: bool) -> None:
        made = list(self.twins.router.bindings())
        if undo and made and self.chance.random() < 0.8:
            binding = self.chance.choice(made)
            if not binding.arguments:
                self.twins.bind(binding.source, binding.destination, binding.key, {}, undo)
            return
        chance = self.chance
        source = chance.choice(
            [*self.exchanges * 4, "amq.direct", "amq.topic", "amq.match", "", "nowhere"]
        )
        exchange = self.twins.router.exchange(source)
        is_ring = exchange is not None and exchange.type is ExchangeType.CONSISTENT_HASH
        key = chance.choice(("1", "2", "5", "0", "x", "-1")) if is_ring else self.key()
        queues = [name for name in self.queues if self.unbound_from(source, name)] or self.queues
        name = chance.choice(queues if is_ring else [*self.queues, "nowhere"])
        to = Destination(DestinationKind.QUEUE, name)
        if chance.random() < 0.3 and not is_ring:
            # From one of the broker's to another it would outlive the world.
            others = [] if source.startswith("amq.") else ["amq.topic"]
            to = Destination(
                DestinationKind.EXCHANGE, chance.choice([*self.exchanges * 2, *others, ""])
            )
        if is_ring and not self.unbound_from(source, name):
            return
        self.twins.bind(source, to, key, self.conditions(), undo)

    def unbound_from(self, source: str, queue: str) -> bool:
        """RabbitMQ forgets a ring's destination when one of two bindings goes; we do not."""
        there = self.twins.router.bindings_from(source)
        return all(binding.destination.name != queue for binding in there)

    def change(self) -> None:
        step = self.chance.random()
        name = self.chance.choice([*self.exchanges, "amq.direct", "nowhere", ""])
        if step < 0.5:
            self.bind(undo=self.chance.random() < 0.5)
        elif step < 0.75:
            self.twins.delete(name, if_unused=self.chance.random() < 0.7)
        elif name != "nowhere":
            self.declare(name)

    def publish(self, case: int) -> tuple[str, ...]:
        chance = self.chance
        exchange = chance.choice([*self.exchanges * 3, "amq.topic", "amq.match", "", "nowhere"])
        key = chance.choice(self.queues) if exchange == "" else self.key()
        told: dict[str, object] = {}
        if chance.random() < 0.8:
            told["headers"] = self.headers()
        if chance.random() < 0.5:
            told |= {
                "message_id": f"m{chance.randrange(50)}",
                "correlation_id": f"c{chance.randrange(50)}",
                "timestamp": chance.randrange(10**9),
            }
        return self.twins.publish(str(case), exchange, key, told)

    def key(self) -> str:
        if self.chance.random() < 0.02:
            return "location.northAmerica.newYork"
        return ".".join(self.chance.choices(WORDS, k=self.chance.choice((0, 1, 1, 2, 2, 3, 4))))

    def conditions(self) -> dict[str, object]:
        if self.chance.random() < 0.4:
            return {}
        found = self.some_headers()
        mode = self.chance.choice(MODES)
        return found if mode is None else {**found, "x-match": mode}

    def headers(self) -> dict[str, object]:
        found = self.some_headers()
        for name in ("CC", "BCC"):
            if self.chance.random() < 0.1:
                keys = [self.key(), self.chance.choice(self.queues), 5]
                found[name] = self.chance.choice((keys, keys[:2], [], "a"))
        return found

    def some_headers(self) -> dict[str, object]:
        names = self.chance.sample(HEADERS, self.chance.randrange(4))
        return {name: self.chance.choice(self.values) for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("addresses", nargs="+")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    twins = Twins(options.addresses)
    chance = random.Random(options.seed)
    types = ", ".join(type_name(kind) for kind in twins.types)
    versions = " and ".join(side.version for side in twins.sides)
    print(f"{versions} with {types}; seed {options.seed}")
    for number, case in enumerate(range(0, options.cases, PUBLISHES_PER_WORLD)):
        world = World(twins, chance, number)
        try:
            world.build()
            world.run(case, min(PUBLISHES_PER_WORLD, options.cases - case))
        finally:
            world.demolish()
    for difference in twins.differences[:20]:
        print(f"DIFFERS  {difference}")
    print(
        f"{options.cases} messages, {twins.deliveries} deliveries, {twins.refusals} refused steps, "
        f"{len(twins.differences)} differences"
    )
    return int(bool(twins.differences))


if __name__ == "__main__":
    sys.exit(main())
