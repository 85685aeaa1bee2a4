"""Records with their headers left as they are: the same records, the same refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.core.body import Stretch, decode, decode_headers, split
from entrepot.core.encoding import encode, encode_headers, encode_plain
from entrepot.core.errors import InvalidBatch
from entrepot.core.record import Record

VALUES = st.sampled_from([b"", b"v", b"w", b"v" * 63, b"v" * 64, b"v" * 9_000]) | st.none()
HEADERS = st.sampled_from([(), (("h", b"x"),), (("h", b"y"),), (("h", None), ("n", b"z" * 70))])
KEYS = st.sampled_from([None, None, b"", b"k", b"k" * 64])
RECORDS = st.lists(
    st.builds(Record, KEYS, VALUES, HEADERS, st.sampled_from([1_000, 1_000, 1_001, 999])),
    min_size=1,
    max_size=12,
).flatmap(lambda made: st.permutations(made * 2))
DAMAGE = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3)


def both(body: bytes, count: int, last: int) -> tuple[object, object]:
    """What decoding and splitting make of it."""

    def decoded() -> list[Record]:
        found = decode(
            body,
            0,
            count,
            offset_first=0,
            offset_delta_last=last,
            timestamp_first=1_000,
            timestamp_fixed=None,
        )
        return list(found)

    def splitted() -> list[Record]:
        found = split(
            body, 0, count, offset_delta_last=last, timestamp_first=1_000, timestamp_fixed=None
        )
        return [record for each in found for record in joined(each)]

    answers: list[object] = []
    for read in (decoded, splitted):
        try:
            answers.append(read())
        except InvalidBatch:
            answers.append("refused")
    return answers[0], answers[1]


def joined(stretch: Stretch) -> list[Record]:
    first, time_ms, key, section, values = stretch
    headers = decode_headers(section)
    return [Record(key, each, headers, time_ms, first + at) for at, each in enumerate(values)]


ALIKE = st.builds(
    lambda make, count, times, others: (
        [make(time) for time in times for _ in range(count)] + others
    ),
    st.builds(
        lambda *parts: lambda time_ms: Record(*parts, timestamp_ms=time_ms), KEYS, VALUES, HEADERS
    ),
    st.sampled_from([3, 70, 140]),
    st.sampled_from([[1_000], [1_000, 1_001], [1_000, 1_002, 1_001, 1_100]]),
    st.just([]) | RECORDS,
)


@given(RECORDS | ALIKE, DAMAGE, st.integers(-3, 3), st.integers(-3, 3))
def test_splitting_is_decoding(
    records: list[Record], damage: list[tuple[int, int]], more: int, further: int
) -> None:
    body = encode(records, [1_000, *[each.timestamp_ms for each in records[1:]]])
    for position, byte in damage:
        body[position % len(body)] = byte
    decoded, splitted = both(bytes(body), len(records) + more, len(records) - 1 + further)
    assert splitted == decoded
    if not damage and not more and further >= 0:
        assert decoded != "refused"


@given(RECORDS, st.integers(0, 10_000))
def test_what_is_cut_off_is_refused(records: list[Record], size: int) -> None:
    body = bytes(encode(records, [1_000] * len(records)))
    assert both(body[: size % len(body)], len(records), len(records) - 1) == ("refused",) * 2


@pytest.mark.parametrize("index", [0, 62, 2_046, 8_190])
def test_plain_records_are_as_others(index: int) -> None:
    values = [b"a", b"b", b"c" * 300, memoryview(b"d" * 3_000), bytearray(b"e")]
    headers = [(("h", b"x"),)] * 2 + [()] * 3
    sections = [encode_headers(each) for each in headers]
    delta_ms = -7 if index else 0
    pieces = encode_plain(values, sections, index=index, delta_ms=delta_ms)
    plain = [Record(None, bytes(value), each) for value, each in zip(values, headers, strict=True)]
    before = [Record(None, b"", ())] * index
    expected = encode([*before, *plain], [1_000] * index + [1_000 + delta_ms] * 5)
    assert expected.endswith(b"".join(pieces))


def test_a_number_that_is_longer_than_it_must_be_is_read_all_the_same() -> None:
    """Nobody writes the offsets so, but they are the same numbers."""
    records = [Record(None, b"v", ())] * 4
    body = bytes(encode(records, [1_000] * 4))
    size = len(body) // 4
    for number in range(4):
        rows = [body[each * size : each * size + size] for each in range(4)]
        row = rows[number]
        wide = bytes([row[0] + 2, *row[1:3], row[3] | 0x80, 0, *row[4:]])
        rows[number] = wide
        decoded, splitted = both(b"".join(rows), 4, 3)
        assert decoded == splitted != "refused"


def test_headers_that_do_not_end_where_they_should() -> None:
    section = encode_headers((("h", b"x"),))
    assert decode_headers(section) == (("h", b"x"),)
    assert decode_headers(encode_headers(())) == ()
    for bad in (section[:-1], section + b"\0", b"", b"\1"):
        with pytest.raises(InvalidBatch):
            decode_headers(bad)
