"""Beginning anew: a replica drops its copy of a partition, and copies from another offset on.

It has to when its leader has no more what would follow, when it would have to cut below its
watermark, and when its copy is damaged. What it had is of no use then, but a crash in the middle
must leave neither a mixture nor what recovery takes for damage:

1. `anew`, a small file in the directory, says where the log begins. From here on it does, now or in
   the next recovery, which then believes nothing else that it finds of this partition.
2. The segments are marked as removed, with all that belongs to them, and an empty one is made.
   The directory is synced.
3. The journal says that all it has of the partition is void.
4. The recovery checkpoint names it as the first.
5. `anew` is removed, and the directory synced before anything is appended: if it came back, the
   next recovery would drop what was copied since.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from entrepot.core.errors import Corruption, StorageError
from entrepot.core.ports import Disk
from entrepot.log import layout
from entrepot.log.commit import Committer
from entrepot.log.files import FilePool, load, replace
from entrepot.log.partition import Partition


async def begin_anew(
    partition: Partition,
    offset: int,
    pool: FilePool,
    committer: Committer,
    write_checkpoint: Callable[[], Awaitable[bool]],
) -> list[str]:
    """Drop all that the partition has; it begins and ends at this offset. Return the paths of
    files to be removed.

    Nobody may append meanwhile. Raises StorageError when the disk failed; the partition is stopped
    then, and the next start does the rest.
    """
    disk, directory = pool.disk, partition.directory
    async with committer.exclusively(partition):
        if partition.stopped is not None and not partition.refused:
            raise StorageError(partition.stopped)
        partition.drop_ahead()
        try:
            disk.make_directory(directory)
            await replace(disk, directory, layout.ANEW, msgspec.msgpack.encode(offset))
            pool.forget_below(directory)
            marked = clear(disk, directory, offset)
            partition.begin_anew(offset)
            await _sync(disk, directory, layout.PARTITIONS)
            # Not before: a commit that is under way may have written to the journal meanwhile.
            if not await committer.void_journaled(partition, 0):
                raise StorageError("the commit journal could not be written")
            if not await write_checkpoint():
                raise StorageError("the recovery checkpoint could not be written")
            await finish(disk, [directory])
        except (OSError, StorageError) as error:
            reason = f"{directory}: not begun anew: {error}"
            partition.stop(reason)
            raise StorageError(reason) from error
        except BaseException:  # Cancelled, for one: files and memory may differ.
            partition.stop(f"{directory}: not begun anew: interrupted")
            raise
    return marked


def read_anew(disk: Disk, directory: str) -> int | None:
    """Return where the log is to begin anew; None if it is not. Raises Corruption."""
    path = f"{directory}/{layout.ANEW}"
    payload = load(disk, path)
    if payload is None:
        if disk.exists(path):
            raise Corruption(f"{path} is damaged")
        return None
    return msgspec.msgpack.decode(payload, type=int)


def clear(disk: Disk, directory: str, offset: int) -> list[str]:
    """Mark all files of the log as removed, and make its first segment, empty. Return the marked
    paths. May be repeated."""
    for name in disk.names(directory):
        path = f"{directory}/{name}"
        if name in (layout.SWAP, layout.EPOCHS) or name.endswith(layout.CLEANED):
            disk.remove(path)
        elif name.endswith((layout.SEGMENT, layout.INDEX, layout.VIEW)):
            disk.rename(path, path + layout.MARKED)
    first = disk.open(f"{directory}/{layout.file_name(offset, layout.SEGMENT)}", create=True)
    first.truncate(0)
    first.close()
    names = disk.names(directory)
    return [f"{directory}/{name}" for name in names if name.endswith(layout.MARKED)]


async def finish(disk: Disk, directories: list[str]) -> None:
    """Remove the small files, permanently. Raises OSError."""
    for directory in directories:
        disk.remove(f"{directory}/{layout.ANEW}")
    await _sync(disk, *directories)


async def _sync(disk: Disk, *directories: str) -> None:
    for error in await disk.sync([], directories):
        if error is not None:
            raise error
