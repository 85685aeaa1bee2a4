"""A connection to an AMQP broker with one channel: what publishers and consumers share.

It is asked one thing at a time. Whatever ends it is remembered, and is what everybody hears
who asks for anything afterwards. A mistake that closes the channel ends the connection, too:
there is nothing else on it.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Self, TypeVar

from entrepot.client.cluster import parse_bootstrap
from entrepot.client.errors import BadAnswer, ClientError, Unreachable, explain
from entrepot.client.queue_leases import Login
from entrepot.core.ports import Buffer, Link, Net, Receiver
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.frames import (
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
    FrameBuffer,
    ProtocolHeader,
    method_frame,
)
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import channel, connection, decode
from entrepot.wire.amqp.scan import Acks, Content, Event, MethodFrame

CHANNEL = 1
TIMEOUT_S = 30.0
LEAVE_S = 2.0
BEATS_MISSED_MAX = 4  # Each half of what was agreed on, as the specification has it.

_PASSING = (
    ReplyCode.CONNECTION_FORCED,
    ReplyCode.RESOURCE_LOCKED,
    ReplyCode.RESOURCE_ERROR,
    ReplyCode.INTERNAL_ERROR,
)
_CAPABILITIES = {
    "publisher_confirms": True,
    "consumer_cancel_notify": True,
    "authentication_failure_close": True,
}

_Answer = TypeVar("_Answer", bound=Method)


class AmqpRefused(ClientError):
    """The broker closes the connection or the channel, and says why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.retriable = code in _PASSING

    @property
    def blames_message(self) -> bool:
        """Of a publisher: a message that is too large, or has properties that cannot be."""
        return self.code == ReplyCode.PRECONDITION_FAILED


