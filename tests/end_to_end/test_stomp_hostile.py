"""STOMP clients that mean no good, or are broken: nobody else notices, and memory is bounded."""

from contextlib import ExitStack, suppress
from random import Random

import pytest

from entrepot.core import limits
from entrepot.testing import Broker
from entrepot.wire.stomp import limits as stomp_limits
from tests.end_to_end.bare_stomp import BareStomp
from tests.end_to_end.bystander import Bystander, Growth
from tests.unit.wire.stomp.vectors import read

CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"


@pytest.fixture(scope="module")
def bystander(server: Broker) -> Bystander:
    return Bystander(server, "stomp-bystander")


def is_healthy(server: Broker) -> None:
    with BareStomp(server).connect() as peer:
        peer.ask("SEND", b"x", destination="/queue/stomp-healthy")
    assert "Traceback" not in server.log_path.read_text()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"AMQP\0\0\x09\x01",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"\0" * 1_000,
        b"\xff" * 100_000,
        b"CONNECT\n" + b"a:b\n" * (stomp_limits.HEADERS_MAX + 1) + b"\n\0",
        b"CONNECT\na:" + b"x" * 200_000,
        b"CONNECT\ncontent-length:99999999999\n\n",
        b"CONNECT\ncontent-length:4294967296\n\n",
        CONNECT + b"SEND\ndestination:/queue/a\ncontent-length:999999999\n\n",
        CONNECT + b"SEND\n\n\0",
        CONNECT + b"SUBSCRIBE\nid:1\ndestination:/queue/a\nprefetch-count:-1\n\n\0",
        CONNECT + b"ACK\nid:1-1-1\n\n\0",
        CONNECT + b"BOGUS\n\n\0",
    ],
)
def test_what_is_wrong_is_answered_and_closed(
    server: Broker, bystander: Bystander, data: bytes
) -> None:
    with BareStomp(server) as peer:
        with suppress(ConnectionError):
            peer.write(data)
        heard = []
        with suppress(ConnectionError):  # There may be more than was read when it was closed.
            while (frame := peer.read()) is not None:
                heard.append(frame.command)
            assert heard[-1] == "ERROR"
    bystander.is_unharmed()
    is_healthy(server)


def test_mutated_bytes(server: Broker, bystander: Bystander) -> None:
    random = Random(1)
    vectors = [vector.data for vector in read()]
    for _ in range(300):
        data = bytearray(CONNECT + b"".join(random.choices(vectors, k=5)))
        for _ in range(random.randrange(4)):
            data[random.randrange(len(data))] = random.randrange(256)
        with BareStomp(server) as peer, suppress(ConnectionError):
            peer.write(bytes(data) + b"\0\nDISCONNECT\n\n\0")
            peer.socket.settimeout(0.2)
            with suppress(TimeoutError):
                while peer.read() is not None:
                    pass
    bystander.is_unharmed()
    is_healthy(server)


def test_a_reader_that_stops(server: Broker, bystander: Bystander) -> None:
    """What is for it waits on disk, not in memory."""
    with BareStomp(server, receive_bytes=4_096).connect() as stuck, BareStomp(server) as sender:
        stuck.ask("SUBSCRIBE", destination="/queue/stomp-stuck", id=1)
        sender.connect()
        growth = Growth(server)
        body = b"x" * limits.MIB
        for _ in range(100):
            sender.ask("SEND", body, destination="/queue/stomp-stuck")
        bystander.is_unharmed()
        # Cached messages of durable queues have a bound of their own.
        assert growth.peak() < limits.QUEUE_CACHE_BYTES_MAX // limits.MIB + 40
    is_healthy(server)


def test_who_asks_and_does_not_read_the_answers(server: Broker, bystander: Bystander) -> None:
    frame = b"SEND\ndestination:/queue/stomp-deaf\nreceipt:" + b"r" * 1_000 + b"\n\n\0"
    with BareStomp(server, receive_bytes=4_096).connect() as deaf:
        growth = Growth(server)
        deaf.socket.settimeout(2)
        sent = 0
        with suppress(TimeoutError):
            for _ in range(2_000):
                deaf.write(frame * 100)
                sent += 100 * len(frame)
        assert sent < 100 * limits.MIB  # It is not read from any more.
        bystander.is_unharmed()
        assert growth.peak() < 100
    is_healthy(server)


def test_a_flood_is_held_at_the_socket(server: Broker, bystander: Bystander) -> None:
    frame = b"SEND\ndestination:/queue/stomp-flood\n\n" + b"x" * 10_000 + b"\0"
    growth = Growth(server)
    with ExitStack() as stack:
        peers = [stack.enter_context(BareStomp(server).connect()) for _ in range(5)]
        for _ in range(20):
            for peer in peers:
                peer.write(frame * 50)
            bystander.is_unharmed()
        for peer in peers:
            peer.say("DISCONNECT", receipt="bye")
            peer.expect("RECEIPT")
    assert growth.peak() < 200
    is_healthy(server)


def test_many_things_of_one_client(server: Broker, bystander: Bystander) -> None:
    """Subscriptions, transactions and queues for replies, and gone."""
    with BareStomp(server).connect() as peer:
        for number in range(300):
            peer.say("SUBSCRIBE", destination=f"/topic/{number}.#", id=number)
            peer.say("SEND", destination="/topic/1", reply_to=f"/temp-queue/{number}")
        for number in range(100):
            peer.say("BEGIN", transaction=number)
            peer.say("SEND", destination="/topic/1", transaction=number)
        peer.say("SUBSCRIBE", destination="/topic/#", id="all", receipt="done")
        while (frame := peer.read()) is not None and frame.command != "RECEIPT":
            pass
        assert frame is not None
        peer.say("BEGIN", transaction="one more")
        while (frame := peer.read()) is not None and frame.command != "ERROR":
            pass
        assert frame is not None
        assert frame.headers["message"] == "more than 100 open transactions"
    bystander.is_unharmed()
    is_healthy(server)


def test_bytes_one_at_a_time(server: Broker) -> None:
    with BareStomp(server) as peer:
        for byte in CONNECT + b"SEND\ndestination:/queue/stomp-slow\nreceipt:r\n\nhello\0":
            peer.write(bytes((byte,)))
        peer.expect("CONNECTED")
        assert peer.expect("RECEIPT").headers["receipt-id"] == "r"
