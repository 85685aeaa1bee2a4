"""Frames out of any stream of bytes, and headers against kio's."""

import tracemalloc
from random import Random
from struct import pack

import pytest
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as ResponseHeaderV0

from entrepot.core import limits
from entrepot.core.errors import MalformedFrame
from entrepot.core.limits import KIB, MIB
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.encoding import tagged
from entrepot.wire.kafka.frames import (
    AREA_BYTES_MAX,
    AREA_BYTES_MIN,
    FrameBuffer,
    RequestHeader,
    read_request_header,
    read_response_header,
    request_header,
    response_header,
    size_prefix,
)
from tests.unit.wire.kafka import oracle

PRODUCE = pack(">h", Api.PRODUCE)


def framed(body: bytes) -> bytes:
    return size_prefix(len(body)) + body


def feed(buffer: FrameBuffer, data: bytes, size_max: int = 1 << 30) -> list[memoryview]:
    """What a connection does that gets at most so many bytes at a time."""
    frames = []
    view = memoryview(data)
    while view:
        room = buffer.writable()
        size = min(len(view), len(room), size_max)
        assert size > 0
        room[:size] = view[:size]
        frames += buffer.received(size)
        view = view[size:]
    return frames


@pytest.mark.parametrize("size_max", [1, 3, 100, 5000, 1 << 30])
def test_frames_of_all_sizes_come_out_as_they_went_in(size_max: int) -> None:
    random = Random(size_max)
    sizes = [0, 1, 5, 100, AREA_BYTES_MIN - 4, AREA_BYTES_MIN - 3, AREA_BYTES_MIN]
    if size_max >= 100:
        sizes += [AREA_BYTES_MAX - 4, AREA_BYTES_MAX, 300 * KIB, 3 * MIB]
    bodies = [PRODUCE + random.randbytes(size) for size in random.choices(sizes, k=20)]
    buffer = FrameBuffer()
    assert feed(buffer, b"".join(map(framed, bodies)), size_max) == bodies
    # And the buffer is ready for the next one.
    assert feed(buffer, framed(b"last"), size_max) == [b"last"]


def test_frames_are_not_overwritten_by_later_reads() -> None:
    random = Random(1)
    buffer = FrameBuffer()
    kept = []
    for _ in range(300):
        body = PRODUCE + random.randbytes(random.choice((3, 500, 5000, 200 * KIB)))
        kept += [(frame, body) for frame in feed(buffer, framed(body), 7000)]
    assert len(kept) == 300
    for frame, body in kept:
        assert frame == body


def test_frames_can_be_written_to_without_harm_to_others() -> None:
    buffer = FrameBuffer()
    one, two = feed(buffer, framed(b"one") + framed(b"two"))
    one[:] = b"XXX"
    assert two == b"two"
    assert feed(buffer, framed(b"three")) == [b"three"]


def test_a_large_frame_is_received_where_it_stays() -> None:
    buffer = FrameBuffer()
    size = 1 * MIB + 100
    data = framed(PRODUCE + bytes(size - 2))
    feed(buffer, data[: MIB - 5])
    room = buffer.writable()
    assert len(room) == size + 4 - (MIB - 5)
    room[:] = data[MIB - 5 :]
    (frame,) = buffer.received(len(room))
    assert frame.obj is room.obj
    assert frame == data[4:]


def test_memory_follows_what_was_received_not_what_was_announced() -> None:
    announced = size_prefix(limits.FRAME_BYTES_MAX) + PRODUCE
    data = bytes(1 * MIB)
    tracemalloc.start()
    buffers = [FrameBuffer() for _ in range(20)]
    for buffer in buffers:
        assert feed(buffer, announced) == []
    idle, _ = tracemalloc.get_traced_memory()
    assert feed(buffers[0], data, 10_000) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert idle < 20 * 2 * AREA_BYTES_MIN
    assert peak - idle < 4 * MIB


def test_an_area_that_was_large_becomes_small_again() -> None:
    buffer = FrameBuffer()
    small = framed(bytes(10))
    feed(buffer, small)
    assert len(buffer.writable()) == AREA_BYTES_MIN
    feed(buffer, framed(bytes(1000)) * 100)
    assert len(buffer.writable()) > AREA_BYTES_MIN
    feed(buffer, small)
    assert len(buffer.writable()) == AREA_BYTES_MIN


