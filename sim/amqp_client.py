"""An AMQP client on the simulated network: one connection with one channel.

It knows what it asked for. An answer to something else, one of another kind, or a channel
closed for a mistake it did not make are violations: they stop the world. That a connection
is lost, or a channel closed because the broker's disk failed, is ordinary: `Gone`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Self

from entrepot.core.ports import Buffer, Net, Receiver
from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.frames import (
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
    FrameBuffer,
    ProtocolHeader,
    method_frame,
)
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, channel, connection, decode
from entrepot.wire.amqp.properties import NONE
from entrepot.wire.amqp.scan import Acks, Content, Event, Heartbeat, MethodFrame
from sim.history import Violation
from sim.net import SimLink

FRAME_BYTES_MAX = 4_096  # So small that some bodies need several.
CHANNELS_MAX = 10
PATIENCE_S = 1.5
_CAPABILITIES = {
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}
_BEATS_PER_S = 3

# What comes unasked: deliveries, confirms and messages that are returned. And the end of a
# recovery, for what was delivered before it is not ours any more.
Heard = Callable[[Method, bytes, bytes], None]


class Gone(Exception):
    """The connection or its channel is no more. What was not answered is unknown."""


class AmqpClient:
    """A `Receiver` of the net."""

    def __init__(self, link: SimLink, channel_number: int, heard: Heard) -> None:
        self._link = link
        self._channel = channel_number
        self._heard = heard
        self._inbox = FrameBuffer(is_client=True)
        self._waiting: tuple[tuple[type[Method], ...], asyncio.Future[Method]] | None = None
        self._gone: str | None = None  # Why.
        self.lost_s: float | None = None  # Since when the broker may give to others what it has.
        self._is_leaving = False  # What still comes is nothing to us.
        self.mistake: ReplyCode | None = None  # The channel may be closed for that.
        self._beat: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls,
        net: Net,
        address: tuple[str, int],
        heard: Heard,
        *,
        channel_number: int = 1,
        heartbeat_s: int = 0,
    ) -> Self:
        """Raises Gone."""
        made: list[Self] = []

        def attach(link: object) -> Receiver:
            assert isinstance(link, SimLink)
            made.append(cls(link, channel_number, heard))
            return made[0]

        try:
            async with asyncio.timeout(PATIENCE_S):
                await net.connect(*address, attach)
        except (OSError, TimeoutError) as error:
            raise Gone(str(error)) from None
        client = made[0]
        await client._shake_hands(heartbeat_s)
        return client

    async def _shake_hands(self, heartbeat_s: int) -> None:
        start = self._expect(connection.Start)
        self._link.send([PROTOCOL_HEADER])
        await self._answer(start)
        properties = {"capabilities": _CAPABILITIES}
        start_ok = connection.StartOk(properties, "PLAIN", b"\0guest\0guest")
        await self._ask(0, start_ok, connection.Tune)
        self._inbox.tune(FRAME_BYTES_MAX)
        self._say(0, connection.TuneOk(CHANNELS_MAX, FRAME_BYTES_MAX, heartbeat_s))
        await self._ask(0, connection.Open("/"), connection.OpenOk)
        if heartbeat_s:
            self._keep_beating()
        await self.ask(channel.Open(), channel.OpenOk)

    def _keep_beating(self) -> None:
        self._link.send([HEARTBEAT_FRAME])
        loop = asyncio.get_running_loop()
        self._beat = loop.call_later(1 / _BEATS_PER_S, self._keep_beating)

    # --- speaking

    @property
    def is_open(self) -> bool:
        return self._gone is None and not self._is_leaving

    def check_open(self) -> None:
        """Raises Gone."""
        if not self.is_open:
            raise Gone(self._gone or "closed by itself")

    def say(self, *methods: Method) -> None:
        """Raises Gone."""
        self._say(self._channel, *methods)

    def _say(self, number: int, *methods: Method) -> None:
        self.check_open()
        self._link.send([method_frame(number, method) for method in methods])

    def publish(self, messages: Sequence[tuple[basic.Publish, bytes, bytes]]) -> None:
        """Methods, properties and bodies, in one piece. Raises Gone."""
        self.check_open()
        chunks: list[Buffer] = []
        for method, properties, body in messages:
            chunks += content(self._channel, method, properties, body, FRAME_BYTES_MAX)
        self._link.send(chunks)

    async def ask(self, method: Method, *kinds: type[Method]) -> Method:
        """The answer, which is one of those kinds. Raises Gone."""
        return await self._ask(self._channel, method, *kinds)

    async def _ask(self, number: int, method: Method, *kinds: type[Method]) -> Method:
        answer = self._expect(*kinds)
        self._say(number, method)
        return await self._answer(answer)

    def _expect(self, *kinds: type[Method]) -> asyncio.Future[Method]:
        assert self._waiting is None, "one question at a time"
        self.check_open()
        answer: asyncio.Future[Method] = asyncio.get_running_loop().create_future()
        self._waiting = kinds, answer
        return answer

    async def _answer(self, answer: asyncio.Future[Method]) -> Method:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await answer
        except TimeoutError:
            self.die()
            raise Gone("no answer") from None

    # --- leaving

    async def leave(self) -> None:
        """Politely: it is over when the broker says so. Raises Gone."""
        self._end()
        await self._ask(0, connection.Close(200, "bye"), connection.CloseOk)
        self._is_leaving = True
        self._link.close("done")

    def die(self) -> None:
        """Without a word."""
        self._is_leaving = True
        self._end()
        self._link.abort("gone")

    def make_mistake(self, method: Method, code: ReplyCode) -> None:
        """Say something for which the channel is closed. Raises Gone."""
        self.mistake = code
        self.say(method)
        self._end()

    def fall_silent(self) -> None:
        """It is still there, but neither listens nor speaks."""
        self._is_leaving = True
        self._stop()

    def _end(self) -> None:
        self._stop()
        if self.lost_s is None:
            self.lost_s = asyncio.get_running_loop().time()

    def _stop(self) -> None:
        if self._beat is not None:
            self._beat.cancel()

    # --- listening

    def writable(self) -> memoryview:
        return self._inbox.writable()

    def received(self, size: int) -> None:
        for event in self._inbox.received(size):
            is_answer = isinstance(event, MethodFrame)
            if self.is_open and (self.lost_s is None or is_answer):
                self._take(event)

    def _take(self, event: ProtocolHeader | Event) -> None:
        match event:
            case Heartbeat():
                return
            case Acks(number, is_multiple, tags):
                self._check_channel(number)
                for tag in tags:
                    self._heard(basic.Ack(tag, is_multiple), NONE, b"")
            case Content(number, payload, properties, body):
                self._check_channel(number)
                method = decode(payload)
                if self._waiting is not None and isinstance(method, self._waiting[0]):
                    self._answered(method)
                self._heard(method, properties, bytes(body))
            case MethodFrame(number, payload):
                self._told(number, decode(payload))
            case AmqpError() | ProtocolHeader() | _:
                raise Violation(f"a broker must not say {event}")

    def _told(self, number: int, method: Method) -> None:
        match method:
            case connection.Close() | channel.Close():
                self._refused(number, method)
            case connection.Blocked() | connection.Unblocked():
                return
            case basic.Nack():
                self._check_channel(number)
                self._heard(method, NONE, b"")
            case basic.Cancel():  # The queue is down.
                self._lose("cancelled")
                self._link.close("cancelled by the broker")
            case basic.RecoverOk():
                self._answered(method)
                self._heard(method, NONE, b"")
            case _:
                self._answered(method)

    def _check_channel(self, number: int) -> None:
        if number != self._channel:
            raise Violation(f"channel {number} was never opened")

    def _answered(self, method: Method) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None or not isinstance(method, waiting[0]):
            raise Violation(f"{method} is the answer to what? Asked for: {waiting}")
        if not waiting[1].done():
            waiting[1].set_result(method)

    def _refused(self, number: int, close: connection.Close | channel.Close) -> None:
        """A broker that stops says so. A disk that fails is an internal error; a mistake in the
        broker is one, too, but its text is another."""
        ordinary = (ReplyCode.INTERNAL_ERROR, ReplyCode.CONNECTION_FORCED, self.mistake)
        is_broken = close.reply_text == "INTERNAL_ERROR - internal error"
        is_down = close.reply_code == ReplyCode.NOT_FOUND and "is down: " in close.reply_text
        if is_broken or (close.reply_code not in ordinary and not is_down):
            raise Violation(f"closed for {close}")
        answer = connection.CloseOk() if number == 0 else channel.CloseOk()
        self._link.send([method_frame(number, answer)])
        self._lose(close.reply_text)
        self._link.close("closed by the broker")

    def drained(self) -> None:
        """It never has much to say."""

    def closed(self, reason: str) -> None:
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        self._end()
        if self._gone is None:
            self._gone = reason
            waiting, self._waiting = self._waiting, None
            if waiting is not None and not waiting[1].done():
                waiting[1].set_exception(Gone(reason))
