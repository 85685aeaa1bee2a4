"""Recognises a Fetch that a consumer of one partition sends again and again."""

from __future__ import annotations

from struct import Struct
from typing import Self

from entrepot.wire.kafka.encoding import INT16, INT32
from entrepot.wire.kafka.fetch import VERSION_REPLICA_STATE, VERSION_TOPIC_ID, decode_one

_EPOCH, _OFFSET = INT32, Struct(">q")
# Where they are. In v11 the name of the topic is between them, after so many bytes.
_EPOCH_AT_V11, _V11_BYTES, _OFFSET_AFTER_NAME = 21, 31, 12
_EPOCH_AT_V15, _OFFSET_AFTER_EPOCH = 17, 30


class RepeatedRequest:
    """A request for one partition, as its consumer repeats it: with another offset, and the next
    epoch of its session. All its other bytes stay as they are."""

    __slots__ = ("_after", "_before", "_between", "_epoch_at", "_offset_at")

    def __init__(self, message: bytes, epoch_at: int, offset_at: int) -> None:
        self._epoch_at, self._offset_at = epoch_at, offset_at
        self._before = message[:epoch_at]
        self._between = message[epoch_at + _EPOCH.size : offset_at]
        self._after = message[offset_at + _OFFSET.size :]

    @classmethod
    def of(cls, version: int, frame: memoryview, position: int) -> Self | None:
        """Return what is to be repeated of a request that was read; None if it is not for one
        partition, or has tags."""
        if decode_one(version, frame, position) is None:
            return None
        if version >= VERSION_TOPIC_ID:
            epoch_at = _EPOCH_AT_V15 + (_EPOCH.size if version < VERSION_REPLICA_STATE else 0)
            return cls(bytes(frame[position:]), epoch_at, epoch_at + _OFFSET_AFTER_EPOCH)
        message = bytes(frame[position:])
        name_bytes = int.from_bytes(message[_V11_BYTES - INT16.size : _V11_BYTES], "big")
        return cls(message, _EPOCH_AT_V11, _V11_BYTES + name_bytes + _OFFSET_AFTER_NAME)

    def read(self, message: bytes) -> tuple[int, int] | None:
        """Return the session's epoch and the offset; None if this is another request."""
        epoch_at, offset_at = self._epoch_at, self._offset_at
        if (
            message[:epoch_at] != self._before
            or message[epoch_at + _EPOCH.size : offset_at] != self._between
            or message[offset_at + _OFFSET.size :] != self._after
            or len(message) < offset_at + _OFFSET.size
        ):
            return None
        (epoch,) = _EPOCH.unpack_from(message, epoch_at)
        (offset,) = _OFFSET.unpack_from(message, offset_at)
        return epoch, offset
