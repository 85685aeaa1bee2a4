"""One range of one partition, out of the broker's segment files, without asking the broker.

The range was planned: all of it is committed, and the transactions in it are decided. So
a task needs no recovery. It looks at which segments there are, pins them, and reads up to
the end of its range; what lies above may be half written, and is left alone.

A broker may be at work meanwhile. It appends; it removes old segments; compaction puts a
segment in the place of others. A file that we have open stays what it was, and one that
is gone before we could open it makes us look again.
"""

import platform
from collections.abc import Iterator
from uuid import UUID

import pyarrow as pa

from entrepot.broker.isolation import Isolation
from entrepot.broker.view import fold
from entrepot.core.clock import SystemClock
from entrepot.core.errors import Corruption, OffsetOutOfRange
from entrepot.core.names import PartitionId
from entrepot.log import layout
from entrepot.log.disk import ReadOnlyDisk
from entrepot.log.files import FilePool
from entrepot.log.log import Opened
from entrepot.log.partition import Partition
from entrepot.log.policy import Policy
from entrepot.log.recovery import newest_view, segment_bases
from entrepot.log.segment import Segment, glances, read_seal
from entrepot.spark.decoding import PIECE_BYTES, Damaged, Piece, Range, RangeDecoder
from entrepot.spark.options import DATA_DIRECTORY, OptionError

_ANY = PartitionId(UUID(int=0), 0)
LOOKS_MAX = 10  # Until a directory that changes under us is given up.


def open_data_directory(path: str) -> ReadOnlyDisk:
    try:
        disk = ReadOnlyDisk(path)
    except NotADirectoryError:
        raise OptionError(
            f"{DATA_DIRECTORY}: there is no directory {path} on {platform.node()}"
        ) from None
    if not disk.exists(layout.PARTITIONS):
        raise OptionError(f"{DATA_DIRECTORY}: {path} is not a broker's data directory")
    return disk


def readable(pool: FilePool, directory: str, segments: list[Segment]) -> Partition:
    """A partition for reading, whatever the id of its topic."""
    return Partition(_ANY, directory, Policy(), pool, SystemClock(), segments)


def isolation_of(disk: ReadOnlyDisk, partition: Partition) -> Isolation:
    """The partition's transactions, folded as the broker does it."""
    isolation = fold(Opened(partition, newest_view(disk, partition))).isolation
    if partition.refused:
        raise Damaged(str(partition.stopped))
    return isolation


def look(disk: ReadOnlyDisk, directory: str, offset: int) -> Partition:
    """What there is from the segment with that offset on, and from the newest view on."""
    bases = segment_bases(disk, directory)
    views = [layout.offset_of(name, layout.VIEW) for name in disk.names(directory)]
    needed = min(offset, max((view for view in views if view is not None), default=0))
    while len(bases) > 1 and bases[1] <= needed:
        del bases[0]
    pool = FilePool(disk, len(bases) + 1)  # So that a file, once opened, stays so.
    return readable(pool, directory, [_segment(disk, pool, directory, base) for base in bases])


def _segment(disk: ReadOnlyDisk, pool: FilePool, directory: str, base: int) -> Segment:
    """As its seal says, if that is the seal of the file we have opened; else by a walk."""
    segment = Segment(directory, base, 0)
    file = pool.get(segment.path)
    size = file.size()
    sealed = read_seal(disk, directory, base)
    if sealed is not None and sealed.size == size:
        return sealed
    try:
        for glance in glances(file, 0, size):
            segment.note(glance)
    except Corruption:
        pass  # The broker is writing there, or a crash has left it.
    return segment


class SegmentReader(RangeDecoder):
    def __init__(
        self,
        disk: ReadOnlyDisk,
        wanted: Range,
        schema: pa.Schema,
        *,
        committed: bool = True,
        fail_on_data_loss: bool = True,
    ) -> None:
        super().__init__(wanted, schema, committed=committed, fail_on_data_loss=fail_on_data_loss)
        self._disk = disk
        self._directory = layout.partition_directory(wanted.topic, wanted.partition)

    def _pieces(self) -> Iterator[Piece]:
        partition, isolation = self._looked()
        while self._position < self._wanted.offset_until:
            try:
                found = partition.read(self._position, PIECE_BYTES)
            except OffsetOutOfRange:
                self._skip_lost(partition.offset_start)
                continue
            except Corruption as error:
                raise Damaged(f"{self._wanted.part}: {error}") from None
            if found is None:
                self._end_in_gap(partition.offset_end)
                continue
            aborted: list[tuple[int, int]] = []
            if isolation is not None and isolation.has_aborted(self._position):
                end = partition.offset_after(self._position, found)
                aborted = isolation.aborted(self._position, end)
            yield self._cut(found.file.read(found.position, found.size), tuple(aborted))

    def _looked(self) -> tuple[Partition, Isolation | None]:
        """What there is; and the transactions, for who reads only what is committed."""
        for _ in range(LOOKS_MAX):
            try:
                partition = look(self._disk, self._directory, self._position)
                return partition, isolation_of(self._disk, partition) if self._committed else None
            except FileNotFoundError:
                continue  # It was there when we listed the names.
        raise Damaged(f"{self._wanted.part}: its files come and go")
