"""AMQP's frames: turns a stream of bytes into events, and builds frames to send.

A connection begins with eight bytes that name the protocol. A server that gets another name
answers with its own and closes the connection, so a client may get those eight bytes instead of
a first frame. Everything after them is frames: type, channel, size, payload and an end octet,
which shows at once when the two sides disagree on where frames begin.

How large a frame may be is agreed on while the connection is tuned. Before that there is a small
limit, because the client has not logged in. RabbitMQ accepts eight bytes more than was agreed,
because clients count the frame's envelope wrongly, and so does this.

`FrameBuffer` never allocates memory for bytes that were only announced, and never returns memory
that a later read overwrites.
"""

from typing import NamedTuple

from entrepot.core import limits
from entrepot.core.limits import KIB
from entrepot.core.message import OPAQUE, Format
from entrepot.wire.amqp import limits as amqp_limits
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

PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"  # AMQP 0-9-1; also the answer to any other.
_PROTOCOL_HEADERS = (PROTOCOL_HEADER, b"AMQP\x01\x01\0\x09")  # 0-9 is near enough to 0-9-1.
FRAME_ENVELOPE_BYTES = FRAME_HEAD_BYTES + 1
END = bytes((FRAME_END,))

AREA_BYTES_MIN = 4 * KIB  # The buffer of an idle connection.
AREA_BYTES_MAX = 128 * KIB  # Read at once from a busy connection.

HEARTBEAT_FRAME = FRAME_HEAD.pack(HEARTBEAT, 0, 0) + END


class ProtocolHeader(NamedTuple):
    """The eight bytes before the first frame; fewer if the first of them are wrong already."""

    octets: bytes

    @property
    def is_ours(self) -> bool:
        """Return whether we speak this protocol.

        If not, send `PROTOCOL_HEADER` and close the connection; nothing more is read.
        """
        return self.octets in _PROTOCOL_HEADERS


class FrameBuffer:
    """Turns bytes into events. After an error that closes the connection there are no more."""

    __slots__ = (
        "_area",
        "_filled",
        "_has_begun",
        "_is_client",
        "_is_over",
        "_needed",
        "_scanner",
        "_taken",
        "unfinished_bytes",
    )

    def __init__(
        self,
        *,
        is_client: bool = False,
        message_bytes_max: int = limits.MESSAGE_BYTES_MAX,
        format: Format = OPAQUE,
    ) -> None:
        """`format` is that of the envelopes of published messages."""
        self._scanner = Scanner(limits.LOGIN_FRAME_BYTES_MAX, message_bytes_max, format)
        self._is_client = is_client
        self._area = bytearray(AREA_BYTES_MIN)
        self._filled = 0  # Bytes in the area; fewer than it holds.
        self._taken = 0  # Bytes that were in the area and are processed.
        self._needed = 1  # With fewer bytes than this in the area no frame is complete.
        self._has_begun = False  # Whether the protocol header is over.
        self._is_over = False
        self.unfinished_bytes = 0  # Held of incomplete frames and contents.

    def tune(self, frame_bytes_max: int) -> None:
        """Set the size of frames that was agreed on, envelope included."""
        assert frame_bytes_max >= amqp_limits.FRAME_BYTES_MIN
        self._scanner.limit_payload(frame_bytes_max)

    def close_channel(self, channel: int) -> None:
        """Ignore a channel that we close, until the peer's close-ok."""
        self._scanner.close_channel(channel)
        self.unfinished_bytes = self._filled + self._scanner.unfinished_bytes

    @property
    def unfinished_number(self) -> int:
        """Return a number that identifies the oldest incomplete frame or content."""
        return self._scanner.unfinished_number or self._taken

    def writable(self) -> memoryview:
        """Return where the next bytes go. Never empty."""
        return memoryview(self._area)[self._filled :]

    def received(self, size: int) -> list[ProtocolHeader | Event]:
        """Return the complete events. The last may be an AmqpError that closes the connection."""
        filled = self._filled + size
        events: list[ProtocolHeader | Event] = []
        left = filled
        if self._is_over:
            left = 0
        elif filled >= self._needed:
            block = bytes(memoryview(self._area)[:filled])
            begun = 0 if self._has_begun else self._begin(block, events)
            if begun is not None:
                left -= begun
                if not self._is_over:
                    found, taken = self._scanner.scan(block[begun:])
                    left -= taken
                    events += found
                    if found and isinstance(found[-1], AmqpError):
                        self._is_over = found[-1].closes_connection
            self._needed = 1
            if left:
                self._area[:left] = memoryview(block)[filled - left :]
                self._needed = self._needed_by(left)
        self._taken += filled - left
        self._filled = left
        self.unfinished_bytes = left + self._scanner.unfinished_bytes
        room = len(self._area)
        if filled == room:
            self._resize(max(AREA_BYTES_MAX, min(2 * left, self._needed)))
        elif left == 0 and filled < AREA_BYTES_MIN < room:
            self._resize(AREA_BYTES_MIN)
        return events

    def _begin(self, block: bytes, events: list[ProtocolHeader | Event]) -> int | None:
        """Read the protocol header; return its size. None means: it is incomplete.

        A server always gets one. A client gets one when it is refused; otherwise the size is 0.
        """
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
        """Return how many bytes must be in the area before its next frame can be complete."""
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
    """Return the frame of a method. If the method has content, that must follow: see `deliver`."""
    return frame(METHOD, channel, encode(method))
