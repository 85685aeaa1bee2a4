"""Group commit: everything appended in a tick is made permanent together, then answered.

One round runs at a time; what is appended meanwhile goes into the next. A round
that touched few partitions syncs their segments; one that touched many goes
through the journal (see `journal`), and the segments follow in the background.

A failed sync is never retried: the system may have dropped what it could not
write. The partition is stopped and says why. A failed journal is given up; its
round falls back to the segments, which hold the same bytes.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence

from entrepot.core import limits
from entrepot.core.faults import Faults
from entrepot.core.names import PartitionId
from entrepot.core.ports import Disk, File
from entrepot.log import layout
from entrepot.log.files import FilePool, write_all
from entrepot.log.journal import Journal
from entrepot.log.partition import Partition
from entrepot.log.reading import Mark
from entrepot.log.segment import Segment

log = logging.getLogger("entrepot.log")

_FILES_PER_SYNC = 64  # Each is open meanwhile, also when the pool has let it go.


class Committer:
    def __init__(
        self,
        pool: FilePool,
        journal: Journal,
        find: Callable[[PartitionId], Partition | None],
        faults: Faults,
    ) -> None:
        self._faults = faults
        self._pool = pool
        self._disk: Disk = pool.disk
        self._journal: Journal | None = journal
        self._find = find
        self._dirty: dict[PartitionId, Partition] = {}
        self._round: asyncio.Task[None] | None = None
        self._releasing: asyncio.Task[None] | None = None
        self._syncing: dict[PartitionId, asyncio.Task[None]] = {}
        self.rounds = 0
        self.rounds_journaled = 0

    def request(self, partition: Partition) -> None:
        """Commit what this partition has, together with what else comes in this tick."""
        self._dirty[partition.id] = partition
        if self._round is None:
            self._round = _start(self._run())

    async def drain(self) -> None:
        """Wait until nothing is left to do."""
        while self._round is not None or self._releasing is not None:
            await asyncio.gather(*(t for t in (self._round, self._releasing) if t is not None))

    async def _run(self) -> None:
        try:
            while self._dirty:
                dirty, self._dirty = self._dirty, {}
                partitions = [p for p in dirty.values() if p.stopped is None]
                try:
                    await self._commit(partitions)
                except Exception as error:
                    self._give_up(partitions, error)
        finally:
            self._round = None

    def _give_up(self, partitions: Sequence[Partition], error: Exception) -> None:
        """A mistake of ours: it is not known what of these is permanent."""
        self._faults.caught("a commit", error)
        for partition in partitions:
            reason = f"{partition.directory}: internal error in a commit"
            log.error("partition stopped: %s", reason)
            partition.stop(reason)

    async def _commit(self, partitions: Sequence[Partition]) -> None:
        self.rounds += 1
        marks = [(partition, partition.end_mark()) for partition in partitions]
        rest = [mark for mark in marks if _is_for_itself(mark[0])]
        many = [mark for mark in marks if not _is_for_itself(mark[0])]
        if len(many) > limits.SEGMENTS_SYNCED_DIRECTLY_MAX and await self._journaled(many):
            self.rounds_journaled += 1
        else:
            rest = marks
        await self.sync(rest)
        for partition, mark in marks:
            if partition.stopped is None:
                partition.advance(mark)

    # --- through the segments

    async def sync(self, marks: Sequence[tuple[Partition, Mark]]) -> None:
        """Make the segments permanent up to the marks, and seal those that are full.

        A seal says that all bytes are permanent, and the name of the next segment: so
        first the full segments and the names, then their seals and the segments being
        written. The first answer out of a new segment needs its name permanent, too. In
        slices, because each file of a slice is open at once.
        """
        for first in range(0, len(marks), _FILES_PER_SYNC):
            await self._sync_slice(marks[first : first + _FILES_PER_SYNC])

    async def _sync_slice(self, marks: Sequence[tuple[Partition, Mark]]) -> None:
        """One sync of a partition at a time: when it fails, the system tells only one of two.

        It goes on although the caller is cancelled, so that a failure is always heard.
        """
        while busy := [self._syncing[p.id] for p, _ in marks if p.id in self._syncing]:
            await asyncio.wait(busy[:1])
        work = _start(self._sync_now(marks))
        self._syncing.update((partition.id, work) for partition, _ in marks)
        await asyncio.shield(work)

    async def _sync_now(self, marks: Sequence[tuple[Partition, Mark]]) -> None:
        try:
            await self._sync_segments(marks)
        except Exception as error:
            self._give_up([partition for partition, _ in marks], error)
        finally:
            for partition, _ in marks:
                del self._syncing[partition.id]

    async def _sync_segments(self, marks: Sequence[tuple[Partition, Mark]]) -> None:
        full: list[tuple[Partition, Segment]] = []
        last: list[tuple[Partition, Segment]] = []
        for partition, mark in marks:
            for segment in partition.unsynced:
                if segment.offset_base <= mark.offset:
                    is_full = segment is not partition.segments[-1]
                    (full if is_full else last).append((partition, segment))
        if full:
            rolled = {partition.id: partition for partition, _ in full}
            await self._sync_files(full, [p for p in rolled.values() if p.unsynced_names])
        seals = self._seals(full)
        for partition, _ in marks:
            seals += partition.take_unsynced_views()
        await self._sync_files(last, [p for p, _ in marks if p.unsynced_names], seals)
        for partition, mark in marks:
            if partition.stopped is None:
                if not partition.offset_synced:
                    self._mark_begun(partition)
                partition.synced(mark)

    def _mark_begun(self, partition: Partition) -> None:
        """Say that there is a segment with a permanent name: it cannot be missing from now on.
        It need not be permanent itself, for the recovery checkpoint soon says so, too."""
        try:
            self._disk.open(f"{partition.directory}/{layout.BEGUN}", create=True)
        except OSError as error:
            log.warning("%s: not marked as begun: %s", partition.directory, error.strerror)

    async def _sync_files(
        self,
        segments: Sequence[tuple[Partition, Segment]],
        named: Sequence[Partition] = (),
        seals: Sequence[File] = (),
    ) -> None:
        owners: list[Partition | None] = []
        files: list[File] = []
        for partition, segment in segments:
            if partition.stopped is None:
                try:
                    files.append(self._pool.get(segment.path))
                    owners.append(partition)
                except OSError as error:
                    self._stop(partition, error)
        named = [partition for partition in named if partition.stopped is None]
        owners += [*[None] * len(seals), *named]
        directories = [partition.directory for partition in named]
        errors = await self._disk.sync(
            [*files, *seals], [*directories, layout.PARTITIONS] if named else []
        )
        if named:
            errors += [errors.pop()] * len(named)
            owners += named
        for owner, failure in zip(owners, errors, strict=True):
            if failure is not None and owner is not None and owner.stopped is None:
                self._stop(owner, failure)

    def _stop(self, partition: Partition, error: OSError) -> None:
        reason = f"{partition.directory}: sync failed: {error.strerror}"
        log.error("partition stopped: %s", reason)
        partition.stop(reason)

    def _seals(self, segments: Sequence[tuple[Partition, Segment]]) -> list[File]:
        """Seal full segments; a seal that cannot be written is an index to be rebuilt."""
        seals: list[File] = []
        for partition, segment in segments:
            if partition.stopped is None and not segment.sealed:
                segment.followed = True
                try:
                    seals.append(write_seal(self._disk, segment))
                except OSError as error:
                    log.warning("no index for %s: %s", segment.path, error.strerror)
        return seals

    # --- through the journal

    async def _journaled(self, marks: Sequence[tuple[Partition, Mark]]) -> bool:
        if self._journal is not None and self._journal.is_full:
            await self._turn_over(self._journal)
        journal = self._journal
        if journal is None:
            return False
        marks = [(partition, mark) for partition, mark in marks if partition.stopped is None]
        try:
            runs = [
                (partition.id, offset, mark.offset, data)
                for partition, mark in marks
                for offset, data in partition.uncommitted()
            ]
        except OSError as error:
            log.warning("cannot read back what was appended: %s", error.strerror)
            return False
        try:
            file, directories = journal.write(runs)
            errors = await self._disk.sync([file], directories)
            failed = next((error for error in errors if error is not None), None)
        except OSError as error:
            failed = error
        if failed is not None:
            log.error("the commit journal failed and is not used any more: %s", failed.strerror)
            self._journal = None
            return False
        for partition, mark in marks:
            partition.offset_journaled = mark.offset
        return True

    async def _turn_over(self, journal: Journal) -> None:
        """Both files full: wait for the other's segments. Else go on and sync behind."""
        if self._releasing is not None:
            await self._releasing
        if self._journal is journal:
            self._releasing = _start(self._release(journal.switch()))

    async def _release(self, covered: dict[PartitionId, int]) -> None:
        """Sync the segments a journal file speaks for, so that it can be used again."""
        behind: list[Partition] = []
        for identity, offset_end in covered.items():
            partition = self._find(identity)
            if partition is not None and partition.offset_synced < offset_end:
                behind.append(partition)
        try:
            await self.sync([(p, p.end_mark()) for p in behind if p.stopped is None])
            if any(p.stopped is not None and self._find(p.id) is p for p in behind):
                # Its answered batches may stand in the journal alone: keep both files.
                self._journal = None
            covered.clear()
        except Exception as error:  # Not known what is in the segments: keep both files.
            self._journal = None
            self._faults.caught("the commit journal is not used any more", error)
        finally:
            self._releasing = None


def _is_for_itself(partition: Partition) -> bool:
    """Whether the journal cannot have it, or should not: a copy of so much is no gain."""
    return partition.has_gap or partition.uncommitted_bytes > limits.JOURNAL_PARTITION_BYTES_MAX


def write_seal(disk: Disk, segment: Segment) -> File:
    """Put the index of a permanent segment on disk, and out of memory."""
    file = disk.open(segment.path_of(layout.INDEX), create=True)
    file.truncate(0)
    write_all(file, 0, [segment.seal_bytes()])
    segment.sealed, segment.index = True, None
    return file


def _start(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Run it; a mistake of ours in there goes to the loop's exception handler at once."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.result())
    return task
