"""Answers to a client: however they are split, and not without bounds."""

import pytest

from entrepot.core.errors import MalformedFrame
from entrepot.wire.http.answer import AnswerReader, post

PLAIN = b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello"
STREAM = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4\r\none\n\r\n6\r\ntwo\nth\r\n4\r\nree\n\r\n0\r\n\r\n"
)


def feed(reader: AnswerReader, data: bytes, size: int) -> None:
    for start in range(0, len(data), size):
        piece = data[start : start + size]
        reader.writable()[: len(piece)] = piece
        reader.received(len(piece))


@pytest.mark.parametrize("size", range(1, len(PLAIN) + 1))
def test_one_answer_after_the_other(size: int) -> None:
    reader = AnswerReader(100)
    for _ in range(2):
        reader.begin()
        assert (reader.status, reader.is_whole) == (0, False)
        feed(reader, PLAIN, size)
        assert (reader.status, reader.is_whole, reader.keeps_alive) == (404, True, True)
        assert reader.take_body() == b"hello"


@pytest.mark.parametrize("size", range(1, 30))
def test_lines_as_they_come(size: int) -> None:
    reader, lines = AnswerReader(100), list[bytes]()
    for start in range(0, len(STREAM), size):
        feed(reader, STREAM[start : start + size], size)
        lines += reader.take_lines()
    assert lines == [b"one", b"two", b"three"]
    assert reader.is_whole


def test_a_server_that_closes() -> None:
    reader = AnswerReader(100)
    feed(reader, b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 1_000)
    assert (reader.is_whole, reader.keeps_alive) == (True, False)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" + b"x" * 101, "too large"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 10_000, "too large"),
        (PLAIN + PLAIN, "after|not HTTP"),
    ],
)
def test_what_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(MalformedFrame, match=text):
        feed(AnswerReader(100), data, len(PLAIN))


def test_a_request() -> None:
    assert post("etcd:2379", "/v3/watch", b"{}", (("A", "b"),)) == (
        b"POST /v3/watch HTTP/1.1\r\nHost: etcd:2379\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\nA: b\r\n\r\n{}"
    )
