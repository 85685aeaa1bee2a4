"""AMQP 1.0's frames: turns a stream of bytes into events, and builds frames to send.

A connection begins with eight bytes that name the protocol: first that of SASL, and after the
login that of AMQP. Everything else is frames: size, offset of the body, type, channel, and a
performative, behind which a transfer has a part of a message. A frame without a performative
shows that the peer is alive.

Transfers that came together on one link, each with a whole message, are one event.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

from entrepot.core.limits import KIB, LOGIN_FRAME_BYTES_MAX
from entrepot.wire.amqp10 import limits, performatives
from entrepot.wire.amqp10.errors import Amqp10Error, Condition
from entrepot.wire.amqp10.performatives import Composite, Transfer
from entrepot.wire.amqp10.types import Reader, malformed

AMQP_HEADER: Final = b"AMQP\0\1\0\0"
SASL_HEADER: Final = b"AMQP\3\1\0\0"
_HEADERS = (AMQP_HEADER, SASL_HEADER)
_HEAD = Struct(">IBBH")  # Size, offset of the body in words, type, channel.
HEAD_BYTES: Final = _HEAD.size
_AMQP, _SASL = 0, 1
_RUN_MESSAGES_MAX = 200
EMPTY_FRAME: Final = _HEAD.pack(HEAD_BYTES, 2, _AMQP, 0)

AREA_BYTES_MIN = 4 * KIB  # The buffer of an idle connection.
AREA_BYTES_MAX = 128 * KIB  # Read at once from a busy connection.


class ProtocolHeader(NamedTuple):
    """Eight bytes that name a protocol; fewer if the first of them are wrong already."""

    octets: bytes


class Frame(NamedTuple):
    channel: int
    performative: Any  # None means: only a sign of life.
    payload: bytes = b""


class Transfers(NamedTuple):
    """Transfers of one link, and the bytes of the messages in them."""

    channel: int
    transfers: list[tuple[Transfer, bytes]]


Event = ProtocolHeader | Frame | Transfers | Amqp10Error


class FrameBuffer:
    """Turns bytes into events. After an error there are no more."""

    __slots__ = ("_area", "_filled", "_frame_bytes_max", "_headers_left", "_is_over", "_taken")

    def __init__(self) -> None:
        self._area = bytearray(AREA_BYTES_MIN)
        self._filled = 0  # Bytes in the area; fewer than it holds.
        self._taken = 0  # Bytes that were in the area and are processed.
        self._frame_bytes_max = LOGIN_FRAME_BYTES_MAX
        self._headers_left = 1  # Protocol headers that must come before the next frame.
        self._is_over = False

    def expect_header(self) -> None:
        """Read another protocol header after the login."""
        self._headers_left = 1

    def allow(self, frame_bytes_max: int) -> None:
        """Set the size of frames that the client was told."""
        self._frame_bytes_max = frame_bytes_max

    @property
    def unfinished_bytes(self) -> int:
        """Return how many bytes of an incomplete frame are held."""
        return self._filled

    @property
    def unfinished_number(self) -> int:
        """Return a number that identifies the incomplete frame."""
        return self._taken

    def writable(self) -> memoryview:
        """Return where the next bytes go. Never empty."""
        return memoryview(self._area)[self._filled :]

    def received(self, size: int) -> list[Event]:
        """Return the complete events. An Amqp10Error is the last one."""
        filled = self._filled + size
        block = bytes(memoryview(self._area)[:filled])
        events: list[Event] = []
        taken = filled if self._is_over else self._scan(block, events)
        left = filled - taken
        self._taken += taken
        self._filled = left
        needed = self._needed(block, taken)
        if filled == len(self._area) or needed > len(self._area):
            # Never more than twice what has come: an announced size is only a promise.
            room = max(AREA_BYTES_MAX, min(2 * left, needed))
            self._area = bytearray(room)
        elif not left and len(self._area) > AREA_BYTES_MIN and filled < AREA_BYTES_MIN:
            self._area = bytearray(AREA_BYTES_MIN)
        self._area[:left] = block[taken:]
        return events

    def _needed(self, block: bytes, at: int) -> int:
        if len(block) - at < HEAD_BYTES:
            return 0
        return int(_HEAD.unpack_from(block, at)[0])

    def _scan(self, block: bytes, events: list[Event]) -> int:
        at = 0
        while not self._is_over:
            if self._headers_left:
                size = self._scan_header(block[at : at + len(AMQP_HEADER)], events)
            else:
                size = self._scan_frame(block, at, events)
            if not size:
                break
            at += size
        return at

    def _scan_header(self, octets: bytes, events: list[Event]) -> int:
        """Read a protocol header; return its size, 0 if it is incomplete."""
        is_known = any(header.startswith(octets) for header in _HEADERS)
        if is_known and len(octets) < len(AMQP_HEADER):
            return 0
        events.append(ProtocolHeader(octets))
        self._headers_left = 0
        self._is_over = not is_known
        return len(octets)

    def _scan_frame(self, block: bytes, at: int, events: list[Event]) -> int:
        """Read a frame; return its size, 0 if it is incomplete."""
        if len(block) - at < HEAD_BYTES:
            return 0
        size, offset, kind, channel = _HEAD.unpack_from(block, at)
        try:
            if size > self._frame_bytes_max or size < HEAD_BYTES:
                raise Amqp10Error(Condition.FRAMING_ERROR, f"a frame of {size} bytes")
            if len(block) - at < size:
                return 0
            body = at + 4 * offset
            if offset < 2 or body > at + size or kind not in (_AMQP, _SASL):
                raise Amqp10Error(Condition.FRAMING_ERROR, "a frame whose head is wrong")
            self._add(channel, block[body : at + size], events)
        except Amqp10Error as error:
            events.append(error)
            self._is_over = True
            return len(block) - at
        return int(size)

    def _add(self, channel: int, body: bytes, events: list[Event]) -> None:
        if not body:
            events.append(Frame(channel, None))
            return
        reader = Reader(body)
        performative = performatives.read(reader.value())
        payload = body[reader.at :]
        if isinstance(performative, Transfer):
            before = events[-1] if events else None
            if (
                isinstance(before, Transfers)
                and before.channel == channel
                and before.transfers[-1][0].handle == performative.handle
                and len(before.transfers) < _RUN_MESSAGES_MAX
            ):
                before.transfers.append((performative, payload))
            else:
                events.append(Transfers(channel, [(performative, payload)]))
            return
        if payload:
            raise malformed("bytes behind a performative that has none")
        events.append(Frame(channel, performative))


def frame(channel: int, performative: Composite, payload: bytes = b"") -> bytes:
    """Return a frame of AMQP."""
    body = performatives.encode(performative)
    head = _HEAD.pack(HEAD_BYTES + len(body) + len(payload), 2, _AMQP, channel)
    return b"".join((head, body, payload))


def frame_head(channel: int, size: int) -> bytes:
    """Return the head of a frame of AMQP with a body of that size."""
    return _HEAD.pack(HEAD_BYTES + size, 2, _AMQP, channel)


def sasl_frame(performative: Composite) -> bytes:
    """Return a frame of the login."""
    body = performatives.encode(performative)
    return _HEAD.pack(HEAD_BYTES + len(body), 2, _SASL, 0) + body


assert limits.FRAME_BYTES_MAX <= AREA_BYTES_MAX
