"""Publishing with confirmations, to peers that do as they please."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from entrepot.client import amqp_publisher
from entrepot.client.amqp_publisher import AmqpRefused, NotTaken, Outgoing, connect
from entrepot.client.errors import BadAnswer, ClientError, Unreachable
from entrepot.client.queue_leases import Login
from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.frames import FrameBuffer, ProtocolHeader, method_frame
from entrepot.wire.amqp.methods import basic, channel, confirm, connection, decode
from entrepot.wire.amqp.properties import NONE, PropertyView
from entrepot.wire.amqp.scan import MethodFrame, Publishes

ONE = Outgoing("x", "k", (("h", b"v"), ("raw", b"\xff"), ("none", None)), b"body")
ANSWERS: dict[type, Any] = {
    connection.StartOk: connection.Tune(10, 8_192, 60),
    connection.Open: connection.OpenOk(),
    channel.Open: channel.OpenOk(),
    confirm.Select: confirm.SelectOk(),
}


class Peer:
    """A server that takes all, and answers publishes as told."""

    def __init__(self, answer: Callable[[int], bytes]) -> None:
        self.answer = answer
        self.published: list[Publishes] = []
        self.login = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inbox, count = FrameBuffer(), 0
        while data := await reader.read(len(inbox.writable())):
            inbox.writable()[: len(data)] = data
            for event in inbox.received(len(data)):
                if isinstance(event, ProtocolHeader):
                    writer.write(method_frame(0, connection.Start()))
                elif isinstance(event, Publishes):
                    self.published.append(event)
                    count += len(event.messages)
                    writer.write(self.answer(count))
                elif isinstance(event, MethodFrame):
                    said = decode(event.payload)
                    if isinstance(said, connection.StartOk):
                        self.login = said.response
                    if type(said) in ANSWERS:
                        writer.write(method_frame(event.channel, ANSWERS[type(said)]))
        writer.close()


def with_peer(
    answer: Callable[[int], bytes], story: Callable[[str, Peer], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        peer = Peer(answer)
        server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server:
            await story(f"{host}:{port}", peer)

    asyncio.run(main())


def ack(count: int) -> bytes:
    return method_frame(1, basic.Ack(count, True))


def test_all_are_sent_and_confirmed() -> None:
    async def story(address: str, peer: Peer) -> None:
        publisher = await connect(address, Login("ana", "secret"))
        large = ONE._replace(body=b"x" * 20_000)
        await publisher.publish([ONE, ONE, large], mandatory=True)
        publisher.close()
        assert peer.login == b"\0ana\0secret"
        target = peer.published[0].target
        assert target == ("x", True, False)
        messages = [message for run in peer.published for message in run.messages]
        assert [len(body) for _, body in messages] == [4, 4, 20_000]
        assert messages[0][0][:2] == ("x", "k")
        view = PropertyView(messages[0][0].properties)
        assert view.get("delivery_mode") == 2
        assert view.get("headers") == {"h": "v", "raw": b"\xff", "none": None}

    with_peer(ack, story)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (method_frame(1, basic.Nack(1)), NotTaken, "does not take"),
        (
            b"".join(
                bytes(chunk)
                for chunk in content(1, basic.Return(312, "NO_ROUTE", "x", "k"), NONE, b"", 8_192)
            )
            + method_frame(1, basic.Ack(1)),
            NotTaken,
            "exchange 'x', routing key 'k': NO_ROUTE",
        ),
        (method_frame(1, channel.Close(404, "no exchange")), AmqpRefused, "no exchange"),
        (method_frame(0, connection.Close(320, "forced")), AmqpRefused, "forced"),
        (b"garbage that is none", BadAnswer, "does not speak AMQP"),
    ],
)
def test_what_goes_wrong(answer: bytes, error: type[ClientError], text: str) -> None:
    async def story(address: str, _: Peer) -> None:
        publisher = await connect(address, Login())
        with pytest.raises(error, match=text):
            await publisher.publish([ONE], mandatory=True)
        publisher.close()

    with_peer(lambda _: answer, story)


def test_a_peer_that_does_not_confirm(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(address: str, _: Peer) -> None:
        publisher = await connect(address, Login())
        monkeypatch.setattr(amqp_publisher, "TIMEOUT_S", 0.05)
        with pytest.raises(Unreachable, match="confirms nothing"):
            await publisher.publish([ONE], mandatory=True)

    with_peer(lambda _: b"", story)


def test_nobody_is_there() -> None:
    with pytest.raises(Unreachable, match="no broker answers"):
        asyncio.run(connect("127.0.0.1:1", Login()))
