"""Records by offset, from one partition or many.

A reader holds one number per partition: the next offset to read. It moves as records
are taken, so whoever stops in the middle knows exactly where. Markers of transactions
are passed over; with `committed`, so are the records of aborted ones.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from entrepot.client.client import FETCH_WAIT_MS, Client, Fetched, TopicPartition
from entrepot.client.errors import BadAnswer, Refused
from entrepot.core.batch import BatchHeader, check, records, walk
from entrepot.core.errors import InvalidBatch
from entrepot.core.record import Record

_ABORT_KEY = b"\x00\x00\x00\x00"  # Version 0, type 0 in a control record's key.


class Message(NamedTuple):
    part: TopicPartition
    record: Record
    is_append_time: bool  # The timestamp is the broker's, not the producer's.


class Reader:
    def __init__(
        self,
        client: Client,
        positions: Mapping[TopicPartition, int],
        *,
        reset: int | None = None,
        committed: bool = False,
    ) -> None:
        """`reset` is EARLIEST or LATEST: where to go on when a position is not in the log."""
        self.positions = dict(positions)
        self._client = client
        self._reset = reset
        self._committed = committed

    async def poll(self, wait_ms: int = FETCH_WAIT_MS) -> Iterator[Message]:
        """What is there, or comes within the wait. Take it all before the next poll."""
        try:
            fetched = await self._client.fetch(
                self.positions, wait_ms=wait_ms, committed=self._committed
            )
        except Refused as error:
            if error.code is not ErrorCode.offset_out_of_range or self._reset is None:
                raise
            await self._move(error.about, self._reset)
            return iter(())
        return self._messages(fetched)

    async def _move(self, part: object, reset: int) -> None:
        assert isinstance(part, TopicPartition), part
        place = await self._client.list_offsets({part: reset})
        self.positions[part] = place[part].offset

    def _messages(self, fetched: Mapping[TopicPartition, Fetched]) -> Iterator[Message]:
        for name, data in fetched.items():
            try:
                yield from self._of_partition(name, data)
            except InvalidBatch as error:
                raise BadAnswer(f"{name}: {error}") from None

    def _of_partition(self, name: TopicPartition, data: Fetched) -> Iterator[Message]:
        view = memoryview(data.batches)
        visible = Visible(data.aborted) if self._committed else None
        for position, header in walk(view):
            batch = view[position : position + header.size]
            if header.count > 0:  # Compaction may leave a batch without its records.
                check(batch, allow_gaps=True)
                yield from self._of_batch(name, header, batch, visible)
            self.positions[name] = max(self.positions[name], header.offset_end)

    def _of_batch(
        self,
        name: TopicPartition,
        header: BatchHeader,
        batch: memoryview,
        visible: "Visible | None",
    ) -> Iterator[Message]:
        if header.is_control:
            if visible is not None:
                visible.pass_marker(header, batch)
        elif visible is None or visible.shows(header):
            for record in records(batch):
                if record.offset >= self.positions[name]:
                    self.positions[name] = record.offset + 1
                    yield Message(name, record, header.is_append_time)


class Visible:
    """Which batches of a fetched range belong to aborted transactions."""

    def __init__(self, aborted: tuple[tuple[int, int], ...]) -> None:
        self._ahead = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._open: dict[int, int] = {}  # Producers inside an aborted transaction.

    def shows(self, header: BatchHeader) -> bool:
        self._advance(header.offset_last)
        return not (header.is_transactional and header.producer_id in self._open)

    def pass_marker(self, header: BatchHeader, batch: memoryview) -> None:
        self._advance(header.offset_last)
        for record in records(batch):
            if record.key == _ABORT_KEY:
                self._open.pop(header.producer_id, None)

    def _advance(self, offset: int) -> None:
        while self._ahead and self._ahead[-1][1] <= offset:
            producer, first = self._ahead.pop()
            self._open[producer] = first
