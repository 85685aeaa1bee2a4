"""From the first byte to an open connection, and all the ways not to get there."""

import asyncio

import pytest

from entrepot.core import limits
from entrepot.wire.amqp import table
from entrepot.wire.amqp.frames import PROTOCOL_HEADER, ProtocolHeader, method_frame
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import channel, connection
from tests.unit.gateway.amqp.node import CAPABILITIES, Client, FakeLink, Node, on_node

PLAIN = connection.StartOk({"capabilities": CAPABILITIES}, "PLAIN", b"\0guest\0guest")


async def greeted(node: Node, link: FakeLink | None = None, **options: bool) -> Client:
    client = Client(node.context(**options), link)
    client.send(PROTOCOL_HEADER)
    (start,) = client.heard()
    assert isinstance(start.method, connection.Start)
    return client


async def answer(client: Client, *methods: Method) -> list[Method]:
    client.say(*methods, on=0)
    return await client.told()


@on_node()
async def test_what_the_server_says_of_itself(node: Node) -> None:
    client = Client(node.context())
    client.send(PROTOCOL_HEADER)
    start = client.heard()[0].method
    assert isinstance(start, connection.Start)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert (start.mechanisms, start.locales) == (b"PLAIN AMQPLAIN", b"en_US")
    said = start.server_properties
    assert (said["product"], said["version"]) == ("entrepot", "1.2.3")
    assert said["capabilities"] == dict.fromkeys(
        (
            "publisher_confirms",
            "exchange_exchange_bindings",
            "basic.nack",
            "consumer_cancel_notify",
            "connection.blocked",
            "consumer_priorities",
            "authentication_failure_close",
            "per_consumer_qos",
            "direct_reply_to",
        ),
        True,
    )


@pytest.mark.parametrize("octets", [b"GET / HT", b"AMQP\0\1\0\0", b"AMQP\1\1\x08\0", b"\x16\x03"])
@on_node()
async def test_other_protocols(node: Node, octets: bytes) -> None:
    client = Client(node.context())
    client.send(octets)
    assert client.heard() == []
    assert client.headers == [ProtocolHeader(PROTOCOL_HEADER)]
    assert client.link.closed is not None
    assert "not AMQP 0-9-1" in client.link.closed


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"\0guest\0guest"),
        ("AMQPLAIN", table.encode({"LOGIN": "guest", "PASSWORD": "guest"})),
        ("AMQPLAIN", table.encode({"LOGIN": b"guest", "PASSWORD": b"guest"})),
    ],
)
@on_node()
async def test_the_way_in(node: Node, mechanism: str, response: bytes) -> None:
    client = await greeted(node)
    (tune,) = await answer(client, connection.StartOk({}, mechanism, response))
    assert tune == connection.Tune(2_047, 131_072, 60)
    assert await answer(client, connection.TuneOk(10, 4_096, 0)) == []
    assert await answer(client, connection.Open("/")) == [connection.OpenOk()]


@pytest.mark.parametrize(
    "start_ok",
    [
        connection.StartOk({}, "SCRAM", b""),
        connection.StartOk({}, "EXTERNAL", b""),
        connection.StartOk({}, "PLAIN", b"guest"),
        connection.StartOk({}, "PLAIN", b"\0guest"),
        connection.StartOk({}, "AMQPLAIN", b"garbage"),
        connection.StartOk({}, "AMQPLAIN", table.encode({"LOGIN": "guest"})),
        connection.StartOk({}, "AMQPLAIN", table.encode({"LOGIN": 1, "PASSWORD": 2})),
        connection.TuneOk(10, 4_096, 0),
        connection.SecureOk(b"x"),
        connection.OpenOk(),
    ],
)
@on_node()
async def test_a_stranger_that_is_wrong_hears_nothing(node: Node, start_ok: Method) -> None:
    client = await greeted(node)
    assert await answer(client, start_ok) == []
    assert client.link.closed


@on_node()
async def test_a_stranger_with_a_channel(node: Node) -> None:
    client = await greeted(node)
    client.send(method_frame(1, channel.Open()))
    assert await client.told() == []
    assert client.link.closed


@on_node()
async def test_a_stranger_that_says_too_much(node: Node) -> None:
    client = await greeted(node)
    client.send(b"\x01\0\0" + (limits.LOGIN_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    assert await client.told() == []
    assert client.link.closed


@pytest.mark.parametrize(
    ("tune_ok", "text"),
    [
        (
            connection.TuneOk(0, 131_072, 0),
            "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)",
        ),
        (
            connection.TuneOk(2_048, 131_072, 0),
            "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)",
        ),
        (
            connection.TuneOk(10, 0, 0),
            "negotiated frame_max = 0 is higher than the maximum allowed value (131072)",
        ),
        (
            connection.TuneOk(10, 131_073, 0),
            "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)",
        ),
        (
            connection.TuneOk(10, 4_095, 0),
            "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)",
        ),
    ],
)
@on_node()
async def test_terms_that_are_not_agreed(node: Node, tune_ok: connection.TuneOk, text: str) -> None:
    client = await greeted(node)
    await answer(client, PLAIN)
    (close,) = await answer(client, tune_ok)
    assert close == connection.Close(530, f"NOT_ALLOWED - {text}", *connection.Tune.ID)
    assert client.link.closed


@on_node()
async def test_a_virtual_host_that_is_not_there(node: Node) -> None:
    client = await greeted(node)
    await answer(client, PLAIN)
    tune_ok, opened = connection.TuneOk(10, 4_096, 0), connection.Open("nosuch")
    (close,) = await answer(client, tune_ok, opened)
    text = "NOT_ALLOWED - vhost nosuch not found"
    assert close == connection.Close(530, text, *connection.Open.ID)


@on_node()
async def test_closed_on_the_way(node: Node) -> None:
    client = await greeted(node)
    await answer(client, PLAIN)
    assert await answer(client, connection.Close()) == [connection.CloseOk()]
    assert client.link.closed


@on_node()
async def test_nobody_may_take_for_ever(node: Node) -> None:
    client = await greeted(node)
    await asyncio.sleep(limits.LOGIN_MS_MAX / 1_000 + 1)
    assert client.link.closed == "no login in time"
    other = await node.client()
    await asyncio.sleep(limits.LOGIN_MS_MAX / 1_000 + 1)
    assert other.link.closed is None


@on_node()
async def test_all_at_once(node: Node) -> None:
    """A client that does not wait is answered in order."""
    client = Client(node.context())
    client.send(
        PROTOCOL_HEADER,
        method_frame(0, PLAIN),
        method_frame(0, connection.TuneOk(10, 4_096, 0)),
        method_frame(0, connection.Open("/")),
        method_frame(1, channel.Open()),
    )
    kinds = [type(each) for each in await client.told()]
    assert kinds == [connection.Start, connection.Tune, connection.OpenOk, channel.OpenOk]
