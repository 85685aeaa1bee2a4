"""An AMQP client that can be cut off at any moment and says so: frames on a blocking socket.

pika encodes and decodes; nothing here retries, buffers or recovers, so that what was heard
before a kill is exactly what was heard.
"""

import select
import socket
from typing import TypeVar

from pika import frame, spec

WAIT_S = 60.0
Answer = TypeVar("Answer")


class Cut(Exception):
    """The broker is gone."""


class Peer:
    """One connection with one channel."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._send(b"AMQP\0\0\x09\x01")
        self.expect(spec.Connection.Start)
        self.tell(spec.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), channel=0)
        self.expect(spec.Connection.Tune)
        self.tell(spec.Connection.TuneOk(2047, 131072, 0), channel=0)
        self.tell(spec.Connection.Open("/"), channel=0)
        self.expect(spec.Connection.OpenOk)
        self.tell(spec.Channel.Open())
        self.expect(spec.Channel.OpenOk)

    def close(self) -> None:
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Cut from error

    def tell(self, method: spec.amqp_object.Method, channel: int = 1) -> None:
        self._send(frame.Method(channel, method).marshal())

    def publish(self, queue: str, body: bytes) -> None:
        properties = spec.BasicProperties(delivery_mode=2)
        self._send(
            frame.Method(1, spec.Basic.Publish(routing_key=queue)).marshal()
            + frame.Header(1, len(body), properties).marshal()
            + frame.Body(1, body).marshal()
        )

    def has_more(self) -> bool:
        """Whether something can be read at once."""
        return bool(self._buffer) or bool(select.select([self._socket], [], [], 0)[0])

    def read(self) -> frame.Frame:
        while True:
            used, found = frame.decode_frame(self._buffer)
            if found is not None:
                self._buffer = self._buffer[used:]
                if not isinstance(found, frame.Heartbeat):
                    return found
                continue
            try:
                data = self._socket.recv(65_536)
            except OSError as error:
                raise Cut from error
            if not data:
                raise Cut
            self._buffer += data

    def expect(self, kind: type[Answer]) -> Answer:
        """The next frame, which must be this method."""
        found = self.read()
        method = getattr(found, "method", found)
        assert isinstance(method, kind), f"{method} instead of {kind}"
        return method

    def content(self) -> bytes:
        """A body of one frame, after the method that announced it."""
        header = self.read()
        assert isinstance(header, frame.Header), header
        body = self.read()
        assert isinstance(body, frame.Body), body
        assert len(body.fragment) == header.body_size
        return bytes(body.fragment)

    def get(self, queue: str) -> tuple[int, bytes] | None:
        """A message and its tag, not acknowledged."""
        self.tell(spec.Basic.Get(queue=queue))
        found = self.expect(spec.amqp_object.Method)
        if isinstance(found, spec.Basic.GetEmpty):
            return None
        assert isinstance(found, spec.Basic.GetOk), found
        return found.delivery_tag, self.content()
