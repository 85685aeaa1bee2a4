"""One range of one partition, from the broker: while one answer is decoded the next is on
its way."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from kio.schema.errors import ErrorCode

from entrepot.client.client import EARLIEST, LATEST, Client, Fetched, TopicPartition
from entrepot.client.errors import Refused
from entrepot.spark.connecting import Connected, Underway
from entrepot.spark.decoding import PIECE_BYTES, Piece, Range, RangeDecoder, RowFilter, TooOld

if TYPE_CHECKING:
    from entrepot.log.read_only import ArchivedPartition


class RangeReader(RangeDecoder):
    def __init__(
        self,
        connected: Connected,
        wanted: Range,
        schema: pa.Schema,
        *,
        committed: bool = True,
        fail_on_data_loss: bool = True,
        archive: Callable[[], "ArchivedPartition | None"] = lambda: None,
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
        self._connected = connected

    def _pieces(self) -> Iterator[Piece]:
        until = self._wanted.offset_until
        underway = None
        while self._position < until:
            try:
                fetched = self._fetched(underway)
            except TooOld as error:
                fetched = None
                yield from self._missing(error.offset_start)
            underway = None
            if fetched is None:
                continue
            piece = self._cut(fetched.batches, fetched.aborted)
            if self._position < until:
                underway = self._ask()
            yield piece

    def _ask(self) -> Underway[dict[TopicPartition, Fetched]]:
        return self._connected.start(self._fetch)

    async def _fetch(self, client: Client) -> dict[TopicPartition, Fetched]:
        return await client.fetch(
            {self._wanted.part: self._position},
            bytes_max=PIECE_BYTES,
            partition_bytes_max=PIECE_BYTES,
            committed=self._committed,
        )

    def _fetched(self, underway: Underway[dict[TopicPartition, Fetched]] | None) -> Fetched | None:
        """Return the answer; None if the position has moved and must be looked at again."""
        try:
            if underway is not None:
                answer = self._connected.finish(underway)
            else:
                answer = self._connected.run(self._fetch)
        except Refused as error:
            if error.code is ErrorCode.offset_out_of_range:
                raise TooOld(self._ends()[0]) from None
            elif error.code is ErrorCode.unknown_topic_or_partition:
                self._lose(self._wanted.offset_until, "the partition is not there any more, nor ")
            else:
                raise
            return None
        fetched = answer[self._wanted.part]
        if not len(fetched.batches):
            self._end_in_gap(self._ends()[1])
            return None
        return fetched

    def _ends(self) -> tuple[int, int]:
        part = self._wanted.part

        async def ask(client: Client) -> tuple[int, int]:
            first = await client.list_offsets({part: EARLIEST})
            end = await client.list_offsets({part: LATEST}, committed=self._committed)
            return first[part].offset, end[part].offset

        return self._connected.run(ask)
