"""Records to an exchange over AMQP, at least once.

Messages of a batch are sent without waiting for one another, and the batch is done when the
broker has confirmed all of them. What it does not confirm (`basic.nack`) is sent again; what
no queue takes comes back, and is rejected. After a crash, or when the connection is lost
before the last confirmation, the batch is sent again; receivers can tell by the message-id,
which is the record's place in the log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from entrepot.client.amqp_publisher import AmqpPublisher, AmqpRefused, EncodedMessage, PublishResult
from entrepot.client.client import TopicPartition
from entrepot.client.errors import ClientError
from entrepot.client.reader import Message
from entrepot.connect.amqp_messages import message_id, to_amqp
from entrepot.connect.amqp_session import AmqpOptions, explained, open_connection, place_of, told
from entrepot.connect.formats import Misfit
from entrepot.connect.interface import Sink, Unavailable

Pending = tuple[Message, EncodedMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpSinkOptions(AmqpOptions):
    exchange: str = ""  # The default one, where the routing key names a queue.
    routing_key: str = "{topic}"  # {topic} and {key} stand for the record's.
    content_type: str = "application/octet-stream"  # Unless a header of the record says.
    mandatory: bool = True  # Reject what no queue takes; without, it is dropped.

    def problem(self) -> str | None:
        return self.url_problem()


class AmqpSink(Sink):
    Options: ClassVar[type[Any] | None] = AmqpSinkOptions
    batch_records = 500

    _publisher: AmqpPublisher | None = None

    async def open(self, parts: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._place = place_of(self.options)
        await self._connected()
        return {}

    async def write(self, messages: Sequence[Message]) -> None:
        pending: list[Pending] = []
        for message in messages:
            try:
                pending.append((message, self._encoded(message)))
            except Misfit as error:
                await self.context.reject(message, str(error))
        if pending:
            await self.context.persist(partial(self._offer, pending))

    async def close(self) -> None:
        if self._publisher is not None:
            await self._publisher.leave()

    async def _connected(self) -> AmqpPublisher:
        """The connection there is, or another."""
        if self._publisher is None or not self._publisher.is_open:
            self._publisher = await open_connection(AmqpPublisher, self.options)
            if self.options.exchange:
                with told(self._place):
                    await self._publisher.check_exchange(self.options.exchange)
        return self._publisher

    def _encoded(self, message: Message) -> EncodedMessage:
        options = self.options
        made = to_amqp(message, options.exchange, options.routing_key, options.content_type)
        assert self._publisher is not None
        bytes_max = self._publisher.properties_bytes_max
        if len(made.properties) > bytes_max:
            raise Misfit(f"headers of {len(made.properties)} bytes; the broker takes {bytes_max}")
        return made

    async def _offer(self, pending: list[Pending]) -> None:
        """Takes away from them what is done with; nothing is left when it returns."""
        try:
            await self._offer_together(pending)
        except AmqpRefused:  # All of them, because of one: which?
            for each in list(pending):
                await self._offer_single(each)
                pending.remove(each)

    async def _offer_single(self, each: Pending) -> None:
        try:
            await self._offer_together([each])
        except AmqpRefused as error:
            await self.context.reject(each[0], str(error))

    async def _offer_together(self, pending: list[Pending]) -> None:
        result = await self._published([encoded for _, encoded in pending])
        nacked = [pending[place] for place in result.nacked]
        reasons = {each.message_id: each.reason for each in result.returned}
        for message, _ in pending:
            if message_id(message) in reasons:
                await self.context.reject(message, reasons[message_id(message)])
        pending[:] = nacked
        if nacked:
            raise Unavailable(
                f"{self._place.name}: the broker refuses {len(nacked)} messages; is a queue full?"
            )

    async def _published(self, messages: Sequence[EncodedMessage]) -> PublishResult:
        """Raises AmqpRefused only when a message is to blame."""
        publisher = await self._connected()
        try:
            return await publisher.offer(messages, mandatory=self.options.mandatory)
        except ClientError as error:
            if isinstance(error, AmqpRefused) and error.blames_message:
                raise
            raise explained(self._place, error) from None
