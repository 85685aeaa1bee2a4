"""Messages of a topic, read as a stream: nothing is taken away, each reader has its place.

A reader sees what a Kafka consumer of committed records sees: nothing of a transaction that
is open or was taken back, no markers, and the offsets as they are, gaps included.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum

from entrepot.broker.queue.lane import Piece
from entrepot.broker.queue.message import PropertyReader
from entrepot.broker.queue.record_batches import RunDecoder, stored_batches
from entrepot.broker.queue.shelf import Book
from entrepot.broker.stream import Stream
from entrepot.core import limits
from entrepot.core.batch import BatchHeader
from entrepot.core.errors import Corruption, InvalidBatch, StorageError


class Where(StrEnum):
    """To begin reading at."""

    FIRST = "first"  # The oldest message there is.
    LAST = "last"  # The newest batch.
    NEXT = "next"  # What comes from now on.


class StreamReader:
    def __init__(self, stream: Stream, property_reader: PropertyReader, offset: int) -> None:
        """Reads from the offset on; that may be one which is not there yet."""
        self._stream = stream
        self._decoder = RunDecoder(property_reader)
        self._ahead: deque[Book] = deque()
        self._offset_next = offset  # From there on, nothing was read yet.

    @property
    def is_behind(self) -> bool:
        """Whether it is worth while to call `read` again now."""
        return bool(self._ahead) or self._offset_next < self._stream.last_stable_offset

    def read(self, count: int) -> list[Piece]:
        """The next messages, at most so many. Goes to the log once at most, so there may be
        fewer, or none, although it is behind. Raises StorageError."""
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
        partition, limit = self._stream.partition, self._stream.last_stable_offset
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
        if self._offset_next <= offset:  # Compaction has taken all there was.
            self._offset_next = limit

    def _decode(self, header: BatchHeader, batch: bytes) -> list[Piece]:
        """What is in a batch; nothing when it is nonsense inside, so that it holds up nobody."""
        try:
            return self._decoder.decode(batch)
        except Corruption as error:
            self._stream.passed_over(header, error)
            return []

    def _is_hidden(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return header.is_control
        is_aborted = self._stream.isolation.is_aborted
        return header.is_control or is_aborted(header.producer_id, header.offset_first)

    # --- being told

    def listen(self, listener: Callable[[], None]) -> None:
        """Call when there may be more, until `close`."""
        self._stream.partition.listen(self, listener)

    def close(self) -> None:
        self._stream.partition.unlisten(self)


def offset_of(stream: Stream, where: Where) -> int:
    """Raises StorageError."""
    partition, limit = stream.partition, stream.last_stable_offset
    if where is Where.FIRST:
        return partition.offset_start
    offset = limit
    while where is Where.LAST and offset > partition.offset_start:
        header, _ = next(stored_batches(partition, offset - 1, 1, limit))
        offset = max(header.offset_first, partition.offset_start)
        if not header.is_control:
            return offset
    return limit


def offset_at(stream: Stream, time_ms: int) -> int:
    """Of the first message that came then or later. Raises StorageError.

    Where that is in a batch that cannot be read, it is the first of all: earlier, never later.
    """
    limit = stream.last_stable_offset
    try:
        found = stream.partition.offset_for_time(time_ms)
    except InvalidBatch:
        return stream.partition.offset_start
    except OSError as error:
        raise StorageError(f"{stream.partition.directory}: {error.strerror}") from error
    return limit if found is None else min(found[0], limit)
