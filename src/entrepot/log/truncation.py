"""Truncation: cut off what a replica has and its leader has not.

Recovery refuses a log that has lost something permanent. So what was promised is taken back
first, and permanently, and each step leaves a directory that recovery takes for one with an
unfinished write at its end, as long as it was or as short as it is to be:

1. The recovery checkpoint says that nothing from the cut on is permanent.
2. The journal says that what it has from there on is void.
3. The seals of the segments from there on are removed, and the directory is synced: a seal says
   that a segment is permanent and another one follows.
4. The later segments are removed and the file is truncated, in memory and on disk; both are
   synced.
5. The epochs that began there are forgotten, in their file, too.

Whoever was interrupted has to find out again where to cut. Nothing below the high watermark is
ever cut, so readers do not notice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from entrepot.core.errors import OffsetOutOfRange, StorageError
from entrepot.core.ports import Disk
from entrepot.core.steps import Steps
from entrepot.log import layout
from entrepot.log.commit import Committer
from entrepot.log.epochs import save_epochs
from entrepot.log.files import FilePool, in_slices
from entrepot.log.partition import Partition
from entrepot.log.reading import Mark
from entrepot.log.segment import Segment, follow


async def truncate(
    partition: Partition,
    offset: int,
    pool: FilePool,
    committer: Committer,
    write_checkpoint: Callable[[], Awaitable[bool]],
) -> bool:
    """Cut the log before the batch that holds the offset. Return whether there was one.

    Nobody may append meanwhile. Raises OffsetOutOfRange below the watermark; StorageError when the
    disk failed, and the partition is stopped then.
    """
    async with committer.exclusively(partition):
        if partition.stopped is not None:
            raise StorageError(partition.stopped)
        if offset >= partition.offset_end:
            return False
        partition.drop_ahead()
        if offset < partition.high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset} is below the watermark {partition.high_watermark}"
            )
        try:
            mark = partition.cut_point(offset)
            if mark.offset < partition.high_watermark:
                raise OffsetOutOfRange(f"offset {offset} is in a batch below the watermark")
            shortened = await in_slices(_shortened(partition, mark, pool))
            await _take_back(partition, mark, pool.disk, committer, write_checkpoint)
            await _cut(partition, mark, shortened, pool)
            partition.epochs.cut(mark.offset)
            if not partition.epochs.is_saved:
                await save_epochs(pool.disk, partition.directory, partition.epochs)
        except (OSError, StorageError) as error:
            reason = f"{partition.directory}: not truncated: {error}"
            partition.stop(reason)
            raise StorageError(reason) from error
    await committer.sync([(partition, partition.end_mark())])
    if partition.stopped is not None:
        raise StorageError(partition.stopped)
    partition.advance(partition.end_mark())
    return True


def _shortened(partition: Partition, mark: Mark, pool: FilePool) -> Steps[Segment]:
    """Return the segment of the mark as it will be: with the batches before the mark."""
    segment = Segment(partition.directory, mark.segment.offset_base, mark.segment.opened_ms)
    if mark.position:
        file, base = pool.get(mark.segment.path), mark.segment.offset_base
        for glance in follow(file, mark.segment, 0, base, mark.position):
            segment.note(glance)
            yield
    return segment


async def _take_back(
    partition: Partition,
    mark: Mark,
    disk: Disk,
    committer: Committer,
    write_checkpoint: Callable[[], Awaitable[bool]],
) -> None:
    """Take back, permanently, what was promised from the mark on."""
    partition.offset_synced = min(partition.offset_synced, mark.offset)
    partition.offset_journaled = min(partition.offset_journaled, mark.offset)
    if not await write_checkpoint():
        raise StorageError("the recovery checkpoint could not be written")
    if not await committer.void_journaled(partition, mark.offset):
        raise StorageError("the commit journal could not be written")
    for segment in partition.segments_from(mark.segment):
        disk.remove(segment.path_of(layout.INDEX))
    for error in await disk.sync([], [partition.directory]):
        if error is not None:
            raise error


async def _cut(partition: Partition, mark: Mark, shortened: Segment, pool: FilePool) -> None:
    """Remove the later segments, truncate the file, and make both permanent."""
    disk = pool.disk
    for segment in reversed(partition.cut(mark, shortened)):
        for kind in (layout.INDEX, layout.VIEW, layout.SEGMENT):
            disk.remove(segment.path_of(kind))
    file = pool.get(shortened.path)
    file.truncate(shortened.size)
    for error in await disk.sync([file], [partition.directory]):
        if error is not None:
            raise error
