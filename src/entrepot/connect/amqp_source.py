"""A queue's messages into a topic, over AMQP.

Messages are acknowledged when the transaction with their records is committed. A crash in
between brings them again. To know them then, their identities (a hash of the message-id and
the body) are the position that is committed with them: when the connector is opened, the
identities it finds there are those of messages that are in the topic already. If they come
again, they are acknowledged and passed over.

They come before all others, because a queue gives what is returned to it its old place. So
they are forgotten with the first message that is none of them and that nobody was sent
before. A message without an id has no identity: it is written again.
"""

import base64
import hashlib
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from entrepot.client.amqp_consumer import AmqpConsumer, Delivery
from entrepot.connect.amqp_messages import ROUTING_KEY, to_record
from entrepot.connect.amqp_session import AmqpOptions, open_connection, place_of, told
from entrepot.connect.interface import Polled, Position, Source
from entrepot.core.limits import MIB

WAIT_S = 0.5  # For the first message; also how late a stop may be heard.
GRACE_S = 0.05  # For what the queue has sent and we have not seen.
BATCH_BYTES_MAX = 4 * MIB
PREFETCH_MAX = 10_000  # A position that names as many is still a record.
_IDENTITY_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpSourceOptions(AmqpOptions):
    queue: str
    key: str = ROUTING_KEY  # The property or header that becomes the record's key.
    prefetch: Annotated[int, Meta(ge=1, le=PREFETCH_MAX)] = 1_000
    exclusive: bool = True  # Whether nobody else may consume the queue.

    def problem(self) -> str | None:
        return self.url_problem()


class AmqpSource(Source):
    Options: ClassVar[type[Any] | None] = AmqpSourceOptions
    batch_records = 500
    poll_ms = 10  # It waits for messages where they come.

    _consumer: AmqpConsumer | None = None

    async def open(self, position: Position | None) -> None:
        self._place = place_of(self.options)
        self._tag = 0  # Of the last message that was polled.
        # Messages that are in the topic and may come again, with how often.
        self._committed = Counter[str]((position or {}).get("messages", ()))
        self._consumer = await open_connection(AmqpConsumer, self.options)
        with told(self._place):
            await self._consumer.consume(
                self.options.queue,
                prefetch=self.options.prefetch,
                exclusive=self.options.exclusive,
            )

    async def poll(self, count_max: int) -> Polled | None:
        consumer = self._opened()
        with told(self._place):
            while taken := await _take(consumer, count_max):
                self._tag = taken[-1].tag
                polled = self._polled(taken)
                if polled.records:
                    return polled
                await consumer.settle(self._tag)
        return None

    async def committed(self, position: Position) -> None:
        with told(self._place):
            await self._opened().settle(self._tag)

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.leave()

    def _opened(self) -> AmqpConsumer:
        assert self._consumer is not None
        return self._consumer

    def _polled(self, taken: list[Delivery]) -> Polled:
        records, identities = [], []
        for delivery in taken:
            identity = identity_of(delivery)
            if identity is not None:
                identities.append(identity)  # Also of those passed over: all may come again.
            if not self._is_committed(delivery, identity):
                records.append(to_record(delivery, self.options.key))
        left = islice(self._committed.elements(), PREFETCH_MAX)
        return Polled(records, {"messages": [*identities, *left]})

    def _is_committed(self, delivery: Delivery, identity: str | None) -> bool:
        if identity is not None and self._committed[identity] > 0:
            self._committed[identity] -= 1
            return True
        if not delivery.redelivered:
            self._committed.clear()
        return False


async def _take(consumer: AmqpConsumer, count_max: int) -> list[Delivery]:
    if not await consumer.wait(WAIT_S):
        # Who stops when nothing is left must not stop because a broker is slow.
        is_slow = await consumer.ready_count() > 0
        await consumer.wait(WAIT_S if is_slow else GRACE_S)
    return consumer.take(min(count_max, PREFETCH_MAX), BATCH_BYTES_MAX)


def identity_of(delivery: Delivery) -> str | None:
    """The body is part of it, for publishers that give several messages one id."""
    found = delivery.properties.message_id
    if not found:
        return None
    name = found.encode("utf-8", "surrogateescape")
    digest = hashlib.blake2b(len(name).to_bytes(1), digest_size=_IDENTITY_BYTES)
    digest.update(name)
    digest.update(delivery.body)
    return base64.b64encode(digest.digest()).decode().rstrip("=")
