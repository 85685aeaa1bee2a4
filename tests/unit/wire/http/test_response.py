"""Responses, read by the parser of the standard library."""

import io
from collections.abc import Sequence
from http.client import HTTPResponse

import pytest

from entrepot.core.ports import Buffer
from entrepot.wire.http.request import Request
from entrepot.wire.http.response import Response, encode

DATE = "Mon, 16 Nov 2026 05:33:31 GMT"


class Socket(io.BytesIO):
    def makefile(self, mode: str) -> io.BytesIO:
        return self


def read(chunks: Sequence[Buffer], method: str = "GET") -> HTTPResponse:
    response = HTTPResponse(Socket(b"".join(chunks)), method=method)  # type: ignore[arg-type]
    response.begin()
    return response


def request(method: str = "GET", *, is_old: bool = False) -> Request:
    return Request(method, "/", {}, is_old=is_old)


def test_a_body_and_headers() -> None:
    sent = Response(200, b"[1]", (("Content-Type", "application/json"),))
    got = read(encode(sent, request(), date=DATE, keeps_alive=True))
    assert (got.status, got.reason, got.read()) == (200, "OK", b"[1]")
    assert (got.headers["content-type"], got.headers["date"]) == ("application/json", DATE)
    assert "connection" not in got.headers


def test_none_at_all() -> None:
    got = read(encode(Response(204), request(), date=DATE, keeps_alive=True))
    assert (got.status, "content-length" in got.headers) == (204, False)


def test_head_has_the_size_of_what_it_does_not_have() -> None:
    sent = encode(Response(200, b"abc"), request("HEAD"), date=DATE, keeps_alive=True)
    assert b"".join(sent).endswith(b"\r\n\r\n")
    assert read(sent, "HEAD").headers["content-length"] == "3"


def test_whether_the_connection_is_kept() -> None:
    last = read(encode(Response(400), None, date=DATE, keeps_alive=False))
    assert last.headers["connection"] == "close"
    kept = read(encode(Response(200), request(is_old=True), date=DATE, keeps_alive=True))
    assert kept.headers["connection"] == "keep-alive"


def test_a_header_is_one_line() -> None:
    with pytest.raises(AssertionError):
        encode(Response(200, headers=(("A", "b\r\nC: d"),)), None, date=DATE, keeps_alive=True)
