"""HTTP/1.1 requests: bytes in, whole requests out.

httptools (Node's parser, llhttp) finds where things begin and end, as strictly as it can;
here is what it does not know: how much is too much, and which requests are none of ours. A
body is handed out when all of it is there. What is wrong ends the reading: the requests
before it are handed out, `failure` says with which status to answer, and the connection is
to be closed, for nobody can tell where the next request would begin.

Never held: more than one read beside the request that is being received, and of that no more
than its bounds. Trailers are counted and thrown away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from entrepot.core.errors import PeerError
from entrepot.core.limits import KIB
from entrepot.wire.http import limits as http_limits

AREA_BYTES_MIN = 4 * KIB  # What an idle connection costs.
AREA_BYTES_MAX = 64 * KIB  # What a busy one reads at once.

_HEADER_COST = 4  # A colon, a space and the end of a line.
_SINGLE = ("host", "content-length", "transfer-encoding", "authorization", "content-type")


class HttpError(PeerError):
    """A request that gets this status and no other service."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str  # As it came. `target.split` knows its parts.
    headers: Mapping[str, str]  # By lower-case name; several of one name joined by commas.
    body: bytes = b""
    keeps_alive: bool = True  # Whether the peer wants another answer after this one.
    is_old: bool = False  # HTTP/1.0, which has to be told that a connection is kept.


class RequestReader:
    def __init__(self, body_bytes_max: int = http_limits.BODY_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self._area = bytearray(AREA_BYTES_MIN)
        self._parser = HttpRequestParser(self)
        self._whole: list[Request] = []  # In this read.
        self._is_last = False  # The peer said so; what else it sends is not looked at.
        self._unmoved = 0  # Bytes since a request's begin, or since the last of its body.
        self.failure: HttpError | None = None
        self.awaits_continue = False  # Before it sends a body, it wants to hear that it may.
        self._begin()

    def writable(self) -> memoryview:
        return memoryview(self._area)

    @property
    def unfinished_bytes(self) -> int:
        """What has come of a request that is not whole."""
        return len(self._body) + self._unmoved if self.is_amid else 0

    def received(self, size: int) -> list[Request]:
        """The requests that are now whole. Nothing more once there is a failure."""
        data = memoryview(self._area)[:size]
        self._unmoved += size
        while data and not self._is_last and self.failure is None:
            data = self._feed(data)
        del data
        if self.failure is None and self._unmoved > http_limits.HEAD_BYTES_MAX:
            self.failure = HttpError(431, "the head of the request is too large")
        self._resize_area(size)
        whole, self._whole = self._whole, []
        return whole

    def _resize_area(self, size: int) -> None:
        is_small = len(self._area) == AREA_BYTES_MIN
        if is_small and size == AREA_BYTES_MIN:
            self._area = bytearray(AREA_BYTES_MAX)
        elif not is_small and size < AREA_BYTES_MIN and not self.is_amid:
            self._area = bytearray(AREA_BYTES_MIN)

    def _feed(self, data: memoryview) -> memoryview:
        """What is left to be fed."""
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:  # It offers another protocol. We stay with this.
            return data[upgrade.args[0] :]
        except HttpParserError as error:
            if self.failure is None and not self._is_last:
                self.failure = HttpError(400, f"this is not HTTP/1.1: {error}")
        return data[:0]

    def forget(self) -> None:
        """Let go of the request that is being received. Nothing more is to come.

        The parser and this refer to each other, so they live until garbage is collected."""
        self._begin()

    # What the parser calls.

    def on_message_begin(self) -> None:
        self.is_amid = True

    def _begin(self) -> None:
        self._target: list[bytes] = []
        self._headers: dict[str, str] = {}
        self._head_bytes = self._header_count = 0
        self._is_head_whole = False
        self._body = bytearray()  # Not the pieces: they may be as small as a byte.
        self.is_amid = False  # In a request.

    def on_url(self, piece: bytes) -> None:
        self._target.append(piece)
        self._head_bytes += len(piece)
        if self._head_bytes > http_limits.HEAD_BYTES_MAX:
            self._fail(431, "the head of the request is too large")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._head_bytes += len(name) + len(value) + _HEADER_COST
        if self._head_bytes > http_limits.HEAD_BYTES_MAX:
            self._fail(431, "the head of the request is too large")
        if self._header_count > http_limits.HEADERS_MAX:
            self._fail(431, f"more than {http_limits.HEADERS_MAX} headers")
        if self._is_head_whole:
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t")
        if key in self._headers:
            if key in _SINGLE:
                self._fail(400, f"more than one {key}")
            text = f"{self._headers[key]}, {text}"
        self._headers[key] = text

    def on_headers_complete(self) -> None:
        self._is_head_whole = True
        headers = self._headers
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            self._fail(505, "HTTP/1.0 and HTTP/1.1 are served")
        if version == "1.1" and "host" not in headers:
            self._fail(400, "no host")
        coding = headers.get("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            self._fail(501, "the only transfer-encoding is chunked")
        size = headers.get("content-length", "0")
        if int(size) > self._body_bytes_max:
            self._fail(413, f"a body has at most {self._body_bytes_max} bytes")
        has_body = coding is not None or int(size) > 0
        if has_body and self._parser.should_upgrade():
            self._fail(400, "a request to upgrade has no body")
        self.awaits_continue = has_body and headers.get("expect", "").lower() == "100-continue"

    def on_body(self, piece: bytes) -> None:
        self._unmoved = 0
        self.awaits_continue = False
        self._body += piece
        if len(self._body) > self._body_bytes_max:
            self._fail(413, f"a body has at most {self._body_bytes_max} bytes")

    def on_message_complete(self) -> None:
        self._whole.append(
            Request(
                self._parser.get_method().decode("ascii"),
                b"".join(self._target).decode("latin-1"),
                self._headers,
                bytes(self._body),
                keeps_alive := self._parser.should_keep_alive(),
                self._parser.get_http_version() == "1.0",
            )
        )
        self._is_last = not keeps_alive
        self._unmoved = 0
        self.awaits_continue = False
        self._begin()

    def _fail(self, status: int, text: str) -> None:
        self.failure = HttpError(status, text)
        raise self.failure
