"""A stream of bytes in, events out: the protocol header, any split, bounded memory."""

import tracemalloc
from random import Random
from struct import pack

import pytest

from entrepot.core import limits
from entrepot.core.limits import KIB, MIB
from entrepot.core.message import OPAQUE, Envelope
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.frames import (
    AREA_BYTES_MAX,
    AREA_BYTES_MIN,
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
    FrameBuffer,
    ProtocolHeader,
    method_frame,
)
from entrepot.wire.amqp.methods import channel, connection, encode
from entrepot.wire.amqp.scan import BODY, Event, Heartbeat, MethodFrame, Scanner
from tests.unit.wire.amqp.oracle import (
    FRAME_BYTES_MAX,
    feed,
    flat,
    publish_frames,
    read_slowly,
    stream,
)


def opened(frame_bytes_max: int = FRAME_BYTES_MAX) -> FrameBuffer:
    """A server's, after the connection was tuned."""
    buffer = FrameBuffer()
    assert feed(buffer, PROTOCOL_HEADER) == [ProtocolHeader(PROTOCOL_HEADER)]
    buffer.tune(frame_bytes_max)
    return buffer


def test_a_connection_begins_with_the_protocols_name() -> None:
    for size_max in (1, 3, 8, 100):
        start_ok = method_frame(0, connection.StartOk())
        header, frame = feed(FrameBuffer(), PROTOCOL_HEADER + start_ok, size_max)
        assert header.is_ours
        assert frame == MethodFrame(0, encode(connection.StartOk()))


def test_version_0_9_is_near_enough() -> None:
    (header,) = feed(FrameBuffer(), b"AMQP\x01\x01\0\x09")
    assert header.is_ours


@pytest.mark.parametrize(
    "data",
    [
        b"AMQP\0\0\x08\0",
        b"AMQP\0\0\x09\x02",
        b"AMQP\x03\x01\0\0",
        b"AMQP\0\x01\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01",
        b"\0",
        b"AMQX",
    ],
)
def test_another_protocol_is_refused_at_once_and_for_good(data: bytes) -> None:
    for size_max in (1, 100):
        buffer = FrameBuffer()
        (header,) = feed(buffer, data, size_max)
        assert not header.is_ours
        assert data.startswith(header.octets)
        assert feed(buffer, PROTOCOL_HEADER + HEARTBEAT_FRAME) == []


def test_a_client_hears_frames_or_that_it_is_refused() -> None:
    data = method_frame(0, connection.Start())
    for size_max in (1, 100):
        assert feed(FrameBuffer(is_client=True), data, size_max) == [
            MethodFrame(0, encode(connection.Start()))
        ]
        buffer = FrameBuffer(is_client=True)
        assert feed(buffer, PROTOCOL_HEADER + data, size_max) == [ProtocolHeader(PROTOCOL_HEADER)]


@pytest.mark.parametrize("size_max", [1, 7, 100, 5_000, 1 << 30])
def test_a_lively_stream_in_reads_of_any_size(size_max: int) -> None:
    data = stream(Random(size_max), 200 if size_max > 1 else 30)
    assert flat(feed(opened(), data, size_max)) == read_slowly(data)


def test_bodies_are_not_overwritten_by_later_reads() -> None:
    random = Random(1)
    buffer = opened()
    kept = []
    for _ in range(300):
        body = random.randbytes(random.choice((3, 600, 5_000, 200 * KIB)))
        for event in feed(buffer, publish_frames(1, body), 7_000):
            kept += [(message[1], body) for message in event.messages]
    assert len(kept) == 300
    for found, body in kept:
        assert found == body


def test_before_the_connection_is_tuned_frames_are_small() -> None:
    size = limits.LOGIN_FRAME_BYTES_MAX + 1
    (_, error) = feed(FrameBuffer(), PROTOCOL_HEADER + pack(">BHI", 1, 0, size))
    assert error.code == 501


@pytest.mark.parametrize("frame_bytes_max", [amqp_limits.FRAME_BYTES_MIN, 131_072, 1 * MIB])
def test_after_that_they_are_as_large_as_was_agreed(frame_bytes_max: int) -> None:
    body = bytes(frame_bytes_max - 8)
    data = publish_frames(1, body, frame_bytes_max=frame_bytes_max)
    (run,) = feed(opened(frame_bytes_max), data)
    assert run.messages == [(Envelope("", "work", b"\0\0", OPAQUE), body)]
    # Eight bytes more are let through, for many clients count wrongly; not nine.
    data = pack(">BHI", BODY, 1, frame_bytes_max + 1)
    (error,) = feed(opened(frame_bytes_max), data)
    assert error.code == 501
    assert feed(opened(frame_bytes_max), pack(">BHI", BODY, 1, frame_bytes_max)) == []


def test_after_a_mistake_nothing_more_is_read() -> None:
    buffer = opened()
    *before, error = feed(buffer, HEARTBEAT_FRAME + b"\x07\0\0\0\0\0\0\xce" + HEARTBEAT_FRAME)
    assert before == [Heartbeat()]
    assert isinstance(error, AmqpError)
    assert feed(buffer, HEARTBEAT_FRAME * 10_000) == []
    assert len(buffer.writable()) > 0


def test_after_a_channels_mistake_the_others_are_read() -> None:
    buffer = FrameBuffer(message_bytes_max=10)
    feed(buffer, PROTOCOL_HEADER)
    error, frame = feed(
        buffer, publish_frames(1, bytes(11)) + method_frame(1, channel.CloseOk()), 5
    )
    assert (error.code, error.channel) == (406, 1)
    assert frame == MethodFrame(1, encode(channel.CloseOk()))


def test_memory_follows_what_was_received_not_what_was_announced() -> None:
    announced = PROTOCOL_HEADER + pack(">BHI", BODY, 1, limits.LOGIN_FRAME_BYTES_MAX)
    tracemalloc.start()
    buffers = [FrameBuffer() for _ in range(20)]
    for buffer in buffers:
        feed(buffer, announced)
    idle, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert idle < 20 * 2 * AREA_BYTES_MIN


class CountingScanner(Scanner):
    """Counts how often it is asked."""

    calls = 0

    def scan(self, block: bytes) -> tuple[list[Event], int]:
        self.calls += 1
        return super().scan(block)


@pytest.mark.pure
def test_a_frame_that_comes_byte_by_byte_is_not_looked_at_again_and_again() -> None:
    buffer = opened()
    buffer._scanner = counting = CountingScanner(FRAME_BYTES_MAX, FRAME_BYTES_MAX)
    data = publish_frames(1, bytes(100_000))
    assert feed(buffer, data[:-1], 1) == []
    (run,) = feed(buffer, data[-1:])
    assert run.messages == [(Envelope("", "work", b"\0\0", OPAQUE), bytes(100_000))]
    assert counting.calls < 50


def test_an_area_that_was_large_becomes_small_again() -> None:
    buffer = opened()
    feed(buffer, HEARTBEAT_FRAME)
    assert len(buffer.writable()) == AREA_BYTES_MIN
    feed(buffer, publish_frames(1, bytes(1_000)) * 100)
    assert len(buffer.writable()) > AREA_BYTES_MIN
    assert len(buffer.writable()) <= AREA_BYTES_MAX
    feed(buffer, HEARTBEAT_FRAME)
    assert len(buffer.writable()) == AREA_BYTES_MIN
