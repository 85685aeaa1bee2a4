"""Requests come out whole however they were cut, and what is none is refused."""

import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.wire.http import limits as http_limits
from entrepot.wire.http.request import AREA_BYTES_MAX, Request, RequestReader

GET = b"GET /api/queues?page=1 HTTP/1.1\r\nHost: a\r\nX-Two: 1\r\nx-two:  2 \r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"PUT /y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;note=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: unseen\r\n\r\n"
)
OLD = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
LAST = b"DELETE /z HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
WHOLE = [
    Request("GET", "/api/queues?page=1", {"host": "a", "x-two": "1, 2"}),
    Request("POST", "/x", {"host": "a", "content-length": "5"}, b"hello"),
    Request("PUT", "/y", {"host": "a", "transfer-encoding": "chunked"}, b"abcde"),
    Request("GET", "/", {"connection": "keep-alive"}, is_old=True),
    Request("DELETE", "/z", {"host": "a", "connection": "close"}, keeps_alive=False),
]


def feed(reader: RequestReader, data: bytes, cuts: list[int] | None = None) -> list[Request]:
    """Hand over the pieces as the net does: never more than there is room for."""
    found: list[Request] = []
    bounds = [0, *sorted(cuts or []), len(data)]
    for start, end in pairwise(bounds):
        while start < end and reader.failure is None:
            view = reader.writable()
            size = min(len(view), end - start)
            view[:size] = data[start : start + size]
            del view
            found += reader.received(size)
            start += size
    return found


@given(st.data())
def test_however_they_are_cut(data: Any) -> None:
    stream = GET + POST + CHUNKED + OLD + LAST + b"what comes after the last"
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20))
    reader = RequestReader()
    assert feed(reader, stream, cuts) == WHOLE
    assert reader.failure is None


def test_byte_by_byte() -> None:
    stream = GET + POST + CHUNKED + OLD + LAST
    assert feed(RequestReader(), stream, list(range(len(stream)))) == WHOLE


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_any_bytes_are_requests_or_a_failure(junk: bytes, cuts: list[int]) -> None:
    reader = RequestReader()
    feed(reader, junk, [cut for cut in cuts if cut < len(junk)])
    assert reader.failure is None or reader.failure.status == 400


@given(st.integers(0, len(CHUNKED) - 1), st.integers(0, 255))
def test_one_wrong_byte_never_breaks_the_reader(place: int, value: int) -> None:
    bad = bytearray(CHUNKED + POST)
    bad[place] = value
    reader = RequestReader()
    feed(reader, bytes(bad))
    assert reader.failure is None or 400 <= reader.failure.status < 600


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"FROB /x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /x HTTP/3.0\r\nHost: a\r\n\r\n", 400),
        (b"GET /x HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET /x HTTP/1.1\r\n\r\n", 400),
        (b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /x HTTP/1.1\r\nHost: a\r\nBad header\r\n\r\n", 400),
        (b"GET /x HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n", 400),
        (b"GET /x HTTP/1.1\nHost: a\n\n", 400),
        (POST.replace(b"5", b"5\r\nContent-Length: 6"), 400),
        (POST.replace(b"5", b"5\r\nTransfer-Encoding: chunked"), 400),
        (POST.replace(b": 5", b": -5"), 400),
        (POST.replace(b": 5", b": 99999999999999999999999"), 400),
        (POST.replace(b": 5", b": 99999999999"), 413),
        (CHUNKED.replace(b"chunked", b"gzip, chunked"), 501),
        (CHUNKED.replace(b"3;note=1", b"zz"), 400),
        (POST.replace(b"Host", b"Connection: upgrade\r\nUpgrade: h2c\r\nHost"), 400),
        (b"GET /" + b"x" * http_limits.HEAD_BYTES_MAX + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        (GET.replace(b"\r\n\r\n", b"\r\nX: y" * http_limits.HEADERS_MAX + b"\r\n\r\n"), 431),
    ],
)
def test_what_is_refused(data: bytes, status: int) -> None:
    for cuts in ([], list(range(0, len(data), 7))):
        reader = RequestReader()
        assert feed(reader, GET + data, cuts)[:1] == WHOLE[:1]
        assert reader.failure is not None
        assert reader.failure.status == status


