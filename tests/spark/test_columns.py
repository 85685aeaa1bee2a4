"""The compiled columns and their twin: the same arrays, and the same bodies refused."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="the Spark source needs pyarrow")

from entrepot.core.encoding import encode  # noqa: E402
from entrepot.core.errors import InvalidBatch  # noqa: E402
from entrepot.core.limits import HEADERS_PER_RECORD_MAX  # noqa: E402
from entrepot.core.record import Record  # noqa: E402
from entrepot.spark import columns  # noqa: E402
from entrepot.spark.columns import Columns, CompiledColumns, PythonColumns  # noqa: E402

pytestmark = pytest.mark.skipif(
    not columns.HAS_COMPILED, reason="installed without a compiler: there is no twin to compare"
)

TEXTS = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.text(max_size=4), TEXTS), max_size=3)
RECORDS = st.lists(st.builds(Record, TEXTS, TEXTS, HEADERS.map(tuple)), min_size=1, max_size=20)
INT64 = st.integers(-(2**63), 2**63 - 1)


def varint(number: int, padding: int = 0) -> bytes:
    """Zigzag; padded with bytes that add nothing."""
    rest = 2 * number if number >= 0 else -2 * number - 1
    output = bytearray()
    while rest > 0x7F:
        output.append(rest & 0x7F | 0x80)
        rest >>= 7
    output.append(rest)
    for _ in range(padding):
        output[-1] |= 0x80
        output.append(0)
    return bytes(output)


VARINTS = st.builds(
    varint,
    st.integers(-2, 40) | st.sampled_from([2**31, 2**62, 2**63 - 1, -(2**63), 2**64, 2**68]),
    st.sampled_from([0, 0, 0, 0, 1, 2, 9]),
)
PIECES = st.lists(VARINTS | st.binary(max_size=3), max_size=9).map(b"".join)


def as_record(content: bytes) -> bytes:
    """With a length that is right, and attributes."""
    return varint(len(content) + 1) + b"\0" + content


BODIES = st.lists(PIECES.map(as_record) | PIECES, max_size=4).map(b"".join)


def outcome(made: Columns, body: bytes, count: int, *place: int) -> int | None:
    try:
        return made.add(body, count, *place)
    except InvalidBatch:
        return None


def assert_twins(
    with_headers: bool, adds: Sequence[tuple[bytes, int, int, int, int, int, int]]
) -> None:
    ours, twin = CompiledColumns(with_headers), PythonColumns(with_headers)
    for _ in range(2):  # What is taken leaves nothing behind.
        for each in adds:
            assert outcome(ours, *each) == outcome(twin, *each)
            assert (ours.count, ours.size) == (twin.count, twin.size)
        for mine, theirs in zip(ours.take(), twin.take(), strict=True):
            mine.validate(full=True)
            assert mine.type == theirs.type
            assert mine.equals(theirs)


@given(st.booleans(), st.lists(RECORDS, max_size=4), st.data())
def test_any_records_any_range(with_headers: bool, batches: list[list[Record]], data) -> None:
    adds = []
    for records in batches:
        gaps = data.draw(st.lists(st.integers(1, 4), min_size=len(records), max_size=len(records)))
        deltas = [sum(gaps[: index + 1]) - 1 for index in range(len(records))]
        times = data.draw(
            st.lists(st.integers(-1, 2**63 - 1), min_size=len(records), max_size=len(records))
        )
        offset = data.draw(st.integers(0, 100))
        adds.append(
            (
                bytes(encode(records, times, deltas)),
                len(records),
                offset,
                times[0],
                data.draw(st.just(-1) | st.integers(0, 2**63 - 1)),
                data.draw(st.integers(-1, 150)),
                data.draw(st.integers(-1, 150)),
            )
        )
    assert_twins(with_headers, adds)


@given(
    with_headers=st.booleans(),
    records=RECORDS,
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 3),
    more=st.binary(max_size=3),
    count_error=st.sampled_from([0, 0, 0, 1, -1]),
)
def test_damaged_bodies(with_headers, records, changes, cut, more, count_error) -> None:
    body = bytearray(encode(records, [5] * len(records)))
    good = bytes(body)
    for position, value in changes:
        body[position % len(body)] = value
    damaged = bytes(body[: len(body) - cut]) + more
    add = (good, len(records), 7, 5, -1, 0, 1_000)
    bad = (damaged, len(records) + count_error, 7, 5, -1, 0, 1_000)
    assert_twins(with_headers, [add, bad, add])


@given(st.booleans(), BODIES, st.integers(-1, 4), st.tuples(INT64, INT64, INT64, INT64, INT64))
@example(True, as_record(b"\0\0\x01\x01" + varint(1) + b"\x02\xff\x01"), 1, (0, 0, -1, 0, 9))
@example(False, as_record(b"\0\0\x81\0\x01\0"), 1, (0, 0, -1, 0, 9))  # A long form of -1.
@example(False, as_record(varint(2**68) + b"\0\x01\x01\0"), 1, (0, 0, 5, 0, 9))
@example(False, as_record(varint(2**63) + b"\0\x01\x01\0"), 1, (0, -1, -1, 0, 9))
@example(False, as_record(b"\0\x02\x01\x01\0"), 1, (2**63 - 1, 0, -1, 0, 2**63 - 1))
def test_bodies_that_nobody_would_write(
    with_headers: bool, body: bytes, count: int, place: tuple[int, int, int, int, int]
) -> None:
    assert_twins(with_headers, [(body, count, *place)])


@pytest.mark.parametrize("more", [0, 1])
def test_both_count_headers_up_to_the_same_limit(more: int) -> None:
    headers = (("", None),) * (HEADERS_PER_RECORD_MAX + more)
    body = bytes(encode([Record(None, None, headers)], [0]))
    assert_twins(True, [(body, 1, 0, 0, -1, 0, 9)])
    assert (outcome(PythonColumns(), body, 1, 0, 0, -1, 0, 9) is None) == bool(more)


@pytest.mark.parametrize("kind", [CompiledColumns, PythonColumns])
def test_what_the_columns_say(kind: type[Columns]) -> None:
    made = kind(True)
    records = [Record(b"k", b"v", (("a", b"1"), ("b", None))), Record(None, None), Record(b"", b"")]
    body = encode(records, [1_000, 2_000, 3_000])
    assert made.add(body, 3, 40, 1_000, -1, 41, 2**62) == 2
    assert made.add(body, 3, 50, 1_000, 7, 0, 51) == 1
    assert (made.count, made.size) == (3, 3)
    keys, values, offsets, times, headers = made.take()
    assert keys.to_pylist() == [None, b"", b"k"]
    assert values.to_pylist() == [None, b"", b"v"]
    assert offsets.to_pylist() == [41, 42, 50]
    assert times.cast(pa.int64()).to_pylist() == [2_000_000, 3_000_000, 7_000]
    assert headers.to_pylist() == [
        [],
        [],
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    ]
    assert made.count == 0
