"""A net whose connections are WebSockets, for clients that know nothing of them."""

import asyncio
from collections.abc import Callable, Sequence

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from entrepot.core.ports import Chunk, FileRange, Link, Net, Receiver


class WebSocketDoor:
    """Connects through another net, to a path of an HTTP port."""

    def __init__(self, net: Net, path: str, subprotocol: str | None = None) -> None:
        self._net = net
        self._path = path
        self._subprotocols = None if subprotocol is None else [Subprotocol(subprotocol)]

    async def connect(self, host: str, port: int, attach: Callable[[Link], Receiver]) -> Link:
        made: list[_Inside] = []

        def wrap(link: Link) -> Receiver:
            uri = parse_uri(f"ws://{host}:{port}{self._path}")
            made.append(_Inside(link, ClientProtocol(uri, subprotocols=self._subprotocols)))
            return made[0]

        await self._net.connect(host, port, wrap)
        await made[0].opened
        made[0].inner = attach(made[0])
        return made[0]


class _Inside:
    subject = None

    def __init__(self, link: Link, protocol: ClientProtocol) -> None:
        self._link = link
        self._protocol = protocol
        self._area = bytearray(65_536)
        self.inner: Receiver | None = None
        self.opened = asyncio.get_running_loop().create_future()
        self.peer = link.peer
        self.guard = link.guard
        self.pause, self.resume, self.abort = link.pause, link.resume, link.abort
        protocol.send_request(protocol.connect())
        self._flush()

    @property
    def backlog(self) -> int:
        return self._link.backlog

    def _flush(self) -> None:
        self._link.send([each for each in self._protocol.data_to_send() if each])

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Send the chunks in messages of their own, the longer ones in fragments."""
        protocol = self._protocol
        for chunk in chunks:
            assert not isinstance(chunk, FileRange)
            if protocol.state is not State.OPEN:
                return
            data = bytes(chunk)
            half = len(data) // 2
            if half > 2:
                protocol.send_binary(data[:half], fin=False)
                protocol.send_ping(b"between")
                protocol.send_continuation(data[half:], fin=True)
            else:
                protocol.send_binary(data)
        self._flush()

    def close(self, reason: str) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_close()
            self._flush()
        self._link.close(reason)

    def writable(self) -> memoryview:
        return memoryview(self._area)

    def received(self, size: int) -> None:
        self._protocol.receive_data(bytes(self._area[:size]))
        self._flush()
        if not self.opened.done() and self._protocol.state is State.OPEN:
            self.opened.set_result(None)
        elif not self.opened.done() and self._protocol.handshake_exc is not None:
            self.opened.set_exception(ConnectionError(str(self._protocol.handshake_exc)))
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode in (Opcode.BINARY, Opcode.TEXT):
                self._pass_on(memoryview(event.data))

    def _pass_on(self, data: memoryview) -> None:
        assert self.inner is not None
        while data:
            area = self.inner.writable()
            size = min(len(area), len(data))
            area[:size] = data[:size]
            del area
            data = data[size:]
            self.inner.received(size)

    def drained(self) -> None:
        if self.inner is not None:
            self.inner.drained()

    def closed(self, reason: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectionError(reason))
        if self.inner is not None:
            self.inner.closed(reason)
