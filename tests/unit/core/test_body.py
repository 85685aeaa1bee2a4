"""The inner loops on bytes that nobody in good faith would write."""

import tracemalloc
from collections.abc import Iterator

import pytest

from entrepot.core.body import Stretch, decode, split
from entrepot.core.encoding import encode
from entrepot.core.errors import InvalidBatch
from entrepot.core.limits import HEADERS_PER_RECORD_MAX, MIB
from entrepot.core.record import Record

RECORDS = (
    Record(b"k", b"value", (("h", b"x"), ("n", None)), 1_000),
    Record(None, None, (), 1_000_000),
    Record(b"", b"v" * 70, (), 500),
)


def varint(number: int) -> bytes:
    number = 2 * number if number >= 0 else -2 * number - 1
    output = []
    while number > 127:
        output.append(number % 128 + 128)
        number //= 128
    return bytes([*output, number])


def record(
    *,
    time: int = 0,
    offset: int = 0,
    key: bytes = varint(-1),
    value: bytes = varint(-1),
    headers: bytes = varint(0),
    size: int | None = None,
) -> bytes:
    """One record's bytes, with anything in place of its parts."""
    rest = b"\0" + varint(time) + varint(offset) + key + value + headers
    return varint(len(rest) if size is None else size) + rest


def read(body: bytes, count: int = 1, *, offset_delta_last: int = 9) -> Iterator[Record]:
    return decode(
        body,
        0,
        count,
        offset_first=100,
        offset_delta_last=offset_delta_last,
        timestamp_first=1_000,
        timestamp_fixed=None,
    )


def refused(body: bytes, count: int = 1) -> bool:
    try:
        list(read(body, count))
    except InvalidBatch:
        return True
    return False


def test_a_record_by_hand() -> None:
    body = record(time=-1, offset=3, key=varint(1) + b"k", value=varint(0))
    assert list(read(body)) == [Record(b"k", b"", (), 999, 103)]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8_191, 8_192, 1_048_575, 1_048_576])
def test_lengths_around_each_width_of_a_number(size: int) -> None:
    source = Record(bytes(size), bytes(size), (("h" * size, bytes(size)),), 1_000, 100)
    body = bytes(encode([source], [1_000]))
    assert body == record(
        key=varint(size) + bytes(size),
        value=varint(size) + bytes(size),
        headers=varint(1) + (varint(size) + b"h" * size) + (varint(size) + bytes(size)),
    )
    assert list(read(body)) == [source]


@pytest.mark.parametrize("width", range(9))
@pytest.mark.parametrize("edge", [-1, 0, 1])
@pytest.mark.parametrize("sign", [-1, 1])
def test_times_around_each_width_of_a_number(width: int, edge: int, sign: int) -> None:
    first = 2**62
    time = first + sign * (2 ** (6 + 7 * min(width, 7)) + edge)
    body = bytes(encode([Record(None, None)] * 2, [first, time]))
    assert body[7:] == record(time=time - first, offset=1)
    found = decode(body, 0, 2, offset_first=0, offset_delta_last=1, timestamp_first=first,
                   timestamp_fixed=None)  # fmt: skip
    assert [entry.timestamp_ms for entry in found] == [first, time]


def test_the_whole_range_of_time_in_one_batch() -> None:
    times = [-1, 2**63 - 1]
    body = bytes(encode([Record(None, None)] * 2, times))
    found = decode(body, 0, 2, offset_first=0, offset_delta_last=1, timestamp_first=-1,
                   timestamp_fixed=None)  # fmt: skip
    assert [entry.timestamp_ms for entry in found] == times


def test_offsets_beyond_two_bytes() -> None:
    count = 20_000
    body = bytes(encode([Record(None, None)] * count, [1_000] * count))
    found = list(read(body, count, offset_delta_last=count - 1))
    assert [entry.offset for entry in found] == list(range(100, 100 + count))


def test_numbers_may_be_longer_than_needed() -> None:
    """Nobody writes zero in two or three bytes, but all readers take it."""
    for zero in (b"\x80\x00", b"\x80\x80\x00"):
        body = record(key=zero, value=zero, headers=zero)
        assert list(read(body)) == [Record(b"", b"", (), 1_000, 100)]


@pytest.mark.parametrize("time", [-1_002, -(2**63), 2**63 - 1_000, 2**63, 2**68])
def test_a_time_outside_of_time(time: int) -> None:
    assert refused(record(time=time))
    assert not refused(record(time=-1_001))
    assert not refused(record(time=2**63 - 1_001))