ENDLESS = {
    "a target": (b"GET /", b"x"),
    "a header": (b"GET / HTTP/1.1\r\nX: ", b"x"),
    "empty lines": (b"", b"\r\n"),
    "headers": (b"GET / HTTP/1.1\r\n", b"A: b\r\n"),
    "a chunk's note": (CHUNKED[: CHUNKED.index(b"note")], b"x"),
    "a trailer": (CHUNKED[: CHUNKED.index(b"unseen")], b"x"),
    "trailers": (CHUNKED[: CHUNKED.index(b"Trailer")], b"A: b\r\n"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_does_not_end_is_cut_off(what: str) -> None:
    start, more = ENDLESS[what]
    reader = RequestReader()
    feed(reader, start)
    given_bytes = 0
    while reader.failure is None:
        feed(reader, more * (1_000 // len(more)))
        given_bytes += 1_000
        assert given_bytes < http_limits.HEAD_BYTES_MAX + AREA_BYTES_MAX + 2_000
    assert reader.failure.status == 431


def test_a_body_has_a_bound() -> None:
    for data in (POST, CHUNKED):
        assert len(feed(RequestReader(body_bytes_max=5), data)) == 1
        reader = RequestReader(body_bytes_max=4)
        assert feed(reader, data) == []
        assert reader.failure is not None
        assert reader.failure.status == 413


def test_a_large_body() -> None:
    body = bytes(range(256)) * 4_000
    reader = RequestReader()
    head = b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    (found,) = feed(reader, head + body)
    assert found.body == body
    assert len(feed(reader, GET)) == 1
    assert len(reader.writable()) < AREA_BYTES_MAX  # An idle connection costs little again.


def test_an_offer_of_another_protocol_is_not_taken_up() -> None:
    offer = GET.replace(b"Host", b"Connection: Upgrade\r\nUpgrade: h2c\r\nHost")
    assert [each.target for each in feed(RequestReader(), offer + POST)] == [
        "/api/queues?page=1",
        "/x",
    ]


def test_who_waits_before_it_sends_a_body() -> None:
    reader = RequestReader()
    head, body = POST.replace(b"Host", b"Expect: 100-continue\r\nHost").split(b"\r\n\r\n")
    assert feed(reader, head + b"\r\n\r\n") == []
    assert reader.awaits_continue
    assert len(feed(reader, body)) == 1
    assert not reader.awaits_continue


def test_it_knows_when_it_is_in_a_request() -> None:
    reader = RequestReader()
    assert not reader.is_amid
    for whole in (GET, POST):
        for start in range(1, len(whole)):
            feed(reader, whole[start - 1 : start])
            assert reader.is_amid
        assert len(feed(reader, whole[-1:])) == 1
        assert not reader.is_amid
    feed(reader, POST + b"GE")
    assert reader.is_amid


def test_it_knows_what_it_holds() -> None:
    reader = RequestReader()
    feed(reader, POST[:-6])
    assert reader.unfinished_bytes == len(POST) - 6
    feed(reader, POST[-6:-2])
    assert reader.unfinished_bytes == 3, "of the body"
    feed(reader, POST[-2:])
    assert reader.unfinished_bytes == 0
    feed(reader, POST[:-2])
    reader.forget()
    assert reader.unfinished_bytes == 0


def test_a_body_in_small_pieces_costs_what_a_large_one_does() -> None:
    """Each piece as an object of its own would cost thirty times as much."""
    head = b"PUT /y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    reader = RequestReader()
    feed(reader, head)
    tracemalloc.start()
    feed(reader, b"2\r\nab\r\n" * 100_000)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2 * 200_000
    assert reader.unfinished_bytes == 200_000
