"""HTTP/1.1 responses: a status, headers and a body of known size, as bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

from entrepot.core.limits import KIB
from entrepot.core.ports import Buffer
from entrepot.wire.http.request import Request

_STATUS_LINES = {int(each): f"HTTP/1.1 {each} {each.phrase}" for each in HTTPStatus}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SWITCHING = 101
NO_CONTENT = 204
_JOINED_BYTES_MAX = 4 * KIB  # To copy a body of this size costs less than to pass it by itself.
_MAY_HAVE_NO_BODY = (SWITCHING, NO_CONTENT, 304)


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: Buffer = b""
    headers: tuple[tuple[str, str], ...] = ()  # Beside those of the connection and the body.
    is_stream: bool = False  # The body follows, and ends with the connection.


def encode(
    response: Response, request: Request | None, *, date: str, keeps_alive: bool
) -> list[Buffer]:
    """In chunks, for a body may be long. `request` is None when what came was none."""
    assert not (response.body and response.status in _MAY_HAVE_NO_BODY)
    lines = [_STATUS_LINES[response.status], f"Date: {date}"]
    lines += _lines(response.headers)
    if response.status not in _MAY_HAVE_NO_BODY and not response.is_stream:
        lines.append(f"Content-Length: {len(response.body)}")
    if not keeps_alive:
        lines.append("Connection: close")
    elif request is not None and request.is_old:
        lines.append("Connection: keep-alive")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    if not response.body or (request is not None and request.method == "HEAD"):
        return [head]
    if len(response.body) <= _JOINED_BYTES_MAX:
        return [head + response.body]
    return [head, response.body]


def _lines(headers: Iterable[tuple[str, str]]) -> Iterable[str]:
    for name, value in headers:
        assert value.isprintable(), f"{name} would become two headers"
        yield f"{name}: {value}"
