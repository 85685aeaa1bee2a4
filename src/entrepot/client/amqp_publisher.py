"""Messages to exchanges and queues over AMQP, each confirmed: a client that only publishes.

One connection with one channel. Messages are sent without waiting for one another, and
whoever publishes is told when the broker has answered for all of them: a persistent message
that was confirmed for a durable queue is on disk. When the connection is lost before, nobody
knows which of them arrived. To send them again is what makes it at least once.
"""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Self

from entrepot.client.amqp_connection import CHANNEL, TIMEOUT_S, AmqpConnection, AmqpRefused
from entrepot.client.errors import ClientError, Unreachable
from entrepot.client.queue_leases import Login
from entrepot.core.ports import Buffer, Link
from entrepot.net.sockets import SocketNet
from entrepot.wire.amqp.deliver import CONTENT_HEADER_BYTES, content
from entrepot.wire.amqp.frames import FRAME_ENVELOPE_BYTES
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, confirm
from entrepot.wire.amqp.methods import exchange as exchanges
from entrepot.wire.amqp.properties import PERSISTENT, BasicProperties, PropertyView, encode
from entrepot.wire.amqp.scan import Acks

__all__ = [
    "PERSISTENT",
    "AmqpPublisher",
    "AmqpRefused",
    "BasicProperties",
    "EncodedMessage",
    "NotTaken",
    "Outgoing",
    "PublishResult",
    "connect",
    "text_or_bytes",
]

PROPERTIES_REMEMBERED = 1_000
UNCONFIRMED_MAX = 5_000  # Messages on their way; then it is waited.

Headers = tuple[tuple[str, bytes | None], ...]


class Outgoing(NamedTuple):
    """A message to be kept on disk."""

    exchange: str
    routing_key: str
    headers: Headers
    body: Buffer


class EncodedMessage(NamedTuple):
    """A message whose properties are bytes already."""

    exchange: str
    routing_key: str
    properties: bytes
    body: Buffer

    @classmethod
    def of(cls, exchange: str, routing_key: str, properties: BasicProperties, body: Buffer) -> Self:
        return cls(exchange, routing_key, encode(properties), body)


class Returned(NamedTuple):
    """A message that no queue takes."""

    message_id: str | None
    reason: str
    properties: bytes = b""


class PublishResult(NamedTuple):
    """What became of those that were not taken; all others are confirmed."""

    nacked: list[int]  # Their places among the messages that were offered.
    returned: list[Returned]  # They were confirmed, too.


class NotTaken(ClientError):
    """The broker does not want a message, or has no place for it."""


class AmqpPublisher(AmqpConnection):
    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._tag = 0  # Of the last message sent.
        self._unconfirmed: dict[int, int] = {}  # By tag, in order: the message's place.
        self._result = PublishResult([], [])

    @property
    def properties_bytes_max(self) -> int:
        """They must fit into one frame."""
        return self._frame_bytes_max - FRAME_ENVELOPE_BYTES - CONTENT_HEADER_BYTES

    async def check_exchange(self, name: str) -> None:
        """Raises AmqpRefused when there is none."""
        await self.ask(exchanges.Declare(exchange=name, passive=True), exchanges.DeclareOk)

    async def publish(self, messages: Sequence[Outgoing], *, mandatory: bool) -> None:
        """All are confirmed when it returns. Raises Unreachable, NotTaken, AmqpRefused."""
        encoded = [
            EncodedMessage(exchange, key, _properties(headers), body)
            for exchange, key, headers, body in messages
        ]
        result = await self.offer(encoded, mandatory=mandatory)
        if result.returned:
            raise NotTaken(result.returned[0].reason)
        if result.nacked:
            raise NotTaken("the broker does not take a message; is its queue full?")

    async def offer(self, messages: Sequence[EncodedMessage], *, mandatory: bool) -> PublishResult:
        """The broker has answered for each of them. Raises Unreachable, AmqpRefused."""
        self._result = PublishResult([], [])
        for first in range(0, len(messages), UNCONFIRMED_MAX // 2):
            chunks: list[Buffer] = []
            some = messages[first : first + UNCONFIRMED_MAX // 2]
            for place, (exchange, key, properties, body) in enumerate(some, first):
                method = basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory)
                chunks += content(CHANNEL, method, properties, body, self._frame_bytes_max)
                self._tag += 1
                self._unconfirmed[self._tag] = place
            self._check()
            self._link.send(chunks)
            await self._until_unconfirmed(UNCONFIRMED_MAX // 2)
        await self._until_unconfirmed(0)
        return self._result

    async def _begin(self) -> None:
        await self.ask(confirm.Select(), confirm.SelectOk)

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

    # --- what comes

    def _hear_acks(self, event: Acks) -> None:
        for tag in event.tags:
            self._answered(tag, is_multiple=event.is_multiple)
        self._progress.set()

    def _hear_method(self, method: Method) -> None:
        if isinstance(method, basic.Nack):
            nacked = self._answered(method.delivery_tag, is_multiple=method.multiple)
            self._result.nacked.extend(nacked)
            self._progress.set()
        else:
            super()._hear_method(method)

    def _hear_content(self, method: Method, properties: bytes, body: Buffer) -> None:
        if isinstance(method, basic.Return):
            place = f"exchange '{method.exchange}', routing key '{method.routing_key}'"
            message_id = PropertyView(properties).get("message_id")
            reason = f"{place}: {method.reply_text}"
            self._result.returned.append(Returned(message_id, reason, properties))

    def _answered(self, tag: int, *, is_multiple: bool) -> list[int]:
        """The places of the messages it is about."""
        if not is_multiple:
            return [self._unconfirmed.pop(tag)] if tag in self._unconfirmed else []
        places = []
        while self._unconfirmed and (first := next(iter(self._unconfirmed))) <= tag:
            places.append(self._unconfirmed.pop(first))
        return places


async def connect(address: str, login: Login) -> AmqpPublisher:
    """Over a socket of our own."""
    return await AmqpPublisher.open(SocketNet(), address, login)


@lru_cache(PROPERTIES_REMEMBERED)
def _properties(headers: Headers) -> bytes:
    table = {name: text_or_bytes(value) for name, value in headers} or None
    return encode(BasicProperties(headers=table, delivery_mode=PERSISTENT))


def text_or_bytes(value: bytes | None) -> str | bytes | None:
    """Text where it is text: that is what other clients send, and can read."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value
