"""A link inside a link: who may open it, what passes through, and what holds it up."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from entrepot.core import limits
from entrepot.core.faults import Faults
from entrepot.core.ports import NOTHING_UNFINISHED, Link, Unfinished
from entrepot.gateway.http.adapter import Front, HttpAdapter, Upgrades
from entrepot.gateway.http.websocket import AREA_BYTES_MAX, Service, WebSockets
from entrepot.wire.http import limits as http_limits
from entrepot.wire.http.request import Request
from entrepot.wire.http.response import Response
from sim import loop
from sim.clock import SimClock
from tests.unit.gateway.http.test_adapter import FakeLink, get
from tests.unit.wire.http.test_websocket import BINARY, CLOSE, PING, TEXT, frame

UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
AREA_BYTES = 64


class Inside:
    """A receiver that keeps what it gets, and pauses when it is told to."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.got = b""
        self.most: int | None = None  # Pause once so many bytes came.
        self.events: list[str] = []
        self._area = bytearray(AREA_BYTES)

    def writable(self) -> memoryview:
        return memoryview(self._area)

    def received(self, size: int) -> None:
        assert size
        self.got += self._area[:size]
        if self.most is not None and len(self.got) >= self.most:
            self.link.pause()

    def drained(self) -> None:
        self.events.append("drained")

    def closed(self, reason: str) -> None:
        self.events.append(reason)

    def unfinished(self) -> Unfinished:
        return NOTHING_UNFINISHED

    def refuse(self, reason: str) -> None:
        self.link.close(reason)


class Client:
    def __init__(
        self,
        clock: SimClock,
        *,
        accepts_text: bool = True,
        origins: tuple[str, ...] = (),
        trusts_machine: bool = False,
    ) -> None:
        self.link = FakeLink()
        self.insides: list[Inside] = []
        service = Service(("one", "two"), self._accept, accepts_text=accepts_text)
        self.front = Front()
        accept = WebSockets({"talk": service}, origins, trusts_machine)
        upgrades = Upgrades(accept, self.front)
        self.front.receiver = HttpAdapter(
            self.link, self._answer, clock, Faults(), upgrades=upgrades
        )

    def _accept(self, link: Link) -> Inside:
        self.insides.append(Inside(link))
        return self.insides[-1]

    def _answer(self, request: Request, host: str) -> Response:
        return Response(200, request.target.encode())

    @property
    def inside(self) -> Inside:
        return self.insides[0]

    def say(self, data: bytes) -> bytes:
        """Say it as far as it is read; return the rest."""
        while data and self.link.closed is None and not self.link.is_paused:
            view = self.front.writable()
            size = min(len(view), len(data))
            view[:size] = data[:size]
            del view
            self.front.received(size)
            data = data[size:]
        return data

    def open(self, *headers: str) -> None:
        assert self.say(get("/talk", *UPGRADE, *headers)) == b""
        assert self.link.statuses == [101]
        self.link.writes.clear()


