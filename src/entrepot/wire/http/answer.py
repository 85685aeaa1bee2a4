"""HTTP/1.1 answers, for a client: bytes in, the status and the body out.

httptools finds where an answer ends. A body may be taken while it comes, line by line: that is
how a server sends a stream of messages. What is held is bounded: a body, or a line of one, that
is longer than the caller allows is an error, and so is whatever is not HTTP.
"""

from __future__ import annotations

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from entrepot.core.errors import MalformedFrame
from entrepot.core.limits import KIB
from entrepot.core.ports import Buffer
from entrepot.wire.http.limits import HEAD_BYTES_MAX

_AREA_BYTES = 16 * KIB


class AnswerReader:
    """Reads one answer after the other; `begin` is called before each."""

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        self._area = bytearray(_AREA_BYTES)
        self.begin()

    def begin(self) -> None:
        self._parser = HttpResponseParser(self)
        self._head_bytes = 0  # With the beginning of the body, if that came in one read.
        self._is_head_whole = False
        self._body = bytearray()
        self.is_whole = False
        self.keeps_alive = False  # Known when the answer is whole.

    def writable(self) -> memoryview:
        return memoryview(self._area)

    def received(self, size: int) -> None:
        """Read these bytes. Raises MalformedFrame if they are no HTTP, or too many."""
        if self.is_whole:
            raise MalformedFrame("bytes after the answer")
        self._head_bytes += 0 if self._is_head_whole else size
        try:
            self._parser.feed_data(memoryview(self._area)[:size])
        except (HttpParserError, HttpParserUpgrade) as error:
            raise MalformedFrame(f"this is not HTTP/1.1: {error}") from None
        if (
            self._head_bytes > HEAD_BYTES_MAX + _AREA_BYTES
            or len(self._body) > self._body_bytes_max
        ):
            raise MalformedFrame("the answer is too large")

    @property
    def status(self) -> int:
        """Return the status; 0 until the head of the answer has come."""
        status = int(self._parser.get_status_code()) if self._is_head_whole else 0
        return status if status >= 200 else 0

    def take_body(self) -> bytes:
        body, self._body = bytes(self._body), bytearray()
        return body

    def take_lines(self) -> list[bytes]:
        """Return the whole lines of the body that have come since the last call."""
        end = self._body.rfind(b"\n") + 1
        lines = bytes(self._body[:end]).splitlines()
        del self._body[:end]
        return lines

    # What the parser calls.

    def on_headers_complete(self) -> None:
        self._is_head_whole = True

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self.is_whole = True
        self.keeps_alive = self._parser.should_keep_alive()


def post(
    host: str,
    path: str,
    body: bytes,
    headers: tuple[tuple[str, str], ...] = (),
    content_type: str = "application/json",
) -> Buffer:
    """Return a request with a body."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {host}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
