"""Kafka's frames and headers: where a message begins, ends, and which one it is.

A frame is a signed 32-bit size and that many bytes: a header, then a message. Nothing
tells a reader the header's version but the API key and version inside it, so the
catalogue in `api` is needed to find where the message begins.

`FrameBuffer` never holds memory for bytes that were only announced, and never hands out
memory that a later read overwrites.
"""

from struct import Struct
from typing import NamedTuple

from entrepot.core import limits
from entrepot.core.errors import MalformedFrame
from entrepot.core.limits import KIB
from entrepot.wire.kafka.api import FLEXIBLE_FROM, NEVER, Api
from entrepot.wire.kafka.encoding import (
    DAMAGE,
    INT16,
    INT32,
    CompactReader,
    LegacyWriter,
)

AREA_BYTES_MIN = 4 * KIB  # The size of an idle connection's area.
AREA_BYTES_MAX = 128 * KIB  # The size of a busy connection's area.
EAGER_BYTES = limits.BATCH_BYTES_MAX + 64 * KIB  # Up to here, a large frame's buffer grows fast.

_REQUEST = Struct(">hhih")  # API key, version, correlation id, size of the client id.
_REQUEST_BYTES_MIN = 10
API_VERSION_BYTES = 4  # A request begins with its API key and version.
_CORRELATION, _CLIENT = 4, 8  # Where the correlation id begins, and what follows it.
_API_VERSIONS = int(Api.API_VERSIONS)
_RESPONSE = Struct(">ii")  # Size, correlation id,
_RESPONSE_TAGGED = Struct(">iib")  # and no tags.


class FrameBuffer:
    """Takes bytes as they come, and gives whole frames.

    Small frames arrive many at a time in one area that is used again and again, and are
    copied out together. A frame that outgrows the area gets memory of its own, is
    received straight into it, and takes it along.
    """

    __slots__ = (
        "_area",
        "_bytes_max",
        "_bytes_max_without_records",
        "_large",
        "unfinished_bytes",
    )

    def __init__(
        self,
        bytes_max: int = limits.FRAME_BYTES_MAX,
        bytes_max_without_records: int = limits.REQUEST_BYTES_MAX,
    ) -> None:
        """Set how large frames may be: all of them, and requests other than Produce. A client
        sets both to the same: its frames are responses, which do not begin with an API key."""
        self._bytes_max = bytes_max
        self._bytes_max_without_records = min(bytes_max, bytes_max_without_records)
        self._area = bytearray(AREA_BYTES_MIN)
        self._large: bytearray | None = None  # Holds one incomplete frame that outgrew the area.
        # How many bytes have come of a frame that is not whole. They are in _large, or in _area if
        # there is no _large.
        self.unfinished_bytes = 0

    def widen(self) -> None:
        """Take frames of any size that is allowed at all, from now on."""
        self._bytes_max = limits.FRAME_BYTES_MAX
        self._bytes_max_without_records = limits.REQUEST_BYTES_MAX

    def writable(self) -> memoryview:
        """Return where the next bytes go. It is never empty."""
        view = memoryview(self._area if self._large is None else self._large)
        return view[self.unfinished_bytes :] if self.unfinished_bytes else view

    def received(self, size: int) -> list[memoryview]:
        """Return the frames that are now whole, without their sizes. The caller may write to them.

        Raises MalformedFrame when the next frame cannot be one.
        """
        self.unfinished_bytes += size
        if self._large is not None:
            return self._received_large(self._large)
        filled = self.unfinished_bytes
        if 4 <= filled < AREA_BYTES_MIN == len(self._area):
            # Nearly always, one small frame has come, and nothing else.
            (frame_size,) = INT32.unpack_from(self._area)
            if frame_size == filled - 4 <= self._bytes_max_without_records:
                self.unfinished_bytes = 0
                return [memoryview(self._area[4:filled])]
        bounds, taken = self._scan()
        area = memoryview(self._area)
        self.unfinished_bytes = filled - taken
        if taken:
            # All frames of this read share one copy, because they are mostly done with together.
            whole = memoryview(bytearray(area[:taken]))
            frames = [whole[start:end] for start, end in bounds]
            area[: filled - taken] = area[taken:filled]
        else:
            frames = []
            if filled == len(area):
                self._grow(self._area)
        if filled == len(area):
            self._resize_area(AREA_BYTES_MAX)
        elif self.unfinished_bytes == 0 and filled < AREA_BYTES_MIN:
            self._resize_area(AREA_BYTES_MIN)
        return frames

    def _scan(self) -> tuple[list[tuple[int, int]], int]:
        """Find where the whole frames in the area begin and end, and how many bytes they take."""
        bounds = []
        position = 0
        while self.unfinished_bytes - position >= 4:
            end = position + 4 + self._frame_size(position)
            if end > self.unfinished_bytes:
                break
            bounds.append((position + 4, end))
            position = end
        return bounds, position

    def _frame_size(self, position: int) -> int:
        """Return the size of the frame that begins there. Raises MalformedFrame."""
        (size,) = INT32.unpack_from(self._area, position)
        if 0 <= size <= self._bytes_max_without_records:
            return int(size)
        if not 0 <= size <= self._bytes_max:
            raise MalformedFrame(f"a frame of {size} bytes; 0 to {self._bytes_max} are taken")
        if self.unfinished_bytes - position >= 6:
            (api_key,) = INT16.unpack_from(self._area, position + 4)
            if api_key != Api.PRODUCE:
                raise MalformedFrame(f"a request of {size} bytes that carries no records")
        return int(size)

    def _received_large(self, large: bytearray) -> list[memoryview]:
        if self.unfinished_bytes < len(large):
            return []
        if self.unfinished_bytes < 4 + INT32.unpack_from(large)[0]:
            self._grow(large)
            return []
        self._large = None
        self.unfinished_bytes = 0
        return [memoryview(large)[4:]]

    def _grow(self, full: bytearray) -> None:
        """Make more room for a frame that fills its buffer, in proportion to what has come."""
        need = 4 + INT32.unpack_from(full)[0]
        room = max(2 * len(full), min(32 * len(full), EAGER_BYTES))
        self._large = bytearray(min(need, room))
        self._large[: len(full)] = full
        self.unfinished_bytes = len(full)

    def _resize_area(self, size: int) -> None:
        if len(self._area) != size:
            area = bytearray(size)
            if self._large is None:
                area[: self.unfinished_bytes] = memoryview(self._area)[: self.unfinished_bytes]
            self._area = area


