"""etcd's client when etcd misbehaves. What it does when all is well is a contract's matter."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from entrepot.cluster.etcd_coordinator import EtcdCoordinator
from entrepot.core.coordinator import Event, Put
from entrepot.core.errors import CoordinatorUnavailable, LeaseLost
from entrepot.core.ports import NOTHING_UNFINISHED, Link, Unfinished
from entrepot.wire.http.request import RequestReader
from sim.loop import SimLoop, run
from sim.net import SimNetwork

RANGE = b'{"header":{"revision":"7"},"kvs":[{"key":"YQ==","value":"Yg==","mod_revision":"5"}]}'


class Server:
    """Answers each request with the next of its answers; None closes the connection."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []

    def accept(self, link: Link) -> "Session":
        return Session(self, link)


class Session:
    def __init__(self, server: Server, link: Link) -> None:
        self._server, self._link = server, link
        self._reader = RequestReader()

    def writable(self) -> memoryview:
        return self._reader.writable()

    def received(self, size: int) -> None:
        for request in self._reader.received(size):
            self._server.requests.append(request.body)
            answer = self._server.answers.pop(0) if self._server.answers else b""
            if answer is None:
                self._link.abort("no answer")
            elif answer:
                self._link.send([answer])

    def drained(self) -> None: ...

    def closed(self, reason: str) -> None: ...

    def unfinished(self) -> Unfinished:
        return NOTHING_UNFINISHED

    def refuse(self, reason: str) -> None: ...


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status.encode(), len(body), body)


def stream(*lines: bytes) -> bytes:
    chunks = b"".join(b"%x\r\n%b\n\r\n" % (len(line) + 1, line) for line in lines)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks


Story = Callable[[EtcdCoordinator], Awaitable[None]]


def tell(story: Story, *servers: Server, seed: int = 0) -> None:
    """Run the story with a client of these servers."""

    async def main(loop: SimLoop) -> None:
        network = SimNetwork(loop.random("net"))
        endpoints = []
        for number, server in enumerate(servers):
            listener = await network.door(f"etcd{number}").listen(f"etcd{number}", 0, server.accept)
            endpoints.append((f"etcd{number}", listener.port))
        await story(EtcdCoordinator(network.door("node"), endpoints))

    run(seed, main)


def test_the_next_endpoint_is_used_when_one_fails(seed: int) -> None:
    bad, good = Server(None), Server(answer(RANGE), answer(RANGE))

    async def story(coordinator: EtcdCoordinator) -> None:
        with pytest.raises(CoordinatorUnavailable):
            await coordinator.commit([], [Put("a", b"b")])
        for _ in range(2):
            entry = await coordinator.get("a")
            assert entry is not None
            assert (entry.value, entry.revision) == (b"b", 5)

    tell(story, bad, good, seed=seed)
    assert len(bad.requests) == 1  # A change is never sent twice.
    assert len(good.requests) == 2


def test_who_does_not_answer_is_left_after_a_while() -> None:
    async def story(coordinator: EtcdCoordinator) -> None:
        with pytest.raises(CoordinatorUnavailable, match="does not answer"):
            await coordinator.get("a")
        assert (await coordinator.range("")).revision == 7

    tell(story, Server(), Server(answer(RANGE)))


def test_nobody_listens() -> None:
    async def main(loop: SimLoop) -> None:
        net = SimNetwork(loop.random("net")).door("node")
        with pytest.raises(CoordinatorUnavailable, match="etcd at nowhere:1"):
            await EtcdCoordinator(net, [("nowhere", 1)]).get("a")

    run(0, main)


@pytest.mark.parametrize(
    ("bytes_sent", "text"),
    [
        (answer(b"not json"), "not an answer of etcd"),
        (answer(b'{"kvs":[{"key":"/w=="}]}'), "not an answer"),
        (b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
        (answer(b'{"code":14,"message":"no leader"}', "503 Gone"), "no leader"),
        (answer(b"<html>", "502 Bad Gateway"), "answers 502"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 60_000, "too large"),
    ],
)
def test_strange_answers(bytes_sent: bytes, text: str) -> None:
    async def story(coordinator: EtcdCoordinator) -> None:
        with pytest.raises(CoordinatorUnavailable, match=text):
            await coordinator.range("")

    tell(story, Server(bytes_sent))


def test_a_lease_that_is_gone() -> None:
    gone = answer(b'{"code":5,"message":"etcdserver: requested lease not found"}', "404 Not Found")

    async def story(coordinator: EtcdCoordinator) -> None:
        with pytest.raises(LeaseLost):
            await coordinator.keep_alive(17)
        with pytest.raises(LeaseLost):
            await coordinator.commit([], [Put("a", b"", 17)])
        await coordinator.revoke(17)

    tell(story, Server(answer(b'{"result":{"ID":"17"}}'), gone, gone))


@pytest.mark.parametrize("body", [b"", b"[]", b'{"result":{"TTL":"soon"}}', b"{}{}"])
def test_a_lease_of_which_nothing_is_known(body: bytes) -> None:
    async def story(coordinator: EtcdCoordinator) -> None:
        with pytest.raises(CoordinatorUnavailable, match="not an answer"):
            await coordinator.keep_alive(17)

    tell(story, Server(answer(body)))


def event(key: bytes, revision: int) -> bytes:
    return (
        b'{"result":{"header":{"revision":"%d"},"events":[{"kv":{"key":"%b","value":"Yg==",'
        b'"mod_revision":"%d"}}]}}' % (revision, key, revision)
    )


def test_a_watch_that_breaks_goes_on_after_what_it_told(seed: int) -> None:
    server = Server(stream(b'{"result":{"created":true,"header":{}}}', event(b"YQ==", 8)))
    server.answers += [None, stream(event(b"YQ==", 9))]

    async def story(coordinator: EtcdCoordinator) -> None:
        watch = coordinator.watch("", 4)
        assert await watch.next() == [Event("a", b"b", 8)]
        # The server says nothing for a minute, then breaks the connection.
        with pytest.raises(CoordinatorUnavailable):
            await watch.next()
        assert await watch.next() == [Event("a", b"b", 9)]
        watch.close()

    tell(story, server, seed=seed)
    revisions = [request.partition(b'start_revision":"')[2][:1] for request in server.requests]
    assert revisions == [b"4", b"9", b"9"]


def test_a_watch_that_etcd_ends() -> None:
    ended = stream(b'{"result":{"canceled":true,"cancel_reason":"no leader","header":{}}}')
    failed = stream(b'{"error":{"code":14,"message":"away"}}')

    async def story(coordinator: EtcdCoordinator) -> None:
        watch = coordinator.watch("", 4)
        for text in ("no leader", "away"):
            with pytest.raises(CoordinatorUnavailable, match=text):
                await watch.next()

    tell(story, Server(ended, failed))


def test_closing_ends_what_waits() -> None:
    async def story(coordinator: EtcdCoordinator) -> None:
        waiting = asyncio.ensure_future(coordinator.watch("", 4).next())
        await asyncio.sleep(1)
        coordinator.close()
        with pytest.raises(CoordinatorUnavailable):
            await waiting
        with pytest.raises(CoordinatorUnavailable):
            await coordinator.get("a")

    tell(story, Server(stream(b'{"result":{"created":true,"header":{}}}')))
