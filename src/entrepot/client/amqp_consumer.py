"""A queue's messages over AMQP, acknowledged in transactions: a client that only consumes.

The broker sends as many as may be unacknowledged, and they are kept here until somebody
takes them. An acknowledgement has no answer of its own in AMQP; the end of a transaction has.
So who was told that messages are settled will not be sent them again: by RabbitMQ as long as
its node does not crash, by an entrepot whatever happens.
"""

import asyncio
import contextlib
from collections import deque
from typing import NamedTuple

from entrepot.client.amqp_connection import CHANNEL, AmqpConnection
from entrepot.client.errors import Unreachable
from entrepot.core.ports import Buffer, Link
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, queue, tx
from entrepot.wire.amqp.properties import BasicProperties, decode

__all__ = ["AmqpConsumer", "BasicProperties", "Delivery"]


class Delivery(NamedTuple):
    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    properties: BasicProperties
    body: bytes


class AmqpConsumer(AmqpConnection):
    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._queue = ""
        self._waiting: deque[Delivery] = deque()  # No more than the prefetch.

    async def consume(self, name: str, *, prefetch: int, exclusive: bool) -> None:
        """From now on its messages come. Raises AmqpRefused when there is no such queue, and
        when somebody else consumes what is to be ours alone."""
        self._queue = name
        await self.ask(tx.Select(), tx.SelectOk)
        await self.ask(basic.Qos(prefetch_count=prefetch), basic.QosOk)
        await self.ask(basic.Consume(queue=name, exclusive=exclusive), basic.ConsumeOk)

    async def ready_count(self) -> int:
        """How many are in the queue and were sent to nobody."""
        declared = await self.ask(queue.Declare(queue=self._queue, passive=True), queue.DeclareOk)
        return declared.message_count

    async def wait(self, seconds: float) -> bool:
        """Whether there is something to take, before the time is over."""
        if not self._waiting:
            self._check()
            self._progress.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._progress.wait()
            self._check()
        return bool(self._waiting)

    def take(self, count_max: int, bytes_max: int) -> list[Delivery]:
        """What is here, in order: so many at the most, and about so many bytes."""
        taken: list[Delivery] = []
        size = 0
        while self._waiting and len(taken) < count_max and size < bytes_max:
            taken.append(self._waiting.popleft())
            size += len(taken[-1].body)
        return taken

    async def settle(self, tag: int) -> None:
        """It and all before it: done with for good when this returns."""
        self._check()
        self._tell(CHANNEL, basic.Ack(tag, True))
        await self.ask(tx.Commit(), tx.CommitOk)

    # --- what comes

    def _hear_method(self, method: Method) -> None:
        if isinstance(method, basic.Cancel):  # It was deleted, or moves to another node.
            self._fail(Unreachable(f"the broker ends the delivery of queue '{self._queue}'"))
        else:
            super()._hear_method(method)

    def _hear_content(self, method: Method, properties: bytes, body: Buffer) -> None:
        if isinstance(method, basic.Deliver):
            self._waiting.append(
                Delivery(
                    method.delivery_tag,
                    method.redelivered,
                    method.exchange,
                    method.routing_key,
                    decode(properties),
                    bytes(body),
                )
            )
            self._progress.set()
