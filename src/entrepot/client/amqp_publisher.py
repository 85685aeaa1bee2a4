"""Messages to exchanges and queues over AMQP, each confirmed: a client that only publishes.

One connection with one channel. Messages are sent without waiting for one another, and
whoever publishes is told when the broker has confirmed all of them: a persistent message for
a durable queue is on disk then. When the connection is lost before, nobody knows which of
them arrived. To send them again is what makes it at least once.
"""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Self, TypeVar

from entrepot.client.cluster import parse_bootstrap
from entrepot.client.errors import BadAnswer, ClientError, Unreachable
from entrepot.client.queue_leases import Login
from entrepot.core import limits
from entrepot.core.ports import Buffer, Link, Net, Receiver
from entrepot.net.sockets import SocketNet
from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.frames import PROTOCOL_HEADER, FrameBuffer, ProtocolHeader, method_frame
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, channel, confirm, connection, decode
from entrepot.wire.amqp.properties import PERSISTENT, Properties, encode
from entrepot.wire.amqp.scan import Acks, Content, Event, MethodFrame

CHANNEL = 1
PROPERTIES_REMEMBERED = 1_000
UNCONFIRMED_MAX = 5_000  # Messages on their way; then it is waited.
TIMEOUT_S = 30.0

_Answer = TypeVar("_Answer", bound=Method)


Headers = tuple[tuple[str, bytes | None], ...]


class Outgoing(NamedTuple):
    """A message to be kept on disk."""

    exchange: str
    routing_key: str
    headers: Headers
    body: Buffer


class NotTaken(ClientError):
    """The broker does not want a message, or has no place for it."""


class AmqpRefused(ClientError):
    """The broker closes the connection or the channel, and says why."""


