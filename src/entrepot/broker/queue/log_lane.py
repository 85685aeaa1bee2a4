"""A lane in the log: its messages are a partition, its settlements are records of another one.

Appended messages are cached until they are settled, or until the cache is full; others are read
from the log, together with those that follow. Retention deletes only settled messages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from entrepot.broker.ledger import Ledger
from entrepot.broker.ledger_store import LedgerStore
from entrepot.broker.queue.lane import Piece, Waiter
from entrepot.broker.queue.message import Run
from entrepot.broker.queue.message_cache import MessageCache
from entrepot.broker.queue.record_batches import (
    EncodedBatch,
    RunDecoder,
    encode_runs,
    stored_batches,
)
from entrepot.broker.queue.shelf import Book, Shelf, joined
from entrepot.broker.served_partition import ServedPartition
from entrepot.core import limits
from entrepot.core.errors import Corruption, StorageError
from entrepot.core.neutral import Formats
from entrepot.core.ranges import Ranges


class LogLane:
    is_in_memory = False

    def __init__(
        self,
        served: ServedPartition,
        store: LedgerStore,
        formats: Formats,
        cache: MessageCache,
    ) -> None:
        """Open the lane. The log and the store must be open, and nothing appended since."""
        partition = served.partition
        self._served = served
        self._partition = partition
        self._role = served.role
        alone = self._role is None
        self._when_safe = partition.when_committed if alone else served.when_safe
        self._store = store
        self._cache = cache
        self._shelf = Shelf()
        self._decoder = RunDecoder(formats)
        self.loaded = 0
        self._prepared: EncodedBatch | None = None  # The large message that `append` gets next.
        self._settlements = store.settlements(partition.id)
        self.offset_recovered = partition.offset_end
        self._has_ledger = self.fault is None
        if not self._has_ledger:  # The stored settlements are left as they are, for the next start.
            self.ledger = Ledger()
        else:
            self.ledger = self._settlements.ledger(partition.offset_start, partition.offset_end)
            store.mark(self._settlements)
        partition.offset_needed = lambda: self.ledger.offset_low

    @property
    def offset_start(self) -> int:
        return self._partition.offset_start

    @property
    def offset_end(self) -> int:
        return self._partition.high_watermark

    @property
    def bytes_kept(self) -> int:
        return self._partition.size

    @property
    def fault(self) -> str | None:
        return self._partition.stopped if self._partition.refused else self._store.refused

    def _check_up(self) -> None:
        if self.fault is not None:
            raise Corruption(self.fault)

    # --- messages

    async def prepare(self, run: Run) -> None:
        (encoded,) = encode_runs([run])
        self._prepared = encoded
        await self._served.write_ahead(encoded.chunks)

    def append(self, runs: Sequence[Run]) -> int:
        if self._partition.refused or self._store.refused is not None:
            self._check_up()
        prepared, self._prepared = self._prepared, None
        if prepared is not None and _is_one(prepared.runs, runs):
            batches = [prepared]
        else:
            batches = encode_runs(joined(runs) if len(runs) > 1 else runs)
        appended = self._served.write_chunks([batch.chunks for batch in batches])
        offset = appended.offset_first
        for batch in batches:
            for run in batch.runs:
                self._cache.put(self._shelf, Book(offset, run))
                offset += len(run.messages)
        assert offset == appended.offset_end
        return offset

    def when_committed(self, offset_end: int, waiter: Waiter) -> None:
        self._when_safe(offset_end, waiter)

    def read(self, offsets: range, bytes_max: int | None = None) -> list[Piece]:
        partition = self._partition
        if partition.refused or self._store.refused is not None:
            self._check_up()
        if self._role is not None:  # What another node has settled must not be handed out here.
            self._served.check_leads()
        first, end = offsets.start, offsets.stop
        if end > partition.high_watermark:  # Possible after a start on a failing disk.
            raise StorageError(f"{partition.directory}: {offsets} is not committed")
        position = max(first, partition.offset_start)
        book = self._shelf.at(position)
        if book is not None and book.offset_first == first == position and book.offset_end == end:
            return [(offsets, book.run)]  # Nearly always, when messages come one at a time.
        pieces: list[Piece] = []
        left = sys.maxsize if bytes_max is None else bytes_max
        while position < end and left > 0:
            book = self._shelf.at(position)
            if book is not None:
                books = [book]
            else:
                books = self._load(position)
                left -= limits.QUEUE_READ_RUN_BYTES * len(books)
            pieces += [each.part(position, end) for each in books if each.offset_first < end]
            position = books[-1].offset_end if books else self._shelf.next_start(position, end)
            left -= sum([each.size for each in books])
        return pieces

    def _load(self, position: int) -> list[Book]:
        """Read messages from the log, up to the next one that is cached, and cache them.

        If the log is damaged there, the partition is refused: messages are not skipped.
        """
        stop = self._shelf.next_start(position, self.offset_end)
        books: list[Book] = []
        try:
            for header, batch in stored_batches(self._partition, position, limits.QUEUE_READ_BYTES):
                for offsets, run in self._decoder.decode(batch):
                    if position < offsets.stop and offsets.start < stop:
                        books.append(Book(offsets.start, run).cut(position, stop))
                if header.offset_end >= stop or len(books) >= limits.QUEUE_READ_RUNS:
                    break
        except Corruption as error:
            self._partition.refuse(str(error))
            self._check_up()
        self.loaded += len(books)
        for book in books:
            self._cache.put(self._shelf, book)
        return books

    def offset_for_time(self, time_ms: int) -> int:
        try:
            found = self._partition.offset_for_time(time_ms)
        except OSError as error:
            raise StorageError(f"{self._partition.directory}: {error.strerror}") from error
        return self.offset_end if found is None else found[0]

    # --- recording changes of the ledger

    def settled(self, offsets: Iterable[range]) -> None:
        offset_low = self.ledger.offset_low
        self._settlements.note(offsets, offset_low)
        self._store.mark_settled(self._settlements)
        self._cache.drop_before(self._shelf, offset_low)

    def hurry(self) -> None:
        self._store.stop_gathering()

    def attempted(self, offsets: Iterable[range]) -> None:
        self._settlements.note_attempts(offsets, self.ledger.attempts)
        self._store.mark(self._settlements)

    def deferred(self, offset: int, until_ms: int | None) -> None:
        self._settlements.defer(offset, until_ms)
        self._store.mark(self._settlements)

    def rewound(self, offset: int) -> None:
        self._check_up()
        self._settlements.rewound(offset, self.ledger.offset_low)
        self._store.mark(self._settlements)

    def unsettled(self) -> Ranges | None:
        if not self._has_ledger:
            return None
        return self._settlements.unsettled(self.ledger.offset_fresh)

    def when_settlements_committed(self, waiter: Waiter) -> None:
        if self._has_ledger:
            self._store.when_committed(waiter)
        else:
            waiter(StorageError("what is settled in a queue that cannot be read is not recorded"))

    # --- deleting

    def drop(self) -> None:
        """Delete the settlements and empty the cache. The caller deletes the partition.

        The deletion of the queue must be committed before: without settlements, a crash would
        make settled messages ready again.
        """
        self._store.forget(self._settlements)
        self._cache.drop_before(self._shelf, self._partition.offset_end)


def _is_one(runs: Sequence[Run], others: Sequence[Run]) -> bool:
    """Return whether both consist of the same single message."""
    if len(others) != 1 or len(others[0].messages) != 1:
        return False
    return runs[0].messages[0] is others[0].messages[0]
