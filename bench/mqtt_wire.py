"""What the load says and hears, in bytes: MQTT 3.1.1, and for reference NATS and Redis.

Each language can log in, subscribe, write a message and say how long one is when it arrives. All
messages of a run are equally long, so what comes is counted by its bytes.
"""

import socket
import struct
from collections.abc import Sequence
from typing import Protocol

from bench.wire import TIMEOUT_S, Refused

PUBACK = 0x40
ACK_BYTES = 4
IDS = 2_000  # Packet identifiers in use; more than there are messages on their way.


class Language(Protocol):
    tail: bytes  # What follows the body of a message.
    aside: bytes  # What a broker may say between messages, and needs no answer soon; or nothing.

    def connect(self, port: int, name: str, *, durable: bool = False) -> socket.socket: ...

    def subscribe(self, connected: socket.socket, filters: Sequence[str], qos: int) -> None:
        """Return when the broker has said that it has the subscriptions."""

    def publication(self, topic: str, body: bytes, qos: int, packet_id: int) -> bytes: ...

    def answer_bytes(self, qos: int, subscribers: int) -> int:
        """Return how many bytes a publisher is answered for each message."""

    def delivery_bytes(self, topic: str, body: bytes, qos: int, filters: Sequence[str]) -> int: ...


def dial(port: int) -> socket.socket:
    connected = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def read_exactly(connected: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = connected.recv(size - len(found))
        if not data:
            raise Refused("the broker hung up")
        found += data
    return found


class Mqtt:
    """Filters and topics are as MQTT has them."""

    tail = aside = b""

    def connect(self, port: int, name: str, *, durable: bool = False) -> socket.socket:
        connected = dial(port)
        connected.sendall(login(name, durable=durable))
        check_login(read_exactly(connected, ACK_BYTES))
        return connected

    def subscribe(self, connected: socket.socket, filters: Sequence[str], qos: int) -> None:
        for start in range(0, len(filters), 100):
            some = filters[start : start + 100]
            body = struct.pack(">H", 1) + b"".join(_text(each) + bytes((qos,)) for each in some)
            connected.sendall(packet(0x82, body))
            answer = packet(0x90, struct.pack(">H", 1) + bytes((qos,)) * len(some))
            if read_exactly(connected, len(answer)) != answer:
                raise Refused("a subscription was refused")

    def publication(self, topic: str, body: bytes, qos: int, packet_id: int) -> bytes:
        number = struct.pack(">H", packet_id) if qos else b""
        return packet(0x30 | qos << 1, _text(topic) + number + body)

    def answer_bytes(self, qos: int, subscribers: int) -> int:
        return ACK_BYTES if qos else 0

    def delivery_bytes(self, topic: str, body: bytes, qos: int, filters: Sequence[str]) -> int:
        return len(self.publication(topic, body, qos, 1))


def login(name: str, *, durable: bool = False, keep_alive_s: int = 0) -> bytes:
    flags = 0 if durable else 2  # A clean session.
    return packet(0x10, _text("MQTT") + struct.pack(">BBH", 4, flags, keep_alive_s) + _text(name))


def check_login(answer: bytes) -> None:
    if answer[0] != 0x20 or answer[3]:
        raise Refused(f"login refused: {answer.hex()}")


def packet(first: int, body: bytes) -> bytes:
    size, length = bytearray(), len(body)
    while length >= 0x80:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return bytes((first,)) + bytes(size) + body


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


class Nats:
    """A topic's levels are separated by dots; a subscription is called by one digit."""

    tail = b"\r\n"
    aside = b"PING\r\n"

    def connect(self, port: int, name: str, *, durable: bool = False) -> socket.socket:
        connected = dial(port)
        if not connected.recv(65_536).startswith(b"INFO"):
            raise Refused("not NATS")
        connected.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\n')
        self._wait(connected)
        return connected

    def subscribe(self, connected: socket.socket, filters: Sequence[str], qos: int) -> None:
        for each in filters:
            connected.sendall(b"SUB %s 1\r\n" % _subject(each).replace("#", ">").encode())
        self._wait(connected)

    def _wait(self, connected: socket.socket) -> None:
        connected.sendall(b"PING\r\n")
        if read_exactly(connected, 6) != b"PONG\r\n":
            raise Refused("NATS complains")

    def publication(self, topic: str, body: bytes, qos: int, packet_id: int) -> bytes:
        return b"PUB %s %d\r\n%s\r\n" % (_subject(topic).encode(), len(body), body)

    def answer_bytes(self, qos: int, subscribers: int) -> int:
        return 0

    def delivery_bytes(self, topic: str, body: bytes, qos: int, filters: Sequence[str]) -> int:
        return len(b"MSG %s 1 %d\r\n%s\r\n" % (topic.encode(), len(body), body))


class Redis:
    """A filter with a wildcard at its end is a pattern."""

    tail = b"\r\n"
    aside = b""

    def connect(self, port: int, name: str, *, durable: bool = False) -> socket.socket:
        return dial(port)

    def subscribe(self, connected: socket.socket, filters: Sequence[str], qos: int) -> None:
        for number, each in enumerate(filters, 1):
            verb = "PSUBSCRIBE" if each.endswith("#") else "SUBSCRIBE"
            name = _subject(each).replace("#", "*")
            connected.sendall(_command(verb, name))
            answer = _command(verb.lower(), name).replace(b"*2", b"*3", 1) + b":%d\r\n" % number
            if read_exactly(connected, len(answer)) != answer:
                raise Refused("a subscription was refused")

    def publication(self, topic: str, body: bytes, qos: int, packet_id: int) -> bytes:
        return _command("PUBLISH", _subject(topic), body)

    def answer_bytes(self, qos: int, subscribers: int) -> int:
        return len(b":%d\r\n" % subscribers)

    def delivery_bytes(self, topic: str, body: bytes, qos: int, filters: Sequence[str]) -> int:
        if filters[0].endswith("#"):
            return len(_command("pmessage", _subject(filters[0]), topic, body))
        return len(_command("message", topic, body))


def _subject(topic: str) -> str:
    return topic.replace("/", ".")


def _command(*parts: str | bytes) -> bytes:
    data = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"*%d\r\n" % len(data) + b"".join(b"$%d\r\n%s\r\n" % (len(d), d) for d in data)


MQTT, NATS, REDIS = Mqtt(), Nats(), Redis()