@pytest.mark.parametrize("size", [-1, -(1 << 31), limits.FRAME_BYTES_MAX + 1, (1 << 31) - 1])
def test_a_size_that_cannot_be_is_refused_at_once(size: int) -> None:
    with pytest.raises(MalformedFrame, match=f"a frame of {size} bytes"):
        feed(FrameBuffer(), size_prefix(size))


def test_only_produce_requests_may_be_large() -> None:
    size = size_prefix(limits.REQUEST_BYTES_MAX + 1)
    assert feed(FrameBuffer(), size + PRODUCE) == []
    assert feed(FrameBuffer(), size_prefix(limits.REQUEST_BYTES_MAX) + b"\0\x03") == []
    buffer = FrameBuffer()
    assert feed(buffer, size + b"\0", 1) == []
    with pytest.raises(MalformedFrame, match="carries no records"):
        feed(buffer, b"\x03")


def test_a_client_takes_large_frames_of_any_kind() -> None:
    buffer = FrameBuffer(limits.FRAME_BYTES_MAX, limits.FRAME_BYTES_MAX)
    body = b"\0\x03" + bytes(limits.REQUEST_BYTES_MAX)
    assert feed(buffer, framed(body)) == [body]


def test_a_frame_as_large_as_allowed_and_one_byte_more() -> None:
    body = PRODUCE + bytes(98)
    assert feed(FrameBuffer(100), framed(body)) == [body]
    with pytest.raises(MalformedFrame):
        feed(FrameBuffer(99), framed(body))


@pytest.mark.parametrize("client_id", [None, "", "grün"])
def test_request_headers_are_those_of_kio(client_id: str | None) -> None:
    for layout in oracle.requests():
        api, version = Api(layout.__api_key__), layout.__version__
        assert layout.__header_schema__ in (RequestHeaderV1, RequestHeaderV2)
        data = request_header(api, version, 77, client_id)
        assert data == oracle.kio_bytes(
            layout.__header_schema__(
                request_api_key=api,
                request_api_version=version,
                correlation_id=77,
                client_id=client_id,
            )
        )
        header, position = read_request_header(memoryview(data + b"body"))
        assert header == RequestHeader(api, version, 77, client_id)
        assert position == len(data)


def test_response_headers_are_those_of_kio() -> None:
    for layout in oracle.responses():
        api, version = Api(layout.__api_key__), layout.__version__
        data = response_header(api, version, -5)
        assert data == oracle.kio_bytes(layout.__header_schema__(correlation_id=-5))
        assert read_response_header(memoryview(data + b"body"), api, version) == (-5, len(data))
        if api is Api.API_VERSIONS:
            assert layout.__header_schema__ is ResponseHeaderV0


def test_unknown_tags_of_a_header_are_passed_over() -> None:
    tags = tagged([(7, b"seven")])
    header = request_header(Api.METADATA, 12, 1, "me")[:-1] + tags
    assert read_request_header(memoryview(header + b"x"))[1] == len(header)
    answer = response_header(Api.METADATA, 12, 1)[:-1] + tags
    assert read_response_header(memoryview(answer + b"x"), Api.METADATA, 12) == (1, len(answer))


def test_versions_and_apis_from_the_future_have_a_header() -> None:
    data = request_header(Api.API_VERSIONS, 3, 9, "new")
    newer = data[:2] + pack(">h", 99) + data[4:]
    assert read_request_header(memoryview(newer)) == (RequestHeader(18, 99, 9, "new"), len(data))
    unknown = pack(">hhih", 12_345, 0, 9, -1)
    assert read_request_header(memoryview(unknown))[0] == RequestHeader(12_345, 0, 9, None)


def test_a_damaged_header_is_refused() -> None:
    whole = request_header(Api.METADATA, 12, 1, "grün")
    for size in range(len(whole)):
        with pytest.raises(MalformedFrame):
            read_request_header(memoryview(whole)[:size])
    for client_id in (b"\xff\xfe", b"\x7f\xffabc", b"\x00\x02\xc3\x28"):
        with pytest.raises(MalformedFrame):
            read_request_header(memoryview(whole[:8] + client_id))
    for tags in (b"\x01", b"\x01\x07\x05abc", b"\xff\xff\xff\xff\xff\xff"):
        with pytest.raises(MalformedFrame):
            read_request_header(memoryview(whole[:-1] + tags))
    answer = response_header(Api.METADATA, 12, 1)
    for size in range(len(answer)):
        with pytest.raises(MalformedFrame):
            read_response_header(memoryview(answer)[:size], Api.METADATA, 12)
