"""Reads the messages of a topic as a stream: each reader has its own offset, nothing is consumed.

A reader sees what a Kafka consumer of committed records sees: no records of open or aborted
transactions, no markers, and the offsets as they are, with gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum

from entrepot.broker.queue.lane import Piece
from entrepot.broker.queue.record_batches import RunDecoder, stored_batches
from entrepot.broker.queue.shelf import Book
from entrepot.broker.served_partition import ServedPartition
from entrepot.core import limits
from entrepot.core.batch import BatchHeader
from entrepot.core.errors import Corruption, InvalidBatch, StorageError
from entrepot.core.neutral import Formats


class Where(StrEnum):
    """Where to begin reading."""

    FIRST = "first"  # The oldest message there is.
    LAST = "last"  # The newest batch.
    NEXT = "next"  # What comes from now on.


class StreamReader:
    def __init__(self, served: ServedPartition, formats: Formats, offset: int) -> None:
        """Make a reader that begins at the offset, which may be beyond the end."""
        self._served = served
        self._decoder = RunDecoder(formats)
        self._ahead: deque[Book] = deque()  # Read from the log and not returned yet.
        self._offset_next = offset  # The first offset that was not read yet.

    @property
    def is_behind(self) -> bool:
        """Return whether `read` may return more messages now."""
        return bool(self._ahead) or self._offset_next < self._served.last_stable_offset

    def read(self, count: int) -> list[Piece]:
        """Return the next messages, at most `count`.

        Reads from the log at most once, so there may be fewer, or none, although it is behind.
        Raises StorageError.
        """
        if not self._ahead:
            self._load()
        pieces: list[Piece] = []
        while count > 0 and self._ahead:
            book = self._ahead.popleft()
            first, end = book.offset_first, book.offset_end
            if end - first > count:
                self._ahead.appendleft(book.cut(first + count, end))
                end = first + count
            pieces.append(book.part(first, end))
            count -= end - first
        return pieces

    def _load(self) -> None:
        partition, limit = self._served.partition, self._served.last_stable_offset
        offset = max(self._offset_next, partition.offset_start)
        if offset >= limit:
            return
        bytes_max = limits.STREAM_READ_AHEAD_BYTES
        for header, batch in stored_batches(partition, offset, bytes_max, limit):
            if not self._is_hidden(header):
                for offsets, run in self._decode(header, batch):
                    if offsets.stop > offset:
                        self._ahead.append(Book(offsets.start, run).cut(offset, offsets.stop))
            self._offset_next = header.offset_end
        if self._offset_next <= offset:  # Compaction has deleted all the rest.
            self._offset_next = limit

    def _decode(self, header: BatchHeader, batch: bytes) -> list[Piece]:
        """Return the messages of a batch. One that cannot be decoded is skipped and reported, so
        that readers are not stuck there."""
        try:
            return self._decoder.decode(batch)
        except Corruption as error:
            self._served.passed_over(header, error)
            return []

    def _is_hidden(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return header.is_control
        is_aborted = self._served.isolation.is_aborted
        return header.is_control or is_aborted(header.producer_id, header.offset_first)

    # --- listening

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever there may be more messages, until `close`."""
        self._served.partition.listen(self, listener)

    def close(self) -> None:
        self._served.partition.unlisten(self)


def offset_of(served: ServedPartition, where: Where) -> int:
    """Return the offset to begin reading at. Raises StorageError."""
    partition, limit = served.partition, served.last_stable_offset
    if where is Where.FIRST:
        return partition.offset_start
    offset = limit
    while where is Where.LAST and offset > partition.offset_start:
        header, _ = next(stored_batches(partition, offset - 1, 1, limit))
        offset = max(header.offset_first, partition.offset_start)
        if not header.is_control:
            return offset
    return limit


def offset_at(served: ServedPartition, time_ms: int) -> int:
    """Return the offset of the first message of that time or later. Raises StorageError.

    If it is in a batch that cannot be read, return the start of the partition: too early loses
    nothing, too late would.
    """
    limit = served.last_stable_offset
    try:
        found = served.partition.offset_for_time(time_ms)
    except InvalidBatch:
        return served.partition.offset_start
    except OSError as error:
        raise StorageError(f"{served.partition.directory}: {error.strerror}") from error
    return limit if found is None else min(found[0], limit)
