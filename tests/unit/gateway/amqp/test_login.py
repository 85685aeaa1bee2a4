"""Who is let in."""

import asyncio

import pytest

from entrepot.broker.users import user_record
from entrepot.core import limits
from entrepot.wire.amqp.frames import PROTOCOL_HEADER
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import connection
from tests.unit.gateway.amqp.node import CAPABILITIES, Client, FakeLink, Node, on_node

REFUSED = connection.Close(
    403,
    "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
    "For details see the broker logfile.",
)


async def attempt(
    node: Node,
    user: str,
    password: str,
    *,
    peer: str = "127.0.0.1:40000",
    is_told: bool = True,
    **options: bool,
) -> list[Method]:
    client = Client(node.context(**options), FakeLink(peer))
    client.send(PROTOCOL_HEADER)
    client.heard()
    properties = {"capabilities": CAPABILITIES} if is_told else {}
    start_ok = connection.StartOk(properties, "PLAIN", f"\0{user}\0{password}".encode())
    client.say(start_ok, on=0)
    said = await client.told()
    assert bool(client.link.closed) is not any(isinstance(each, connection.Tune) for each in said)
    return said


def is_in(said: list[Method]) -> bool:
    return [type(each) for each in said] == [connection.Tune]


@on_node()
async def test_without_users_there_is_a_guest(node: Node) -> None:
    assert is_in(await attempt(node, "guest", "guest"))
    assert is_in(await attempt(node, "guest", "guest", peer="[::1]:5"))
    assert await attempt(node, "guest", "other") == [REFUSED]
    assert await attempt(node, "ana", "guest") == [REFUSED]
    assert await attempt(node, "ana", "guest", is_told=False) == []


@pytest.mark.parametrize("peer", ["192.0.2.1:5", "[2001:db8::1]:5", "elsewhere:5"])
@on_node()
async def test_a_guest_is_on_this_machine(node: Node, peer: str) -> None:
    assert await attempt(node, "guest", "guest", peer=peer) == [REFUSED]
    assert is_in(await attempt(node, "guest", "guest", peer=peer, is_open=True))


@on_node()
async def test_users_of_the_store(node: Node) -> None:
    user = await node.broker.users.with_password("ana", "secret")
    await node.broker.change_security(user_record(user))
    assert is_in(await attempt(node, "ana", "secret", asks_users=True, peer="192.0.2.1:5"))
    assert await attempt(node, "ana", "wrong", asks_users=True) == [REFUSED]
    assert await attempt(node, "guest", "guest", asks_users=True) == [REFUSED]


@pytest.mark.parametrize(("user", "password"), [("ana", "wrong"), ("nobody", "x")])
@on_node()
async def test_a_failure_takes_its_time(node: Node, user: str, password: str) -> None:
    known = await node.broker.users.with_password("ana", "secret")
    await node.broker.change_security(user_record(known))
    client = Client(node.context(asks_users=True))
    client.send(PROTOCOL_HEADER)
    client.say(connection.StartOk({}, "PLAIN", f"\0{user}\0{password}".encode()), on=0)
    await asyncio.sleep(limits.LOGIN_FAILURE_MS / 1_000 - 0.01)
    assert client.link.closed is None
    await asyncio.sleep(0.02)
    assert client.link.closed


@on_node()
async def test_a_certificate_is_a_name(node: Node) -> None:
    client = Client(node.context(asks_users=True), FakeLink(subject="CN=ana"))
    client.send(PROTOCOL_HEADER)
    start = client.heard()[0].method
    assert isinstance(start, connection.Start)
    assert start.mechanisms == b"PLAIN AMQPLAIN EXTERNAL"
    client.say(connection.StartOk({}, "EXTERNAL", b""), on=0)
    assert is_in(await client.told())
    client.say(connection.TuneOk(10, 4_096, 0), connection.Open("/"), on=0)
    (session,) = node.broker.sessions
    assert session.facts().user == "CN=ana"


@pytest.mark.parametrize("asks_users", [False, True])
@pytest.mark.parametrize("field", [b"S", b"x"])
@on_node()
async def test_what_is_not_unicode_is_nobodys_password(
    node: Node, field: bytes, asks_users: bool
) -> None:
    def pair(name: bytes, value: bytes) -> bytes:
        return bytes((len(name),)) + name + field + len(value).to_bytes(4, "big") + value

    for user, password in ((b"guest", b"\xff\xfe"), (b"\xff", b"guest")):
        amqplain = pair(b"LOGIN", user) + pair(b"PASSWORD", password)
        for mechanism, response in (
            ("AMQPLAIN", amqplain),
            ("PLAIN", b"\0" + user + b"\0" + password),
        ):
            client = Client(node.context(asks_users=asks_users))
            client.send(PROTOCOL_HEADER)
            client.heard()
            properties = {"capabilities": CAPABILITIES}
            client.say(connection.StartOk(properties, mechanism, response), on=0)
            (close,) = await client.told()
            assert isinstance(close, connection.Close)
            assert close.reply_code == 403
