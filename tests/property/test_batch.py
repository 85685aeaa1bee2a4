"""Record batches round trip, and three other implementations agree on every byte.

The others are kafka-python and aiokafka (readers and writers, with compression) and kio
(without).
"""

import datetime
import io

import kafka.codec
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kio.records import schema as kio_schema
from kio.records.readers import read_batch as kio_read
from kio.records.writers import write_new_batch as kio_write
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from entrepot.core.batch import (
    HEADER_BYTES,
    Codec,
    build,
    check,
    read_header,
    recompress,
    records,
    restamp_append_time,
    stamp,
    walk,
)
from entrepot.core.errors import InvalidBatch
from entrepot.core.record import Record

# kafka-python compresses with libraries that may not be there.
KAFKA_PYTHON_CODECS = [
    codec
    for codec, is_there in (
        (Codec.NONE, True),
        (Codec.GZIP, kafka.codec.has_gzip()),
        (Codec.SNAPPY, kafka.codec.has_snappy()),
        (Codec.LZ4, kafka.codec.has_lz4()),
        (Codec.ZSTD, kafka.codec.has_zstd()),
    )
    if is_there
]
READERS = [
    *(pytest.param(AiokafkaBatch, codec, id=f"aiokafka-{codec.name}") for codec in Codec),
    *(
        pytest.param(KafkaPythonBatch, codec, id=f"kafka-python-{codec.name}")
        for codec in KAFKA_PYTHON_CODECS
    ),
]
BUILDERS = [
    *(pytest.param(AiokafkaBuilder, codec, id=f"aiokafka-{codec.name}") for codec in Codec),
    *(
        pytest.param(KafkaPythonBuilder, codec, id=f"kafka-python-{codec.name}")
        for codec in KAFKA_PYTHON_CODECS
    ),
]

sizes = st.sampled_from([0, 1, 63, 64, 100, 2_047, 2_048, 8_191, 8_192])
some_bytes = st.binary(max_size=80) | sizes.map(lambda size: b"z" * size)
names = st.text(st.characters(codec="utf-8"), max_size=20)
headers = st.lists(st.tuples(names, st.none() | some_bytes), max_size=3).map(tuple)
NOW = 1_700_000_000_000
times = st.integers(NOW - 10_000, NOW + 10_000) | st.integers(0, 2**62)
record = st.builds(Record, st.none() | some_bytes, st.none() | some_bytes, headers, times)
batches = st.lists(record, min_size=1, max_size=20) | st.builds(
    lambda entry, count: [entry] * count, record, st.sampled_from([64, 65, 200])
)
codecs = st.sampled_from(Codec)
offsets = st.integers(0, 2**62)
epochs = st.integers(-1, 2**31 - 1)


def numbered(source: list[Record], offset_first: int = 0) -> list[Record]:
    return [entry._replace(offset=offset_first + index) for index, entry in enumerate(source)]


@given(batches, codecs, offsets)
def test_build_and_read(source: list[Record], codec: Codec, offset_first: int) -> None:
    batch = build(source, now_ms=NOW, codec=codec, offset_first=offset_first)
    header = check(batch)
    assert header.offset_end == offset_first + len(source)
    assert header.timestamp_max == max(entry.timestamp_ms for entry in source)
    assert list(records(batch)) == numbered(source, offset_first)


@given(batches, codecs, codecs)
def test_recompressing_keeps_the_records(source: list[Record], one: Codec, other: Codec) -> None:
    plain = build(source, now_ms=NOW)
    packed = recompress(build(source, now_ms=NOW, codec=one), other)
    assert check(packed).codec is other
    assert recompress(packed, Codec.NONE) == plain


@given(batches, codecs, offsets, epochs)
def test_stamping_is_building_with_it(
    source: list[Record], codec: Codec, offset_first: int, leader_epoch: int
) -> None:
    batch = bytearray(build(source, now_ms=NOW, codec=codec))
    stamp(batch, offset_first, leader_epoch)
    assert batch == build(
        source, now_ms=NOW, codec=codec, offset_first=offset_first, leader_epoch=leader_epoch
    )


@given(batches, codecs, st.integers(0, 2**62))
def test_restamping_is_building_with_it(source: list[Record], codec: Codec, now_ms: int) -> None:
    restamped = restamp_append_time(build(source, now_ms=0, codec=codec), now_ms)
    assert restamped == build(source, now_ms=now_ms, codec=codec, append_time=True)
    assert {entry.timestamp_ms for entry in records(restamped)} == {now_ms}


@given(st.lists(st.tuples(batches, codecs), max_size=4), st.integers(0, 10_000))
def test_walking_finds_what_was_put_together(
    parts: list[tuple[list[Record], Codec]], cut: int
) -> None:
    built = [build(source, now_ms=NOW, codec=codec) for source, codec in parts]
    row = b"".join(built)
    row = row[: max(len(row) - cut, 0)]
    found = [row[position : position + header.size] for position, header in walk(row)]
    assert found == built[: len(found)]
    rest = len(row) - sum(map(len, found))
    assert rest < len(built[len(found)]) if len(found) < len(built) else rest == 0


