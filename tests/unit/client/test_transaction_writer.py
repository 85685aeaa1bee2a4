"""Batches of a transaction: their sizes, and their numbers from one to the next."""

import asyncio
from typing import Any, cast

from entrepot.client import transaction_writer
from entrepot.client.client import Client, TopicPartition
from entrepot.client.transaction_writer import BATCH_BYTES, TransactionWriter, pieces
from entrepot.client.transactions import OpenTransaction
from entrepot.core.batch import read_header
from entrepot.core.clock import SystemClock
from entrepot.core.record import Record

PART = TopicPartition("t", 0)


class Taker:
    def __init__(self) -> None:
        self.taken: list[bytes] = []

    async def produce(self, topic: str, partition: int, batch: bytes, **_: Any) -> int:
        self.taken.append(batch)
        return 0


class Ender:
    """Ends transactions as brokers do since epochs move with each end, or as before."""

    moves = True

    def __init__(self, client: Client) -> None:
        pass

    async def end(self, transaction: OpenTransaction, *, commit: bool) -> OpenTransaction:
        return transaction._replace(epoch=transaction.epoch + self.moves)


def numbers(monkeypatch: Any, *, moves: bool) -> list[tuple[int, int]]:
    """Epoch and first sequence number of each batch."""
    monkeypatch.setattr(transaction_writer, "Transactions", Ender)
    monkeypatch.setattr(Ender, "moves", moves)
    taker = Taker()

    async def work() -> None:
        opened = OpenTransaction("id", 7, 0)
        writer = TransactionWriter(cast(Client, taker), SystemClock(), opened)
        await writer.write({PART: [Record(None, b"a"), Record(None, b"b")]})
        await writer.write({PART: [Record(None, b"c")]})
        await writer.commit()
        await writer.write({PART: [Record(None, b"d")]})

    asyncio.run(work())
    headers = [read_header(batch) for batch in taker.taken]
    assert all(header.is_transactional and header.producer_id == 7 for header in headers)
    return [(header.producer_epoch, header.sequence_first) for header in headers]


def test_sequences_begin_anew_with_an_epoch(monkeypatch: Any) -> None:
    assert numbers(monkeypatch, moves=True) == [(0, 0), (0, 2), (1, 0)]


def test_sequences_go_on_where_the_epoch_stays(monkeypatch: Any) -> None:
    assert numbers(monkeypatch, moves=False) == [(0, 0), (0, 2), (0, 3)]


def test_pieces_are_small_enough_and_a_large_record_is_one() -> None:
    small, large = Record(None, b"x" * (BATCH_BYTES // 3)), Record(None, b"x" * 2 * BATCH_BYTES)
    found = [len(piece) for piece in pieces([small, small, small, large, small])]
    assert found == [2, 1, 1, 1]
