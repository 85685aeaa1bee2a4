"""A connection of AMQP with several channels.

A mistake ends the channel it was made on and no other, so what can go wrong (a queue that is not
there, a selector that does not parse) is asked on a channel of its own. The first channel is the
one that is published on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import NamedTuple, TypeVar

from entrepot.client.amqp_connection import CHANNEL, TIMEOUT_S, AmqpConnection, AmqpRefused
from entrepot.client.errors import BadAnswer, ClientError, Unreachable
from entrepot.client.messaging.message import Message, as_bytes
from entrepot.core.ports import Buffer, Link
from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.frames import END, ProtocolHeader, method_frame
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, channel, confirm, connection, decode
from entrepot.wire.amqp.scan import METHOD, Acks, Content, Event, MethodFrame

CHANNELS_MAX = 2_000  # As the broker has it, about.
SPARE_MAX = 16  # Channels that are kept for those who will wait for a message.

OnMessage = Callable[[Message], None]
OnEnd = Callable[[ClientError | None], None]
_Answer = TypeVar("_Answer", bound=Method)
_ID = Struct(">HH")
_DELIVER, _GET_OK = _ID.pack(*basic.Deliver.ID), _ID.pack(*basic.GetOk.ID)
_GOT = Struct(">4xQB")  # The tag of a message that was asked for, and whether it came before.
_COUNT_BYTES = 4  # At the end of it: how many are left.
# The frame of an acknowledgement: of a method, the channel, 13 bytes; the tag, of this one only.
_ACK = Struct(">BHIHHQBB")
_ACK_BEGIN, _ACK_END = (13, *basic.Ack.ID), (0, END[0])


class _Consumer(NamedTuple):
    on_message: OnMessage
    on_end: OnEnd
    holder: Channel | None  # None means: what is delivered is settled already.


class Channel:
    """One channel: is asked one thing at a time, and may have consumers."""

    def __init__(self, session: Session, number: int) -> None:
        self.number = number
        self.session = session
        self.failure: ClientError | None = None
        self.returned: basic.Return | None = None  # The last message that nobody takes.
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[object] | None = None  # Of the question that was asked.
        self._settled: list[bytes] = []  # Acknowledgements that are sent with what comes next.
        self._lock = asyncio.Lock()
        self._consumers: dict[str, _Consumer] = {}
        self._ends: dict[bytes, tuple[str, str]] = {}  # Of messages: exchange and routing key.
        self._gets: dict[str, bytes] = {}  # The frame that asks for a message, by queue.

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def tell(self, *methods: Method) -> None:
        self._send(b"".join([method_frame(self.number, each) for each in methods]))

    def _send(self, frames: bytes) -> None:
        if self._settled:
            settled, self._settled = self._settled, []
            frames = b"".join((*settled, frames))
        self.session.send((frames,))

    async def ask(self, method: Method, kind: type[_Answer]) -> _Answer:
        """Raises Unreachable, AmqpRefused, BadAnswer."""
        found = await self._ask(method_frame(self.number, method), method.NAME)
        if not isinstance(found, kind):
            raise BadAnswer(f"the broker says {_name(found)}, not {kind.NAME}")
        return found

    async def get(self, queue: str) -> Message | None:
        """Return the queue's first message, leased, or None."""
        frame = self._gets.get(queue)
        if frame is None:
            frame = method_frame(self.number, basic.Get(queue=queue))
            if len(self._gets) < CHANNELS_MAX:
                self._gets[queue] = frame
        found = await self._ask(frame, basic.Get.NAME)
        if isinstance(found, Message):
            return found
        if isinstance(found, basic.GetEmpty):
            return None
        raise BadAnswer(f"the broker says {_name(found)}, not basic.get-ok")

    async def _ask(self, frame: bytes, name: str) -> object:
        async with self._lock:
            self.check()
            answer = self._answer = self._loop.create_future()
            self._send(frame)
            limit = self._loop.call_later(TIMEOUT_S, self._not_answered, name)
            try:
                return await answer
            except asyncio.CancelledError:  # Its answer would be taken for that of the next one.
                self.fail(Unreachable("a question was given up"))
                self.tell(channel.Close(200, "given up"))
                raise
            finally:
                limit.cancel()
                self._answer = None

    def _not_answered(self, name: str) -> None:
        self.session.give_up(f"{name} was not answered")
        self.fail(Unreachable(f"the broker does not answer {name}"))

    def _hear_answer(self, answer: object) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def publish(
        self, exchange: str, key: str, head: bytes, bodies: list[bytes], *, mandatory: bool
    ) -> None:
        """Send messages with the same properties. Not yet confirmed."""
        method = basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory)
        frame_bytes_max = self.session.frame_bytes_max
        self.session.send(_contents(self.number, method, head, bodies, frame_bytes_max))

    async def consume(self, method: basic.Consume, on_message: OnMessage, on_end: OnEnd) -> str:
        """Begin to consume; return the consumer's tag. `on_end` is told when it is over, with the
        failure of the channel, or None if the broker cancelled it."""
        holder = None if method.no_ack else self
        self._consumers[method.consumer_tag] = _Consumer(on_message, on_end, holder)
        try:
            return (await self.ask(method, basic.ConsumeOk)).consumer_tag
        except BaseException:
            self._consumers.pop(method.consumer_tag, None)
            raise

    async def cancel(self, tag: str) -> None:
        """End a consumer. What was delivered to it stays leased."""
        await self.ask(basic.Cancel(consumer_tag=tag), basic.CancelOk)
        self._consumers.pop(tag, None)

    def drop(self, tag: str) -> None:
        """End a consumer without waiting for it: one that has as much as it may have."""
        self._consumers.pop(tag, None)
        self.tell(basic.Cancel(consumer_tag=tag, nowait=True))

    async def close(self) -> None:
        """Give the number back; what is leased on the channel is ready again."""
        if self.failure is None:
            await self.ask(channel.Close(200, "done"), channel.CloseOk)
        self.fail(Unreachable("the channel is closed"))
        self.session.forget(self)

    # --- the holder of messages

    def settle(self, tag: int) -> None:
        if self.failure is not None or self._elsewhere(self.settle, tag):
            return
        if not self._settled:
            self._loop.call_soon(self._send_settled)
        self._settled.append(_ACK.pack(METHOD, self.number, *_ACK_BEGIN, tag, *_ACK_END))

    def _send_settled(self) -> None:
        if self._settled and self.failure is None:
            frames, self._settled = self._settled, []
            self.session.send(frames)

    def settle_through(self, tag: int) -> None:
        """Settle all that were delivered up to this one."""
        if self.failure is None:
            self.tell(basic.Ack(tag, multiple=True))

    def give_back(self, tag: int, *, requeue: bool) -> None:
        if self.failure is None and not self._elsewhere(
            partial(self.give_back, requeue=requeue), tag
        ):
            self.tell(basic.Reject(tag, requeue=requeue))

    def _elsewhere(self, call: Callable[[int], None], tag: int) -> bool:
        """Have it called in the loop, and return True, if we are in another thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._loop.call_soon_threadsafe(call, tag)
            return True
        return False

    # --- what comes

    def fail(self, failure: ClientError) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        self._settled = []
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(failure)
        consumers, self._consumers = self._consumers, {}
        for each in consumers.values():
            each.on_end(failure)

    def hear_method(self, method: Method) -> None:
        if isinstance(method, basic.Cancel):
            found = self._consumers.pop(method.consumer_tag, None)
            if found is not None:
                found.on_end(None)
        else:
            self._hear_answer(method)

    def hear_delivery(self, payload: bytes, head: bytes, body: Buffer) -> None:
        # Read here: the general way takes as long as all the rest together.
        tag_end = 5 + payload[4]
        consumer = self._consumers.get(payload[5:tag_end].decode())
        if consumer is None:  # Cancelled meanwhile.
            self.give_back(int.from_bytes(payload[tag_end : tag_end + 8], "big"), requeue=True)
            return
        known = self._names(payload, payload[tag_end + 9 :])
        consumer.on_message(
            Message(
                as_bytes(body),
                known[1],
                known[0],
                head,
                is_redelivered=bool(payload[tag_end + 8]),
                tag=int.from_bytes(payload[tag_end : tag_end + 8], "big"),
                holder=consumer.holder,
            )
        )

    def hear_got(self, payload: bytes, head: bytes, body: Buffer) -> None:
        exchange, key = self._names(payload, payload[_GOT.size : -_COUNT_BYTES])
        tag, is_redelivered = _GOT.unpack_from(payload)
        message = Message(
            as_bytes(body),
            key,
            exchange,
            head,
            is_redelivered=bool(is_redelivered),
            tag=tag,
            holder=self,
        )
        self._hear_answer(message)

    def _names(self, payload: bytes, end: bytes) -> tuple[str, str]:
        """Return exchange and routing key, which are the end of a method's fields, and known if
        they were there before. Raises AmqpError."""
        known = self._ends.get(end)
        if known is None:
            method = decode(payload)
            assert isinstance(method, basic.Deliver | basic.GetOk)
            known = method.exchange, method.routing_key
            if len(self._ends) < CHANNELS_MAX:
                self._ends[end] = known
        return known


class Session(AmqpConnection):
    """The connection. The first channel confirms what is published on it."""

    CHANNELS_MAX = CHANNELS_MAX

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.first = Channel(self, CHANNEL)
        self._channels: dict[int, Channel] = {CHANNEL: self.first}
        self._numbers: list[int] = []  # Given back.
        self._spare: list[Channel] = []  # See `waiting_channel`.
        self._has_begun = False  # From then on each channel gets its own answers.
        self.on_acks: Callable[[list[int], bool], None] = lambda tags, is_multiple: None
        self.on_nack: Callable[[int, bool], None] = lambda tag, is_multiple: None
        self.on_return: Callable[[basic.Return], None] = lambda method: None
        self.on_gone: Callable[[ClientError], None] = lambda failure: None

    async def channel(self) -> Channel:
        """Open one more. Raises Unreachable."""
        self.check_open()
        number = self._numbers.pop() if self._numbers else max(self._channels) + 1
        if number >= CHANNELS_MAX:
            raise ClientError(f"more than {CHANNELS_MAX} things at once on one connection")
        made = self._channels[number] = Channel(self, number)
        await made.ask(channel.Open(), channel.OpenOk)
        return made

    async def waiting_channel(self) -> Channel:
        """Return a channel whose consumers get one message each: one that is spare, or a new one.
        Raises Unreachable."""
        while self._spare:
            found = self._spare.pop()
            if found.failure is None:
                return found
        made = await self.channel()
        await made.ask(basic.Qos(prefetch_count=1), basic.QosOk)
        return made

    async def spare(self, channel: Channel) -> None:
        """Take back a channel that has no consumer, and on which nothing is leased."""
        if channel.failure is not None:
            return
        if len(self._spare) < SPARE_MAX:
            self._spare.append(channel)
        else:
            await channel.close()

    def forget(self, closed: Channel) -> None:
        if self._channels.pop(closed.number, None) is closed:
            self._numbers.append(closed.number)

    def send(self, chunks: Sequence[Buffer]) -> None:
        self._link.send(chunks)

    @property
    def frame_bytes_max(self) -> int:
        return self._frame_bytes_max

    def give_up(self, reason: str) -> None:
        self._link.abort(reason)

    async def _begin(self) -> None:
        await self.ask(confirm.Select(), confirm.SelectOk)
        self._has_begun = True

    def _fail(self, failure: ClientError) -> None:
        if isinstance(failure, AmqpRefused) and failure.retriable:
            # A broker that stops says so; to us it is a connection that was lost.
            failure = Unreachable(str(failure))
        super()._fail(failure)
        for each in list(self._channels.values()):
            each.fail(failure)
        self.on_gone(failure)

    def _hear(self, event: ProtocolHeader | Event) -> None:
        if isinstance(event, Content):
            number, payload, head, body = event
            found = self._channels.get(number)
            if payload.startswith(_DELIVER):
                if found is not None:
                    found.hear_delivery(payload, head, body)
            elif payload.startswith(_GET_OK):
                if found is not None:
                    found.hear_got(payload, head, body)
            else:
                self._hear_message(number, decode(payload))
        elif isinstance(event, Acks) and event.channel == CHANNEL:
            self.on_acks(event.tags, event.is_multiple)
        elif isinstance(event, MethodFrame) and event.channel and self._has_begun:
            self._hear_on(event.channel, decode(event.payload))
        else:
            super()._hear(event)

    def _hear_message(self, number: int, method: Method) -> None:
        if isinstance(method, basic.Return):
            if number == CHANNEL:
                self.on_return(method)
            elif number in self._channels:
                self._channels[number].returned = method

    def _hear_on(self, number: int, method: Method) -> None:
        found = self._channels.get(number)
        if found is None:
            return
        if found.failure is not None and isinstance(method, channel.CloseOk):
            self.forget(found)
        elif isinstance(method, channel.Close):
            failure = AmqpRefused(method.reply_code, method.reply_text)
            if number == CHANNEL:  # What was published on it is in doubt: begin anew.
                self._hear_any(method)
                return
            self.send([method_frame(number, channel.CloseOk())])
            found.fail(failure)
            self.forget(found)
        elif isinstance(method, basic.Nack) and number == CHANNEL:
            self.on_nack(method.delivery_tag, method.multiple)
        elif isinstance(method, connection.Close | connection.Blocked | connection.Unblocked):
            self._hear_any(method)
        else:
            found.hear_method(method)


def _name(found: object) -> str:
    return found.NAME if isinstance(found, Method) else "nothing"


def _contents(
    channel: int, method: basic.Publish, head: bytes, bodies: list[bytes], frame_bytes_max: int
) -> list[Buffer]:
    """Return messages that differ in nothing but their bodies, as chunks to be sent."""
    if len(bodies) == 1:
        return content(channel, method, head, bodies[0], frame_bytes_max)
    chunks: list[Buffer] = []
    leads: dict[int, tuple[bytes, bytes]] = {}  # What comes before and after, by size.
    pieces: list[bytes] = []
    for body in bodies:
        size = len(body)
        if size > _COPIED_BYTES_MAX or size == 0:
            if pieces:
                chunks.append(b"".join(pieces))
                pieces = []
            chunks += content(channel, method, head, body, frame_bytes_max)
            continue
        lead = leads.get(size)
        if lead is None:
            (whole,) = content(channel, method, head, body, frame_bytes_max)
            data = bytes(whole)
            lead = leads[size] = data[: -size - 1], data[-1:]
        pieces += (lead[0], body, lead[1])
    if pieces:
        chunks.append(b"".join(pieces))
    return chunks


_COPIED_BYTES_MAX = 3_000  # Below the smallest frame.
