"""Runs become batches that anybody can read, and batches become runs again."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.queue.message import Run
from entrepot.broker.queue.record_batches import EncodedBatch, RunDecoder, encode_runs
from entrepot.broker.queue.shelf import joined
from entrepot.core import batch, limits
from entrepot.core.errors import Corruption
from entrepot.core.message import Envelope
from entrepot.core.neutral import NEUTRAL, NO_PROPERTIES, Formats
from entrepot.core.record import Record
from tests.unit.broker.queue.lane_bed import CountingFormat, flat, head, run

SIZES = st.sampled_from([0, 1, 63, 64, 2_047, 2_048, 8_192])
ENVELOPES = st.builds(
    Envelope,
    st.sampled_from(["", "x"]),
    st.sampled_from(["k", "k" * 200]),
    st.sampled_from([NO_PROPERTIES, head(b"p"), head(b"q" * 70)]),
    st.just(NEUTRAL),
)
ALIKE = st.tuples(ENVELOPES, st.lists(SIZES.map(bytes), min_size=1, max_size=20)).map(
    lambda made: [(made[0], body) for body in made[1]]
)
MESSAGES = st.lists(ALIKE, min_size=1, max_size=10).map(lambda parts: [*chain.from_iterable(parts)])
RUNS = st.lists(
    st.builds(Run, st.sampled_from([-1, 0, 1_000, 2**41]), MESSAGES), min_size=1, max_size=4
)


def whole(encoded: EncodedBatch) -> bytes:
    return b"".join(encoded.chunks)


def place(runs: list[Run]) -> list[tuple[range, Run]]:
    pieces, offset = [], 0
    for each in runs:
        pieces.append((range(offset, offset + len(each.messages)), each))
        offset += len(each.messages)
    return pieces


@given(RUNS)
def test_there_and_back(runs: list[Run]) -> None:
    runs = joined(runs)  # type: ignore[assignment]
    (encoded,) = encode_runs(runs)
    assert encoded.runs == runs
    header = batch.check(whole(encoded))
    assert header.timestamp_max == max(each.time_ms for each in runs)
    assert flat(RunDecoder(Formats()).decode(whole(encoded))) == flat(place(runs))
    # The same as records, for those who read them one by one.
    formats, found = Formats(), list(batch.records(whole(encoded)))
    assert [(each.timestamp_ms, (formats.envelope(each), each.value)) for each in found] == [
        (time_ms, message) for _, time_ms, message in flat(place(runs))
    ]


def test_headers_are_worked_out_once() -> None:
    counting = CountingFormat()
    decoder = RunDecoder(Formats((counting,)))
    one, other = (Envelope("x", key, head(), counting) for key in "ab")
    runs = [Run(1_000, [(one, b"x")] * 100), Run(1_000, [(other, b"y")])]
    for _ in range(3):
        (encoded,) = encode_runs(runs)
        decoder.decode(whole(encoded))
    assert counting.asked == 4


def test_what_is_remembered_is_bounded() -> None:
    decoder = RunDecoder(Formats())
    for number in range(3 * limits.QUEUE_HEADERS_CACHED_MAX):
        (encoded,) = encode_runs([run(b"x", properties=b"%d" % number)])
        decoder.decode(whole(encoded))
    large = run(b"x", properties=bytes(limits.QUEUE_HEADERS_CACHED_BYTES_MAX))
    decoder.decode(whole(*encode_runs([large])))
    assert len(decoder._envelopes) <= limits.QUEUE_HEADERS_CACHED_MAX
    sizes = [len(section) for section, _ in decoder._envelopes]
    assert max(sizes) <= limits.QUEUE_HEADERS_CACHED_BYTES_MAX


def test_a_run_is_cut_where_a_batch_is_full() -> None:
    sizes = (500_000, 500_000, 500_000, 2_000_000, 10)
    for properties in ([b"p"] * 5, [b"p", b"q", b"p", b"p", b"q"]):
        heads = [Envelope("x", "k", head(each), NEUTRAL) for each in properties]
        messages = [(head, bytes(size)) for head, size in zip(heads, sizes, strict=True)]
        encoded = encode_runs([run(b"0"), Run(1_000, messages)])
        counts = [sum(len(each.messages) for each in made.runs) for made in encoded]
        assert counts in ([3, 1, 1, 1], [1, 2, 1, 1, 1])
        assert [len(whole(made)) > limits.QUEUE_BATCH_BYTES for made in encoded].count(True) == 1


def test_a_large_body_is_not_copied() -> None:
    body = bytes(3 * limits.MIB)
    (made,) = encode_runs([run(body)])
    assert any(chunk is body for chunk in made.chunks)
    batch.check(whole(made))
    assert flat(RunDecoder(Formats()).decode(whole(made))) == flat(place(made.runs))


def test_gaps_and_records_of_others() -> None:
    """As compaction leaves them: offsets are missing, keys and no value."""
    records = [Record(b"key", None, (), 5), Record(b"key", b"2"), Record(None, b"3")]
    made = batch.build(records, now_ms=5, codec=batch.Codec.GZIP)
    kept = [each for each in batch.records(made) if each.offset != 1]
    pieces = RunDecoder(Formats()).decode(batch.retain(made, kept))
    assert flat(pieces) == [
        (0, 5, (Envelope("", "key", NO_PROPERTIES, NEUTRAL), b"")),
        (2, 5, (Envelope("", "", NO_PROPERTIES, NEUTRAL), b"3")),
    ]


def test_nonsense_inside_of_a_batch_is_damage() -> None:
    (made,) = batch.build_plain([b"\x02\x00\x00\x00\x00\x00\x00"], 1, 0, 0)
    batch.check(made)
    with pytest.raises(Corruption, match="offset 0"):
        RunDecoder(Formats()).decode(made)
