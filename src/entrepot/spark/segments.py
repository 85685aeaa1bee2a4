"""One range of one partition, out of the broker's segment files, without asking the broker.

The range was planned: all of it is committed, and the transactions in it are decided. So
a task needs no recovery. It reads the files up to the end of its range; what lies above may
be half written, and is left alone. A file that is gone before it could be opened, because a
broker is at work, makes us look again.
"""

import platform
from collections.abc import Callable, Iterator

import pyarrow as pa

from entrepot.core.errors import Corruption, OffsetOutOfRange
from entrepot.log.read_only import ArchivedPartition, DataDirectory, Isolation, ReadOnlyPartition
from entrepot.spark.decoding import PIECE_BYTES, Damaged, Piece, Range, RangeDecoder, RowFilter
from entrepot.spark.options import DATA_DIRECTORY, OptionError

LOOKS_MAX = 200  # Until a directory that changes under us is given up.


def open_data_directory(path: str) -> DataDirectory:
    try:
        data = DataDirectory(path)
    except NotADirectoryError:
        raise OptionError(
            f"{DATA_DIRECTORY}: there is no directory {path} on {platform.node()}"
        ) from None
    if not data.is_a_brokers():
        raise OptionError(f"{DATA_DIRECTORY}: {path} is not a broker's data directory")
    return data


def isolation_of(partition: ReadOnlyPartition) -> Isolation:
    """Return the partition's transactions. Raises Damaged."""
    try:
        return partition.isolation()
    except Corruption as error:
        raise Damaged(str(error)) from None


class SegmentReader(RangeDecoder):
    def __init__(
        self,
        data: DataDirectory,
        wanted: Range,
        schema: pa.Schema,
        *,
        committed: bool = True,
        fail_on_data_loss: bool = True,
        archive: Callable[[], ArchivedPartition | None] = lambda: None,
        row_filter: RowFilter | None = None,
    ) -> None:
        super().__init__(
            wanted,
            schema,
            committed=committed,
            fail_on_data_loss=fail_on_data_loss,
            archive=archive,
            row_filter=row_filter,
        )
        self._data = data

    def _pieces(self) -> Iterator[Piece]:
        partition, isolation = self._looked()
        while self._position < self._wanted.offset_until:
            try:
                found = partition.read(self._position, PIECE_BYTES)
            except OffsetOutOfRange:
                yield from self._missing(partition.offset_start)
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

    def _looked(self) -> tuple[ReadOnlyPartition, Isolation | None]:
        """Return what is stored, and the transactions, if only what is committed is read."""
        for _ in range(LOOKS_MAX):
            try:
                partition = self._data.partition_at(*self._wanted.part, self._position)
                return partition, isolation_of(partition) if self._committed else None
            except FileNotFoundError:
                continue  # Removed or replaced since we listed the names.
        raise Damaged(f"{self._wanted.part}: its files come and go")
