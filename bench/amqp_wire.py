"""AMQP 0-9-1 as bytes over one plain socket: to set things up, and for the load.

Written by hand and not with the broker's own codec: the bench must not share a mistake with
the broker it measures. It says only what it needs to say, and understands of the answers
only what they are.
"""

import socket
import struct
from typing import NamedTuple

from bench.wire import TIMEOUT_S, Refused

FRAME_HEAD = struct.Struct(">BHI")
FRAME_END = b"\xce"
ENVELOPE_BYTES = FRAME_HEAD.size + len(FRAME_END)
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_MAX, CHANNEL_MAX = 131_072, 2_047
CHANNEL = 1

START, TUNE, OPEN_OK, CLOSE = (10, 10), (10, 30), (10, 41), (10, 50)
CHANNEL_OPEN_OK, CHANNEL_CLOSE = (20, 11), (20, 40)
EXCHANGE_DECLARE_OK, EXCHANGE_DELETE_OK = (40, 11), (40, 21)
QUEUE_DECLARE_OK, QUEUE_BIND_OK, QUEUE_DELETE_OK = (50, 11), (50, 21), (50, 41)
QOS_OK, CONSUME_OK, CANCEL_OK = (60, 11), (60, 21), (60, 31)
DELIVER, ACK = (60, 60), (60, 80)
CONFIRM_OK = (85, 11)

ACK_FRAME = struct.Struct(">BHIHHQBB")  # The whole frame: 21 bytes, the tag and its flags in it.


class Method(NamedTuple):
    id: tuple[int, int]
    arguments: bytes


