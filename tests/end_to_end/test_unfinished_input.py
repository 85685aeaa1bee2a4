"""Input that never ends, of every protocol, over real sockets: what it costs the broker."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from struct import pack

import pytest

from entrepot.core import limits
from entrepot.testing import Broker, broker
from entrepot.wire.amqp.frames import PROTOCOL_HEADER, frame, method_frame
from entrepot.wire.amqp.methods import basic, channel, connection
from entrepot.wire.amqp.scan import BODY, HEADER
from entrepot.wire.kafka.api import Api
from tests.end_to_end.bystander import Bystander, Growth

HELD_MIB = 32
SIZE = 12 * limits.MIB  # Of which a byte is missing.
PEERS = 16


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    settings = {"limits.unfinished_bytes": HELD_MIB * limits.MIB, "ports.http": 0}
    with broker(settings=settings) as started:
        yield started


def connected(server: Broker, protocol: str) -> socket.socket:
    return socket.create_connection(server.endpoints[protocol], 30)


def kafka(server: Broker) -> socket.socket:
    peer = connected(server, "kafka")
    _send(peer, (pack(">ihh", SIZE, Api.PRODUCE, 9) + bytes(SIZE))[:SIZE])
    return peer


def http(server: Broker) -> socket.socket:
    peer = connected(server, "http")
    head = b"PUT /api/queues/%%2f/q HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % SIZE
    _send(peer, head + bytes(SIZE - 1))
    return peer


def amqp(server: Broker) -> socket.socket:
    peer = connected(server, "amqp")
    peer.sendall(PROTOCOL_HEADER)
    for on, method in (
        (0, connection.StartOk({}, "PLAIN", b"\0guest\0guest")),
        (0, connection.TuneOk(100, 131_072, 0)),
        (0, connection.Open("/")),
        (1, channel.Open()),
    ):
        if not isinstance(method, connection.Open):  # Tune-ok has no answer.
            peer.recv(65_536)
        peer.sendall(method_frame(on, method))
    peer.recv(65_536)
    _send(
        peer,
        b"".join(
            [
                method_frame(1, basic.Publish(0, "", "nowhere")),
                frame(HEADER, 1, pack(">HHQH", 60, 0, SIZE, 0)),
                *[frame(BODY, 1, bytes(64 * limits.KIB))] * (SIZE // limits.KIB // 64 - 1),
            ]
        ),
    )
    return peer


def stomp(server: Broker) -> socket.socket:
    peer = connected(server, "stomp")
    peer.sendall(b"CONNECT\n\n\0")
    peer.recv(65_536)
    head = b"SEND\ndestination:/queue/q\ncontent-length:%d\n\n" % SIZE
    _send(peer, head + bytes(SIZE - 1))
    return peer


def _send(peer: socket.socket, data: bytes) -> None:
    with suppress(ConnectionError):  # Sent away already, as some are.
        peer.sendall(data)


@pytest.mark.parametrize("protocol", [kafka, amqp, http, stomp])
def test_what_never_ends_costs_a_bounded_amount(
    server: Broker, protocol: Callable[[Broker], socket.socket]
) -> None:
    bystander = Bystander(server, protocol.__name__)
    growth = Growth(server)
    with ExitStack() as stack:
        for _ in range(PEERS):
            stack.enter_context(protocol(server))
            bystander.is_unharmed()
        assert growth.peak() < 2 * HELD_MIB + 32  # What grows is copied, so twice as much.
    log = server.log_path.read_text()
    assert "bytes of unfinished input" in log
    assert "Traceback" not in log
