"""Answers in the order of the requests, few writes, and an end to what has none."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest

from entrepot.core import limits
from entrepot.core.faults import Faults, Uncaught
from entrepot.gateway.http.adapter import HttpAdapter
from entrepot.gateway.pump import TURN_BYTES_MAX
from entrepot.wire.http import limits as http_limits
from entrepot.wire.http.request import HttpError, Request
from entrepot.wire.http.response import CONTINUE, Response
from sim import loop
from sim.clock import SimClock


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: a", *headers, "", ""]).encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    length = f"Content-Length: {len(body)}"
    lines = [f"POST {path} HTTP/1.1", "Host: a", length, *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class FakeLink:
    """A link whose other side takes everything at once, or nothing (`is_stuck`)."""

    peer = "127.0.0.1:5"
    subject = None

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.backlog = 0
        self.is_stuck = False
        self.is_paused = False
        self.closed: str | None = None

    def send(self, chunks: Sequence[Any]) -> None:
        if self.closed is None:
            self.writes.append(b"".join(chunks))
            self.backlog += len(self.writes[-1]) if self.is_stuck else 0

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self, reason: str) -> None:
        self.closed = reason

    abort = close

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        call(*arguments)

    @property
    def bodies(self) -> list[bytes]:
        """Of the answers so far, which have no empty line in them."""
        data = b"".join(self.writes)
        return [part.partition(b"\r\n\r\n")[2] for part in data.split(b"HTTP/1.1 ")[1:]]

    @property
    def statuses(self) -> list[int]:
        return [int(part[:3]) for part in b"".join(self.writes).split(b"HTTP/1.1 ")[1:]]


class Desk:
    """Answers with the path; slowly, wrongly or not at all for some."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.size = 0

    def __call__(self, request: Request, host: str) -> Response | Awaitable[Response]:
        assert host == "127.0.0.1"
        self.asked.append(request.target)
        if request.target == "/no":
            raise HttpError(418, "no")
        if request.target.startswith("/slow"):
            return self._slowly(request)
        return Response(200, request.target.encode() + request.body + bytes(self.size))

    async def _slowly(self, request: Request) -> Response:
        await self.gates.setdefault(request.target, asyncio.Event()).wait()
        if request.target == "/slow/mistake":
            raise RuntimeError("ours")
        if request.target == "/slow/no":
            raise HttpError(409, "no")
        return Response(200, request.target.encode())

    def open(self, path: str) -> None:
        self.gates.setdefault(path, asyncio.Event()).set()


class Client:
    def __init__(self, clock: SimClock) -> None:
        self.link, self.desk = FakeLink(), Desk()
        self.faults = Faults()
        self.adapter = HttpAdapter(self.link, self.desk, clock, self.faults)

    def say(self, data: bytes) -> None:
        while data and self.link.closed is None:
            view = self.adapter.writable()
            size = min(len(view), len(data))
            view[:size] = data[:size]
            del view
            self.adapter.received(size)
            data = data[size:]


Body = Callable[[Client], Coroutine[Any, Any, None]]


def with_client(body: Body) -> Callable[[], None]:
    async def main(sim: loop.SimLoop) -> None:
        client = Client(SimClock(sim))
        await body(client)
        client.adapter.closed("the test is over")
        assert client.adapter.unfinished().size == 0

    def test() -> None:
        loop.run(0, main)

    test.__name__ = body.__name__
    return test


@with_client
async def test_what_comes_together_is_answered_in_one_write(client: Client) -> None:
    client.say(get("/a") + post("/b", b"!") + get("/no"))
    assert len(client.link.writes) == 1
    assert client.link.statuses == [200, 200, 418]
    assert client.link.bodies[:2] == [b"/a", b"/b!"]
    assert b"Date: " in client.link.writes[0]
    assert client.link.closed is None


@with_client
async def test_answers_keep_the_order_of_the_requests(client: Client) -> None:
    client.say(get("/a") + get("/slow/1") + get("/b"))
    client.say(get("/slow/no") + get("/c"))
    assert client.link.bodies == [b"/a"]
    client.desk.open("/slow/no")
    client.desk.open("/slow/1")
    await asyncio.sleep(0.1)
    assert client.link.statuses == [200, 200, 200, 409, 200]
    assert client.desk.asked == ["/a", "/slow/1", "/b", "/slow/no", "/c"]


@with_client
async def test_the_last_request_is_the_last(client: Client) -> None:
    client.say(get("/a", "Connection: close") + get("/b"))
    assert client.desk.asked == ["/a"]
    assert b"Connection: close" in client.link.writes[0]
    assert client.link.closed is not None


@with_client
async def test_what_is_no_request_is_answered_after_those_before_it(client: Client) -> None:
    client.say(get("/slow/1") + b"nonsense\r\n\r\n")
    assert (client.link.writes, client.link.closed) == ([], None)
    client.desk.open("/slow/1")
    await asyncio.sleep(0.1)
    assert client.link.statuses == [200, 400]
    assert client.link.closed is not None


