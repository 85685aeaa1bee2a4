"""Which records a consumer gets, and the batches of the log that they are in.

A consumer is sent whole batches, straight from the log's files, with the offsets it acquired;
it skips the other records. So records are acquired up to the end of a batch if possible: then
the next consumer is not sent the same batch again. Offsets without a record for consumers
(removed by compaction, a transaction's marker, or aborted) are found on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from entrepot.broker.ledger import Ledger
from entrepot.broker.served_partition import ServedPartition
from entrepot.core import limits
from entrepot.core.batch import read_header
from entrepot.core.ports import File, FileRange
from entrepot.core.ranges import Ranges
from entrepot.log.segment import Glance, glances


class Bounds(NamedTuple):
    records_max: int
    is_strict: bool  # Otherwise records are acquired to the end of the last batch.
    bytes_max: int  # Of all batches. The first one is returned whole, however large.
    offset_limit: int  # Exclusive end of what may be read.
    # No record at or above it is acquired for the first time, but for the rest of a batch.
    offset_ahead: int
    is_committed: bool  # Skip records of aborted transactions.


class Found(NamedTuple):
    """The oldest ready records, not acquired yet, in order."""

    offsets: list[range]
    missing: list[range]  # Those of the offsets without a record.
    batches: list[FileRange]


class _Span(NamedTuple):
    """Consecutive batches of one file."""

    offset_end: int
    batches: FileRange | None
    missing: list[range]


def find(ledger: Ledger, served: ServedPartition, bounds: Bounds) -> Found:
    """Find the oldest ready records within the bounds. Raises StorageError."""
    found = Found([], [], [])
    holes = Ranges()
    left, room, end = bounds.records_max, bounds.bytes_max, 0
    for ready, ahead in _ready(ledger, bounds):
        offset = ready.start
        while offset < ahead and left > 0:
            count = min(left, ahead - offset)
            if offset >= end:
                if found.batches and room <= 0:
                    return found
                span = _span(served, range(offset, ready.stop), count, room, bounds)
                end = span.offset_end
                for each in span.missing:
                    holes.add(each.start, each.stop)
                if span.batches is not None:
                    if found.batches and span.batches.size > room:
                        return found
                    found.batches.append(span.batches)
                    room -= span.batches.size
            most = count if bounds.is_strict else limits.SHARE_RECORDS_MAX
            piece = range(offset, min(end, ready.stop, offset + most))
            missing = holes.within(piece.start, piece.stop)
            found.offsets.append(piece)
            found.missing.extend(missing)
            left -= len(piece) - sum(map(len, missing))
            offset = piece.stop
            # The limit was reached within a batch, and its rest is the next to be acquired.
            if offset < min(end, ready.stop):
                return found
        if left <= 0 or offset < ready.stop:
            break
    return found


def _ready(ledger: Ledger, bounds: Bounds) -> Iterator[tuple[range, int]]:
    """Yield ranges of ready offsets, in order, each with its acquisition limit.

    From the limit on nothing of the range is acquired, but for the rest of a batch.
    """
    limit = bounds.offset_limit
    for each in ledger.returned:
        if each.start < limit:
            row = range(each.start, min(each.stop, limit))
            yield row, row.stop
    fresh, ahead = ledger.offset_fresh, min(limit, bounds.offset_ahead)
    if fresh < ahead:
        yield range(fresh, limit), ahead


def _span(
    served: ServedPartition, wanted: range, count: int, bytes_max: int, bounds: Bounds
) -> _Span:
    """Return the batches with the first `count` wanted offsets, or as many as fit into
    `bytes_max`."""
    found = served.partition.read(wanted.start, limits.SEGMENT_BYTES_MAX, bounds.offset_limit)
    if found is None:
        return _Span(wanted.stop, None, [wanted])
    looks_closer = bounds.is_committed and served.isolation.has_aborted(wanted.start)
    missing: list[range] = []
    size, end = 0, wanted.start
    for glance in glances(found.file, found.position, found.position + found.size):
        if glance.offset_first >= wanted.stop:
            missing.append(range(end, wanted.stop))
            end = wanted.stop
            break
        if end - wanted.start >= count or (size and size + glance.size > bytes_max):
            break
        if glance.offset_first > end:
            missing.append(range(end, glance.offset_first))
        if looks_closer and _is_void(served, found.file, glance):
            missing.append(range(glance.offset_first, glance.offset_last + 1))
        size += glance.size
        end = glance.offset_last + 1
        if end >= wanted.stop:
            break
    batches = FileRange(found.file, found.position, size) if size else None
    return _Span(end, batches, missing)


def _is_void(served: ServedPartition, file: File, glance: Glance) -> bool:
    """Return whether a batch holds no committed record. Raises StorageError."""
    header = read_header(served.partition.checked(file, glance))
    if header.is_control:
        return True
    return header.is_transactional and served.isolation.is_aborted(
        header.producer_id, header.offset_first
    )
