"""Records into the transactions of one transactional id, one transaction after the other.

Batches carry the producer's sequence numbers, so what is sent again after a broken
connection is there once. A transaction begins with its first batch or position; one that has
neither has nothing to end, and brokers refuse to commit it, so they are not asked. Whatever fails
leaves it in doubt: then the id is to be taken anew, which aborts it.
"""

import asyncio
from collections.abc import Iterable, Mapping

from entrepot.client.client import Client, TopicPartition
from entrepot.client.transaction_offsets import commit_in_transaction
from entrepot.client.transactions import OpenTransaction, Transactions
from entrepot.core.batch import Codec, build
from entrepot.core.limits import KIB
from entrepot.core.ports import Clock
from entrepot.core.record import Record

BATCH_BYTES = 512 * KIB  # Of keys and values, about; a topic takes 1 MiB.
RECORD_OVERHEAD_BYTES = 20
_SEQUENCE_END = 2**31  # Sequence numbers start again at 0 here.


class TransactionWriter:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        transaction: OpenTransaction,
        *,
        codec: Codec = Codec.NONE,
    ) -> None:
        self._client = client
        self._clock = clock
        self._transaction = transaction
        self._codec = codec
        self._sequences: dict[TopicPartition, int] = {}  # Of the producer's epoch.
        self._is_begun = False  # Something was sent since the last end; it may have arrived.

    async def write(
        self, lanes: Mapping[TopicPartition, list[Record]]
    ) -> dict[TopicPartition, int]:
        """Return the offsets of the first records. All are acknowledged then; nobody sees them."""
        firsts = await asyncio.gather(*(self._write_lane(*lane) for lane in lanes.items()))
        return dict(zip(lanes, firsts, strict=True))

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Make the positions of a group a part of the transaction."""
        self._is_begun = True
        await commit_in_transaction(self._client, self._transaction, group, offsets)

    async def commit(self) -> None:
        await self._end(commit=True)

    async def abort(self) -> None:
        await self._end(commit=False)

    async def _end(self, *, commit: bool) -> None:
        if not self._is_begun:
            return
        before = self._transaction
        self._transaction = await Transactions(self._client).end(before, commit=commit)
        self._is_begun = False
        if self._transaction != before:
            self._sequences.clear()

    async def _write_lane(self, part: TopicPartition, records: list[Record]) -> int:
        producer, offsets = self._transaction, []
        for few in pieces(records):
            sequence = self._sequences.get(part, 0)
            batch = build(
                few,
                now_ms=self._clock.now_ms(),
                codec=self._codec,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                sequence_first=sequence,
                transactional=True,
            )
            self._is_begun = True
            offset = await self._client.produce(
                *part, batch, transactional_id=producer.transactional_id
            )
            offsets.append(offset)
            self._sequences[part] = (sequence + len(few)) % _SEQUENCE_END
        return offsets[0]


def pieces(records: list[Record]) -> Iterable[list[Record]]:
    """In order, each small enough for a batch; a large record is one by itself."""
    first = size = 0
    for number, record in enumerate(records):
        more = len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES
        more += sum(len(name) + len(text or b"") for name, text in record.headers)
        if size and size + more > BATCH_BYTES:
            yield records[first:number]
            first, size = number, 0
        size += more
    yield records[first:]
