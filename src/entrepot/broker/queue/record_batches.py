"""Encodes runs of messages as batches of the log, and decodes them.

A message is a record: its body is the value, all else is in the headers. Messages of one
publisher mostly share a few envelopes, so both encoded headers and decoded envelopes are cached:
neither is done anew for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

from entrepot.broker.queue.lane import Piece
from entrepot.broker.queue.message import Run
from entrepot.core import limits
from entrepot.core.batch import (
    BatchHeader,
    build_plain,
    check,
    read_header,
    split_records,
    walk,
)
from entrepot.core.body import decode_headers
from entrepot.core.encoding import encode_keyed, encode_plain
from entrepot.core.errors import Corruption, InvalidBatch, StorageError
from entrepot.core.message import Envelope, Message, distinct
from entrepot.core.neutral import Formats, record_section
from entrepot.core.ports import Buffer, FileRange
from entrepot.core.record import Record
from entrepot.log.partition import Partition

_RECORD_BYTES = 40  # The most that lengths and deltas take in a record.


class EncodedBatch(NamedTuple):
    """One batch in chunks, and the runs that are in it."""

    chunks: list[Buffer]
    runs: list[Run]


_KEY_BYTES_MAX = limits.NAME_BYTES_MAX + 4  # With its length.

# Returns the key of a message's record.
KeyOf = Callable[[Envelope], bytes | None]


def encode_runs(runs: Sequence[Run], key_of: KeyOf | None = None) -> list[EncodedBatch]:
    """Encode runs as batches of at most QUEUE_BATCH_BYTES, unless one message is larger.

    Without `key_of` records have no keys.
    """
    if key_of is None and len(runs) == 1 and len(runs[0].messages) == 1:
        return [_encode_one(runs[0])]
    output: list[EncodedBatch] = []
    batch = _Batch(key_of)
    for run in runs:
        if not run.messages:
            continue
        for part, sections, size in _parts(run, 0 if key_of is None else _KEY_BYTES_MAX):
            if batch.count and batch.size + size > limits.QUEUE_BATCH_BYTES:
                output.append(batch.finish())
                batch = _Batch(key_of)
            batch.add(part, sections, size)
    if batch.count:
        output.append(batch.finish())
    return output


def _encode_one(run: Run) -> EncodedBatch:
    """Encode a run of one message, without a key, as a batch."""
    time_ms, ((envelope, body),) = run
    pieces = encode_plain((body,), (record_section(envelope),), index=0, delta_ms=0)
    return EncodedBatch(build_plain(pieces, 1, time_ms, time_ms), [run])


def _parts(run: Run, key_bytes: int) -> Iterator[tuple[Run, Iterable[bytes], int]]:
    """Yield the run as a whole, or in parts that fit into a batch.

    Each comes with the encoded headers of its messages, and with its size in bytes.
    """
    messages = run.messages
    first, count = messages[0][0], len(messages)
    section = record_section(first)
    record_bytes = _RECORD_BYTES + key_bytes
    size = sum([len(body) for _, body in messages]) + count * (len(section) + record_bytes)
    if len(distinct(messages)) == 1 and (size <= limits.QUEUE_BATCH_BYTES or count == 1):
        yield run, repeat(section), size
        return
    start = size = 0
    sections: list[bytes] = []
    for number, (envelope, body) in enumerate(messages):
        section = record_section(envelope)
        added = len(body) + len(section) + record_bytes
        if sections and size + added > limits.QUEUE_BATCH_BYTES:
            yield run._replace(messages=messages[start:number]), sections, size
            start, size, sections = number, 0, []
        sections.append(section)
        size += added
    yield run._replace(messages=messages[start:]) if start else run, sections, size


class _Batch:
    def __init__(self, key_of: KeyOf | None) -> None:
        self._key_of = key_of
        self.count = 0
        self.size = 0  # Bytes: an upper bound.
        self._runs: list[Run] = []
        self._pieces: list[Buffer] = []

    def add(self, run: Run, sections: Iterable[bytes], size: int) -> None:
        time_first = self._runs[0].time_ms if self._runs else run.time_ms
        bodies = [body for _, body in run.messages]
        delta_ms = run.time_ms - time_first
        key_of = self._key_of
        if key_of is None:
            self._pieces += encode_plain(bodies, sections, index=self.count, delta_ms=delta_ms)
        else:
            keys = [key_of(envelope) for envelope, _ in run.messages]
            self._pieces += encode_keyed(
                bodies, keys, sections, index=self.count, delta_ms=delta_ms
            )
        self._runs.append(run)
        self.count += len(bodies)
        self.size += size

    def finish(self) -> EncodedBatch:
        times = [run.time_ms for run in self._runs]
        return EncodedBatch(build_plain(self._pieces, self.count, times[0], max(times)), self._runs)


class RunDecoder:
    def __init__(self, formats: Formats) -> None:
        self._formats = formats
        self._envelopes: dict[tuple[bytes, bytes | None], Envelope] = {}  # By headers and key.

    def decode(self, batch: Buffer) -> list[Piece]:
        """Return the messages of one batch, in runs.

        Raises Corruption: a producer's batch may have the right checksum and invalid records.
        """
        try:
            return self._decode(batch)
        except InvalidBatch as error:
            raise Corruption(f"offset {read_header(batch).offset_first}: {error}") from error

    def _decode(self, batch: Buffer) -> list[Piece]:
        offset_first = read_header(batch).offset_first
        pieces: list[tuple[int, Run]] = []
        messages: list[Message] = []
        last: tuple[int, int] | None = None
        for delta, time_ms, key, section, values in split_records(batch):
            if last != (time_ms, delta):
                messages = []
                pieces.append((offset_first + delta, Run(time_ms, messages)))
            bodies = [b"" if value is None else value for value in values]
            messages += zip(repeat(self._envelope(section, key)), bodies)
            last = time_ms, delta + len(values)
        return [(range(first, first + len(run.messages)), run) for first, run in pieces]

    def _envelope(self, section: bytes, key: bytes | None) -> Envelope:
        envelope = self._envelopes.get((section, key))
        if envelope is None:
            record = Record(key, None, decode_headers(section))
            envelope = self._formats.envelope(record)
            if len(section) + len(key or b"") <= limits.QUEUE_HEADERS_CACHED_BYTES_MAX:
                if len(self._envelopes) >= limits.QUEUE_HEADERS_CACHED_MAX:
                    self._envelopes.clear()
                self._envelopes[section, key] = envelope
        return envelope


def stored_batches(
    partition: Partition, offset: int, bytes_max: int, offset_limit: int | None = None
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield committed batches, beginning with the one that has the offset, or else the next.

    Yields at least one batch if there is one, whatever `bytes_max` is. Raises StorageError.
    """
    try:
        found = partition.read(offset, bytes_max, offset_limit)
        if found is None:
            return
        with partition.noting_damage(found.file.path):
            yield from _checked(found)
    except OSError as error:
        raise StorageError(f"{partition.directory}: {error.strerror}") from error


def _checked(found: FileRange) -> Iterator[tuple[BatchHeader, bytes]]:
    """Read and check the batches of a range of a file. Raises Corruption, OSError."""
    data, start = found.file.read(found.position, found.size), 0
    try:
        for start, header in walk(data):
            is_all = header.size == len(data)  # Then avoid a copy: it may be large.
            batch = data if is_all else data[start : start + header.size]
            check(batch, allow_gaps=True)
            yield header, batch
    except InvalidBatch as error:
        offset = read_header(data, start).offset_first
        place = f"at byte {found.position + start}, offset {offset}"
        raise Corruption(f"{found.file.path}: {error} {place}") from None
