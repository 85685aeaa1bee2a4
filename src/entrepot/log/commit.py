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
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager

from entrepot.core import limits
from entrepot.core.faults import Faults
from entrepot.core.measures import COMMIT_SECONDS, Histogram
from entrepot.core.names import PartitionId
from entrepot.core.ports import Disk, File
from entrepot.log import layout
from entrepot.log.epochs import save_epochs as save_to
from entrepot.log.files import FilePool, write_all
from entrepot.log.journal import Journal, Run
from entrepot.log.partition import Partition
from entrepot.log.reading import Mark
from entrepot.log.segment import Segment

log = logging.getLogger("entrepot.log")

Marked = tuple[Partition, Mark]  # A partition, and up to where it is to be permanent.
Owned = tuple[Partition, Segment]  # A segment of the partition.

_FILES_PER_SYNC = 64  # Each is held open until its sync is done, even if the pool drops it.


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
        self._dirty: dict[Partition, None] = {}  # To be committed in the next round.
        self._deferred: dict[Partition, None] = {}  # To be committed when the timer ends.
        self._timer: asyncio.TimerHandle | None = None
        self._beside: asyncio.Task[None] | None = None  # Commits what was deferred, in rounds.
        self._is_hurried = False  # What is deferred is for its next round.
        self._round: asyncio.Task[None] | None = None
        self._releasing: asyncio.Task[None] | None = None
        self._syncing: dict[Partition, asyncio.Future[None]] = {}  # Each is done when its sync is.
        self.latency = Histogram(COMMIT_SECONDS)  # Of commits, in seconds.
        self.sync_errors = 0
        self.rounds = 0
        self.rounds_journaled = 0

    def request(self, partition: Partition) -> None:
        """Commit all that was appended to the partition, together with others of this tick."""
        self._dirty[partition] = None
        if self._deferred:
            self._deferred.pop(partition, None)
        if self._round is None:
            self._round = _start(self._run())

    def request_later(self, partition: Partition) -> None:
        """Commit all that was appended to the partition within a few milliseconds: nobody waits.

        Rounds that are run meanwhile for others do not pay for its sync; those that go through
        the journal take it along.
        """
        self._deferred[partition] = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(limits.COMMIT_DEFERRED_MS / 1_000, self.hurry)

    def hurry(self) -> None:
        """Commit now what was deferred, beside the rounds: they need not wait for it.

        What is deferred while that goes on is committed together after it, however often this is
        called: many may wait, each for a little.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deferred:
            self._is_hurried = True
            if self._beside is None:
                self._beside = _start(self._run_beside())

    async def _run_beside(self) -> None:
        try:
            while self._is_hurried:
                self._is_hurried = False
                deferred, self._deferred = self._deferred, {}
                await self._commit_beside([p for p in deferred if p.stopped is None])
        finally:
            self._beside = None

    async def _commit_beside(self, partitions: Sequence[Partition]) -> None:
        try:
            marks = [(each, each.end_mark()) for each in partitions]
            for part in _slices(marks):
                await self._sync_slice(part)
            _advance(marks)
        except Exception as error:
            self._give_up(partitions, error)

    async def drain(self) -> None:
        """Wait until every requested commit is done."""
        self.hurry()
        while tasks := [t for t in (self._round, self._releasing, self._beside) if t is not None]:
            await asyncio.gather(*tasks)

    async def _run(self) -> None:
        try:
            while self._dirty:
                dirty, self._dirty = self._dirty, {}
                if len(dirty) > limits.SEGMENTS_SYNCED_DIRECTLY_MAX:
                    dirty |= self._deferred  # In the journal they cost no sync of their own.
                    self._deferred.clear()
                partitions = [p for p in dirty if p.stopped is None]
                try:
                    await self._commit(partitions)
                except Exception as error:
                    self._give_up(partitions, error)
        finally:
            self._round = None

    def _give_up(self, partitions: Sequence[Partition], error: Exception) -> None:
        """Stop partitions after an internal error: it is not known which batches are permanent."""
        self._faults.caught("a commit", error)
        for partition in partitions:
            reason = f"{partition.directory}: internal error in a commit"
            log.error("partition stopped: %s", reason)
            partition.stop(reason)

    async def _commit(self, partitions: Sequence[Partition]) -> None:
        """Make everything permanent that was appended to these partitions, and move their
        watermarks."""
        self.rounds += 1
        begun_s = asyncio.get_running_loop().time()
        marks = [(partition, partition.end_mark()) for partition in partitions]
        direct: Sequence[Marked] = marks
        if len(marks) > limits.SEGMENTS_SYNCED_DIRECTLY_MAX:
            direct = await self._commit_by_journal(marks)
        for part in _slices(direct):
            await self._sync_slice(part)
        _advance(marks)
        self.latency.add(asyncio.get_running_loop().time() - begun_s)

    async def _commit_by_journal(self, marks: Sequence[Marked]) -> Sequence[Marked]:
        """Commit through the journal what may go there; return the others, to be synced."""
        direct: list[Marked] = []
        journaled: list[Marked] = []
        for mark in marks:
            (direct if _is_synced_directly(mark[0]) else journaled).append(mark)
        if len(journaled) > limits.SEGMENTS_SYNCED_DIRECTLY_MAX and await self._journaled(
            journaled
        ):
            self.rounds_journaled += 1
            return direct
        return marks

    # --- through the segments

    async def sync(self, marks: Sequence[Marked]) -> None:
        """Make the segments permanent up to the marks, and seal those that are full.

        The sync goes on when the caller is cancelled, so that a failure is always seen.
        """
        for part in _slices(marks):
            await asyncio.shield(_start(self._sync_slice(part)))

    async def _sync_slice(self, marks: Sequence[Marked]) -> None:
        """Sync the segments of a slice, and the names of new ones.

        One partition is synced at most once at a time: the system reports a failure only once. An
        active segment that is new needs its name permanent, too, before anything in it is
        acknowledged. Partitions are synced in slices because each file of a slice is open at once.
        """
        partitions = [partition for partition, _ in marks]
        done = await self._occupy(partitions)
        try:
            full: list[Owned] = []
            active: list[Owned] = []
            for partition, mark in marks:
                for segment in partition.unsynced:
                    if segment.offset_base <= mark.offset:
                        is_full = segment is not partition.segments[-1]
                        (full if is_full else active).append((partition, segment))
            seals = await self._seal(full) if full else []
            named = [partition for partition in partitions if partition.unsynced_names]
            for partition in named:
                seals += partition.take_unsynced_views()
            await self._sync_files(active, named, seals)
            for partition, mark in marks:
                if partition.stopped is None:
                    if not partition.offset_synced:
                        self._mark_begun(partition)
                    partition.synced(mark)
        except Exception as error:
            self._give_up(partitions, error)
        finally:
            self._let_go(partitions, done)

    async def _seal(self, full: Sequence[Owned]) -> list[File]:
        """Sync full segments, write their seals, and return these, to be synced.

        A seal promises that all bytes of its segment, and the name of the next one, are permanent.
        """
        rolled = dict.fromkeys(partition for partition, _ in full)
        await self._sync_files(full, [p for p in rolled if p.unsynced_names])
        await self.save_epochs([*rolled])
        return self._seals([each for each in full if each[0].epochs.is_saved])

    @asynccontextmanager
    async def exclusively(self, partition: Partition) -> AsyncIterator[None]:
        """Wait until the partition is not being synced; nobody else begins to."""
        done = await self._occupy([partition])
        try:
            yield
        finally:
            self._let_go([partition], done)

    async def _occupy(self, partitions: Sequence[Partition]) -> asyncio.Future[None]:
        while busy := [self._syncing[p] for p in partitions if p in self._syncing]:
            await asyncio.wait(busy[:1])
        done = asyncio.get_running_loop().create_future()
        for partition in partitions:
            self._syncing[partition] = done
        return done

    def _let_go(self, partitions: Sequence[Partition], done: asyncio.Future[None]) -> None:
        for partition in partitions:
            del self._syncing[partition]
        done.set_result(None)

    async def save_epochs(self, partitions: Sequence[Partition]) -> None:
        """Make the epochs permanent that are not. A segment in which one begins gets no seal
        before."""
        for partition in partitions:
            if not partition.epochs.is_saved and partition.stopped is None:
                try:
                    await save_to(self._disk, partition.directory, partition.epochs)
                except OSError as error:
                    log.warning("%s: epochs not saved: %s", partition.directory, error.strerror)

    def _mark_begun(self, partition: Partition) -> None:
        """Create the file that says: this partition has a segment with a permanent name.

        From then on a missing segment is corruption. The file itself need not be synced: the
        recovery checkpoint soon says the same.
        """
        try:
            self._disk.open(f"{partition.directory}/{layout.BEGUN}", create=True)
        except OSError as error:
            log.warning("%s: not marked as begun: %s", partition.directory, error.strerror)

    async def _sync_files(
        self,
        segments: Sequence[Owned],
        named: Sequence[Partition] = (),
        seals: Sequence[File] = (),
    ) -> None:
        """Sync segments, seals and the directories of `named`; stop the partitions for which it
        failed."""
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
        files += seals
        if not files and not named:
            return
        directories = [partition.directory for partition in named]
        errors = await self._disk.sync(files, [*directories, layout.PARTITIONS] if named else ())
        if not any(errors):
            return
        owners += [*[None] * len(seals), *named]
        if named:
            errors += [errors.pop()] * len(named)
            owners += named
        for owner, failure in zip(owners, errors, strict=True):
            if failure is not None and owner is not None and owner.stopped is None:
                self._stop(owner, failure)

    def _stop(self, partition: Partition, error: OSError) -> None:
        self.sync_errors += 1
        reason = f"{partition.directory}: sync failed: {error.strerror}"
        log.error("partition stopped: %s", reason)
        partition.stop(reason)

    def _seals(self, segments: Sequence[Owned]) -> list[File]:
        """Write the seals of full segments. Where that fails the index is rebuilt later."""
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

    async def _journaled(self, marks: Sequence[Marked]) -> bool:
        """Write what is not committed yet to the journal and sync it. Return False when that
        failed."""
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
        if not await self._write_journal(runs):
            return False
        for partition, mark in marks:
            if not mark.segment.cut:
                partition.offset_journaled = mark.offset
        return True

    async def _write_journal(self, runs: list[Run]) -> bool:
        """Write entries to the journal and sync it. When that fails it is not used any more."""
        journal = self._journal
        assert journal is not None
        try:
            file, directories = journal.write(runs)
            errors = await self._disk.sync([file], directories)
            failed = next((error for error in errors if error is not None), None)
        except OSError as error:
            failed = error
        if failed is not None:
            self.sync_errors += 1
            log.error("the commit journal failed and is not used any more: %s", failed.strerror)
            self._journal = None
            return False
        return True

    async def void_journaled(self, partition: Partition, offset: int) -> bool:
        """Say in the journal that all it has of the partition from that offset on is void.
        Return False when that failed."""
        if self._journal is None:
            return False
        return await self._write_journal([(partition.id, offset, offset, b"")])

    async def _turn_over(self, journal: Journal) -> None:
        """Use the other journal file, and sync in the background what the full one covers.

        Waits until everything that the other file covers is synced.
        """
        if self._releasing is not None:
            await self._releasing
        if self._journal is journal:
            self._releasing = _start(self._release(journal.switch()))

    async def _release(self, covered: dict[PartitionId, int]) -> None:
        """Sync the segments that a journal file covers, so that it can be used again."""
        behind: list[Partition] = []
        for identity, offset_end in covered.items():
            partition = self._find(identity)
            if partition is not None and partition.offset_synced < offset_end:
                behind.append(partition)
        try:
            await self.sync([(p, p.end_mark()) for p in behind if p.stopped is None])
            if any(p.stopped is not None and self._find(p.id) is p for p in behind):
                # Its acknowledged batches may be in the journal alone: keep both files.
                self._journal = None
            covered.clear()
        except Exception as error:  # It is not known what is in the segments: keep both files.
            self._journal = None
            self._faults.caught("the commit journal is not used any more", error)
        finally:
            self._releasing = None


def _advance(marks: Sequence[Marked]) -> None:
    """Move the watermarks: what is below is permanent, unless the partition has stopped."""
    for partition, mark in marks:
        if partition.stopped is None:
            partition.advance(mark)


def _slices(marks: Sequence[Marked]) -> Sequence[Sequence[Marked]]:
    if len(marks) <= _FILES_PER_SYNC:  # Nearly always.
        return (marks,) if marks else ()
    return [
        marks[first : first + _FILES_PER_SYNC] for first in range(0, len(marks), _FILES_PER_SYNC)
    ]


def _is_synced_directly(partition: Partition) -> bool:
    """Return whether to sync the segments directly: the journal must not hold the batches, or they
    are too large to be written twice."""
    return partition.has_gap or partition.uncommitted_bytes > limits.JOURNAL_PARTITION_BYTES_MAX


def write_seal(disk: Disk, segment: Segment) -> File:
    """Write the index of a permanent segment to disk, as its seal, and drop it from memory."""
    file = disk.open(segment.path_of(layout.INDEX), create=True)
    file.truncate(0)
    write_all(file, 0, [segment.seal_bytes()])
    segment.sealed, segment.index = True, None
    return file


def _start(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Run the coroutine as a task. The loop's exception handler gets its exceptions at once."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.result())
    return task