def with_client(**options: Any) -> Callable[[Callable[[Client], Coroutine[Any, Any, None]]], Any]:
    def wrap(body: Callable[[Client], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def main(sim: loop.SimLoop) -> None:
            client = Client(SimClock(sim), **options)
            await body(client)
            client.front.closed("the test is over")
            assert client.front.unfinished().size == 0

        def test() -> None:
            loop.run(0, main)

        test.__name__ = body.__name__
        return test

    return wrap


@with_client()
async def test_bytes_go_through_in_both_directions(client: Client) -> None:
    client.say(get("/before"))
    client.link.writes.clear()
    client.open("Sec-WebSocket-Protocol: two, one")
    client.say(frame(BINARY, b"hello ") + frame(BINARY, b"you"))
    assert client.inside.got == b"hello you"
    client.inside.link.send([b"good ", bytearray(b"bye")])
    client.inside.link.send([])
    assert client.link.writes == [b"\x82\x08good bye"]
    assert client.inside.link.peer == client.link.peer
    client.front.drained()
    client.front.closed("gone")
    assert client.inside.events == ["drained", "gone"]


@with_client()
async def test_other_paths_are_http(client: Client) -> None:
    client.say(get("/other", *UPGRADE) + get("/talk", "X: y") + get("/talk/more", *UPGRADE))
    assert client.link.statuses == [200, 426, 200]
    assert client.insides == []
    client.say(get("/talk?x=y", *UPGRADE))
    assert client.link.statuses[-1] == 101


@with_client()
async def test_nothing_follows_the_handshake_before_the_answer(client: Client) -> None:
    client.say(get("/talk", *UPGRADE) + frame(BINARY, b"early"))
    assert client.link.statuses[0] == 400
    assert client.insides == []
    assert client.link.closed is not None


@pytest.mark.parametrize(
    ("host", "origin", "options", "status"),
    [
        ("localhost:1", None, {"trusts_machine": True}, 101),
        ("localhost:1", "http://localhost:1", {"trusts_machine": True}, 101),
        ("localhost:1", "http://evil.example", {}, 403),
        ("localhost:1", "null", {}, 403),
        ("localhost:1", "http://shop.example", {"origins": ("http://shop.example",)}, 101),
        ("localhost:1", "http://evil.example", {"origins": ("http://shop.example",)}, 403),
        ("localhost:1", "http://evil.example", {"origins": ("*",)}, 101),
        ("evil.example:1", "http://evil.example:1", {"trusts_machine": True}, 403),
        ("evil.example:1", "http://evil.example:1", {}, 101),
        ("box.example:1", None, {"trusts_machine": True}, 101),
    ],
)
def test_whose_pages_may_connect(
    host: str, origin: str | None, options: dict[str, Any], status: int
) -> None:
    async def main(sim: loop.SimLoop) -> None:
        client = Client(SimClock(sim), **options)
        headers = UPGRADE if origin is None else (*UPGRADE, f"Origin: {origin}")
        client.say(get("/talk", *headers).replace(b"Host: a", f"Host: {host}".encode()))
        assert client.link.statuses == [status]
        client.front.closed("the test is over")

    loop.run(0, main)


@with_client()
async def test_texts_are_answered_with_texts_where_they_can_be(client: Client) -> None:
    client.open()
    client.say(frame(TEXT, b"a"))
    client.inside.link.send(["grün".encode()])
    client.inside.link.send([b"\xff"])
    client.say(frame(BINARY, b"b"))
    client.inside.link.send([b"c"])
    assert client.link.writes == [b"\x81\x05gr\xc3\xbcn", b"\x82\x01\xff", b"\x82\x01c"]


@with_client(accepts_text=False)
async def test_a_text_where_there_are_none_ends_it(client: Client) -> None:
    client.open()
    client.say(frame(TEXT, b"a"))
    assert client.link.closed is not None
    assert b"".join(client.link.writes)[2:4] == (1003).to_bytes(2, "big")
    assert client.inside.got == b""


@with_client()
async def test_who_is_inside_pauses_in_the_middle(client: Client) -> None:
    client.open()
    client.inside.most = AREA_BYTES
    data = bytes(range(250)) * 4
    left = client.say(frame(BINARY, data[:500]) + frame(BINARY, data[500:]) + frame(PING, b"?"))
    assert client.inside.got == data[:AREA_BYTES]
    assert client.link.is_paused
    held = client.front.unfinished()
    assert held.size >= 500 - AREA_BYTES
    assert not held.awaits_rest
    client.inside.most = 2 * AREA_BYTES
    client.inside.link.resume()
    assert client.inside.got == data[:AREA_BYTES]  # Not while who is inside is our caller.
    await asyncio.sleep(0.001)
    assert client.inside.got == data[: 2 * AREA_BYTES]
    assert client.link.is_paused
    client.inside.most = None
    client.inside.link.resume()
    await asyncio.sleep(0.001)
    assert not client.link.is_paused
    assert client.say(left) == b""
    assert client.inside.got == data


@with_client()
async def test_the_end_comes_after_what_was_held_up(client: Client) -> None:
    client.open()
    client.inside.most = 1
    client.say(frame(BINARY, bytes(100)) + frame(CLOSE, b"\x03\xe8"))
    assert client.link.closed is None
    client.inside.most = None
    client.inside.link.resume()
    await asyncio.sleep(0.001)
    assert len(client.inside.got) == 100
    assert client.link.closed == "closed by peer"
    assert client.link.writes == [b"\x88\x02\x03\xe8"]


@with_client()
async def test_who_does_not_read_pongs_is_not_read_from(client: Client) -> None:
    client.open()
    client.link.is_stuck = True
    client.link.backlog = limits.BACKLOG_BYTES_HIGH
    client.say(frame(PING, b"?"))
    assert client.link.is_paused
    client.link.backlog = 0
    client.front.drained()
    assert not client.link.is_paused
    assert client.inside.events == ["drained"]


@with_client()
async def test_others_get_their_turn_during_a_flood(client: Client) -> None:
    client.open()
    flood = frame(PING) * (AREA_BYTES_MAX // 6)
    left = client.say(flood)
    while left:
        before = len(left)
        assert client.link.is_paused
        await asyncio.sleep(0.001)
        assert not client.link.is_paused
        left = client.say(left)
        assert before - len(left) <= AREA_BYTES_MAX
    assert b"".join(client.link.writes) == b"\x8a\x00" * (AREA_BYTES_MAX // 6)


@with_client()
async def test_before_an_answer_frames_are_small(client: Client) -> None:
    client.open()
    announced = b"\x82\xff" + (limits.LOGIN_FRAME_BYTES_MAX + 1).to_bytes(8, "big")
    client.say(announced)
    assert b"".join(client.link.writes)[2:4] == (1009).to_bytes(2, "big")
    assert client.link.closed is not None


@with_client()
async def test_after_an_answer_they_may_be_as_large_as_a_message(client: Client) -> None:
    client.open()
    client.inside.link.send([b"welcome"])
    whole = frame(BINARY, bytes(300_000))
    client.say(whole[:200_000])
    held = client.front.unfinished()
    assert held.awaits_rest
    assert held.size > 190_000
    client.say(whole[200_000:])
    assert client.inside.got == bytes(300_000)
    announced = b"\x82\xff" + (http_limits.WEBSOCKET_FRAME_BYTES_MAX + 1).to_bytes(8, "big")
    client.say(announced)
    assert client.link.closed is not None


@with_client()
async def test_who_is_inside_ends_it(client: Client) -> None:
    client.open()
    client.inside.link.send([b"bye"])
    client.inside.link.close("done")
    client.inside.link.send([b"more"])
    assert client.link.writes == [b"\x82\x03bye", b"\x88\x02\x03\xe8"]
    assert client.link.closed == "done"
    client.front.received(1)  # A read that was on its way.


@with_client()
async def test_too_much_unfinished_input_is_refused_inside(client: Client) -> None:
    client.open()
    client.front.refuse("too much")
    assert client.link.closed == "too much"


@with_client()
async def test_the_times_of_http_do_not_count(client: Client) -> None:
    client.open()
    await asyncio.sleep(2 * http_limits.IDLE_MS_MAX / 1_000)
    assert client.link.closed is None