class AmqpPublisher:
    """A `Receiver` of the net."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._inbox = FrameBuffer(is_client=True)
        self._frame_bytes_max = limits.AMQP_FRAME_BYTES_MIN
        self._methods: asyncio.Queue[Method] = asyncio.Queue()  # Answers while it is opened.
        self._tag = 0  # Of the last message sent.
        self._unconfirmed: dict[int, None] = {}  # By tag, in order.
        self._failure: ClientError | None = None
        self._progress = asyncio.Event()

    @classmethod
    async def open(cls, net: Net, address: str, login: Login, *, vhost: str = "/") -> Self:
        """The address is like localhost:5672. Raises Unreachable, AmqpRefused."""
        ((host, port),) = parse_bootstrap(address)[:1]
        made: list[Self] = []

        def attach(link: Link) -> Receiver:
            made.append(cls(link))
            return made[0]

        try:
            async with asyncio.timeout(TIMEOUT_S):
                await net.connect(host, port, attach)
                await made[0]._greet(login, vhost)
        except TimeoutError:
            raise Unreachable(f"no broker answers at {host}:{port}: timed out") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unreachable(f"no broker answers at {host}:{port}: {reason}") from None
        return made[0]

    async def publish(self, messages: Sequence[Outgoing], *, mandatory: bool) -> None:
        """All are confirmed when it returns. Raises Unreachable, NotTaken, AmqpRefused."""
        for first in range(0, len(messages), UNCONFIRMED_MAX // 2):
            chunks: list[Buffer] = []
            for exchange, key, headers, body in messages[first : first + UNCONFIRMED_MAX // 2]:
                method = basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory)
                properties = _properties(headers)
                chunks += content(CHANNEL, method, properties, body, self._frame_bytes_max)
                self._tag += 1
                self._unconfirmed[self._tag] = None
            self._check()
            self._link.send(chunks)
            await self._until_unconfirmed(UNCONFIRMED_MAX // 2)
        await self._until_unconfirmed(0)

    def close(self) -> None:
        if self._failure is None:
            self._link.send([method_frame(0, connection.Close(200, "done"))])
        self._link.close("done")

    async def _until_unconfirmed(self, count: int) -> None:
        """No more than so many."""
        while len(self._unconfirmed) > count:
            self._check()
            self._progress.clear()
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._progress.wait()
            except TimeoutError:
                self._link.abort("no confirmation came")
                raise Unreachable("the broker confirms nothing; is its disk full?") from None
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- the beginning

    async def _greet(self, login: Login, vhost: str) -> None:
        self._link.send([PROTOCOL_HEADER])
        await self._answer(connection.Start)
        response = f"\0{login.user}\0{login.password}".encode()
        capabilities = {"publisher_confirms": True, "authentication_failure_close": True}
        properties = {"product": "entrepot", "capabilities": capabilities}
        self._tell(0, connection.StartOk(properties, "PLAIN", response))
        tuned = await self._answer(connection.Tune)
        frame_bytes_max = tuned.frame_max or limits.AMQP_FRAME_BYTES_MAX
        self._frame_bytes_max = min(frame_bytes_max, limits.AMQP_FRAME_BYTES_MAX)
        self._tell(0, connection.TuneOk(1, self._frame_bytes_max, 0))  # No heartbeats.
        self._inbox.tune(self._frame_bytes_max)
        self._tell(0, connection.Open(vhost))
        await self._answer(connection.OpenOk)
        self._tell(CHANNEL, channel.Open())
        await self._answer(channel.OpenOk)
        self._tell(CHANNEL, confirm.Select())
        await self._answer(confirm.SelectOk)

    def _tell(self, number: int, method: Method) -> None:
        self._link.send([method_frame(number, method)])

    async def _answer(self, kind: type[_Answer]) -> _Answer:
        self._check()
        answer = asyncio.ensure_future(self._methods.get())
        failed = asyncio.ensure_future(self._progress.wait())
        try:
            await asyncio.wait([answer, failed], return_when=asyncio.FIRST_COMPLETED)
            self._check()
            found = answer.result()
        finally:
            answer.cancel()
            failed.cancel()
        if not isinstance(found, kind):
            raise BadAnswer(f"{self._link.peer} says {found.NAME}, not {kind.NAME}")
        return found

    # --- what the net calls

    def writable(self) -> memoryview:
        return self._inbox.writable()

    def received(self, size: int) -> None:
        for event in self._inbox.received(size):
            self._hear(event)

    def drained(self) -> None:
        """Nothing is held back but by confirmations."""

    def closed(self, reason: str) -> None:
        self._fail(Unreachable(f"connection to {self._link.peer} lost: {reason}"))

    def _hear(self, event: ProtocolHeader | Event) -> None:
        match event:
            case Acks(_, is_multiple, tags):
                for tag in tags:
                    self._confirmed(tag, is_multiple=is_multiple)
                self._progress.set()
            case MethodFrame(_, payload):
                self._hear_method(decode(payload))
            case Content(_, payload, _, _):
                returned = decode(payload)
                if isinstance(returned, basic.Return):
                    place = f"exchange '{returned.exchange}', routing key '{returned.routing_key}'"
                    self._fail(NotTaken(f"{place}: {returned.reply_text}"))
            case AmqpError() | ProtocolHeader():
                self._link.abort("bytes that are not the protocol")
                self._fail(BadAnswer(f"what answers at {self._link.peer} does not speak AMQP"))

    def _hear_method(self, method: Method) -> None:
        match method:
            case basic.Nack():
                self._fail(NotTaken("the broker does not take a message; is its queue full?"))
            case connection.Close() | channel.Close():
                self._fail(AmqpRefused(method.reply_text))
                self._link.close("the broker closes it")
            case connection.Blocked() | connection.Unblocked():
                pass  # Confirmations say enough.
            case _:
                self._methods.put_nowait(method)

    def _confirmed(self, tag: int, *, is_multiple: bool) -> None:
        if not is_multiple:
            self._unconfirmed.pop(tag, None)
            return
        while self._unconfirmed and (first := next(iter(self._unconfirmed))) <= tag:
            del self._unconfirmed[first]

    def _fail(self, failure: ClientError) -> None:
        self._failure = self._failure or failure
        self._progress.set()


async def connect(address: str, login: Login) -> AmqpPublisher:
    """Over a socket of our own."""
    return await AmqpPublisher.open(SocketNet(), address, login)


@lru_cache(PROPERTIES_REMEMBERED)
def _properties(headers: Headers) -> bytes:
    table = {name: _value(value) for name, value in headers} or None
    return encode(Properties(headers=table, delivery_mode=PERSISTENT))


def _value(value: bytes | None) -> str | bytes | None:
    """Text where it is text: that is what other clients send, and can read."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value
