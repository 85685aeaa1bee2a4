"""Splits a stream of bytes into AMQP's frames, which stay as they are, to be passed on."""

from __future__ import annotations

from typing import NamedTuple

from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.frames import AREA_BYTES_MAX, AREA_BYTES_MIN, FRAME_ENVELOPE_BYTES
from entrepot.wire.amqp.scan import FRAME_END, FRAME_HEAD, FRAME_HEAD_BYTES


class Frame(NamedTuple):
    kind: int
    channel: int
    data: bytes  # All of the frame.

    @property
    def payload(self) -> bytes:
        return self.data[FRAME_HEAD_BYTES:-1]

    @property
    def size(self) -> int:
        """Return the size of the payload."""
        return len(self.data) - FRAME_ENVELOPE_BYTES


class FrameSplitter:
    __slots__ = ("_area", "_bytes_max", "_filled")

    def __init__(self, frame_bytes_max: int) -> None:
        self._bytes_max = frame_bytes_max + FRAME_ENVELOPE_BYTES  # Clients count it wrongly.
        self._area = bytearray(AREA_BYTES_MIN)
        self._filled = 0

    @property
    def unfinished_bytes(self) -> int:
        return self._filled

    def writable(self) -> memoryview:
        """Return where the next bytes go. Never empty."""
        return memoryview(self._area)[self._filled :]

    def received(self, size: int) -> list[Frame]:
        """Return the complete frames. Raises AmqpError."""
        filled = self._filled + size
        block = bytes(memoryview(self._area)[:filled])
        frames: list[Frame] = []
        position, needed = 0, FRAME_ENVELOPE_BYTES
        while filled - position >= FRAME_HEAD_BYTES:
            kind, channel, payload = FRAME_HEAD.unpack_from(block, position)
            needed = payload + FRAME_ENVELOPE_BYTES
            if needed > self._bytes_max:
                raise AmqpError(ReplyCode.FRAME_ERROR, f"a frame of {needed} bytes")
            end = position + needed
            if end > filled:
                break
            if block[end - 1] != FRAME_END:
                raise AmqpError(ReplyCode.FRAME_ERROR, "a frame without its end")
            frames.append(Frame(kind, channel, block[position:end]))
            position = end
        left = filled - position
        self._resize(left, needed, is_busy=filled == len(self._area))
        self._area[:left] = memoryview(block)[position:]
        self._filled = left
        return frames

    def _resize(self, left: int, needed: int, *, is_busy: bool) -> None:
        room = len(self._area)
        if is_busy and room < AREA_BYTES_MAX:
            self._area = bytearray(max(AREA_BYTES_MAX, needed))
        elif left and needed > room:
            self._area = bytearray(needed)
        elif not left and not is_busy and room > AREA_BYTES_MIN:
            self._area = bytearray(AREA_BYTES_MIN)