@pytest.mark.parametrize("offsets", [(-1,), (10,), (2**31,), (0, 0), (1, 0), (0, 9, 10)])
def test_offsets_that_do_not_rise_within_the_batch(offsets: tuple[int, ...]) -> None:
    assert refused(b"".join(record(offset=offset) for offset in offsets), len(offsets))
    assert not refused(record(offset=0) + record(offset=9), 2)


IMPOSSIBLE = [-2, -(2**31), -(2**63), 1, 2**31 - 1, 2**31, 2**63, 2**68]


@pytest.mark.parametrize("size", IMPOSSIBLE)
def test_lengths_that_cannot_be(size: int) -> None:
    length = varint(size)
    tracemalloc.start()
    try:
        assert refused(record(size=size))
        assert refused(record(key=length, value=b""))
        assert refused(record(value=length, headers=b""))
        assert refused(record(headers=varint(1) + length))
        assert refused(record(headers=varint(1) + varint(0) + length))
        assert refused(record(headers=length))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_negative_length_is_not_its_positive_twin() -> None:
    """-3 and 2 differ in one bit only; what stands there fits 2."""
    negative = varint(-3) + b"xx"
    assert refused(record(key=negative))
    assert refused(record(value=negative))
    assert refused(record(headers=varint(1) + negative + varint(-1)))
    assert refused(record(headers=varint(1) + varint(0) + negative))
    assert refused(record(headers=varint(-2) + varint(0) + varint(-1)))
    assert refused(record(size=-len(record())))


def test_a_header_needs_a_name() -> None:
    assert refused(record(headers=varint(1) + varint(-1) + varint(-1)))


def test_a_header_cut_off_by_the_end_of_the_body_is_not_handed_out() -> None:
    body = record(headers=varint(1) + varint(0) + varint(4) + b"1234")
    assert list(read(body)) == [Record(None, None, (("", b"1234"),), 1_000, 100)]
    with pytest.raises(InvalidBatch):
        next(read(body[:-1]))


def test_a_name_that_is_not_text_is_still_readable() -> None:
    (found,) = read(record(headers=varint(1) + varint(2) + b"a\xff" + varint(-1)))
    assert found.headers == (("a\ufffd", None),)


def test_the_number_of_headers_is_bounded() -> None:
    header = varint(0) + varint(-1)
    most = HEADERS_PER_RECORD_MAX
    (found,) = read(record(headers=varint(most) + header * most))
    assert len(found.headers) == most
    assert refused(record(headers=varint(most + 1) + header * (most + 1)))


def test_a_number_without_an_end() -> None:
    assert refused(b"\xff" * 1_000_000)
    assert not refused(record(key=b"\x80" * 9 + b"\0"))
    assert refused(record(key=b"\x80" * 10 + b"\0"))


def test_a_record_longer_or_shorter_than_it_says() -> None:
    good = record()
    assert not refused(good)
    assert refused(record(size=len(good) - 2))
    assert refused(record(size=len(good)))
    assert refused(record(size=len(good)) + b"\0")


def test_a_cut_anywhere() -> None:
    body = bytes(encode(RECORDS, [entry.timestamp_ms for entry in RECORDS]))
    assert not refused(body, 3)
    for size in range(len(body)):
        assert refused(body[:size], 3)
    assert refused(body + b"\0", 3)


def test_any_byte_changed_to_anything() -> None:
    """Either refused, or three records with offsets that rise within the batch."""
    body = bytes(encode(RECORDS, [entry.timestamp_ms for entry in RECORDS]))
    accepted = 0
    for position in range(len(body)):
        for byte in range(256):
            changed = body[:position] + bytes([byte]) + body[position + 1 :]
            try:
                offsets = [entry.offset for entry in read(changed, 3)]
            except InvalidBatch:
                continue
            accepted += 1
            assert len(offsets) == 3
            assert 100 <= offsets[0] < offsets[1] < offsets[2] <= 109
    assert accepted > len(body)  # The contents of keys and values are nobody's business.


@pytest.mark.parametrize("key", [varint(-1), varint(1) + b"k"])
def test_a_large_value_is_not_copied(key: bytes) -> None:
    large = b"v" * (3 * MIB)
    body = record(key=key, value=varint(len(large)) + large)
    [(_, _, found, section, [value])] = pieces(body)
    assert isinstance(value, memoryview)
    assert (found, section, value) == (None if len(key) == 1 else b"k", b"\0", large)
    for cut in (body[:-1], body[: 2 * MIB], body + b"x"):
        with pytest.raises(InvalidBatch):
            pieces(cut)


def pieces(body: bytes) -> list[Stretch]:
    return split(body, 0, 1, offset_delta_last=9, timestamp_first=1_000, timestamp_fixed=None)