class RequestHeader(NamedTuple):
    api_key: int  # May be a number that `Api` does not have.
    version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Return the header and the position of the message. Raises MalformedFrame.

    If the API is unknown, only the header's first three fields are certain.
    """
    try:
        api_key, version, correlation_id, size = _REQUEST.unpack_from(frame)
        position = _REQUEST_BYTES_MIN + max(size, 0)
        if size < -1 or position > len(frame):
            raise MalformedFrame(f"a client id of {size} bytes in a frame of {len(frame)}")
        # The client id is in the legacy encoding in every version.
        client_id = None if size < 0 else str(frame[_REQUEST_BYTES_MIN:position], "utf-8")
        if version >= FLEXIBLE_FROM.get(api_key, NEVER):
            position = _skip_tags(frame, position)
    except DAMAGE as error:
        raise MalformedFrame(f"request header: {error}") from None
    return RequestHeader(api_key, version, correlation_id, client_id), position


class KnownHeader:
    """What the headers of one API and version have in common that a client sends.

    Nearly all requests of a connection differ from the one before in the correlation id alone, so
    the rest of the header is compared with what was read before, and not read again.
    """

    __slots__ = ("api_key", "client", "client_id", "end", "version")

    def __init__(self, header: RequestHeader, frame: memoryview, end: int) -> None:
        self.api_key, self.version, _, self.client_id = header
        self.end = end  # Where the message begins.
        self.client = bytes(frame[_CLIENT:end])

    def read(self, frame: memoryview) -> RequestHeader | None:
        """Read the header of a request of this API and version. None means: it has another client
        id, or tags."""
        if frame[_CLIENT : self.end] != self.client:
            return None
        (correlation_id,) = INT32.unpack_from(frame, _CORRELATION)
        return RequestHeader(self.api_key, self.version, correlation_id, self.client_id)


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    if _has_response_tags(api_key, version):
        return INT32.pack(correlation_id) + b"\0"
    return INT32.pack(correlation_id)


def response_start(api_key: int, version: int, correlation_id: int, size: int) -> bytes:
    """Write what stands before an answer of that many bytes: the frame's size and the header."""
    if version >= FLEXIBLE_FROM.get(api_key, NEVER) and api_key != _API_VERSIONS:
        return _RESPONSE_TAGGED.pack(size + 5, correlation_id, 0)
    return _RESPONSE.pack(size + 4, correlation_id)


def request_header(api: Api, version: int, correlation_id: int, client_id: str | None) -> bytes:
    header = _REQUEST.pack(api, version, correlation_id, 0)[:-2]
    tags = b"\0" if version >= api.flexible_from else b""
    return header + LegacyWriter.nullable_string(client_id) + tags


def read_response_header(frame: memoryview, api: Api, version: int) -> tuple[int, int]:
    """Return the correlation id and the position of the message. Raises MalformedFrame."""
    try:
        (correlation_id,) = INT32.unpack_from(frame)
        position = INT32.size
        if _has_response_tags(api, version):
            position = _skip_tags(frame, position)
    except DAMAGE as error:
        raise MalformedFrame(f"response header: {error}") from None
    return correlation_id, position


def size_prefix(size: int) -> bytes:
    """Write the size that stands before a frame of that many bytes."""
    return INT32.pack(size)


def _has_response_tags(api_key: int, version: int) -> bool:
    # ApiVersions is asked before anything is known of the peer, so its answer always
    # begins in the way the oldest client understands.
    return version >= FLEXIBLE_FROM.get(api_key, NEVER) and api_key != _API_VERSIONS


def _skip_tags(frame: memoryview, position: int) -> int:
    if frame[position] == 0:
        return position + 1
    reader = CompactReader(frame, position)
    reader.skip_tags()
    return reader.position
