"""All partitions of a node: open, commit, retention and other maintenance, close.

After a clean stop one small file says everything about every partition, so the
next start reads that and no segment, however much data there is. The file is
removed before anything is written; without it, a start is a recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from entrepot.core import limits
from entrepot.core.errors import InvalidBatch, StorageError
from entrepot.core.faults import Faults, Uncaught
from entrepot.core.names import PartitionId
from entrepot.core.ports import NO_STORES, Buffer, Clock, Disk, Stores, Worker, in_place
from entrepot.log import anew, layout
from entrepot.log.checkpoint import (
    PartitionState,
    RecoveryCheckpoint,
    RecoveryPoint,
    clean_checkpoint,
    read_clean_checkpoint,
    read_recovery_checkpoint,
    recovery_checkpoint,
)
from entrepot.log.cleaner import Cleaner
from entrepot.log.commit import Committer, write_seal
from entrepot.log.copier import Copier
from entrepot.log.epochs import EpochIndex
from entrepot.log.files import FilePool, in_slices, load, replace
from entrepot.log.gaps import filled
from entrepot.log.journal import Journal, JournalEntry, read_journals, remove_journals
from entrepot.log.partition import Batches, Partition
from entrepot.log.policy import Durability, Policy
from entrepot.log.recovery import (
    Progress,
    SavedView,
    newest_view,
    recover_epochs,
    recover_segments,
    replay,
)
from entrepot.log.retention import Report
from entrepot.log.truncation import truncate

log = logging.getLogger("entrepot.log")

TICK_S = 0.1
CHECKPOINT_EVERY_S = 5.0
RETENTION_EVERY_S = 30.0
CLEAN_EVERY_S = 2.0
COPY_EVERY_S = 1.0
_AFTER_FAULT_S = 10.0  # How long maintenance pauses after an internal error.
_SEAL_AT_STOP_BYTES = 4 * limits.MIB  # A smaller active segment is read again faster than sealed.
_PARTITIONS_PER_SLICE = 500


class Opened(NamedTuple):
    """An opened partition and the view that was saved with it."""

    partition: Partition
    saved: SavedView | None


class Log:
    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        stores: Stores = NO_STORES,
        *,
        check_all: bool = False,
        faults: Faults | None = None,
        codec_worker: Worker = in_place,
    ) -> None:
        self._faults = faults or Uncaught()
        self._disk = disk
        self._clock = clock
        self._check_all = check_all
        self._pool = FilePool(disk, disk.files_max)
        self.partitions: dict[PartitionId, Partition] = {}
        self.clean = False  # Whether the last stop was a clean one.
        # Whether the machine restarted without a clean stop of the broker: with less than `fsync`,
        # acknowledged records may be lost.
        self.power_failed = False
        self._clean_state: dict[PartitionId, PartitionState] = {}
        self._checkpoint = RecoveryCheckpoint()  # As the start found it.
        # What the next start must know of refused partitions.
        self._refused: dict[PartitionId, RecoveryPoint] = {}
        self._journaled: dict[PartitionId, list[JournalEntry]] = {}
        self._recovered: list[Partition] = []
        self._to_sync: list[Partition] = []  # Of these, those that are made permanent first.
        self._progress = Progress(clock)
        self._begun_anew: list[Partition] = []  # By recovery: see `anew`.
        self._generation = 0
        self.committer = Committer(self._pool, Journal(disk, 0), self.partitions.get, self._faults)
        self.cleaner = Cleaner(disk, self._pool, clock, codec_worker)
        self.copier = Copier(disk, clock, stores, self._faults)
        self._flush_due: dict[PartitionId, float] = {}
        # Partitions begun or dropped since the last recovery checkpoint.
        self._not_in_checkpoint: dict[PartitionId, None] = {}
        # Partitions that may have segments below their start.
        self._to_sweep: dict[PartitionId, None] = {}
        # (monotonic time, path) of files and directories to remove.
        self._removals: list[tuple[float, str]] = []
        self._checkpointed = b""
        self._checkpointing = asyncio.Lock()
        # Partition -> the append error that was logged last.
        self._failing: dict[PartitionId, str] = {}
        # Not compacted until the next start, after an internal error.
        self._uncleanable: dict[PartitionId, None] = {}
        self._checkpoint_at = self._retention_at = 0.0
        self._is_closing = False
        self._maintenance: asyncio.Task[None] | None = None
        self._cleaning: asyncio.Task[None] | None = None
        self._removing: asyncio.Task[None] | None = None
        self._copying: asyncio.Task[None] | None = None

    # --- start

    def begin(self) -> None:
        """Lock the directory and read the checkpoints. Raises BlockingIOError when it is locked."""
        self._disk.make_directory(layout.PARTITIONS)
        self._disk.lock(layout.LOCK)
        self.cleaner.begin()
        for entry in read_journals(self._disk):
            self._journaled.setdefault(entry.partition, []).append(entry)
            self._generation = max(self._generation, entry.generation)
        self._checkpoint = read_recovery_checkpoint(self._disk)
        state = read_clean_checkpoint(self._disk)
        self.power_failed = state is None and not self._is_same_boot()
        if state is not None and not self._check_all:
            self.clean, self._clean_state = True, state
        self._report_checkpoints(state is None)
        self._check_all = self._check_all or self._checkpoint.is_damaged

    def _report_checkpoints(self, is_recovery: bool) -> None:
        if is_recovery and self._disk.exists(layout.CLEAN_CHECKPOINT):
            log.error("%s is damaged: the clean stop is not believed", layout.CLEAN_CHECKPOINT)
        if self._checkpoint.is_damaged:
            effect = "every batch is checked, and nothing is cut off"
            if self.clean:
                effect = "after a clean stop it is not needed"
            log.error("%s is damaged: %s", layout.RECOVERY_CHECKPOINT, effect)
        elif is_recovery and self._checkpoint.is_missing and self._disk.names(layout.PARTITIONS):
            log.warning(
                "%s is missing: segments are taken as far as they are whole",
                layout.RECOVERY_CHECKPOINT,
            )

    def _is_same_boot(self) -> bool:
        boot = self._disk.boot.encode()
        return bool(boot) and load(self._disk, layout.BOOT_CHECKPOINT) == boot

    async def remember_boot(self) -> None:
        """Store this boot's id. Called when the losses of an earlier power failure have been
        handled."""
        try:
            if not self._is_same_boot():
                await replace(self._disk, "", layout.BOOT_CHECKPOINT, self._disk.boot.encode())
        except OSError as error:
            log.warning("no boot checkpoint: %s", error.strerror)

    def open(self, identity: PartitionId, topic_name: str, policy: Policy) -> Opened:
        """Open a partition with what is on disk; nothing is created."""
        directory = layout.partition_directory(topic_name, identity.number)
        state = self._clean_state.pop(identity, None)
        if state is not None:
            opened = self._opened_clean(identity, directory, policy, state)
        elif self.clean or self._maintenance is not None:
            opened = self._opened_new(identity, directory, policy)
        else:
            opened = self._opened_unclean(identity, directory, policy)
        opened.partition.faults = self._faults
        self.partitions[identity] = opened.partition
        return opened

    def _opened_clean(
        self, identity: PartitionId, directory: str, policy: Policy, state: PartitionState
    ) -> Opened:
        segments = [each.segment(directory) for each in state.segments]
        names = set(self._disk.names(directory)) if segments else ()
        for segment in segments:
            if layout.file_name(segment.offset_base, layout.SEGMENT) not in names:
                point = RecoveryPoint(segments[0].offset_base, segments[-1].offset_end)
                return self._opened_refused(
                    identity, directory, policy, point, f"{segment.path} is missing"
                )
        partition = Partition(identity, directory, policy, self._pool, self._clock, segments)
        partition.offset_start = max(partition.offset_start, state.offset_start)
        self._know_epochs(partition, EpochIndex(state.epochs))
        return Opened(partition, SavedView(partition.offset_end, state.view))

    def _opened_new(self, identity: PartitionId, directory: str, policy: Policy) -> Opened:
        partition = Partition(identity, directory, policy, self._pool, self._clock)
        if self._maintenance is not None:
            try:
                self._disk.remove_directory(directory)  # Left by a deletion that failed.
            except OSError as error:
                partition.refuse(f"{directory}: {error.strerror}")
        return Opened(partition, None)

    def _opened_unclean(self, identity: PartitionId, directory: str, policy: Policy) -> Opened:
        point = self._checkpoint.point(identity)
        try:
            offset = anew.read_anew(self._disk, directory)
            if offset is not None:
                anew.clear(self._disk, directory, offset)
                self._journaled.pop(identity, None)
                point = RecoveryPoint(offset, offset)
            segments = recover_segments(
                self._disk,
                directory,
                self._clock.now_ms(),
                point=point,
                check_all=self._check_all,
                is_left_to_system=self._is_left_to_system(policy),
                progress=self._progress,
            )
            partition = Partition(identity, directory, policy, self._pool, self._clock, segments)
            self._know_epochs(partition, recover_epochs(self._disk, directory, segments))
            count = replay(partition, self._journaled.pop(identity, []), point)
        except (StorageError, OSError) as error:
            return self._opened_refused(identity, directory, policy, point, str(error))
        if count:
            log.info("%s: %d batches came from the journal", directory, count)
        partition.recovered()
        partition.offset_synced = max(partition.offset_synced, point.offset_end or 0)
        self._recovered.append(partition)
        if count or offset is not None or not self._is_left_to_system(policy):
            self._to_sync.append(partition)
        if offset is not None:
            self._begun_anew.append(partition)
        return Opened(partition, newest_view(self._disk, partition))

    def _is_left_to_system(self, policy: Policy) -> bool:
        """Return whether what a killed process wrote is as permanent as it was promised to be: a
        start that wrote and synced it again would take as long as the disk takes for all of it."""
        is_synced = policy.flush_after_ms is not None or policy.flush_messages is not None
        return policy.durability is Durability.OS and not is_synced and not self.power_failed

    @staticmethod
    def _know_epochs(partition: Partition, index: EpochIndex) -> None:
        partition.epochs = index
        partition.leader_epoch = max(0, index.last)

    def _opened_refused(
        self,
        identity: PartitionId,
        directory: str,
        policy: Policy,
        point: RecoveryPoint,
        reason: str,
    ) -> Opened:
        partition = Partition(identity, directory, policy, self._pool, self._clock)
        partition.refuse(reason)
        self._refused[identity] = point
        return Opened(partition, None)

    async def ready(self, was_known: Callable[[str], object] = bool) -> None:
        """Make recovered data as permanent as was promised, remove leftovers and start the
        maintenance.

        Called once every partition is open.

        Directories that no topic owns are removed if `was_known` knows their topic's name.
        """
        behind = [p for p in self._recovered if p.segments and p.stopped is None]
        to_sync = [p for p in self._to_sync if p.segments and p.stopped is None]
        await self.committer.sync([(p, p.end_mark()) for p in to_sync])
        await self._sync_emptied()
        for partition in behind:
            if partition.stopped is None:
                partition.advance(partition.end_mark())
            if partition.policy.compacts:
                self._disk.remove(f"{partition.directory}/{layout.SWAP}")
        self._recovered.clear()
        self._to_sync.clear()
        self._journaled.clear()
        is_written = await self._write_recovery_checkpoint()
        self._disk.remove(layout.CLEAN_CHECKPOINT)
        stopped = [p.id for p in self.partitions.values() if p.stopped is not None]
        remove_journals(self._disk, needed=stopped)
        self._remove_orphans(was_known)
        await self._sync_names("", layout.PARTITIONS)
        await self._finish_anew(is_written)
        self.committer = Committer(
            self._pool, Journal(self._disk, self._generation), self.partitions.get, self._faults
        )
        loop = asyncio.get_running_loop()
        self._maintenance = loop.create_task(self._keep_doing(TICK_S, self._maintain))
        self._cleaning = loop.create_task(self._keep_doing(CLEAN_EVERY_S, self._clean_due))
        # A task of its own, because nothing else may wait for the removal of large files.
        self._removing = loop.create_task(self._keep_doing(TICK_S, self._remove_due))
        self._copying = loop.create_task(self._keep_doing(COPY_EVERY_S, self._copy_due))

    async def _finish_anew(self, is_checkpoint_written: bool) -> None:
        """Let partitions that recovery began anew be appended to; those that cannot be made
        permanent are stopped, and begun anew again."""
        begun, self._begun_anew = [p for p in self._begun_anew if p.stopped is None], []
        if not is_checkpoint_written:
            for partition in begun:
                partition.stop(f"{partition.directory}: not begun anew: no recovery checkpoint")
        elif begun:
            await anew.finish(self._disk, [partition.directory for partition in begun])

    async def _sync_emptied(self) -> None:
        """Sync directories that recovery emptied: their files must not come back among later
        ones."""
        emptied = [p for p in self._recovered if not p.segments and self._disk.exists(p.directory)]
        errors = await self._disk.sync([], [p.directory for p in emptied])
        for partition, error in zip(emptied, errors, strict=True):
            if error is not None:
                partition.stop(f"{partition.directory}: sync failed: {error.strerror}")

    def _remove_orphans(self, was_known: Callable[[str], object]) -> None:
        """Remove directories that no topic owns, left by a deletion that a crash interrupted."""
        known = {partition.directory for partition in self.partitions.values()}
        for name in self._disk.names(layout.PARTITIONS):
            directory = f"{layout.PARTITIONS}/{name}"
            if directory not in known and not was_known(name.rpartition("-")[0]):
                log.error("%s stays: no topic owns it, and none ever did", directory)
            elif directory not in known:
                log.info("removing %s: no topic owns it", directory)
                self._disk.remove_directory(directory)
        self._disk.remove_directory(layout.DELETED)

    async def _sync_names(self, *directories: str) -> None:
        for error in await self._disk.sync([], directories):
            if error is not None:
                raise error

    @property
    def has_others(self) -> bool:
        """Return whether there are partitions on disk that were not opened."""
        known = [partition.directory for partition in self.partitions.values()]
        names = self._disk.names(layout.PARTITIONS)
        return any(f"{layout.PARTITIONS}/{name}" not in known for name in names)

    # --- use

    def append(
        self,
        partition: Partition,
        batches: Batches,
        *,
        may_wait: bool = False,
        is_stamped: bool = False,
    ) -> int:
        """Append batches and request the commit. Return the first offset.

        `may_wait` means: nobody waits for this commit, so it may come a few milliseconds later;
        `is_stamped`: they are a copy, with the offsets and epochs that the leader gave them; of
        what its log has no more, ours says so (see `gaps`).
        """
        if self._is_closing:
            raise StorageError("the broker is stopping")
        segments = len(partition.segments)
        if is_stamped:
            batches = filled(batches, partition.offset_end)
        try:
            offset = partition.append(batches, is_stamped=is_stamped)
        except StorageError as error:
            # Logged once: a full disk fails every write, and why a partition stopped is logged
            # already.
            if partition.stopped is None and self._failing.get(partition.id) != str(error):
                self._failing[partition.id] = str(error)
                log.error("not written: %s", error)
            raise
        if self._failing:
            self._failing.pop(partition.id, None)
        if not segments:
            self._not_in_checkpoint[partition.id] = None
        if partition.needs_commit:
            if may_wait:
                self.committer.request_later(partition)
            else:
                self.committer.request(partition)
            return offset
        after_ms = partition.policy.flush_after_ms
        if after_ms is not None:
            due = self._clock.monotonic() + after_ms / 1_000
            self._flush_due.setdefault(partition.id, due)
        elif len(partition.segments) > segments > 0:
            self._flush_due[partition.id] = 0.0  # So that the full segment gets its seal.
        return offset

    def hurry(self) -> None:
        """Commit now what was appended with `may_wait`."""
        self.committer.hurry()

    async def write_ahead(self, partition: Partition, chunks: list[Buffer]) -> None:
        """Write a large batch before it is appended, in slices: see `ahead`."""
        if not self._is_closing:
            for _ in partition.write_ahead(chunks):
                await asyncio.sleep(0)

    async def flush(self, partition: Partition) -> None:
        """Make the whole partition permanent, whatever its durability."""
        await self.committer.sync([(partition, partition.end_mark())])
        if partition.stopped is not None:
            raise StorageError(partition.stopped)

    async def truncate(self, partition: Partition, offset: int) -> None:
        """Cut off the batch that holds the offset, and all that follow: see `truncation`."""
        if await truncate(
            partition, offset, self._pool, self.committer, self._write_recovery_checkpoint
        ):
            saved = newest_view(self._disk, partition) or SavedView(0, b"")
            partition.on_cut(*saved)

    async def begin_anew(self, partition: Partition, offset: int) -> None:
        """Drop all that a replica has of a partition, damaged or not; it begins, and ends, at
        this offset: see `anew`."""

        async def write_checkpoint() -> bool:
            self._refused.pop(partition.id, None)
            return await self._write_recovery_checkpoint()

        marked = await anew.begin_anew(
            partition, offset, self._pool, self.committer, write_checkpoint
        )
        self.cleaner.forget(partition.id)
        self.copier.forget(partition)
        due = self._clock.monotonic() + partition.policy.file_delete_delay_ms / 1_000
        self._removals += [(due, path) for path in marked]
        partition.on_cut(offset, b"")

    def drop(self, partition: Partition) -> None:
        """Take a deleted partition out of service; its files are removed after
        file_delete_delay_ms.

        Its name may be used again once `dropped` returns.
        """
        partition.stop(f"{partition.directory} is deleted")
        partition.leave_view()
        del self.partitions[partition.id]
        self._refused.pop(partition.id, None)
        self._not_in_checkpoint[partition.id] = None
        self.cleaner.forget(partition.id)
        self.copier.forget(partition)
        if partition.segments:
            # Skipped when it has none, because it looks at every open file.
            self._pool.forget_below(partition.directory)
        if not self._disk.exists(partition.directory):
            return
        deleted = layout.deleted_directory(partition.id)
        try:
            self._disk.make_directory(layout.DELETED)
            self._disk.rename(partition.directory, deleted)
        except OSError as error:
            log.warning("%s: not removed: %s", partition.directory, error.strerror)
            return
        delay_s = partition.policy.file_delete_delay_ms / 1_000
        self._removals.append((self._clock.monotonic() + delay_s, deleted))

    async def dropped(self) -> None:
        """Make deletions permanent. Otherwise a power failure could give the files to a new
        topic of that name."""
        await self._sync_names(layout.PARTITIONS)

    # --- housekeeping

    async def _keep_doing(self, every_s: float, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat a maintenance task; after an internal error in it, pause and go on."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await work()
            except Exception as error:
                self._faults.caught("housekeeping", error)
                await asyncio.sleep(_AFTER_FAULT_S)

    async def _maintain(self) -> None:
        now = self._clock.monotonic()
        await self._flush([i for i, due in self._flush_due.items() if due <= now])
        if now >= self._checkpoint_at or self._is_checkpoint_wanted():
            self._checkpoint_at = now + CHECKPOINT_EVERY_S
            await self._write_recovery_checkpoint()
        if now >= self._retention_at:
            self._retention_at = now + RETENTION_EVERY_S
            await self.enforce_retention()
        elif self._to_sweep:
            await self.forget_segments()

    def _is_checkpoint_wanted(self) -> bool:
        """Return whether a partition has its first permanent batch, or was dropped.

        Only the recovery checkpoint tells that its one segment must, or need not, be there.
        """
        found = []
        for identity in self._not_in_checkpoint:
            partition = self.partitions.get(identity)
            if partition is None or partition.offset_synced:
                found.append(identity)
        for identity in found:
            del self._not_in_checkpoint[identity]
        return bool(found)

    async def _clean_due(self) -> None:
        for number, partition in enumerate(list(self.partitions.values())):
            if number % _PARTITIONS_PER_SLICE == 0:
                await asyncio.sleep(0)
            try:
                if partition.id not in self._uncleanable and self.cleaner.is_due(partition):
                    await self.cleaner.clean(partition)
            except (OSError, StorageError, InvalidBatch) as error:
                log.warning("%s: compaction has to wait: %s", partition.directory, error)
            except Exception as error:  # The segments stay as they are.
                self._uncleanable[partition.id] = None
                self._faults.caught(f"{partition.directory}: not compacted any more", error)

    async def _copy_due(self) -> None:
        await self.copier.copy_due(list(self.partitions.values()))

    async def _flush(self, due: Sequence[PartitionId]) -> None:
        marks = []
        for identity in due:
            del self._flush_due[identity]
            partition = self.partitions.get(identity)
            if partition is not None and partition.stopped is None and partition.segments:
                marks.append((partition, partition.end_mark()))
        if marks:
            await self.committer.sync(marks)

    async def enforce_retention(self) -> None:
        """Apply retention to every partition; other tasks run in between."""
        report = Report()
        for number, partition in enumerate(list(self.partitions.values())):
            if number % _PARTITIONS_PER_SLICE == _PARTITIONS_PER_SLICE - 1:
                await asyncio.sleep(0)
            if partition.stopped is not None:
                continue
            try:
                expired = partition.expire(self._clock.now_ms(), self.copier.copied_end(partition))
                if expired is not None:
                    report.add(partition.directory, expired)
                self._close_old(partition)
                self.sweep(partition)
            except (OSError, StorageError) as error:
                log.warning("%s: retention has to wait: %s", partition.directory, error)
            except Exception as error:
                self._faults.caught(f"{partition.directory}: retention", error)
                partition.stop(f"{partition.directory}: stopped after an internal error")
        report.end()
        await self.forget_segments()

    def _close_old(self, partition: Partition) -> None:
        """Close the active segment of a tiered topic if retention wants all of it gone: only full
        segments are copied, and only what is copied is removed."""
        keep_ms = partition.policy.retention_ms
        if partition.policy.tier is None or keep_ms < 0 or not partition.segments:
            return
        active, oldest_ms = partition.segments[-1], self._clock.now_ms() - keep_ms
        newest_ms = active.timestamp_max if active.timestamp_max >= 0 else active.opened_ms
        is_committed = active.size and active.offset_end <= partition.high_watermark
        if is_committed and newest_ms < oldest_ms:
            partition.roll()
            self._flush_due.setdefault(partition.id, 0.0)

    def sweep(self, partition: Partition) -> None:
        """Mark a partition: its segments below the start offset are removed soon."""
        self._to_sweep[partition.id] = None

    async def forget_segments(self) -> None:
        """Take segments below the start offset out of service and schedule the removal of their
        files.

        The recovery checkpoint first names the new first segment. Renames survive a crash in any
        order, and without it a missing segment would be corruption.
        """
        to_sweep, self._to_sweep = self._to_sweep, {}
        bases: dict[PartitionId, int] = {}
        for number, identity in enumerate(to_sweep):
            if number % _PARTITIONS_PER_SLICE == _PARTITIONS_PER_SLICE - 1:
                await asyncio.sleep(0)
            partition = self.partitions.get(identity)
            if partition is None or partition.stopped is not None or not partition.segments:
                continue
            try:
                base = partition.first_needed()
            except (OSError, StorageError) as error:
                log.warning("%s: retention has to wait: %s", partition.directory, error)
                continue
            if base > partition.segments[0].offset_base:
                bases[identity] = base
            if partition.unsynced_names:
                self._flush_due.setdefault(identity, 0.0)
                if partition.segments[0].offset_end <= partition.offset_start:
                    self.sweep(partition)  # Again, once the names are permanent.
        if bases and await self._write_recovery_checkpoint(bases):
            for identity, base in bases.items():
                self._mark_forgotten(identity, base)

    def _mark_forgotten(self, identity: PartitionId, offset_base: int) -> None:
        partition = self.partitions.get(identity)
        if partition is None or partition.stopped is not None:
            return
        due = self._clock.monotonic() + partition.policy.file_delete_delay_ms / 1_000
        try:
            for path in partition.mark_forgotten(offset_base):
                self._removals.append((due, path))
        except OSError as error:
            log.warning("%s: retention has to wait: %s", partition.directory, error)

    async def _remove_due(self, now: float | None = None) -> None:
        """Remove the files that are due. What cannot be removed goes at the next start."""
        now = self._clock.monotonic() if now is None else now
        due = [each for each in self._removals if each[0] <= now]
        if due:
            answers = await self._disk.discard([path for _, path in due])
            done = set(due)
            self._removals = [each for each in self._removals if each not in done]
            for (_, path), error in zip(due, answers, strict=True):
                if error is not None:
                    log.warning("%s: not removed: %s", path, error.strerror)

    async def _write_recovery_checkpoint(self, bases: Mapping[PartitionId, int] = {}) -> bool:
        """Write the recovery checkpoint. Return whether it is permanent.

        `bases` has the new base offset of partitions whose first segments are about to be removed.
        """
        async with self._checkpointing:
            partitions = list(self.partitions.values())
            payload = await in_slices(recovery_checkpoint(partitions, bases, self._refused))
            if payload != self._checkpointed:
                try:
                    await replace(self._disk, "", layout.RECOVERY_CHECKPOINT, payload)
                    self._checkpointed = payload
                except OSError as error:
                    log.warning("no recovery checkpoint: %s", error.strerror)
                    return False
            return True

    # --- stop

    async def close(self) -> None:
        """Make everything permanent and write the clean checkpoint, so that the next start is
        quick."""
        self._is_closing = True
        self.copier.close()
        for task in (self._maintenance, self._cleaning, self._removing, self._copying):
            if task is not None:
                task.cancel()
        for partition in self.partitions.values():
            partition.drop_ahead()
        await self.committer.drain()
        behind = [p for p in self.partitions.values() if p.stopped is None and p.segments]
        behind = [p for p in behind if p.unsynced or p.unsynced_names or p.names_changed]
        for partition in behind:  # Removed segments must not come back beside the checkpoint.
            partition.unsynced_names = partition.unsynced_names or partition.names_changed
        await self.committer.sync([(p, p.end_mark()) for p in behind])
        stopped = [p for p in self.partitions.values() if p.stopped is not None]
        await self._remove_due(float("inf"))
        if stopped:
            log.warning("not a clean stop: %s", stopped[0].stopped)
            return
        try:
            await self.committer.save_epochs(list(self.partitions.values()))
            await self._seal_large()
            await self._write_recovery_checkpoint()
            state = clean_checkpoint(self.partitions.values())
            await replace(self._disk, "", layout.CLEAN_CHECKPOINT, state)
            remove_journals(self._disk)
        except OSError as error:
            log.warning("not a clean stop: %s", error)

    async def _seal_large(self) -> None:
        """Seal large active segments, so that the next start need not read them."""
        seals = [
            write_seal(self._disk, segment)
            for partition in self.partitions.values()
            for segment in partition.segments[-1:]
            if segment.size >= _SEAL_AT_STOP_BYTES and segment.index is not None
        ]
        await self._disk.sync(seals)
