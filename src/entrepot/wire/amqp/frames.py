"""AMQP's frames: a stream of bytes in, what a peer said out; and frames to send.

A connection begins with eight bytes that name the protocol. A server that hears another
name answers with the one it speaks and hangs up; so what a client may hear instead of a
first frame is those eight bytes. Everything after them is frames: type, channel, size,
payload and an end octet, which tells at once when two sides have lost each other.

How large a frame may be is agreed on while the connection is tuned. Before that a small
bound holds, for nobody knows yet who is there. RabbitMQ takes eight bytes more than was
agreed, because clients count the frame's envelope wrongly, and so does this.

`FrameBuffer` never holds memory for bytes that were only announced, and never hands out
memory that a later read overwrites.
"""

from typing import NamedTuple

from entrepot.core import limits
from entrepot.core.limits import KIB
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import encode
from entrepot.wire.amqp.scan import (
    FRAME_END,
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    HEARTBEAT,
    METHOD,
    Event,
    Scanner,
)

PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"  # What we speak; also the answer to all else.
_PROTOCOL_HEADERS = (PROTOCOL_HEADER, b"AMQP\x01\x01\0\x09")  # 0-9 is near enough to 0-9-1.
FRAME_ENVELOPE_BYTES = FRAME_HEAD_BYTES + 1
END = bytes((FRAME_END,))

AREA_BYTES_MIN = 4 * KIB  # What an idle connection costs.
AREA_BYTES_MAX = 128 * KIB  # What a busy one reads at once.

HEARTBEAT_FRAME = FRAME_HEAD.pack(HEARTBEAT, 0, 0) + END


class ProtocolHeader(NamedTuple):
    """The eight bytes before the first frame; fewer when they cannot become the right ones."""

    octets: bytes

    @property
    def is_ours(self) -> bool:
        """Otherwise send `PROTOCOL_HEADER` and close; nothing more is read."""
        return self.octets in _PROTOCOL_HEADERS


class FrameBuffer:
    """Bytes in, events out. After a mistake that ends the connection, nothing more comes."""

    __slots__ = (
        "_area",
        "_filled",
        "_has_begun",
        "_is_client",
        "_is_over",
        "_needed",
        "_scanner",
        "_taken",
    )

    def __init__(
        self,
        *,
        is_client: bool = False,
        message_bytes_max: int = limits.AMQP_MESSAGE_BYTES_MAX,
    ) -> None:
        self._scanner = Scanner(limits.LOGIN_FRAME_BYTES_MAX, message_bytes_max)
        self._is_client = is_client
        self._area = bytearray(AREA_BYTES_MIN)
        self._filled = 0  # Less than the area holds.
        self._taken = 0  # Bytes that were here and are not any more.
        self._needed = 1  # With fewer bytes than this in the area there is nothing new in it.
        self._has_begun = False  # Whether we are past the protocol header.
        self._is_over = False

    def tune(self, frame_bytes_max: int) -> None:
        """What was agreed on, envelope included."""
        assert frame_bytes_max >= limits.AMQP_FRAME_BYTES_MIN
        self._scanner.limit_payload(frame_bytes_max)

    def close_channel(self, channel: int) -> None:
        """We close the channel: until the peer has agreed, nothing else is heard from it."""
        self._scanner.close_channel(channel)

    @property
    def unfinished_bytes(self) -> int:
        """What has come of frames and contents that are not whole."""
        return self._filled + self._scanner.unfinished_bytes

    @property
    def unfinished_number(self) -> int:
        """Tells the oldest of them from others."""
        return self._scanner.unfinished_number or self._taken

    def writable(self) -> memoryview:
        """Where the next bytes go. Never empty."""
        return memoryview(self._area)[self._filled :]

    def received(self, size: int) -> list[ProtocolHeader | Event]:
        """What is now whole. The last may be an AmqpError that closes the connection."""
        filled = self._filled + size
        events: list[ProtocolHeader | Event] = []
        left = filled
        if self._is_over:
            left = 0
        elif filled >= self._needed:
            block = bytes(memoryview(self._area)[:filled])
            left = filled - self._take(block, events)
            self._area[:left] = memoryview(block)[filled - left :]
            self._needed = self._needed_by(left)
        self._taken += filled - left
        self._filled = left
        if filled == len(self._area):
            self._resize(max(AREA_BYTES_MAX, min(2 * left, self._needed)))
        elif left == 0 and filled < AREA_BYTES_MIN:
            self._resize(AREA_BYTES_MIN)
        return events

    def _take(self, block: bytes, events: list[ProtocolHeader | Event]) -> int:
        """How much of the block is done with."""
        taken = 0
        if not self._has_begun:
            begun = self._begin(block, events)
            if begun is None:
                return 0
            taken = begun
        if not self._is_over:
            found, scanned = self._scanner.scan(block[taken:])
            events += found
            taken += scanned
            if found and isinstance(found[-1], AmqpError):
                self._is_over = found[-1].closes_connection
        return taken

    def _begin(self, block: bytes, events: list[ProtocolHeader | Event]) -> int | None:
        """The size of the protocol header: a server's first bytes, and a client's when it is
        refused. None: not all of it has come."""
        octets = block[: len(PROTOCOL_HEADER)]
        if self._is_client and octets[0] != PROTOCOL_HEADER[0]:
            self._has_begun = True
            return 0
        if len(octets) < len(PROTOCOL_HEADER) and any(
            header.startswith(octets) for header in _PROTOCOL_HEADERS
        ):
            return None
        header = ProtocolHeader(octets)
        events.append(header)
        self._has_begun = True
        self._is_over = self._is_client or not header.is_ours
        return len(octets)

    def _needed_by(self, left: int) -> int:
        """How many bytes must be in the area before the next frame in it can be whole."""
        if left < FRAME_HEAD_BYTES or not self._has_begun:
            return left + 1
        _, _, size = FRAME_HEAD.unpack_from(self._area)
        return FRAME_ENVELOPE_BYTES + int(size)

    def _resize(self, size: int) -> None:
        if len(self._area) != size:
            area = bytearray(size)
            area[: self._filled] = memoryview(self._area)[: self._filled]
            self._area = area


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return b"".join((FRAME_HEAD.pack(kind, channel, len(payload)), payload, END))


def method_frame(channel: int, method: Method) -> bytes:
    """A method on its way; one with content is followed by that, see `deliver`."""
    return frame(METHOD, channel, encode(method))
