"""A client of one node is served by another: over real sockets, with an echo as the protocol."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from entrepot.broker.access import Access, AccessSettings
from entrepot.broker.acls import Acls
from entrepot.broker.login import LoginPolicy
from entrepot.broker.permissions import Permissions
from entrepot.broker.replication import NOBODY, Peer
from entrepot.broker.users import Users
from entrepot.core import limits
from entrepot.core.clock import SystemEntropy
from entrepot.core.faults import Faults
from entrepot.core.ports import NOTHING_UNFINISHED, Link, ServingReceiver, Unfinished
from entrepot.gateway import relay
from entrepot.gateway.greeting import Greeting
from entrepot.gateway.relay import MAGIC, Needs, Relay
from entrepot.net.sockets import SocketNet

SECRET = b"a secret of thirty-two characters"


class Queues:
    """Implements `QueuesHome`, as far as it is used here."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.home = NOBODY
        self.port = 0
        self._listeners: dict[object, Callable[[], object]] = {}
        self._found = asyncio.Event()

    @property
    def is_here(self) -> bool:
        return self.home == self.number

    @property
    def node(self) -> int:
        return self.home

    def peer(self) -> Peer | None:
        if self.home in (NOBODY, self.number):
            return None
        return Peer(self.home, "127.0.0.1", 0, "", queues_port=self.port)

    def listen(self, token: object, changed: Callable[[], object]) -> None:
        self._listeners[token] = changed

    def unlisten(self, token: object) -> None:
        self._listeners.pop(token, None)

    async def found(self) -> None:
        while self.home == NOBODY:
            self._found = asyncio.Event()
            await self._found.wait()

    def move(self, home: int, port: int = 0) -> None:
        self.home, self.port = home, port
        self._found.set()
        for changed in [*self._listeners.values()]:
            changed()


class Echo:
    """A protocol: what is said comes back, after who said it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._area = bytearray(4_096)
        link.send((f"{link.peer} {link.subject}\n".encode(),))

    def writable(self) -> memoryview:
        return memoryview(self._area)

    def received(self, size: int) -> None:
        self._link.send((bytes(self._area[:size]),))

    def drained(self) -> None:
        """Do nothing."""

    def closed(self, reason: str) -> None:
        """Do nothing."""

    def unfinished(self) -> Unfinished:
        return NOTHING_UNFINISHED

    def refuse(self, reason: str) -> None:
        self._link.abort(reason)


class Node:
    """A node with one port for clients and one for nodes."""

    def __init__(self, number: int, secret: bytes = SECRET, *, is_open: bool = False) -> None:
        self.queues = Queues(number)
        self.net = SocketNet()
        access = Access(AccessSettings(), Acls(), Permissions())
        policy = LoginPolicy(Users(SystemEntropy(), lambda work: work()), access, is_open=is_open)
        needs = Needs(self.queues, self.net, SystemEntropy(), Faults(), policy, secret)  # type: ignore[arg-type]
        self.relay = Relay(needs)
        self.port = self.node_port = 0

    async def start(self) -> None:
        client = self.relay.accepts("echo", Echo)
        self.port = (await self.net.listen("127.0.0.1", 0, client)).port

        def choose(first: bytes) -> Callable[[Link], ServingReceiver]:
            return self.relay.accept_node if first == MAGIC else Echo

        listener = await self.net.listen("127.0.0.1", 0, lambda link: Greeting(link, 8, choose))
        self.node_port = listener.port


def runs(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return a test that runs the coroutine."""

    @functools.wraps(test)
    def run(*arguments: object, **named: object) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named), 30))

    return run


async def two(secret: bytes = SECRET, other: bytes = SECRET) -> tuple[Node, Node]:
    """Return a node that is not the home, and one that is."""
    first, home = Node(1, secret), Node(2, other)
    for node in (first, home):
        await node.start()
    for node in (first, home):
        node.queues.move(2, home.node_port)
    return first, home


async def connect(node: Node) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", node.port)


def name_of(writer: asyncio.StreamWriter) -> str:
    host, port = writer.get_extra_info("sockname")
    return f"{host}:{port}"


@runs
async def test_a_client_of_one_node_is_served_by_another() -> None:
    first, home = await two()
    for node in (first, home):
        reader, writer = await connect(node)
        assert await reader.readline() == f"{name_of(writer)} None\n".encode()
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()
    first.net.close()
    home.net.close()


@runs
async def test_much_more_than_fits_in_between() -> None:
    first, home = await two()
    reader, writer = await connect(first)
    await reader.readline()
    size = 3 * limits.BACKLOG_BYTES_HIGH
    data = bytes(range(256)) * (size // 256)

    async def write() -> None:
        writer.write(data)
        await writer.drain()

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.2)  # Nobody reads the answers so far.
    assert await reader.readexactly(size) == data
    await writing
    writer.close()
    first.net.close()
    home.net.close()


@runs
async def test_who_is_there_before_a_home_waits_for_it() -> None:
    first, home = await two()
    first.queues.move(NOBODY)
    reader, writer = await connect(first)
    writer.write(b"early")
    await asyncio.sleep(0.05)
    first.queues.move(2, home.node_port)
    await reader.readline()
    assert await reader.readexactly(5) == b"early"
    first.net.close()
    home.net.close()


@pytest.mark.parametrize("place", ["direct", "relayed"])
@runs
async def test_a_connection_ends_with_its_home(place: str) -> None:
    first, home = await two()
    reader, _ = await connect(home if place == "direct" else first)
    await reader.readline()
    home.queues.move(3)
    assert await reader.read() == b""
    first.net.close()
    home.net.close()


@runs
async def test_a_node_leaves_a_home_that_is_cut_off() -> None:
    first, home = await two()
    reader, _ = await connect(first)
    await reader.readline()
    first.queues.move(3)  # The old one does not know it yet.
    assert await reader.read() == b""
    first.net.close()
    home.net.close()


@runs
async def test_only_a_node_may_say_who_a_client_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_PATIENCE_S", 0.5)
    first, home = await two(secret=b"another")
    reader, _ = await connect(first)
    assert await reader.read() == b""
    first.net.close()
    home.net.close()


@runs
async def test_without_a_secret_the_home_takes_a_client_for_the_node() -> None:
    first, home = await two(b"", b"")
    reader, writer = await connect(first)
    said = (await reader.readline()).decode()
    assert said.startswith("127.0.0.1:")
    assert name_of(writer) not in said
    first.net.close()
    home.net.close()


@pytest.mark.parametrize(
    "said", [b"\xff\xff" + bytes(100), b"\0\2{}" + bytes(32), b"\0\0" + bytes(32)]
)
@runs
async def test_what_no_node_says_is_refused(said: bytes) -> None:
    first, home = await two()
    reader, writer = await asyncio.open_connection("127.0.0.1", home.node_port)
    writer.write(MAGIC + said)
    await reader.readexactly(32)
    assert await reader.read() == b"\0"
    first.net.close()
    home.net.close()
