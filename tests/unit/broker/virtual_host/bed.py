"""A broker with queues on a simulated disk, and a few words to use them with."""

import asyncio
from collections.abc import Mapping
from typing import Any

from entrepot.broker.broker import Broker
from entrepot.broker.catalog import Topic
from entrepot.broker.queue.message import Publication, Refused, Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.router.event import Binding, Destination, DestinationKind
from entrepot.broker.server_settings import Defaults
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core.errors import StorageError
from entrepot.core.message import Envelope, Message
from entrepot.core.neutral import Formats
from entrepot.core.value import freeze_table
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.rabbitmq.binding_arguments import BindingDeclaration
from entrepot.gateway.rabbitmq.dialect import RabbitDialect
from entrepot.gateway.rabbitmq.exchange_arguments import (
    LINKS,
    PREDECLARED,
    ExchangeDeclaration,
    exchange_type,
)
from entrepot.gateway.rabbitmq.queue_arguments import QueueDeclaration
from entrepot.wire.amqp.properties import BasicProperties, encode
from tests.unit.broker.bed import Bed

FORMATS = Formats((AMQP,))
Failure = StorageError | Refused | None


def properties(**facts: Any) -> bytes:
    return encode(BasicProperties(delivery_mode=2, **facts))


Unsent = tuple[bytes, bytes]  # A message's properties and body; where to, is said later.


def message(body: bytes, headers: Mapping[str, Any] | None = None, **facts: Any) -> Unsent:
    if headers:
        facts["headers"] = dict(headers)
    return properties(**facts), body


def addressed(exchange: str, key: str, unsent: Unsent) -> Message:
    return Envelope(exchange, key, unsent[0], AMQP), unsent[1]


class Host(Bed):
    """`vhost` is the one that the words speak of."""

    vhost: VirtualHost

    async def start(
        self, settings: Mapping[str, str] | None = None, *, queues: bool = True
    ) -> None:
        defaults = Defaults(settings=dict(settings or {}))
        self.broker = Broker(
            self.disk,
            self.clock,
            self.entropy,
            defaults,
            formats=FORMATS if queues else None,
            dialect=RabbitDialect() if queues else None,
            predeclared=(*PREDECLARED, LINKS),
        )
        await self.begin(self.broker.open())
        self.vhost = self.broker.vhosts.default

    async def restart(self, end: str = "kill") -> None:
        if end == "stop":
            await self.stop()
        else:
            getattr(self, end)()
        await self.start()

    # --- declaring

    async def declare(
        self,
        name: str,
        *,
        owner: object = None,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        **arguments: Any,
    ) -> Queue | Topic:
        """Arguments with `_` for their `-`, and without the `x`."""
        table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        facts = (durable, exclusive, auto_delete)
        declaration = QueueDeclaration(self.vhost.name, name, freeze_table(table), *facts)
        return await self.do(self.vhost.declare_queue(declaration, owner))

    async def queue(self, name: str, **facts: Any) -> Queue:
        made = await self.declare(name, **facts)
        assert isinstance(made, Queue)
        return made

    async def exchange(
        self, name: str, kind: str = "direct", *, durable: bool = True, **facts: Any
    ) -> None:
        arguments = freeze_table(facts.pop("arguments", {}))
        made = ExchangeDeclaration(
            self.vhost.name, name, exchange_type(kind), arguments, durable, **facts
        )
        await self.do(self.vhost.declare_exchange(made))

    async def bind(self, source: str, queue: str, key: str = "", **arguments: Any) -> None:
        await self.do(self.vhost.bind(wanted(source, queue, key, **arguments)))

    async def lead(self, source: str, exchange: str, key: str = "") -> None:
        """From one exchange to another."""
        made = BindingDeclaration(source, Destination(DestinationKind.EXCHANGE, exchange), key)
        await self.do(self.vhost.bind(made))

    async def delete_queue(self, name: str, owner: object = None, **conditions: bool) -> int:
        return await self.do(self.vhost.delete_queue(name, owner, **conditions))

    # --- messages

    async def publish(self, exchange: str, key: str, *messages: Unsent | bytes) -> list[bytes]:
        """Wait until they have arrived; returns the bodies of those that went nowhere."""
        nowhere, failure = await self.published(exchange, key, *messages)
        assert failure is None, failure
        return nowhere

    async def published(
        self, exchange: str, key: str, *messages: Unsent | bytes
    ) -> tuple[list[bytes], Failure]:
        """The same, and how it ended."""
        nowhere, answer = self.send(exchange, key, *messages)
        return nowhere, await answer

    def send(
        self, exchange: str, key: str, *messages: Unsent | bytes
    ) -> tuple[list[bytes], "asyncio.Future[Failure]"]:
        unsent = [message(each) if isinstance(each, bytes) else each for each in messages]
        return self.send_run(exchange, [addressed(exchange, key, each) for each in unsent])

    def send_run(
        self, exchange: str, run: list[Message]
    ) -> tuple[list[bytes], "asyncio.Future[Failure]"]:
        answer: asyncio.Future[Failure] = self.loop.create_future()
        publication = Publication(answer.set_result)
        nowhere = self.call(self.vhost.publish, exchange, run, publication)
        self.call(publication.arrived)
        return [bytes(body) for _, body in nowhere], answer

    def drain(self, name: str) -> list[Taken]:
        """Everything that is ready, settled at once."""
        queue, found = self.vhost.queue(name), list[Taken]()
        while (got := self.call(lambda: queue.get(self, auto_ack=True))) is not None:
            found.append(got[1])
        return found

    def bodies(self, name: str) -> list[bytes]:
        return [bytes(taken.run.messages[0][1]) for taken in self.drain(name)]

    def headers(self, name: str) -> list[Mapping[str, object]]:
        return [taken.run.messages[0][0].properties.headers for taken in self.drain(name)]


def binding(source: str, queue: str, key: str = "", **arguments: Any) -> Binding:
    return Binding(source, Destination(DestinationKind.QUEUE, queue), key, freeze_table(arguments))


def wanted(source: str, queue: str, key: str = "", **arguments: Any) -> BindingDeclaration:
    return BindingDeclaration(
        source, Destination(DestinationKind.QUEUE, queue), key, freeze_table(arguments)
    )
