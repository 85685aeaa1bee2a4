"""A STOMP client of a socket and the codec: it sends what it is told, and reads what comes."""

import socket
from types import TracebackType
from typing import Self

from entrepot.testing import Broker
from entrepot.wire.stomp.frames import SERVER_COMMANDS, Frame, FrameReader, frame_bytes

WAIT_S = 30


class BareStomp:
    def __init__(self, server: Broker, *, receive_bytes: int | None = None) -> None:
        """Connect, but send nothing. With `receive_bytes` the system buffers only about so much."""
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(("127.0.0.1", server.stomp_address[1]))
        self._reader = FrameReader(commands=SERVER_COMMANDS, body_bytes_max=10**9)
        self._frames: list[Frame] = []

    @property
    def address(self) -> str:
        host, port = self.socket.getsockname()
        return f"{host}:{port}"

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, command: str, body: bytes = b"", **headers: object) -> None:
        """Names of headers with `_` for `-`."""
        named = [(name.replace("_", "-"), str(value)) for name, value in headers.items()]
        self.write(frame_bytes(command, named, body))

    def read(self) -> Frame | None:
        """The next frame; None when the broker has closed the connection."""
        while not self._frames:
            size = self.socket.recv_into(self._reader.writable())
            if size == 0:
                return None
            for event in self._reader.received(size):
                assert isinstance(event, Frame), event
                self._frames.append(event)
        return self._frames.pop(0)

    def expect(self, command: str) -> Frame:
        frame = self.read()
        assert frame is not None, f"closed, and no {command}"
        assert frame.command == command, frame
        return frame

    def connect(self, **headers: object) -> Self:
        self.say("CONNECT", accept_version="1.2", host="/", **headers)
        self.expect("CONNECTED")
        return self

    def ask(self, command: str, body: bytes = b"", **headers: object) -> None:
        self.say(command, body, **headers, receipt="asked")
        assert self.expect("RECEIPT").headers["receipt-id"] == "asked"

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
