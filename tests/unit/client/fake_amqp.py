"""A server that speaks AMQP as a test wants it to: for clients that publish or consume."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.frames import FrameBuffer, ProtocolHeader, method_frame
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, channel, confirm, connection, decode, tx
from entrepot.wire.amqp.methods import exchange as exchanges
from entrepot.wire.amqp.methods import queue as queues
from entrepot.wire.amqp.properties import NONE
from entrepot.wire.amqp.scan import Acks, Heartbeat, MethodFrame, Publishes

FRAME_BYTES_MAX = 8_192
ANSWERS: dict[type, Method] = {
    connection.StartOk: connection.Tune(10, FRAME_BYTES_MAX, 60),
    connection.Open: connection.OpenOk(),
    connection.Close: connection.CloseOk(),
    channel.Open: channel.OpenOk(),
    confirm.Select: confirm.SelectOk(),
    tx.Select: tx.SelectOk(),
    tx.Commit: tx.CommitOk(),
    basic.Qos: basic.QosOk(),
    basic.Consume: basic.ConsumeOk("consumer"),
    queues.Declare: queues.DeclareOk("q", 0, 1),
    exchanges.Declare: exchanges.DeclareOk(),
}


def ack(count: int) -> bytes:
    return method_frame(1, basic.Ack(count, True))


def frames(number: int, method: Method, properties: bytes = NONE, body: bytes = b"") -> bytes:
    """A method with a message."""
    chunks = content(number, method, properties, body, FRAME_BYTES_MAX)
    return b"".join(bytes(chunk) for chunk in chunks)


class Peer:
    """Answers what it can; publishes, as told: by how many there were in all."""

    def __init__(
        self,
        answer: Callable[[int], bytes] = ack,
        *,
        answers: dict[type, Method] | None = None,
        is_silent: bool = False,
    ) -> None:
        self.answer = answer
        self.answers = {**ANSWERS, **(answers or {})}
        self.is_silent = is_silent
        self.published: list[Publishes] = []
        self.said: list[Method] = []  # All else.
        self.acked: list[int] = []
        self.beats = 0
        self.address = ""
        self.connections = 0
        self.was_left = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None

    @property
    def bodies(self) -> list[bytes]:
        return [bytes(body) for run in self.published for _, body in run.messages]

    def heard(self, kind: type[Method]) -> list[Any]:
        return [each for each in self.said if isinstance(each, kind)]

    def send(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)

    def hang_up(self) -> None:
        assert self._writer is not None
        self._writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inbox, count = FrameBuffer(), 0
        self._writer = writer
        self.connections += 1
        while data := await reader.read(len(inbox.writable())):
            inbox.writable()[: len(data)] = data
            for event in inbox.received(len(data)):
                if isinstance(event, Publishes):
                    self.published.append(event)
                    count += len(event.messages)
                    writer.write(self.answer(count))
                else:
                    self._hear(event, writer)
        writer.close()
        self.was_left.set()

    def _hear(self, event: Any, writer: asyncio.StreamWriter) -> None:
        match event:
            case ProtocolHeader():
                writer.write(b"" if self.is_silent else method_frame(0, connection.Start()))
            case Acks(_, is_multiple, tags):
                assert is_multiple
                self.acked += tags
            case Heartbeat():
                self.beats += 1
            case MethodFrame(number, payload):
                self.said.append(decode(payload))
                answer = self.answers.get(type(self.said[-1]))
                if answer is not None:
                    is_close = isinstance(answer, connection.Close)
                    writer.write(method_frame(0 if is_close else number, answer))


def with_peer(peer: Peer, story: Callable[[Peer], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        peer.address = f"{host}:{port}"
        async with server:
            await story(peer)

    asyncio.run(main())


def deliveries(messages: Iterable[tuple[bytes, bytes]], *, first: int = 1) -> bytes:
    """Of properties and bodies, with tags in a row."""
    return b"".join(
        frames(1, basic.Deliver("consumer", tag, False, "x", "k"), properties, body)
        for tag, (properties, body) in enumerate(messages, first)
    )
