"""A client that speaks to a STOMP adapter in bytes, on a simulated broker."""

import asyncio
from typing import Any

from entrepot.broker.login import LoginPolicy
from entrepot.core.errors import PeerError
from entrepot.gateway.rabbitmq.dialect import RabbitDialect
from entrepot.gateway.stomp.adapter import StompAdapter
from entrepot.gateway.stomp.context import Context
from entrepot.wire.stomp.frames import SERVER_COMMANDS, Frame, FrameReader, frame_bytes
from tests.unit.gateway.amqp.node import FakeLink, Node
from tests.unit.wire.stomp.vectors import feed


def context_of(node: Node, *, asks_users: bool = False, **options: Any) -> Context:
    users, access = node.broker.users, node.broker.access
    return Context(
        node.broker,
        node.clock,
        node.entropy,
        RabbitDialect(),
        LoginPolicy(users, access, asks_users=asks_users),
        "1.2.3",
        "node",
        61613,
        **options,
    )


class Peer:
    """What it is told is kept until it asks."""

    def __init__(
        self, context: Context, link: FakeLink | None = None, version: str = "1.2"
    ) -> None:
        self.link = link or FakeLink()
        self.version = version
        self.adapter = StompAdapter(self.link, context)
        self._inbox = FrameReader(commands=SERVER_COMMANDS, body_bytes_max=10**9)

    # --- speaking

    def write(self, data: bytes) -> None:
        """In as few reads as the adapter has room for."""
        while data:
            view = self.adapter.writable()
            size = min(len(view), len(data))
            view[:size] = data[:size]
            del view
            self.adapter.received(size)
            data = data[size:]

    def say(self, command: str, body: bytes = b"", **headers: object) -> None:
        """Names of headers with `_` for `-`."""
        named = [(name.replace("_", "-"), str(value)) for name, value in headers.items()]
        self.write(frame_bytes(command, named, body, self.version))

    def send(self, destination: str, *bodies: bytes, **headers: object) -> None:
        named = [(name.replace("_", "-"), str(value)) for name, value in headers.items()]
        named.insert(0, ("destination", destination))
        self.write(b"".join(frame_bytes("SEND", named, body, self.version) for body in bodies))

    # --- hearing

    def heard(self) -> list[Frame]:
        """Since it asked last."""
        data = b"".join(self.link.writes)
        self.link.writes.clear()
        found = feed(self._inbox, [data])
        assert not any(isinstance(event, PeerError) for event in found), found
        return [event for event in found if isinstance(event, Frame)]

    async def told(self) -> list[Frame]:
        """After everything that goes on by itself."""
        await asyncio.sleep(1)
        return self.heard()

    async def ask(self, command: str, body: bytes = b"", **headers: object) -> None:
        """Ask for a receipt, which is the only thing said."""
        self.say(command, body, **headers, receipt="asked")
        assert await self.told() == [Frame("RECEIPT", {"receipt-id": "asked"})]

    async def messages(self) -> list[Frame]:
        heard = await self.told()
        assert all(frame.command == "MESSAGE" for frame in heard), heard
        return heard

    async def bodies(self) -> list[bytes]:
        return [frame.body for frame in await self.messages()]

    async def refused(self) -> str:
        """The text of the ERROR with which it was closed."""
        heard = await self.told()
        assert heard, "nothing was said"
        assert heard[-1].command == "ERROR", heard
        assert self.link.closed is not None
        return heard[-1].headers["message"]

    # --- coming in

    async def connect(self, command: str = "CONNECT", **headers: object) -> Frame:
        self.say(command, accept_version=self.version, host="/", **headers)
        [connected] = await self.told()
        assert connected.command == "CONNECTED", connected
        assert connected.headers["version"] == self.version
        return connected


async def connected(node: Node, version: str = "1.2", **headers: object) -> Peer:
    peer = Peer(context_of(node), version=version)
    await peer.connect(**headers)
    return peer


def answer(peer: Peer, message: Frame, command: str = "ACK", **more: object) -> None:
    """ACK or NACK in the words of the version."""
    headers = message.headers
    if peer.version == "1.2":
        peer.say(command, id=headers["ack"], **more)
    elif peer.version == "1.1":
        peer.say(
            command,
            message_id=headers["message-id"],
            subscription=headers["subscription"],
            **more,
        )
    else:
        peer.say(command, message_id=headers["message-id"], **more)


def counts(node: Node, name: str) -> tuple[int, int]:
    """Ready, and delivered and not acknowledged."""
    found = node.broker.vhosts.default.queue(name)
    assert found.account().wrong == []
    return found.ready_count, found.unacked_count