class Connection:
    """A blocking connection with one channel: a method out, its answer in."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        try:
            self._shake_hands()
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _shake_hands(self) -> None:
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.expect(START)
        response = b"\0guest\0guest"
        start_ok = table() + short("PLAIN") + struct.pack(">I", len(response)) + response
        self.send(method(10, 11, start_ok + short("en_US"), channel=0))
        self.expect(TUNE)
        self.send(method(10, 31, struct.pack(">HIH", CHANNEL_MAX, FRAME_MAX, 0), channel=0))
        self.send(method(10, 40, short("/") + short("") + b"\0", channel=0))
        self.expect(OPEN_OK)
        self.send(method(20, 10, short("")))
        self.expect(CHANNEL_OPEN_OK)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def expect(self, wanted: tuple[int, int]) -> Method:
        """The next method, which must be this one."""
        while True:
            kind, payload = self.frame()
            if kind == HEARTBEAT:
                continue
            if kind != METHOD:
                raise Refused(f"a frame of kind {kind} came instead of {wanted}")
            found = read_method(payload)
            if found.id != wanted:
                raise Refused(complaint(found))
            return found

    def frame(self) -> tuple[int, bytes]:
        """The next frame: its kind and its payload."""
        kind, _, size = FRAME_HEAD.unpack(self._take(FRAME_HEAD.size))
        payload = self._take(size)
        if self._take(1) != FRAME_END:
            raise Refused("a frame did not end where it should")
        return kind, payload

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            data = self.socket.recv(65_536)
            if not data:
                raise Refused("the broker hung up")
            self._buffer += data
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def left_over(self) -> bytes:
        """What came and was not asked for yet. Who reads the socket from here on begins with it."""
        left, self._buffer = bytes(self._buffer), bytearray()
        return left

    # What it can be asked for.

    def declare_queue(self, name: str, durable: bool = False) -> None:
        self.send(method(50, 10, b"\0\0" + short(name) + bytes((2 if durable else 0,)) + table()))
        self.expect(QUEUE_DECLARE_OK)

    def count(self, queue: str) -> int:
        """How many messages are ready."""
        self.send(method(50, 10, b"\0\0" + short(queue) + b"\x01" + table()))
        arguments = self.expect(QUEUE_DECLARE_OK).arguments
        return int(struct.unpack_from(">I", arguments, 1 + len(queue))[0])

    def delete_queue(self, name: str) -> None:
        self.send(method(50, 40, b"\0\0" + short(name) + b"\0"))
        self.expect(QUEUE_DELETE_OK)

    def declare_exchange(self, name: str, kind: str) -> None:
        self.send(method(40, 10, b"\0\0" + short(name) + short(kind) + b"\0" + table()))
        self.expect(EXCHANGE_DECLARE_OK)

    def delete_exchange(self, name: str) -> None:
        self.send(method(40, 20, b"\0\0" + short(name) + b"\0"))
        self.expect(EXCHANGE_DELETE_OK)

    def bind(self, queue: str, exchange: str, keys: list[str]) -> None:
        """All of them at once, and all their answers."""
        self.send(
            b"".join(
                method(50, 20, b"\0\0" + short(queue) + short(exchange) + short(key) + b"\0"
                       + table())
                for key in keys
            )
        )  # fmt: skip
        for _ in keys:
            self.expect(QUEUE_BIND_OK)

    def prefetch(self, count: int) -> None:
        self.send(method(60, 10, struct.pack(">IHB", 0, count, 0)))
        self.expect(QOS_OK)

    def consume(self, queue: str, tag: str, auto_ack: bool) -> None:
        """Deliveries may follow at once."""
        flags = bytes((2 if auto_ack else 0,))
        self.send(method(60, 20, b"\0\0" + short(queue) + short(tag) + flags + table()))
        self.expect(CONSUME_OK)

    def confirm(self) -> None:
        self.send(method(85, 10, b"\0"))
        self.expect(CONFIRM_OK)


def short(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def table() -> bytes:
    return bytes(4)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return FRAME_HEAD.pack(kind, channel, len(payload)) + payload + FRAME_END


def method(class_id: int, method_id: int, arguments: bytes, channel: int = CHANNEL) -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def read_method(payload: bytes) -> Method:
    class_id, method_id = struct.unpack_from(">HH", payload)
    return Method((class_id, method_id), payload[4:])


def complaint(found: Method) -> str:
    """What the broker said instead of what was expected."""
    if found.id in (CLOSE, CHANNEL_CLOSE):
        code, size = struct.unpack_from(">HB", found.arguments)
        return f"the broker closed: {code} {found.arguments[3 : 3 + size].decode()}"
    return f"the broker said {found.id}"


def publication(exchange: str, key: str, body: bytes, persistent: bool) -> bytes:
    """One message as a publisher sends it: three frames."""
    publish = method(60, 40, b"\0\0" + short(exchange) + short(key) + b"\0")
    flags, value = (0x1000, b"\x02") if persistent else (0, b"")
    header = frame(HEADER, CHANNEL, struct.pack(">HHQH", 60, 0, len(body), flags) + value)
    return publish + header + frame(BODY, CHANNEL, body)


class Acknowledgements:
    """Of every tag by itself, ready to be sent in slices, at next to no cost.

    Tags that differ in their last two bytes only are one area, built once; for the next ones
    the byte before those is changed in all of them with one stroke.
    """

    SPAN = 1 << 16

    def __init__(self) -> None:
        frames = [
            ACK_FRAME.pack(METHOD, CHANNEL, 13, 60, 80, tag, 0, FRAME_END[0])
            for tag in range(self.SPAN)
        ]
        self._area = bytearray().join(frames)
        self._span = 0  # The tags in the area, divided by SPAN.

    def of(self, first: int, end: int) -> memoryview:
        """Of tags from the first on, below the end, as far as they are in one area."""
        span, start = divmod(first, self.SPAN)
        if span != self._span:
            for place, byte in enumerate(span.to_bytes(6), 11):  # After seven and four bytes.
                self._area[place :: ACK_FRAME.size] = bytes((byte,)) * self.SPAN
            self._span = span
        stop = min(end - span * self.SPAN, self.SPAN)
        return memoryview(self._area)[start * ACK_FRAME.size : stop * ACK_FRAME.size]
