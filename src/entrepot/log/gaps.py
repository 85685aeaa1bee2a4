"""Gaps: offsets that compaction removed on a leader, in the log of its follower.

Batches of a log follow each other, wherever they are read: a lost or damaged one is noticed by
the offset that is missing. Only a segment that was compacted may have gaps, and it says so itself.
A follower's active segment says no such thing; so where its leader has nothing, the follower
writes a batch without records. It is a batch like any other: it has a checksum, is committed,
journaled, cut off and recovered as the others are, and goes when the follower compacts.

It has the epoch of the batch after it. Of an epoch that began in the gap, the follower then says
that it began where the gap does, which may be too early, and never too late: another replica may
copy again what it had, and cannot keep what nobody else has.
"""

from __future__ import annotations

from entrepot.core.batch import OFFSET_DELTA_MAX, BatchHeader, empty, read_header
from entrepot.core.errors import InvalidBatch
from entrepot.core.ports import Buffer
from entrepot.log.partition import Batches


def filled(batches: Batches, offset: int) -> Batches:
    """Return what a leader sent as the answer to a fetch at this offset, without gaps.

    Raises InvalidBatch for one that compaction does not leave: the last batch of a compacted
    segment ends where the segment does.
    """
    found: list[tuple[BatchHeader, Buffer | list[Buffer]]] = []
    for header, data in batches:
        if not header.count and header.offset_first < offset < header.offset_end:
            # More was compacted since the part of it that is here was copied.
            data = empty(offset, header.offset_end, header.leader_epoch)
            header = read_header(data)
        missing = header.offset_first - offset
        if missing > OFFSET_DELTA_MAX:
            raise InvalidBatch(f"offset {header.offset_first} where {offset} was asked for")
        if missing > 0:
            filler = empty(offset, header.offset_first, header.leader_epoch)
            found.append((read_header(filler), filler))
        found.append((header, data))
        offset = header.offset_end
    return found