@pytest.mark.parametrize(("reader", "codec"), READERS)
@settings(max_examples=20)
@given(source=batches, offset_first=offsets)
def test_others_read_what_we_build(
    reader: type[AiokafkaBatch | KafkaPythonBatch],
    codec: Codec,
    source: list[Record],
    offset_first: int,
) -> None:
    batch = build(source, now_ms=NOW, codec=codec, offset_first=offset_first)
    theirs = reader(batch)
    assert theirs.validate_crc()
    assert [
        Record(entry.key, entry.value, tuple(entry.headers), entry.timestamp, entry.offset)
        for entry in theirs
    ] == numbered(source, offset_first)


@pytest.mark.parametrize(("builder", "codec"), BUILDERS)
@settings(max_examples=20)
@given(source=batches)
def test_we_read_what_others_build(
    builder: type[AiokafkaBuilder | KafkaPythonBuilder], codec: Codec, source: list[Record]
) -> None:
    theirs = builder(2, codec, False, -1, -1, -1, 2**30)
    for index, entry in enumerate(source):
        assert theirs.append(index, entry.timestamp_ms, entry.key, entry.value, list(entry.headers))
    batch = bytes(theirs.build())
    header = check(batch)
    assert list(records(batch)) == numbered(source)
    plain = recompress(batch, Codec.NONE)
    assert plain == build(source, now_ms=NOW, leader_epoch=header.leader_epoch)


# kio keeps time as a datetime, in whole seconds when it reads.
kio_times = st.integers(0, 2**31).map(lambda seconds: 1_000 * seconds)
kio_batches = st.lists(
    st.builds(Record, st.none() | some_bytes, st.none() | some_bytes, headers, kio_times),
    min_size=1,
    max_size=10,
)


def as_kio(entry: Record) -> kio_schema.Record:
    time = datetime.datetime.fromtimestamp(entry.timestamp_ms // 1_000, datetime.UTC)
    return kio_schema.Record(
        attributes=i8(0),
        timestamp=TZAwareMicros.parse(time),
        offset=i64(entry.offset),
        key=entry.key,
        value=entry.value,
        headers=tuple(
            kio_schema.RecordHeader(key=name.encode(), value=value) for name, value in entry.headers
        ),
    )


@given(kio_batches, offsets)
def test_kio_reads_and_writes_the_same(source: list[Record], offset_first: int) -> None:
    ours = build(
        source,
        now_ms=NOW,
        offset_first=offset_first,
        leader_epoch=3,
        producer_id=5,
        producer_epoch=6,
        sequence_first=7,
    )
    theirs = tuple(as_kio(entry) for entry in numbered(source, offset_first))
    read, size = kio_read(ours, 0)
    assert (size, read.records) == (len(ours), theirs)
    assert (read.partition_leader_epoch, read.producer_id, read.base_sequence) == (3, 5, 7)
    output = io.BytesIO()
    kio_write(
        output,
        kio_schema.NewRecordBatch(
            producer_id=i64(5),
            producer_epoch=i16(6),
            partition_leader_epoch=i32(3),
            base_sequence=i32(7),
            records=theirs,
            attributes=i16(0),
        ),
    )
    assert output.getvalue() == ours


# --- hostile bytes


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(junk: bytes) -> None:
    for verb in (check, lambda raw: list(records(raw)), lambda raw: recompress(raw, Codec.NONE)):
        with pytest.raises(InvalidBatch):
            verb(junk)


@given(batches, codecs, st.data())
def test_a_damaged_body_is_refused_or_read_within_bounds(
    source: list[Record], codec: Codec, data: st.DataObject
) -> None:
    """The checksum would catch it; here it is not asked."""
    batch = bytearray(build(source, now_ms=NOW, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    try:
        found = list(records(batch, bytes_max=2**22))
    except InvalidBatch:
        return
    assert [entry.offset for entry in found] == list(range(len(source)))


@given(codecs, st.integers(1, 50), st.binary(max_size=400))
def test_a_body_of_junk_is_refused_or_read_within_bounds(
    codec: Codec, count: int, junk: bytes
) -> None:
    header = bytearray(build([Record(None, None)] * count, now_ms=NOW)[:HEADER_BYTES])
    header[8:12] = (HEADER_BYTES - 12 + len(junk)).to_bytes(4, "big")
    header[22] = codec
    batch = bytes(header) + junk
    assert read_header(batch).size == len(batch)
    try:
        found = list(records(batch, bytes_max=2**20))
    except InvalidBatch:
        return
    assert len(found) == count
