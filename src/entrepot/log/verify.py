"""Verify a log without a broker: check every batch of every segment, report what is wrong.

Nothing is written. Damage that recovery repairs (an end that was never permanent) is told from
damage that it refuses, by the same rules as `recovery`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from entrepot.core.errors import Corruption
from entrepot.core.ports import Disk
from entrepot.log import layout
from entrepot.log.checkpoint import RecoveryPoint, read_recovery_checkpoint
from entrepot.log.recovery import (
    bases_in_use,
    check_end,
    check_first,
    check_permanent,
    gap,
    inspect,
    is_first_missing,
)
from entrepot.log.segment import Segment


class Verdict(StrEnum):
    GOOD = "good"
    UNFINISHED = "unfinished"  # The end was never permanent: recovery cuts it off.
    ASIDE = "aside"  # Follows an unfinished segment: recovery puts it aside.
    CORRUPT = "corrupt"  # Damage in what was permanent: recovery refuses the partition.


@dataclass(frozen=True, slots=True)
class SegmentReport:
    path: str
    size: int  # Of the file, in bytes.
    offset_base: int
    offset_end: int  # Every batch below it is good.
    verdict: Verdict
    detail: str = ""


def verify(disk: Disk) -> Iterator[SegmentReport]:
    """Yield a report for each segment, in order, and one for what is missing."""
    checkpoint = read_recovery_checkpoint(disk)
    found = [f"{layout.PARTITIONS}/{name}" for name in disk.names(layout.PARTITIONS)]
    for directory in sorted({*found, *(row.directory for row in checkpoint.rows)}):
        yield from verify_partition(disk, directory, checkpoint.point_at(directory))


def verify_partition(disk: Disk, directory: str, point: RecoveryPoint) -> Iterator[SegmentReport]:
    """Yield a report for each segment of a partition."""
    bases = bases_in_use(disk, directory, point)
    is_cut = False
    try:
        if not bases:
            check_end(disk, directory, None, point)
        elif is_first_missing(bases, point):
            check_first(disk, directory, bases, point)
            is_cut = True
    except Corruption as error:
        first = point.offset_base or 0
        yield SegmentReport(directory, 0, first, first, Verdict.CORRUPT, str(error))
    while bases:
        base = bases.pop(0)
        path = f"{directory}/{layout.file_name(base, layout.SEGMENT)}"
        size = disk.open(path).size()
        if is_cut:
            yield SegmentReport(path, size, base, base, Verdict.ASIDE)
            continue
        segment = Segment(directory, base, 0)
        verdict, detail = Verdict.GOOD, ""
        try:
            segment, damage = inspect(disk, directory, base, check_all=True)
            bases = [later for later in bases if not _is_leftover(disk, segment, later)]
            if damage is None and bases and segment.offset_end != bases[0]:
                damage = gap(segment, bases[0])
            if damage is None and not bases:
                check_end(disk, directory, segment, point)
            if damage is not None:
                check_permanent(disk, segment, damage, point, bases)
                verdict, is_cut = Verdict.UNFINISHED, True
                detail = f"{damage.reason} at byte {damage.position}, offset {damage.offset}"
        except Corruption as error:
            verdict, detail = Verdict.CORRUPT, str(error)
        yield SegmentReport(path, size, base, segment.offset_end, verdict, detail)


def _is_leftover(disk: Disk, segment: Segment, base: int) -> bool:
    """Return whether this is an empty file left by a failed write; recovery removes it."""
    path = f"{segment.directory}/{layout.file_name(base, layout.SEGMENT)}"
    return base < segment.offset_end and not disk.open(path).size()
