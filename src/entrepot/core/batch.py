"""Record batch v2: records as bytes, alike in memory, on disk and between nodes.

The layout is Kafka's, all big endian: 61 bytes of header, then the records, which
are compressed together or not at all. A Kafka producer's batch is stored as it came.
What a broker fills in (the offset of the first record, the leader's epoch) stands
before the checksum and outside of it, so stamping a batch touches twelve bytes and
leaves the rest, checksum included, as the producer made it.

    0 offset_first      8   21 attributes         2   43 producer_id     8
    8 length            4   23 offset_delta_last  4   51 producer_epoch  2
   12 leader_epoch      4   27 timestamp_first    8   53 sequence_first  4
   16 magic (2)         1   35 timestamp_max      8   57 count           4
   17 crc               4                             61 records

`length` counts what follows it. `crc` is the CRC32C of everything from `attributes`
on. The records are encoded and decoded in `body`.

`check` is what a batch from outside must pass; it never decodes the records. So the stored
records may be invalid, and `records` checks everything it reads.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from entrepot.core import limits
from entrepot.core.body import Stretch, decode, split
from entrepot.core.compression import Codec, compress, decompress, unpacked
from entrepot.core.encoding import encode
from entrepot.core.errors import InvalidBatch
from entrepot.core.ports import Buffer
from entrepot.core.record import Record
from entrepot.core.steps import Steps, finish, parts

__all__ = [
    "HEADER_BYTES",
    "BatchHeader",
    "Codec",
    "build",
    "build_plain",
    "check",
    "read_header",
    "recompress",
    "records",
    "restamp_append_time",
    "split_records",
    "stamp",
    "walk",
]

MAGIC = 2
HEADER_BYTES = 61

_HEADER = struct.Struct(">qiibIhiqqqhii")
_RETAINED_AT_ONCE = 1_000
_JOINED_BYTES_MAX = 2 * limits.MIB  # A longer body is kept apart from its header, to save the copy.
_PREFIX = struct.Struct(">qiibI")  # The header up to and including the checksum.
_CHECKED = struct.Struct(">hiqqqhii")  # The part of the header that the checksum covers.
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_EPOCH_POSITION = 12
_LENGTH_END = 12  # Where the bytes begin that `length` counts.
assert _HEADER.size == HEADER_BYTES == _PREFIX.size + _CHECKED.size

_CODEC_BITS = 0x07
_CODEC_LAST = int(Codec.ZSTD)
_LENGTH_MIN = HEADER_BYTES - _LENGTH_END
_RECORD_BYTES_MIN = 7  # Its seven numbers take at least one byte each.
_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20

OFFSET_DELTA_MAX = 2**31 - 1
_SEQUENCE_END = 2**31  # Sequence numbers start again at 0 here.


class BatchHeader(NamedTuple):
    """The fields of a batch's header, the first 61 bytes, in their order."""

    offset_first: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    offset_delta_last: int
    timestamp_first: int
    timestamp_max: int
    # -1 means: neither idempotent nor transactional; then the next two fields are -1.
    producer_id: int
    producer_epoch: int
    sequence_first: int
    count: int  # type: ignore[assignment]  # Shadows tuple.count, which nobody misses.

    @property
    def size(self) -> int:
        """Return the size of the whole batch in bytes."""
        return self.length + _LENGTH_END

    @property
    def offset_last(self) -> int:
        return self.offset_first + self.offset_delta_last

    @property
    def offset_end(self) -> int:
        return self.offset_first + self.offset_delta_last + 1

    @property
    def sequence_last(self) -> int:
        if self.sequence_first < 0:
            return self.sequence_first
        return (self.sequence_first + self.offset_delta_last) % _SEQUENCE_END

    @property
    def codec(self) -> Codec:
        try:
            return Codec(self.attributes & _CODEC_BITS)
        except ValueError:
            raise _unknown_codec(self.attributes) from None

    @property
    def is_append_time(self) -> bool:
        """Return whether every record's timestamp is `timestamp_max`, whatever the record says."""
        return self.attributes & _APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & _TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Return whether its one record is a transaction's marker and not a message."""
        return self.attributes & _CONTROL != 0


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`, unchecked. Raises InvalidBatch when the buffer is too
    short."""
    try:
        return BatchHeader._make(_HEADER.unpack_from(buffer, position))
    except struct.error:
        raise InvalidBatch("shorter than a batch's header") from None


def check(batch: Buffer, *, allow_gaps: bool = False) -> BatchHeader:
    """Check one whole batch, checksum included, and return its header. Raises InvalidBatch.

    Offsets are without gaps unless `allow_gaps`: in a log, compaction may have removed records,
    even all of a batch.
    """
    header = read_header(batch)
    (_, length, _, magic, crc, attributes, delta_last, first, latest, *producer, count) = header
    if magic != MAGIC:
        raise InvalidBatch(f"record format {magic}; only {MAGIC} is supported")
    if length != len(batch) - _LENGTH_END:
        raise InvalidBatch(f"length {length} in a batch of {len(batch)} bytes")
    if crc32c(memoryview(batch)[_PREFIX.size :]) != crc:
        raise InvalidBatch("the checksum does not match")
    if attributes & _CODEC_BITS > _CODEC_LAST:
        raise _unknown_codec(attributes)
    if not (0 if allow_gaps else 1) <= count <= limits.RECORDS_PER_BATCH_MAX:
        raise InvalidBatch(f"a count of {count} records")
    if not attributes & _CODEC_BITS and length < _LENGTH_MIN + count * _RECORD_BYTES_MIN:
        raise InvalidBatch(f"{count} records in {length} bytes")
    if delta_last != count - 1 and not (allow_gaps and delta_last >= count):
        raise InvalidBatch(f"{count} records, but the last offset is {delta_last} after the first")
    if first < -1 or latest < -1 or (first > latest != -1 and not attributes & _APPEND_TIME):
        raise InvalidBatch(f"timestamps from {first} to {latest}")
    if producer != [-1, -1, -1] or attributes & _TRANSACTIONAL:
        _check_producer(header, may_be_ours=allow_gaps)
    return header


def _unknown_codec(attributes: int) -> InvalidBatch:
    return InvalidBatch(f"unknown compression codec {attributes & _CODEC_BITS}")


def _check_producer(header: BatchHeader, *, may_be_ours: bool) -> None:
    """Raise InvalidBatch if the producer's fields do not fit together.

    `may_be_ours`: the broker writes batches to the log in a producer's name without a sequence.
    """
    if header.producer_id == -1:
        if header.is_transactional:
            raise InvalidBatch("transactional, but without a producer id")
    elif header.producer_id < 0 or header.producer_epoch < 0:
        raise InvalidBatch(f"producer {header.producer_id}, epoch {header.producer_epoch}")
    elif header.sequence_first < 0 and not (header.is_control or may_be_ours):
        raise InvalidBatch(f"producer {header.producer_id}, sequence {header.sequence_first}")


def walk(
    buffer: Buffer, position: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch; one that is cut off at the end is left out.

    Raises InvalidBatch.
    """
    if end is None:
        end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if header.size < HEADER_BYTES:
            raise InvalidBatch(f"length {header.length} in the batch at {position}")
        if header.size > end - position:
            return
        yield position, header
        position += header.size


def stamp(batch: bytearray | memoryview, offset_first: int, leader_epoch: int) -> None:
    """Write offset and leader epoch into the batch. The checksum does not cover them."""
    _OFFSET.pack_into(batch, 0, offset_first)
    _EPOCH.pack_into(batch, _EPOCH_POSITION, leader_epoch)


def restamp_append_time(batch: Buffer, now_ms: int) -> bytes:
    """Return the batch with `now_ms` as the timestamp of every record."""
    header = read_header(batch)
    header = header._replace(
        attributes=header.attributes | _APPEND_TIME,
        timestamp_max=now_ms,
    )
    return _assemble(header, memoryview(batch)[HEADER_BYTES:])


def recompress(batch: Buffer, codec: Codec) -> bytes:
    """Return the batch compressed with another codec."""
    header = read_header(batch)
    if header.codec is codec:
        return bytes(batch)
    body = unpacked(header.codec, memoryview(batch)[HEADER_BYTES:], limits.DECOMPRESSED_BYTES_MAX)
    header = header._replace(attributes=header.attributes & ~_CODEC_BITS | codec)
    return _assemble(header, compress(codec, body))


def retain(batch: Buffer, kept: Sequence[Record], body: Buffer | None = None) -> bytes:
    """Return the batch with only these of its records, at their offsets.

    `body` is the result of `retained`, if that was run in steps before.
    """
    header = read_header(batch)
    if body is None:
        body = finish(retained(batch, kept))
    time_max = max(record.timestamp_ms for record in kept)
    header = header._replace(
        timestamp_first=kept[0].timestamp_ms,
        timestamp_max=header.timestamp_max if header.is_append_time else time_max,
        count=len(kept),
    )
    codec = header.codec
    return _assemble(header, body if codec is Codec.NONE else compress(codec, body))


def retained(batch: Buffer, kept: Sequence[Record]) -> Steps[bytearray]:
    """Encode some of a batch's records, _RETAINED_AT_ONCE in each step."""
    offset_first, time_first = read_header(batch).offset_first, kept[0].timestamp_ms
    body = bytearray()
    for some in parts(kept, _RETAINED_AT_ONCE):
        times = [record.timestamp_ms for record in some]
        deltas = [record.offset - offset_first for record in some]
        body += encode(some, times, deltas, time_first)
        yield
    return body


def empty(offset_first: int, offset_end: int, leader_epoch: int) -> bytes:
    """Build a batch without records: it says that compaction removed what had these offsets."""
    delta_last = offset_end - offset_first - 1
    assert 0 <= delta_last <= OFFSET_DELTA_MAX, (offset_first, offset_end)
    return _assemble(
        BatchHeader(offset_first, 0, leader_epoch, MAGIC, 0, 0, delta_last, -1, -1, -1, -1, -1, 0),
        b"",
    )


def _assemble(header: BatchHeader, body: Buffer) -> bytes:
    """Return the batch with this header and body; length and checksum are computed here."""
    return b"".join((_head(header, (body,), len(body)), body))


def _head(header: BatchHeader, body: Sequence[Buffer], size: int) -> bytes:
    """Return the encoded header of a batch whose body, in pieces, has `size` bytes in all."""
    length = HEADER_BYTES - _LENGTH_END + size
    assert length < 2**31, length
    checked = _CHECKED.pack(*header[5:])
    crc = crc32c(checked)
    for piece in body:
        crc = crc32c(piece, crc)
    return _PREFIX.pack(header.offset_first, length, header.leader_epoch, MAGIC, crc) + checked


def build(
    records: Sequence[Record],
    *,
    now_ms: int,
    offset_first: int = 0,
    codec: Codec = Codec.NONE,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence_first: int = -1,
    append_time: bool = False,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Build a batch. Offsets count from `offset_first`; the records' own are ignored."""
    assert records, "a batch holds at least one record"
    times = [now_ms if record.timestamp_ms == -1 else record.timestamp_ms for record in records]
    body = encode(records, times)
    header = BatchHeader(
        offset_first=offset_first,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec
        | (_APPEND_TIME if append_time else 0)
        | (_TRANSACTIONAL if transactional else 0)
        | (_CONTROL if control else 0),
        offset_delta_last=len(records) - 1,
        timestamp_first=times[0],
        timestamp_max=now_ms if append_time else max(times),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        sequence_first=sequence_first,
        count=len(records),
    )
    return _assemble(header, body if codec is Codec.NONE else compress(codec, body))


def build_plain(
    pieces: Sequence[Buffer], count: int, time_first: int, time_max: int
) -> list[Buffer]:
    """Build an uncompressed batch of encoded records, in chunks of which the first has the header.

    It is one chunk unless joining would copy more than _JOINED_BYTES_MAX.
    """
    header = BatchHeader(0, 0, -1, MAGIC, 0, 0, count - 1, time_first, time_max, -1, -1, -1, count)
    size = sum(map(len, pieces))
    if size <= _JOINED_BYTES_MAX:
        body = b"".join(pieces)
        return [_head(header, (body,), size) + body]
    return [_head(header, pieces, size), *pieces]


def records(batch: Buffer, *, bytes_max: int = limits.DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Yield the records, with their offsets and timestamps.

    The checksum is not verified: that is `check`'s part. Raises InvalidBatch, at once or on the
    way, when the body is not what the header says or unpacks to more than `bytes_max`.
    """
    header, body, position = _unpack(batch, bytes_max)
    return decode(
        body,
        position,
        header.count,
        offset_first=header.offset_first,
        offset_delta_last=header.offset_delta_last,
        timestamp_first=header.timestamp_first,
        timestamp_fixed=header.timestamp_max if header.is_append_time else None,
    )


def split_records(batch: Buffer) -> list[Stretch]:
    """Return the records grouped into stretches (see `body`), their headers not decoded."""
    header, body, position = _unpack(batch, limits.DECOMPRESSED_BYTES_MAX)
    return split(
        body,
        position,
        header.count,
        offset_delta_last=header.offset_delta_last,
        timestamp_first=header.timestamp_first,
        timestamp_fixed=header.timestamp_max if header.is_append_time else None,
    )


def _unpack(batch: Buffer, bytes_max: int) -> tuple[BatchHeader, bytes, int]:
    """Return the header, the bytes with the records, and the position where these begin."""
    header = read_header(batch)
    if header.magic != MAGIC or header.size != len(batch) or header.count < 0:
        raise InvalidBatch("not one whole batch")
    codec = header.codec
    if codec is Codec.NONE:
        return header, bytes(batch), HEADER_BYTES  # bytes() does not copy bytes.
    return header, decompress(codec, memoryview(batch)[HEADER_BYTES:], bytes_max), 0