@with_client
async def test_a_mistake_of_ours_ends_the_connection(client: Client) -> None:
    client.say(get("/slow/mistake") + get("/b"))
    client.desk.open("/slow/mistake")
    await asyncio.sleep(0.1)
    assert client.link.statuses == [500]
    assert client.link.closed is not None
    assert client.desk.asked == ["/slow/mistake"]


@with_client
async def test_who_goes_away_is_not_waited_for(client: Client) -> None:
    client.say(get("/slow/1"))
    await asyncio.sleep(0.1)
    client.adapter.closed("gone")
    client.desk.open("/slow/1")
    await asyncio.sleep(0.1)
    assert client.link.writes == []


@with_client
async def test_who_does_not_wait_is_not_read_from(client: Client) -> None:
    client.say(get("/slow/1") + get("/b") * (http_limits.PIPELINED_MAX + 1))
    assert client.link.is_paused
    client.desk.open("/slow/1")
    await asyncio.sleep(0.1)
    assert not client.link.is_paused
    assert len(client.link.statuses) == http_limits.PIPELINED_MAX + 2


@with_client
async def test_who_does_not_read_gets_no_more(client: Client) -> None:
    client.link.is_stuck = True
    client.desk.size = limits.BACKLOG_BYTES_HIGH
    client.say(get("/a") + get("/b"))
    assert (client.desk.asked, client.link.is_paused) == (["/a"], True)
    client.link.backlog = 0
    client.adapter.drained()
    await asyncio.sleep(0.1)
    assert client.desk.asked == ["/a", "/b"]


@with_client
async def test_large_answers_are_made_in_turns(client: Client) -> None:
    client.desk.size = TURN_BYTES_MAX
    client.say(get("/a") + get("/b") + get("/c"))
    assert client.desk.asked == ["/a"]
    await asyncio.sleep(0.1)
    assert client.desk.asked == ["/a", "/b", "/c"]
    assert len(client.link.writes) == 3


@with_client
async def test_who_asks_first_may_send_a_body_when_it_is_its_turn(client: Client) -> None:
    whole = post("/b", b"!", "Expect: 100-continue")
    client.say(get("/slow/1") + whole[:-1])
    assert client.link.writes == []
    client.desk.open("/slow/1")
    await asyncio.sleep(0.1)
    assert client.link.writes[-1].endswith(CONTINUE)
    client.say(whole[-1:])
    assert client.link.bodies[-1] == b"/b!"


@with_client
async def test_a_request_has_a_time_to_be_whole(client: Client) -> None:
    client.say(get("/a") + b"GET /sl")
    for _ in range(int(http_limits.REQUEST_MS_MAX / 1_000) - 5):
        await asyncio.sleep(1)
        client.say(b"o")
    assert client.link.closed is None
    await asyncio.sleep(http_limits.CHECK_MS / 1_000 + 6)
    assert client.link.statuses == [200, 408]
    assert client.link.closed is not None


@with_client
async def test_an_idle_connection_ends(client: Client) -> None:
    client.say(get("/slow/1"))
    await asyncio.sleep(2 * http_limits.IDLE_MS_MAX / 1_000)
    assert client.link.closed is None  # It is we who keep it waiting.
    client.desk.open("/slow/1")
    await asyncio.sleep(http_limits.CHECK_MS / 1_000 + 1)
    assert client.link.closed == "idle"


@with_client
async def test_what_is_held_is_known(client: Client) -> None:
    large = post("/slow/1", b"x" * 600)
    client.say(large[:-1])
    assert client.adapter.unfinished() == (599, 0, True)
    client.say(large[-1:] + large)
    assert client.adapter.unfinished() == (1_200, 1, False)
    client.desk.open("/slow/1")
    await asyncio.sleep(0.1)
    assert client.adapter.unfinished().size == 0
    client.say(get("/a")[:-1])
    assert client.adapter.unfinished() == (len(get("/a")) - 1, 2, True)


@with_client
async def test_who_is_sent_away_is_told_so_unless_it_waits_for_an_answer(client: Client) -> None:
    client.say(post("/a", b"x")[:-1])
    client.adapter.refuse("too much")
    assert client.link.statuses == [503]
    assert client.link.closed == "too much"


@with_client
async def test_no_answer_is_made_up_for_a_request_that_is_served(client: Client) -> None:
    client.say(post("/slow/1", b"x"))
    await asyncio.sleep(0.1)
    client.adapter.refuse("too much")
    assert client.link.writes == []
    assert client.link.closed == "too much"


def test_nothing_is_hidden_by_a_failing_handler() -> None:
    async def main(sim: loop.SimLoop) -> None:
        def fail(request: Request, host: str) -> Response:
            raise RuntimeError("ours")

        adapter = HttpAdapter(FakeLink(), fail, SimClock(sim), Uncaught())
        adapter.writable()[: len(get("/a"))] = get("/a")
        with pytest.raises(RuntimeError):  # The link catches it, and ends the connection.
            adapter.received(len(get("/a")))

    loop.run(0, main)
