"""HTTP from those who mean no good: an answer or an end, and nobody else notices."""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

from entrepot.core import limits
from entrepot.testing import Broker, broker
from entrepot.wire.http import limits as http_limits
from tests.end_to_end.bystander import Growth

WAIT_S = 30
HEAD = b"GET /api/whoami HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
LAST = b"Connection: close\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.http": 0}) as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


def connect(server: Broker) -> socket.socket:
    return socket.create_connection(server.endpoints["http"], WAIT_S)


def answer(server: Broker, data: bytes) -> bytes:
    """All that comes back, until the end."""
    with connect(server) as peer:
        received = b""
        with suppress(ConnectionError):
            peer.sendall(data)
        with suppress(ConnectionError):
            while piece := peer.recv(65536):
                received += piece
        return received


def is_well(server: Broker) -> bool:
    return answer(server, HEAD + LAST).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 505),
        (HEAD.replace(b"/api", b"/" + b"x" * 100_000) + b"\r\n", 431),
        (HEAD + b"X: y\r\n" * 200 + b"\r\n", 431),
        (HEAD.replace(b"GET", b"POST") + b"Content-Length: 99999999999\r\n\r\n", 413),
        (HEAD.replace(b"GET", b"BREW") + b"\r\n", 400),
        (HEAD.replace(b"/api", b"/%FF") + LAST, 400),
        (HEAD.replace(b"Basic Z", b"Basic A") + LAST, 401),
        (HEAD.replace(b"localhost", b"attacker.example") + LAST, 401),
        (HEAD.replace(b"GET", b"CONNECT").replace(b"/api/whoami", b"h:1") + LAST, 400),
        (HEAD.replace(b"whoami", b"../../etc/passwd") + LAST, 404),
    ],
)
def test_refused(server: Broker, data: bytes, status: int) -> None:
    assert answer(server, data).startswith(b"HTTP/1.1 %d " % status)
    assert is_well(server)


def test_many_at_once_are_answered_in_order(server: Broker) -> None:
    paths = [b"whoami", b"nosuch", b"cluster-name"] * 200
    data = b"".join(HEAD.replace(b"whoami", path) + b"\r\n" for path in paths)
    statuses = [
        int(part[:3]) for part in answer(server, data + HEAD + LAST).split(b"HTTP/1.1 ")[1:]
    ]
    assert statuses == [200, 404, 200] * 200 + [200]


def test_a_byte_at_a_time(server: Broker) -> None:
    with connect(server) as peer:
        for byte in HEAD + b"\r\n":
            peer.sendall(bytes((byte,)))
        assert peer.recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_noise(server: Broker) -> None:
    chance = Random(1)
    for _ in range(100):
        data = bytearray(HEAD + b"\r\n")
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with connect(server) as peer:
            peer.sendall(data)
    assert is_well(server)


@pytest.mark.slow
def test_bodies_that_never_end_cost_a_bounded_amount(server: Broker) -> None:
    head = HEAD.replace(b"GET", b"PUT") + b"Content-Length: %d\r\n\r\n"
    size = http_limits.BODY_BYTES_MAX
    growth = Growth(server)
    peers = []
    for _ in range(12):  # Three times as much as all together may hold.
        peer = connect(server)
        peer.settimeout(5)
        peers.append(peer)
        try:
            peer.sendall(head % size + bytes(size - 1))
        except OSError:
            continue
    time.sleep(0.5)
    assert growth.peak() < limits.UNFINISHED_BYTES_MAX // limits.MIB + 100
    assert is_well(server)
    for peer in peers:
        peer.close()


def test_connections_that_say_nothing(server: Broker) -> None:
    peers = [connect(server) for _ in range(200)]
    assert is_well(server)
    for peer in peers:
        peer.close()