class AmqpConnection:
    """A `Receiver` of the net."""

    CHANNELS_MAX = CHANNEL

    def __init__(self, link: Link) -> None:
        self._link = link
        self._inbox = FrameBuffer(is_client=True)
        self._frame_bytes_max = amqp_limits.FRAME_BYTES_MIN
        self._answers: asyncio.Queue[Method | None] = asyncio.Queue()  # None: it has failed.
        self._failure: ClientError | None = None
        self._progress = asyncio.Event()  # Something came that is no answer, or it failed.
        self._left = asyncio.Event()  # The broker agrees that it is closed, or it failed.
        self.server_properties: Mapping[str, object] = {}  # What the broker says of itself.
        self._beats_missed = 0
        self._heart: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        net: Net,
        address: str,
        login: Login,
        *,
        vhost: str = "/",
        heartbeat_s: int = 0,
        timeout_s: float = TIMEOUT_S,
    ) -> Self:
        """The address is like localhost:5672; no heartbeats where there are 0 seconds.

        Raises Unreachable, AmqpRefused, BadAnswer.
        """
        ((host, port),) = parse_bootstrap(address)[:1]
        made: list[Self] = []

        def attach(link: Link) -> Receiver:
            made.append(cls(link))
            return made[0]

        try:
            async with asyncio.timeout(timeout_s):
                await net.connect(host, port, attach)
                await made[0]._greet(login, vhost, heartbeat_s)
                await made[0]._begin()
        except BaseException as error:
            for each in made:
                each._link.abort("it could not be opened")
            explain(error, f"{host}:{port}")
        return made[0]

    @property
    def is_open(self) -> bool:
        return self._failure is None

    def check_open(self) -> None:
        """Raise what has ended the connection, if it has ended."""
        self._check()

    async def ask(self, method: Method, kind: type[_Answer]) -> _Answer:
        """Raises Unreachable, AmqpRefused, BadAnswer."""
        self._check()
        self._tell(CHANNEL, method)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._answer(kind)
        except TimeoutError:
            self._link.abort("no answer came")
            raise Unreachable(f"{self._link.peer} does not answer {method.NAME}") from None

    def close(self) -> None:
        if self._failure is None:
            self._tell(0, connection.Close(200, "done"))
        self._link.close("done")

    async def leave(self) -> None:
        """Close it, and wait until the broker has agreed: then it holds nothing for us."""
        if self._failure is None:
            self._tell(0, connection.Close(200, "done"))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self._left.wait()
        self._link.close("done")

    # --- for those who do more with it

    async def _begin(self) -> None:
        """What comes after the channel was opened."""

    def _hear_acks(self, event: Acks) -> None:
        """Confirmations."""

    def _hear_content(self, method: Method, properties: bytes, body: Buffer) -> None:
        """A message that came with the method."""

    def _hear_method(self, method: Method) -> None:
        """An answer, unless it is known to be something else."""
        self._answers.put_nowait(method)

    def _tell(self, number: int, method: Method) -> None:
        self._link.send([method_frame(number, method)])

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, failure: ClientError) -> None:
        self._failure = self._failure or failure
        self._answers.put_nowait(None)
        self._progress.set()
        self._left.set()
        if self._heart is not None:
            self._heart.cancel()

    # --- the beginning

    async def _greet(self, login: Login, vhost: str, heartbeat_s: int) -> None:
        self._link.send([PROTOCOL_HEADER])
        self.server_properties = (await self._answer(connection.Start)).server_properties
        response = f"\0{login.user}\0{login.password}".encode()
        properties = {"product": "entrepot", "capabilities": _CAPABILITIES}
        self._tell(0, connection.StartOk(properties, "PLAIN", response))
        tuned = await self._answer(connection.Tune)
        frame_bytes_max = tuned.frame_max or amqp_limits.FRAME_BYTES_MAX
        self._frame_bytes_max = min(frame_bytes_max, amqp_limits.FRAME_BYTES_MAX)
        heartbeat_s = min(heartbeat_s, tuned.heartbeat or heartbeat_s)
        self._tell(0, connection.TuneOk(self.CHANNELS_MAX, self._frame_bytes_max, heartbeat_s))
        self._inbox.tune(self._frame_bytes_max)
        if heartbeat_s:
            self._heart = asyncio.create_task(self._beat(heartbeat_s / 2))
        self._tell(0, connection.Open(vhost))
        await self._answer(connection.OpenOk)
        self._tell(CHANNEL, channel.Open())
        await self._answer(channel.OpenOk)

    async def _answer(self, kind: type[_Answer]) -> _Answer:
        self._check()
        found = await self._answers.get()
        self._check()
        if not isinstance(found, kind):
            name = "nothing" if found is None else found.NAME
            raise BadAnswer(f"{self._link.peer} says {name}, not {kind.NAME}")
        return found

    async def _beat(self, pause_s: float) -> None:
        while self._beats_missed < BEATS_MISSED_MAX:
            await asyncio.sleep(pause_s)
            self._link.send([HEARTBEAT_FRAME])
            self._beats_missed += 1
        self._link.abort("nothing was heard for too long")

    # --- what the net calls

    def writable(self) -> memoryview:
        return self._inbox.writable()

    def received(self, size: int) -> None:
        self._beats_missed = 0
        try:
            for event in self._inbox.received(size):
                self._hear(event)
        except AmqpError as error:  # A method that is none.
            self._hear_nonsense(error)

    def drained(self) -> None:
        """Nothing is held back but by answers."""

    def closed(self, reason: str) -> None:
        self._fail(Unreachable(f"connection to {self._link.peer} lost: {reason}"))

    def _hear(self, event: ProtocolHeader | Event) -> None:
        match event:
            case Acks():
                self._hear_acks(event)
            case MethodFrame(_, payload):
                self._hear_any(decode(payload))
            case Content(_, payload, properties, body):
                self._hear_content(decode(payload), properties, body)
            case AmqpError() | ProtocolHeader():
                self._hear_nonsense(event)

    def _hear_any(self, method: Method) -> None:
        match method:
            case connection.Close() | channel.Close():
                self._fail(AmqpRefused(method.reply_code, method.reply_text))
                self._agree(method)
                self._link.close("the broker closes it")
            case connection.Blocked() | connection.Unblocked():
                pass  # Confirmations say enough.
            case connection.CloseOk():
                self._left.set()
            case _:
                self._hear_method(method)

    def _agree(self, method: connection.Close | channel.Close) -> None:
        """Else a broker would complain about clients that vanish."""
        if isinstance(method, connection.Close):
            self._tell(0, connection.CloseOk())
        else:
            self._tell(CHANNEL, channel.CloseOk())
            self._tell(0, connection.Close(200, "done"))

    def _hear_nonsense(self, what: AmqpError | ProtocolHeader) -> None:
        self._link.abort("bytes that are not the protocol")
        if isinstance(what, AmqpError) and what.code is ReplyCode.PRECONDITION_FAILED:
            self._fail(BadAnswer(f"from {self._link.peer} comes a {what.explanation}"))
        else:
            self._fail(BadAnswer(f"what answers at {self._link.peer} does not speak AMQP"))
