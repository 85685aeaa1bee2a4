"""A broker on a simulated disk, and clients that speak to its adapters in bytes."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from entrepot.broker.access import AccessSettings
from entrepot.broker.broker import Broker
from entrepot.broker.login import LoginPolicy
from entrepot.core.neutral import Formats
from entrepot.core.ports import Buffer, Chunk
from entrepot.gateway.amqp.adapter import AmqpAdapter
from entrepot.gateway.amqp.context import Context
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.amqp.reply_to import Replies
from entrepot.gateway.rabbitmq.dialect import RabbitDialect
from entrepot.gateway.rabbitmq.exchange_arguments import PREDECLARED
from entrepot.gateway.rabbitmq.rights import DEFAULT_EXCHANGE_NAME
from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.frames import (
    PROTOCOL_HEADER,
    FrameBuffer,
    ProtocolHeader,
    method_frame,
)
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, channel, connection, decode
from entrepot.wire.amqp.properties import NONE
from entrepot.wire.amqp.scan import Acks, Content, Heartbeat, MethodFrame
from sim import loop
from sim.clock import SimClock
from sim.disk import SimDisk
from sim.entropy import SimEntropy

FRAME_BYTES_MAX = 131_072
CAPABILITIES = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}

M = TypeVar("M", bound=Method)
Body = Callable[..., Coroutine[Any, Any, None]]


FORMATS = Formats((AMQP,))


class FakeLink:
    """A link whose other side takes everything at once, or nothing (`is_stuck`)."""

    def __init__(self, peer: str = "127.0.0.1:40000", subject: str | None = None) -> None:
        self.peer = peer
        self.subject = subject
        self.writes: list[bytes] = []
        self.backlog = 0
        self.is_stuck = False
        self.is_paused = False
        self.closed: str | None = None

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self.closed is None:
            data = b"".join(chunks)  # type: ignore[arg-type]  # There are no files here.
            self.writes.append(data)
            if self.is_stuck:
                self.backlog += len(data)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self, reason: str) -> None:
        self.closed = self.closed or reason

    abort = close

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        call(*arguments)


class Heard(NamedTuple):
    """What a client was told."""

    channel: int
    method: Method
    properties: bytes = NONE
    body: bytes = b""


class Client:
    """Speaks to one adapter. What it is told is kept until it asks."""

    def __init__(self, context: Context, link: FakeLink | None = None) -> None:
        self.link = link or FakeLink()
        self.adapter = AmqpAdapter(self.link, context)
        self._inbox = FrameBuffer(is_client=True)
        self._inbox.tune(FRAME_BYTES_MAX)
        self._heard: list[Heard] = []
        self.headers: list[ProtocolHeader] = []
        self.heartbeats = 0

    # --- speaking

    def send(self, *frames: Buffer) -> None:
        """In as few reads as the adapter has room for."""
        data = b"".join(frames)
        while data:
            view = self.adapter.writable()
            size = min(len(view), len(data))
            view[:size] = data[:size]
            del view
            self.adapter.received(size)
            data = data[size:]

    def say(self, *methods: Method, on: int = 1) -> None:
        self.send(*[method_frame(on, method) for method in methods])

    def publish(
        self,
        key: str,
        *bodies: bytes,
        exchange: str = "",
        properties: bytes = NONE,
        mandatory: bool = False,
        on: int = 1,
    ) -> None:
        method = basic.Publish(0, exchange, key, mandatory)
        frames = [content(on, method, properties, body, FRAME_BYTES_MAX) for body in bodies]
        self.send(*[chunk for chunks in frames for chunk in chunks])

    # --- hearing

    def _listen(self) -> None:
        data = b"".join(self.link.writes)
        self.link.writes.clear()
        while data:
            view = self._inbox.writable()
            size = min(len(view), len(data))
            view[:size] = data[:size]
            del view
            for event in self._inbox.received(size):
                self._take(event)
            data = data[size:]

    def _take(self, event: object) -> None:
        match event:
            case MethodFrame(number, payload):
                self._heard.append(Heard(number, decode(payload)))
            case Content(number, payload, properties, body):
                self._heard.append(Heard(number, decode(payload), properties, bytes(body)))
            case Acks(number, is_multiple, tags):
                self._heard += [Heard(number, basic.Ack(tag, is_multiple)) for tag in tags]
            case Heartbeat():
                self.heartbeats += 1
            case ProtocolHeader():
                self.headers.append(event)
            case _:
                raise AssertionError(event)

    def heard(self) -> list[Heard]:
        """Since it asked last."""
        self._listen()
        heard, self._heard = self._heard, []
        return heard

    async def told(self) -> list[Method]:
        """After everything that goes on by itself."""
        await asyncio.sleep(1)
        return [each.method for each in self.heard()]

    async def ask(self, method: Method, kind: type[M], *, on: int = 1) -> M:
        """The answer, which is the only thing said."""
        self.say(method, on=on)
        heard = await self.told()
        assert len(heard) == 1, heard
        assert isinstance(heard[0], kind), heard
        return heard[0]

    async def refused(self, *methods: Method, on: int = 1) -> str:
        """The text with which the channel was closed."""
        self.say(*methods, on=on)
        return await self.closed(on=on)

    async def closed(self, *, on: int = 1) -> str:
        heard = await self.told()
        assert heard, "nothing was said"
        close = heard[-1]
        assert isinstance(close, channel.Close), heard
        self.say(channel.CloseOk(), on=on)
        return close.reply_text

    async def deliveries(self) -> list[tuple[int, bytes]]:
        """Tags and bodies."""
        await asyncio.sleep(1)
        heard = self.heard()
        assert all(isinstance(each.method, basic.Deliver) for each in heard), heard
        return [
            (each.method.delivery_tag, each.body)
            for each in heard
            if isinstance(each.method, basic.Deliver)
        ]

    # --- coming in

    async def open(
        self,
        *,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        heartbeat: int = 0,
        properties: Mapping[str, object] | None = None,
        channels: int = 1,
    ) -> None:
        self.send(PROTOCOL_HEADER)
        client_properties = {"capabilities": CAPABILITIES} if properties is None else properties
        response = f"\0{user}\0{password}".encode()
        self.say(connection.StartOk(client_properties, "PLAIN", response), on=0)
        await asyncio.sleep(0.5)
        self.say(connection.TuneOk(2_047, FRAME_BYTES_MAX, heartbeat), on=0)
        self.say(connection.Open(vhost), on=0)
        for number in range(1, channels + 1):
            self.say(channel.Open(), on=number)
        kinds = [type(each.method) for each in self.heard()]
        opened = [connection.Start, connection.Tune, connection.OpenOk]
        assert kinds == [*opened, *[channel.OpenOk] * channels], kinds


class Node:
    """What a test's body gets."""

    def __init__(self, sim: loop.SimLoop, authorizes: bool) -> None:
        self.disk = SimDisk(sim.random("disk"))
        self.clock, self.entropy = SimClock(sim), SimEntropy(sim.random("entropy"))
        self.broker = Broker(
            self.disk,
            self.clock,
            self.entropy,
            formats=FORMATS,
            dialect=RabbitDialect(),
            access=AccessSettings(
                is_enforced=authorizes, default_exchange_name=DEFAULT_EXCHANGE_NAME
            ),
            predeclared=PREDECLARED,
        )
        self.replies = Replies(self.entropy)

    def context(
        self, *, asks_users: bool = False, is_open: bool = False, **options: Any
    ) -> Context:
        users, access = self.broker.users, self.broker.access
        return Context(
            self.broker,
            self.clock,
            self.entropy,
            self.replies,
            LoginPolicy(users, access, asks_users=asks_users, is_open=is_open),
            "1.2.3",
            "node",
            5672,
            **options,
        )

    async def client(self, **options: Any) -> Client:
        client = Client(self.context())
        await client.open(**options)
        return client


def on_node(*, authorizes: bool = False) -> Callable[[Body], Callable[..., None]]:
    """Makes a test of `async def test(node, ...)`; the other arguments stay pytest's."""

    def decorate(body: Body) -> Callable[..., None]:
        async def main(sim: loop.SimLoop, arguments: dict[str, Any]) -> None:
            node = Node(sim, authorizes)
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

    return decorate
