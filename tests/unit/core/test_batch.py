"""Record batches: golden bytes, what is refused, and what changing one changes."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from entrepot.core import limits
from entrepot.core.batch import (
    HEADER_BYTES,
    BatchHeader,
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

VECTORS = Path(__file__).parents[2] / "vectors"
CLIENTS = ("kafka_clients", "librdkafka", "kafka_python", "aiokafka")

TIME = 1_700_000_000_000
FOX = b"the quick brown fox jumps over the lazy dog; "
# What all vectors hold.
RECORDS = (
    Record(b"key-1", b"value one", (("trace", b"\x00\x01\x02"), ("empty", b"")), TIME),
    Record(None, b"no key, earlier than the first", (), TIME - 250),
    Record(b"key-1", None, (), TIME + 5),
    Record(b"", b"", (("grüße", None), ("trace", b"twice"), ("trace", b"twice")), TIME + 10_000),
    Record(b"key-2", FOX * 7, (("kind", b"long " * 30),), TIME + 123_456_789),
)

Buffers = type[bytes] | type[bytearray] | type[memoryview]


def vector(client: str, section: str) -> bytes:
    text = (VECTORS / f"batch_{client}.txt").read_text("ascii")
    body = text.split(f"[{section}]\n")[1].split("\n\n")[0]
    return bytes.fromhex(body)


def numbered(
    offset_first: int, source: tuple[Record, ...] = RECORDS, time: int | None = None
) -> list[Record]:
    return [
        record._replace(
            offset=offset_first + index,
            timestamp_ms=record.timestamp_ms if time is None else time,
        )
        for index, record in enumerate(source)
    ]


def sealed(header: BatchHeader, body: bytes) -> bytes:
    """A batch with a correct checksum, whatever else is wrong with it."""
    raw = bytearray(struct.pack(">qiibIhiqqqhii", *header) + body)
    struct.pack_into(">I", raw, 17, crc32c(raw[21:]))
    return bytes(raw)


def altered(batch: bytes, **fields: int) -> bytes:
    return sealed(read_header(batch)._replace(**fields), batch[HEADER_BYTES:])


# --- what others wrote


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("codec", Codec)
def test_what_clients_write(client: str, codec: Codec) -> None:
    batch = vector(client, codec.name.lower())
    header = check(batch)
    assert header.codec is codec
    assert header.size == len(batch)
    assert (header.timestamp_first, header.timestamp_max) == (TIME, TIME + 123_456_789)
    assert not header.is_append_time
    assert list(records(batch)) == numbered(header.offset_first)


def test_fields_as_the_java_client_writes_them() -> None:
    header = check(vector("kafka_clients", "gzip"))
    assert header == BatchHeader(
        offset_first=4_000_000_000,
        length=252,
        leader_epoch=12,
        magic=2,
        crc=0x4084C69E,
        attributes=1,
        offset_delta_last=4,
        timestamp_first=TIME,
        timestamp_max=TIME + 123_456_789,
        producer_id=9001,
        producer_epoch=7,
        sequence_first=2**31 - 3,
        count=5,
    )
    assert (header.offset_last, header.offset_end) == (4_000_000_004, 4_000_000_005)
    assert header.sequence_last == 1  # After 2**31 - 1 comes 0.


def test_log_append_time_as_the_java_client_writes_it() -> None:
    batch = vector("kafka_clients", "append_time")
    header = check(batch)
    assert header.is_append_time
    assert list(records(batch)) == numbered(0, time=header.timestamp_max)


def test_a_transaction_end_as_the_java_client_writes_it() -> None:
    batch = vector("kafka_clients", "commit")
    header = check(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.sequence_last) == (9001, 7, -1)
    (marker,) = records(batch)
    assert marker == Record(b"\0\0\0\1", b"\0\0\0\0\0\3", (), TIME, 77)
    assert batch == build(
        [marker],
        now_ms=0,
        offset_first=77,
        leader_epoch=12,
        producer_id=9001,
        producer_epoch=7,
        transactional=True,
        control=True,
    )


def test_an_idempotent_batch_as_librdkafka_writes_it() -> None:
    header = check(vector("librdkafka", "idempotent"))
    assert header.producer_id > 0
    assert (header.producer_epoch, header.sequence_first, header.sequence_last) == (0, 0, 4)


def test_a_transactional_batch_as_aiokafka_writes_it() -> None:
    header = check(vector("aiokafka", "none"))
    assert header.is_transactional
    assert not header.is_control
    assert (header.producer_id, header.producer_epoch, header.sequence_first) == (4711, 3, 17)


@pytest.mark.parametrize("client", CLIENTS)
def test_what_we_build_is_the_same_bytes(client: str) -> None:
    batch = vector(client, "none")
    header = read_header(batch)
    built = build(
        RECORDS,
        now_ms=0,
        offset_first=header.offset_first,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        sequence_first=header.sequence_first,
        transactional=header.is_transactional,
    )
    assert built == batch


# --- what we build


@pytest.mark.parametrize("codec", Codec)
def test_build_and_read(codec: Codec) -> None:
    batch = build(RECORDS, now_ms=0, offset_first=42, codec=codec)
    header = check(batch)
    assert header.codec is codec
    assert header.offset_first == 42
    assert header.leader_epoch == -1
    assert (header.producer_id, header.producer_epoch, header.sequence_first) == (-1, -1, -1)
    assert header.sequence_last == -1
    assert list(records(batch)) == numbered(42)


def test_a_record_without_a_time_gets_the_time_of_building() -> None:
    source = (Record(None, b"a"), Record(None, b"b", (), 900), Record(None, b"c"))
    batch = build(source, now_ms=1_000)
    assert [record.timestamp_ms for record in records(batch)] == [1_000, 900, 1_000]
    assert check(batch).timestamp_max == 1_000


def test_append_time_is_the_same_for_all() -> None:
    batch = build(RECORDS, now_ms=5, append_time=True)  # Long before the records' own times.
    assert check(batch).timestamp_max == 5
    assert list(records(batch)) == numbered(0, time=5)


def test_append_time_at_the_beginning_of_time() -> None:
    assert list(records(build(RECORDS, now_ms=0, append_time=True))) == numbered(0, time=0)


def test_an_empty_batch_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        build([], now_ms=0)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind: Buffers) -> None:
    for codec in Codec:
        batch = build(RECORDS, now_ms=0, codec=codec)
        assert check(kind(batch)) == read_header(kind(batch)) == read_header(batch)
        (first, *_) = records(kind(batch))
        assert first == numbered(0)[0]
        assert type(first.key) is type(first.value) is bytes
        assert restamp_append_time(kind(batch), 7) == restamp_append_time(batch, 7)
        assert recompress(kind(batch), Codec.ZSTD) == recompress(batch, Codec.ZSTD)


# --- what changing one changes


@pytest.mark.parametrize("kind", [bytearray, lambda raw: memoryview(bytearray(raw))])
def test_stamp(kind: Callable[[bytes], bytearray | memoryview]) -> None:
    batch = build(RECORDS, now_ms=0, codec=Codec.LZ4)
    stamped = kind(batch)
    stamp(stamped, 2**40, 17)
    assert check(stamped) == read_header(batch)._replace(offset_first=2**40, leader_epoch=17)
    assert bytes(stamped[HEADER_BYTES:]) == batch[HEADER_BYTES:]
    assert list(records(stamped)) == numbered(2**40)


@pytest.mark.parametrize("codec", Codec)
def test_restamp_append_time(codec: Codec) -> None:
    batch = build(RECORDS, now_ms=0, offset_first=3, codec=codec, producer_id=8, producer_epoch=1,
                  sequence_first=0)  # fmt: skip
    restamped = restamp_append_time(batch, 99)
    header = check(restamped)
    assert header == read_header(batch)._replace(
        attributes=codec | 8, timestamp_max=99, crc=header.crc
    )
    assert restamped[HEADER_BYTES:] == batch[HEADER_BYTES:]
    assert list(records(restamped)) == numbered(3, time=99)
    assert restamp_append_time(restamped, 99) == restamped


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("target", Codec)
def test_recompress(codec: Codec, target: Codec) -> None:
    batch = build(RECORDS, now_ms=0, offset_first=3, leader_epoch=2, codec=codec, producer_id=8,
                  producer_epoch=1, sequence_first=0, transactional=True)  # fmt: skip
    changed = recompress(batch, target)
    header = check(changed)
    assert header == read_header(batch)._replace(
        attributes=target | 16, length=header.length, crc=header.crc
    )
    assert list(records(changed)) == numbered(3)


def test_recompress_to_the_same_codec_changes_nothing() -> None:
    batch = vector("kafka_clients", "gzip")
    assert recompress(batch, Codec.GZIP) == batch


# --- many in a row


def test_walk() -> None:
    batches = [build(RECORDS[:count], now_ms=0, offset_first=count) for count in (1, 2, 3)]
    row = b"before" + b"".join(batches)
    found = list(walk(row, 6))
    assert [header for _, header in found] == [read_header(batch) for batch in batches]
    assert [row[at : at + header.size] for at, header in found] == batches
    assert list(walk(memoryview(row), 6, 6 + len(batches[0]))) == found[:1]
    assert list(walk(b"")) == []


def test_walk_leaves_out_what_is_cut_off() -> None:
    row = build(RECORDS, now_ms=0) * 2
    whole = list(walk(row))
    assert len(whole) == 2
    for size in range(len(row) // 2, len(row)):
        assert list(walk(row[:size])) == whole[:1]
        assert list(walk(row, 0, size)) == whole[:1]


def test_walk_does_not_believe_a_length_beyond_the_buffer() -> None:
    row = bytearray(build(RECORDS, now_ms=0))
    struct.pack_into(">i", row, 8, 2**31 - 1)
    assert list(walk(row)) == []


@pytest.mark.parametrize("length", [-(2**31), -1, 0, HEADER_BYTES - 12 - 1])
def test_walk_refuses_a_length_that_cannot_be(length: int) -> None:
    first = build(RECORDS, now_ms=0)
    row = bytearray(first * 2)
    struct.pack_into(">i", row, len(first) + 8, length)
    walker = walk(row)
    next(walker)
    with pytest.raises(InvalidBatch, match=f"length {length}"):
        next(walker)


# --- what is refused


@pytest.mark.parametrize("codec", Codec)
def test_a_flipped_bit_is_found(codec: Codec) -> None:
    """Outside of the checksum stand only the fields a broker fills in."""
    batch = build(RECORDS, now_ms=0, codec=codec)
    good = check(batch)
    unseen = 0
    for bit in range(8 * len(batch)):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            header = check(flipped)
        except InvalidBatch:
            continue
        unseen += 1
        assert header._replace(offset_first=0, leader_epoch=-1) == good
    assert unseen == 64 + 32


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_of_any_other_size_is_refused(codec: Codec) -> None:
    batch = build(RECORDS, now_ms=0, codec=codec)
    for wrong in [*(batch[:size] for size in range(len(batch))), batch + b"\0", batch * 2]:
        with pytest.raises(InvalidBatch):
            check(wrong)
        with pytest.raises(InvalidBatch):
            records(wrong)


def test_a_header_needs_all_its_bytes() -> None:
    batch = build(RECORDS, now_ms=0)
    for size in range(HEADER_BYTES):
        with pytest.raises(InvalidBatch, match="shorter"):
            read_header(batch[:size])
    with pytest.raises(InvalidBatch, match="shorter"):
        read_header(batch, len(batch) - HEADER_BYTES + 1)


NONSENSE = [
    ({"magic": 0}, "format 0"),
    ({"magic": 1}, "format 1"),
    ({"magic": 3}, "format 3"),
    ({"attributes": 5}, "codec 5"),
    ({"attributes": 7}, "codec 7"),
    ({"count": 0}, "count of 0"),
    ({"count": -1}, "count of -1"),
    ({"count": 2**31 - 1, "offset_delta_last": 2**31 - 2}, "count of"),
    ({"count": 4}, "4 records, but"),
    ({"offset_delta_last": -1}, "5 records, but"),
    ({"offset_delta_last": 3}, "5 records, but"),
    ({"offset_delta_last": 5}, "5 records, but"),
    ({"timestamp_first": -2}, "timestamps"),
    ({"timestamp_first": -(2**63), "timestamp_max": -(2**63)}, "timestamps"),
    ({"timestamp_max": TIME - 1}, "timestamps"),
    ({"timestamp_max": -2}, "timestamps"),
    ({"timestamp_max": -2, "attributes": 8}, "timestamps"),
    ({"producer_id": -2}, "producer -2"),
    ({"producer_id": 1, "producer_epoch": -1, "sequence_first": 0}, "epoch -1"),
    ({"producer_id": 1, "producer_epoch": 0, "sequence_first": -1}, "sequence -1"),
    ({"attributes": 16}, "without a producer id"),
    ({"attributes": 16, "producer_epoch": 0, "sequence_first": 0}, "without a producer id"),
]


@pytest.mark.parametrize(("fields", "reason"), NONSENSE)
def test_a_header_that_makes_no_sense_is_refused(fields: dict[str, int], reason: str) -> None:
    batch = altered(build(RECORDS, now_ms=0), **fields)
    with pytest.raises(InvalidBatch, match=reason):
        check(batch)


SENSE = [
    {"timestamp_max": -1},
    {"timestamp_first": -1, "timestamp_max": -1},
    {"timestamp_max": 0, "attributes": 8},
    {"producer_epoch": 0, "sequence_first": 0},  # No producer, as kafkajs writes it.
    {"producer_id": 2**63 - 1, "producer_epoch": 2**15 - 1, "sequence_first": 2**31 - 1},
    {"producer_id": 0, "producer_epoch": 0, "sequence_first": -1, "attributes": 0x30},
    {"attributes": 0x40},  # A bit we do not use.
    {"offset_first": 2**62, "leader_epoch": 2**31 - 1},
]


@pytest.mark.parametrize("fields", SENSE)
def test_a_header_that_makes_sense_is_not_refused(fields: dict[str, int]) -> None:
    assert set(fields.items()) <= set(
        check(altered(build(RECORDS, now_ms=0), **fields))._asdict().items()
    )


def test_gaps_are_for_logs() -> None:
    batch = altered(build(RECORDS, now_ms=0), offset_delta_last=9)
    with pytest.raises(InvalidBatch, match="5 records, but"):
        check(batch)
    assert check(batch, allow_gaps=True).offset_last == 9
    assert list(records(batch)) == numbered(0)
    for wrong in (-1, 0, 3):
        with pytest.raises(InvalidBatch, match="5 records, but"):
            check(altered(batch, offset_delta_last=wrong), allow_gaps=True)


def test_the_largest_count_is_a_limit() -> None:
    most = limits.RECORDS_PER_BATCH_MAX
    batch = build(RECORDS, now_ms=0, codec=Codec.GZIP)
    check(altered(batch, count=most, offset_delta_last=most - 1))
    with pytest.raises(InvalidBatch, match="count"):
        check(altered(batch, count=most + 1, offset_delta_last=most))


# --- bodies that are not what the header says


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    "fields",
    [{"count": 4}, {"count": 6, "offset_delta_last": 9}, {"offset_delta_last": 3}, {"count": -1},
     {"count": 0}, {"magic": 1}, {"attributes": 6}],
)  # fmt: skip
def test_records_must_be_what_the_header_says(codec: Codec, fields: dict[str, int]) -> None:
    batch = altered(build(RECORDS, now_ms=0, codec=codec), **fields)
    with pytest.raises(InvalidBatch):
        list(records(batch))


def test_fewer_than_no_records() -> None:
    header = read_header(build(RECORDS, now_ms=0))._replace(length=HEADER_BYTES - 12)
    assert list(records(sealed(header._replace(count=0), b""))) == []  # As a cleaner may leave it.
    with pytest.raises(InvalidBatch):
        records(sealed(header._replace(count=-1), b""))


@pytest.mark.parametrize("codec", Codec)
def test_a_body_in_another_codec_than_it_says(codec: Codec) -> None:
    batch = build(RECORDS, now_ms=0, codec=codec)
    for other in set(Codec) - {codec}:
        with pytest.raises(InvalidBatch):
            list(records(altered(batch, attributes=other)))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_body_larger_than_the_bound(codec: Codec) -> None:
    source = [Record(None, bytes(1_000))] * 100
    batch = build(source, now_ms=0, codec=codec)
    assert len(list(records(batch, bytes_max=200_000))) == 100
    with pytest.raises(InvalidBatch, match="more than 100000"):
        records(batch, bytes_max=100_000)


def test_more_records_than_there_are_bytes_for() -> None:
    """Cheap to see; the records themselves are not looked at."""
    data = build([Record(None, b"") for _ in range(10)], now_ms=1)
    check(data)
    with pytest.raises(InvalidBatch, match="11 records in 119 bytes"):
        check(altered(data, count=11, offset_delta_last=10))
