"""A connection before it has a name: what is served, what is refused, and when it is let go.

The peer speaks raw frames over a simulated network to a whole server, because that is
where an attacker stands.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v1.request import MetadataRequest, MetadataRequestTopic
from kio.schema.sasl_authenticate.v1.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v0.request import SaslHandshakeRequest as SaslHandshakeRequestV0
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.types import TopicName

from entrepot.broker.users import user_record
from entrepot.config import build
from entrepot.core import limits
from entrepot.core.ports import World
from entrepot.core.scram import Mechanism
from entrepot.gateway.kafka.login import SERVED, LoginState
from entrepot.server import Server
from entrepot.wire.kafka.api import Api, response_class
from entrepot.wire.kafka.frames import request_header, size_prefix
from entrepot.wire.kafka.layout import decode, encode
from entrepot.wire.sasl import ScramClient, plain_token
from sim.clock import SimClock
from sim.disk import SimDisk
from sim.entropy import SimEntropy
from sim.loop import SimLoop, run
from sim.net import SimNetwork
from tests.contracts.peers import Peer

CONFIG = {"host": "broker", "ports": {"kafka": 9092}, "security": {"authentication": "sasl"}}


class Stranger(Peer):
    """Requests out, answers in, one at a time."""

    def send(self, request: Any) -> None:
        api, version = Api(request.__api_key__), int(request.__version__)
        frame = request_header(api, version, 7, "stranger") + encode(request, type(request))
        self.link.send([size_prefix(len(frame)) + frame])

    async def answer(self, request: Any) -> Any:
        await self.until(lambda: len(self.data) >= 4 or bool(self.reasons))
        assert self.data, self.reasons
        size = int.from_bytes(self.data[:4], "big")
        await self.until(lambda: len(self.data) >= 4 + size)
        body = memoryview(bytes(self.data[8 : 4 + size]))
        del self.data[: 4 + size]
        layout = response_class(Api(request.__api_key__), int(request.__version__))
        return decode(layout, layout, body)

    async def ask(self, request: Any) -> Any:
        self.send(request)
        return await self.answer(request)

    async def say(self, token: bytes) -> Any:
        return await self.ask(SaslAuthenticateRequest(auth_bytes=token))

    async def begin(self, mechanism: str) -> None:
        answer = await self.ask(SaslHandshakeRequest(mechanism=mechanism))
        assert answer.error_code is ErrorCode.none

    async def is_in(self) -> bool:
        answer = await self.ask(MetadataRequest(topics=None))
        return len(answer.brokers) == 1


Body = Callable[[Server, Callable[[], Coroutine[Any, Any, Stranger]]], Coroutine[Any, Any, None]]


def on_server(body: Body, config: dict[str, Any] | None = None) -> None:
    async def main(loop: SimLoop) -> None:
        network = SimNetwork(loop.random("net"))
        doors = World(
            SimClock(loop),
            SimEntropy(loop.random("entropy")),
            SimDisk(loop.random("disk")),
            network.door("broker"),
        )
        server = Server(build(config or CONFIG, "test"), doors)
        await server.start()
        users = server.broker.users
        await server.broker.change_security(user_record(await users.with_password("ana", "right")))

        async def connect() -> Stranger:
            made: list[Stranger] = []

            def attach(link: Any) -> Stranger:
                made.append(Stranger(link))
                return made[0]

            await network.door("peer").connect("broker", 9092, attach)
            return made[0]

        await body(server, connect)
        await server.stop()

    run(0, main)


def test_plain() -> None:
    async def body(server: Server, connect: Any) -> None:
        peer = await connect()
        assert (await peer.ask(ApiVersionsRequest())).error_code is ErrorCode.none
        await peer.begin("PLAIN")
        assert (await peer.say(plain_token("ana", "right"))).error_code is ErrorCode.none
        assert await peer.is_in()
        again = await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"))
        assert again.error_code is ErrorCode.illegal_sasl_state
        token = await peer.say(plain_token("ana", "right"))
        assert token.error_code is ErrorCode.illegal_sasl_state
        assert await peer.is_in()

    on_server(body)


@pytest.mark.parametrize("mechanism", Mechanism)
def test_scram(mechanism: Mechanism) -> None:
    async def body(server: Server, connect: Any) -> None:
        peer = await connect()
        await peer.begin(mechanism.value)
        client = ScramClient(mechanism, "ana", "right", "nonce")
        challenge = await peer.say(client.first())
        final = await peer.say(client.answer(challenge.auth_bytes))
        client.check(final.auth_bytes)
        assert await peer.is_in()

    on_server(body)


@pytest.mark.parametrize(("user", "password"), [("ana", "wrong"), ("bob", "right")])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_fails_is_told_so_and_let_go(
    mechanism: str, user: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(server: Server, connect: Any) -> None:
        loop = asyncio.get_running_loop()
        peer = await connect()
        await peer.begin(mechanism)
        if mechanism == "PLAIN":
            token = plain_token(user, password)
        else:
            client = ScramClient(Mechanism(mechanism), user, password, "nonce")
            token = client.answer((await peer.say(client.first())).auth_bytes)
        before = loop.time()
        answer = await peer.say(token)
        assert answer.error_code is ErrorCode.sasl_authentication_failed
        assert answer.error_message == "Authentication failed: wrong user or password"
        assert loop.time() - before >= limits.LOGIN_FAILURE_MS / 1_000
        await peer.end()

    with caplog.at_level(logging.WARNING, "entrepot"):
        on_server(body)
    lines = [record.getMessage() for record in caplog.records if "login" in record.getMessage()]
    assert len(lines) == 1
    assert f"login of '{user}' with {mechanism} failed" in lines[0]
    assert "peer:" in lines[0]
    assert "right" not in lines[0]


ARGUMENTS: dict[str, Any] = {
    "metadata": MetadataRequest(topics=None),
    "authenticate": SaslAuthenticateRequest(auth_bytes=plain_token("ana", "right")),
}


@pytest.mark.parametrize("request_", ARGUMENTS.values(), ids=ARGUMENTS)
def test_nothing_else_is_served_to_strangers(request_: Any) -> None:
    async def body(server: Server, connect: Any) -> None:
        peer = await connect()
        peer.send(request_)
        await peer.end()
        assert not peer.data

    on_server(body)


@pytest.mark.parametrize(
    "after", [MetadataRequest(topics=None), SaslHandshakeRequest(mechanism="PLAIN")]
)
def test_whoever_began_goes_on_or_goes(after: Any) -> None:
    async def body(server: Server, connect: Any) -> None:
        peer = await connect()
        await peer.begin("SCRAM-SHA-256")
        peer.send(after)
        await peer.end()
        assert not peer.data

    on_server(body)


def test_what_is_sent_ahead_of_a_failed_login_is_not_served() -> None:
    async def body(server: Server, connect: Any) -> None:
        peer = await connect()
        await peer.begin("PLAIN")
        login = SaslAuthenticateRequest(auth_bytes=plain_token("ana", "wrong"))
        peer.send(login)
        peer.send(MetadataRequest(topics=None))
        answer = await peer.answer(login)
        assert answer.error_code is ErrorCode.sasl_authentication_failed
        await peer.end()
        assert not peer.data

    on_server(body)


def test_what_is_sent_ahead_of_a_login_is_served_after_it() -> None:
    async def body(server: Server, connect: Any) -> None:
        peer = await connect()
        await peer.begin("PLAIN")
        login, metadata = (
            SaslAuthenticateRequest(auth_bytes=plain_token("ana", "right")),
            MetadataRequest(topics=None),
        )
        peer.send(login)
        peer.send(metadata)
        assert (await peer.answer(login)).error_code is ErrorCode.none
        assert len((await peer.answer(metadata)).brokers) == 1

    on_server(body)


@pytest.mark.parametrize(
    ("handshake", "code"),
    [
        (SaslHandshakeRequest(mechanism="GSSAPI"), ErrorCode.unsupported_sasl_mechanism),
        (SaslHandshakeRequest(mechanism="x" * 30_000), ErrorCode.unsupported_sasl_mechanism),
        (SaslHandshakeRequest(mechanism=""), ErrorCode.unsupported_sasl_mechanism),
        (SaslHandshakeRequestV0(mechanism="PLAIN"), ErrorCode.unsupported_version),
    ],
)
def test_a_handshake_that_leads_nowhere(handshake: Any, code: ErrorCode) -> None:
    async def body(server: Server, connect: Any) -> None:
        peer = await connect()
        answer = await peer.ask(handshake)
        assert answer.error_code is code
        assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        if code is ErrorCode.unsupported_sasl_mechanism:
            await peer.end()
        else:
            await peer.begin("PLAIN")

    on_server(body)


@pytest.mark.parametrize(
    "token",
    [b"", b"\0", b"\xff" * 100, b"\0ana\0right\0", b"x" * 60_000, plain_token("ana", "r" * 60_000)],
)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_garbage_for_a_token(mechanism: str, token: bytes) -> None:
    async def body(server: Server, connect: Any) -> None:
        peer = await connect()
        await peer.begin(mechanism)
        answer = await peer.say(token)
        assert answer.error_code is ErrorCode.sasl_authentication_failed
        await peer.end()

    on_server(body)


def test_a_stranger_may_not_send_much() -> None:
    async def body(server: Server, connect: Any) -> None:
        for begun in (False, True):
            peer = await connect()
            if begun:
                await peer.begin("PLAIN")
            # A Produce request may have 100 MiB. Not a stranger's.
            before = asyncio.get_running_loop().time()
            peer.link.send([size_prefix(limits.LOGIN_FRAME_BYTES_MAX + 1) + b"\0\0"])
            await peer.end()
            assert asyncio.get_running_loop().time() - before < 1

    on_server(body)


def test_a_stranger_that_does_not_wait_is_not_read_from() -> None:
    async def body(server: Server, connect: Any) -> None:
        peer = await connect()
        await peer.begin("PLAIN")
        login = SaslAuthenticateRequest(auth_bytes=plain_token("ana", "wrong" * 10_000))
        for _ in range(200):  # 10 MB, of which the first is answered after a while.
            peer.send(login)
        await asyncio.sleep(limits.LOGIN_FAILURE_MS / 2_000)
        assert peer.link.backlog > 8 * limits.MIB
        answer = await peer.answer(login)
        assert answer.error_code is ErrorCode.sasl_authentication_failed
        await peer.end()

    on_server(body)


def test_whoever_is_in_may_send_more() -> None:
    async def body(server: Server, connect: Any) -> None:
        peer = await connect()
        await peer.begin("PLAIN")
        await peer.say(plain_token("ana", "right"))
        names = [TopicName(f"{'x' * 240}{number}") for number in range(1_000)]
        request = MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in names))
        assert len((await peer.ask(request)).topics) == 1_000

    on_server(body, {**CONFIG, "topics": {"auto_create": False}})


@pytest.mark.parametrize("begun", [False, True])
def test_a_stranger_has_its_time(begun: bool) -> None:
    async def body(server: Server, connect: Any) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        peer = await connect()
        if begun:
            await peer.begin("SCRAM-SHA-512")
        await peer.end()
        assert 0 <= loop.time() - before - limits.LOGIN_MS_MAX / 1_000 < 1

    on_server(body)


def test_whoever_is_in_has_all_the_time() -> None:
    async def body(server: Server, connect: Any) -> None:
        peer = await connect()
        await peer.begin("PLAIN")
        await peer.say(plain_token("ana", "right"))
        await asyncio.sleep(10 * limits.LOGIN_MS_MAX / 1_000)
        assert await peer.is_in()

    on_server(body)


def test_where_nobody_is_asked_there_is_no_login() -> None:
    async def body(server: Server, connect: Any) -> None:
        peer = await connect()
        answer = await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"))
        assert answer.error_code is ErrorCode.illegal_sasl_state
        assert await peer.is_in()

    on_server(body, {**CONFIG, "security": {}})


def test_every_state_is_in_the_table() -> None:
    assert set(SERVED) == set(LoginState)
