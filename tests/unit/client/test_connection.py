"""Versions, pipelining, and everything a broker can do to a connection."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse

from entrepot.client.connection import Connection
from entrepot.client.errors import BadAnswer, Unreachable, Unsupported
from entrepot.net.sockets import SocketNet
from entrepot.wire.kafka.api import Api
from tests.unit.client.fake_broker import FakeBroker, Hangup

REQUEST = MetadataRequest(topics=None, include_topic_authorized_operations=False)


def with_broker(
    broker: FakeBroker, test: Callable[[Connection], Coroutine[Any, Any, None]]
) -> None:
    async def run() -> None:
        async with broker.running():
            connection = await Connection.open(
                SocketNet(), "127.0.0.1", broker.port, client_id="test", timeout_s=5
            )
            await test(connection)
            connection.close()

    asyncio.run(run())


async def ask(connection: Connection, timeout_s: float = 5) -> MetadataResponse:
    return await connection.ask(REQUEST, MetadataResponse, timeout_s)


@pytest.mark.parametrize(("newest", "used"), [(13, 12), (12, 12), (4, 4), (1, 1)])
def test_the_newest_version_both_know(newest: int, used: int) -> None:
    broker = FakeBroker({Api.API_VERSIONS: (0, 4), Api.METADATA: (0, newest)})
    broker.topics = {"t": [1]}

    async def test(connection: Connection) -> None:
        answer = await ask(connection)
        assert answer.topics[0].name == "t"
        assert broker.asked[-1] == (Api.METADATA, used)

    with_broker(broker, test)


def test_an_old_broker_is_asked_for_its_versions_again() -> None:
    broker = FakeBroker({Api.API_VERSIONS: (0, 2), Api.METADATA: (0, 5)})

    async def test(connection: Connection) -> None:
        await ask(connection)
        assert broker.asked == [
            (Api.API_VERSIONS, 4),
            (Api.API_VERSIONS, 0),
            (Api.METADATA, 5),
        ]

    with_broker(broker, test)


@pytest.mark.parametrize(
    "versions", [{}, {Api.METADATA: (13, 20)}], ids=["missing", "too new for us"]
)
def test_what_the_broker_lacks(versions: dict[Api, tuple[int, int]]) -> None:
    async def test(connection: Connection) -> None:
        with pytest.raises(Unsupported, match="METADATA"):
            await ask(connection)

    with_broker(FakeBroker({Api.API_VERSIONS: (0, 4), **versions}), test)


def test_answers_go_to_who_asked() -> None:
    broker = FakeBroker()
    broker.topics = {"t": [1]}
    answers = iter(range(20))

    def metadata(request: Any, version: int) -> Any:
        broker.topics = {"t": [1] * (next(answers) + 1)}
        return broker.metadata(request, version)

    broker.handlers[Api.METADATA] = metadata

    async def test(connection: Connection) -> None:
        found = await asyncio.gather(*(ask(connection) for _ in range(20)))
        assert [len(answer.topics[0].partitions) for answer in found] == list(range(1, 21))

    with_broker(broker, test)


def test_silence_is_not_waited_for_for_ever() -> None:
    broker = FakeBroker()
    broker.handlers[Api.METADATA] = lambda request, version: None

    async def test(connection: Connection) -> None:
        with pytest.raises(Unreachable, match=r"no answer .* within 0\.05 s"):
            await ask(connection, 0.05)
        await asyncio.sleep(0.01)
        assert not connection.is_open

    with_broker(broker, test)


def test_a_lost_connection_fails_everybody_who_waits() -> None:
    broker = FakeBroker()
    asked = []

    def metadata(request: Any, version: int) -> Any:
        asked.append(request)
        if len(asked) == 3:
            raise Hangup

    broker.handlers[Api.METADATA] = metadata

    async def test(connection: Connection) -> None:
        found = await asyncio.gather(*(ask(connection) for _ in range(3)), return_exceptions=True)
        assert [type(error) for error in found] == [Unreachable] * 3
        with pytest.raises(Unreachable, match="lost"):
            await ask(connection)

    with_broker(broker, test)


@pytest.mark.parametrize("answer", [b"", b"\x00", b"\xff" * 40], ids=["empty", "short", "garbage"])
def test_an_answer_that_is_not_one(answer: bytes) -> None:
    broker = FakeBroker()
    broker.handlers[Api.METADATA] = lambda request, version: answer

    async def test(connection: Connection) -> None:
        with pytest.raises(BadAnswer):
            await ask(connection)
        await asyncio.sleep(0.01)
        assert not connection.is_open

    with_broker(broker, test)


@pytest.mark.parametrize(
    "reply",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff\xff\xff\xff", b"\x00\x00\x00\x04\x00\x00\x00\x09"],
    ids=["http", "negative size", "unasked"],
)
def test_who_does_not_speak_kafka(reply: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(reply)

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable, match=r"not the protocol|an HTTP port"):
            await Connection.open(SocketNet(), "127.0.0.1", port, client_id="", timeout_s=5)
        server.close()

    asyncio.run(run())


def test_nobody_there() -> None:
    async def run() -> None:
        with pytest.raises(Unreachable, match=r"no broker answers at 127\.0\.0\.1:1: nobody"):
            await Connection.open(SocketNet(), "127.0.0.1", 1, client_id="", timeout_s=5)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it is an HTTP port"),
        (b"AMQP\0\0\x09\1", "it is an AMQP port"),
        (b"\x15\3\1\0\2\2\x46", "it speaks TLS"),
        (b"\xff\xff\xff\xff????", "bytes that are not the protocol"),
        (b"", "closed by peer; it may speak TLS"),
    ],
)
def test_who_else_listens_there(answer: bytes, said: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable) as caught:
            await Connection.open(SocketNet(), "127.0.0.1", port, client_id="test", timeout_s=5)
        assert said in str(caught.value)
        server.close()

    asyncio.run(run())
