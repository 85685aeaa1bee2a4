"""A peer that says what no library would say: frames as they are, one by one.

It goes through the handshake step by step, so that a case can stop anywhere and be rude.
"""

import socket
import struct

from pika import frame, spec

PROTOCOL = b"AMQP\0\0\x09\x01"
WAIT_S = 5.0


class Raw:
    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), WAIT_S)
        self._buffer = b""
        self._confirmed: set[int] = set()

    def close(self) -> None:
        self._socket.close()

    def send(self, *parts: bytes) -> None:
        self._socket.sendall(b"".join(parts))

    def ask(self, channel: int, method: object) -> None:
        self.send(method_frame(channel, method))

    def read(self) -> object:
        """The next frame: a method, another kind of frame, `gone` or `silence`.

        A broker that hangs up while we still had something to say resets the connection;
        that is the same to a client.
        """
        while True:
            if self._buffer.startswith(b"AMQP"):
                return self._buffer[:8]
            used, found = frame.decode_frame(self._buffer)
            if found is not None:
                self._buffer = self._buffer[used:]
                return found.method if isinstance(found, frame.Method) else found
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                return "silence"
            except ConnectionResetError:
                return "gone"
            if not data:
                return "gone"
            self._buffer += data

    def answer(self) -> str:
        """What the broker says in the end, as one line."""
        said = self.read()
        while isinstance(said, frame.Heartbeat):
            said = self.read()
        if isinstance(said, spec.Connection.Close | spec.Channel.Close):
            kind = "connection" if isinstance(said, spec.Connection.Close) else "channel"
            method = f"{said.class_id}.{said.method_id}"
            return f"{kind} {said.reply_code} {said.reply_text} ({method})"
        return said if isinstance(said, str) else f"{said!r}"

    # The handshake.

    def start(self) -> spec.Connection.Start:
        self.send(PROTOCOL)
        return self.read()

    def log_in(
        self, mechanism: str = "PLAIN", response: bytes = b"\0guest\0guest", **client: object
    ) -> object:
        """Tune, or what came instead of it."""
        capabilities = {"authentication_failure_close": True, "consumer_cancel_notify": True}
        properties = {"capabilities": capabilities, **client}
        self.ask(0, StartOk(properties, mechanism, response))
        return self.read()

    def open(self, vhost: str = "/", frame_max: int = 131072, channel_max: int = 2047) -> object:
        self.ask(0, spec.Connection.TuneOk(channel_max, frame_max, 0))
        self.ask(0, spec.Connection.Open(vhost))
        return self.read()

    def connect(self, frame_max: int = 131072, channel: int = 1) -> "Raw":
        """All of it, and a channel."""
        self.start()
        assert isinstance(self.log_in(), spec.Connection.Tune)
        assert isinstance(self.open(frame_max=frame_max), spec.Connection.OpenOk)
        if channel:
            self.ask(channel, spec.Channel.Open())
            assert isinstance(self.read(), spec.Channel.OpenOk)
        return self

    # Publishing.

    def confirm(self) -> None:
        self.ask(1, spec.Confirm.Select())
        assert isinstance(self.read(), spec.Confirm.SelectOk)

    def publish_many(
        self, exchange: str, key: str, count: int, properties: spec.BasicProperties, flags: int = 0
    ) -> None:
        one = publish_frame(1, exchange, key, flags)
        one += frame.Header(1, 1, properties).marshal() + frame.Body(1, b"m").marshal()
        self.send(one * count)

    def confirmed(self, count: int) -> list[int]:
        """The tags that are confirmed now, until so many more are, or something else is said."""
        count += len(self._confirmed)
        while len(self._confirmed) < count:
            said = self.read()
            if not isinstance(said, spec.Basic.Ack):
                break
            first = 1 if said.multiple else said.delivery_tag
            self._confirmed |= set(range(first, said.delivery_tag + 1))
        return sorted(self._confirmed)

    # Consuming.

    def consume(self, queue: str, count: int, auto_ack: bool = False) -> list[str]:
        """So many messages, each of one frame. What is not acknowledged stays out."""
        self.ask(1, spec.Basic.Consume(queue=queue, no_ack=auto_ack))
        bodies: list[str] = []
        while len(bodies) < count:
            said = self.read()
            assert not isinstance(said, str), said
            if isinstance(said, frame.Body):
                bodies.append(said.fragment.decode())
        return bodies


class StartOk(spec.Connection.StartOk):
    """With a response that is bytes: pika knows it as text only."""

    def __init__(self, properties: dict, mechanism: str, response: bytes) -> None:
        super().__init__(properties, mechanism, "", "en_US")
        self._bytes = response

    def encode(self) -> list[bytes]:
        *before, _length, _nothing, locale_length, locale = super().encode()
        return [*before, struct.pack(">I", len(self._bytes)), self._bytes, locale_length, locale]


def method_frame(channel: int, method: object) -> bytes:
    return frame.Method(channel, method).marshal()


def any_frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def publish_frame(channel: int, exchange: str, key: str, flags: int = 0) -> bytes:
    """basic.publish with flags as they are: 1 is mandatory, 2 is immediate."""
    payload = struct.pack(">HHH", 60, 40, 0)
    for text in (exchange, key):
        payload += bytes((len(text),)) + text.encode()
    return any_frame(1, channel, payload + bytes((flags,)))


def header_frame(channel: int, size: int, class_id: int = 60) -> bytes:
    return any_frame(2, channel, struct.pack(">HHQH", class_id, 0, size, 0))
