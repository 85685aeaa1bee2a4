"""A broker on a simulated disk, and clients that speak to its MQTT adapters in bytes."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from entrepot.broker.access import AccessSettings
from entrepot.broker.broker import Broker
from entrepot.broker.login import LoginPolicy
from entrepot.core.neutral import Formats
from entrepot.gateway.mqtt.adapter import MqttAdapter
from entrepot.gateway.mqtt.context import Context
from entrepot.gateway.mqtt.format import MQTT
from entrepot.gateway.rabbitmq.dialect import RabbitDialect
from entrepot.gateway.rabbitmq.exchange_arguments import PREDECLARED
from entrepot.wire.mqtt.deliver import Outgoing, head
from entrepot.wire.mqtt.packets import V5, V311, Connect, Packet, Subscribe, Subscription, write
from entrepot.wire.mqtt.properties import Properties, encode_raw
from entrepot.wire.mqtt.scan import Event, PacketBuffer, Scanner
from sim import loop
from sim.clock import SimClock
from sim.disk import SimDisk
from sim.entropy import SimEntropy
from tests.unit.gateway.amqp.node import FakeLink
from tests.unit.wire.mqtt.oracle import feed, flat

Body = Callable[..., Coroutine[Any, Any, None]]


def publication(
    topic: str,
    body: bytes,
    qos: int = 0,
    packet_id: int = 0,
    version: int = V311,
    properties: Properties | None = None,
) -> bytes:
    """Return a PUBLISH packet."""
    raw = encode_raw(properties or Properties()) if version == V5 else None
    return head(Outgoing(qos, False, topic.encode(), raw, body), packet_id) + body


class Client:
    """Speaks to one adapter. What it is told is kept until it asks."""

    def __init__(self, context: Context, version: int = V311) -> None:
        self.version = version
        self.link = FakeLink()
        self.adapter = MqttAdapter(self.link, context)
        self._inbox = PacketBuffer(Scanner(is_client=True, version=version))

    def send(self, *packets: Packet | bytes) -> None:
        """Send packets in as few reads as the adapter has room for."""
        data = b"".join(
            each if isinstance(each, bytes) else write(each, self.version) for each in packets
        )
        while data:
            view = self.adapter.writable()
            size = min(len(view), len(data))
            view[:size] = data[:size]
            del view
            self.adapter.received(size)
            data = data[size:]

    def events(self) -> list[Event]:
        """Return what it was told since it asked last."""
        data = b"".join(self.link.writes)
        self.link.writes.clear()
        return feed(self._inbox, data)

    def heard(self) -> list[str]:
        """Return the same, a text for each packet."""
        return flat(self.events())

    async def told(self) -> list[str]:
        """Return what it is told after everything that goes on by itself."""
        await asyncio.sleep(1)
        return self.heard()

    async def open(self, client_id: str, *filters: str, qos: int = 0, clean: bool = True) -> None:
        self.send(Connect(self.version, client_id, clean))
        self._inbox.accept(topic_aliases_max=0)
        wanted = tuple(Subscription(each, qos) for each in filters)
        if wanted:
            await asyncio.sleep(0.5)
            self.send(Subscribe(1, wanted))
        told = await self.told()
        assert len(told) == 1 + bool(wanted), told


class Node:
    """What a test's body gets."""

    def __init__(self, sim: loop.SimLoop) -> None:
        self.clock, self.entropy = SimClock(sim), SimEntropy(sim.random("entropy"))
        self.broker = Broker(
            SimDisk(sim.random("disk")),
            self.clock,
            self.entropy,
            formats=Formats((MQTT,)),
            dialect=RabbitDialect(),
            access=AccessSettings(is_enforced=False),
            predeclared=PREDECLARED,
        )

    def context(self) -> Context:
        users, access = self.broker.users, self.broker.access
        login = LoginPolicy(users, access, asks_users=False, is_open=True)
        return Context(self.broker, self.clock, self.entropy, login, "node", 1883)


def on_node(body: Body) -> Callable[..., None]:
    """Makes a test of `async def test(node, ...)`; the other arguments stay pytest's."""

    async def main(sim: loop.SimLoop, arguments: dict[str, Any]) -> None:
        node = Node(sim)
        await node.broker.open()
        await body(node, **arguments)

    def test(**arguments: Any) -> None:
        loop.run(0, lambda sim: main(sim, arguments))

    signature = inspect.signature(body)
    test.__name__ = body.__name__
    test.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=list(signature.parameters.values())[1:], return_annotation=None
    )
    return test
