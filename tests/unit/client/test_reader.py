"""Positions, markers and aborted transactions, on batches built here."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from entrepot.client.client import EARLIEST, Client, Fetched, OffsetAt, TopicPartition
from entrepot.client.errors import BadAnswer, Refused
from entrepot.client.reader import Reader
from entrepot.core.batch import build
from entrepot.core.record import Record

PART = TopicPartition("t", 0)
ABORT, COMMIT = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"


class Log:
    """A client whose fetch answers with these bytes."""

    def __init__(self, *batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> None:
        self.bytes = b"".join(batches)
        self.aborted = aborted

    async def fetch(
        self, positions: Mapping[TopicPartition, int], *, wait_ms: int, committed: bool
    ) -> dict[TopicPartition, Fetched]:
        if positions[PART] > 1_000:
            raise Refused(ErrorCode.offset_out_of_range, PART)
        return {PART: Fetched(self.bytes, 100, 0, self.aborted)}

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAt]:
        assert timestamps == {PART: EARLIEST}
        return {PART: OffsetAt(3, -1)}


def batch(offset: int, *values: bytes, **options: Any) -> bytes:
    return build([Record(None, v) for v in values], now_ms=5, offset_first=offset, **options)


def marker(offset: int, producer: int, kind: bytes) -> bytes:
    end = [Record(kind, b"\x00\x00\x00\x00\x00\x00")]
    return build(
        end,
        now_ms=5,
        offset_first=offset,
        producer_id=producer,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def in_transaction(offset: int, producer: int, *values: bytes) -> bytes:
    return batch(
        offset,
        *values,
        producer_id=producer,
        producer_epoch=0,
        sequence_first=0,
        transactional=True,
    )


def poll(reader: Reader) -> list[bytes | None]:
    return [message.record.value for message in asyncio.run(reader.poll())]


def test_positions_move_with_what_is_taken() -> None:
    log = Log(batch(0, b"a", b"b"), batch(2, b"c"))
    reader = Reader(cast(Client, log), {PART: 1})
    messages = asyncio.run(reader.poll())
    first = next(messages)
    assert (first.part, first.record.offset, first.record.value) == (PART, 1, b"b")
    assert reader.positions == {PART: 2}
    assert [message.record.offset for message in messages] == [2]
    assert reader.positions == {PART: 3}


def test_a_batch_that_is_cut_off_waits_for_the_next_poll() -> None:
    log = Log(batch(0, b"a"), batch(1, b"b")[:-1])
    reader = Reader(cast(Client, log), {PART: 0})
    assert poll(reader) == [b"a"]
    assert reader.positions == {PART: 1}


def test_whose_time_it_is() -> None:
    log = Log(batch(0, b"a"), batch(1, b"b", append_time=True))
    messages = asyncio.run(Reader(cast(Client, log), {PART: 0}).poll())
    assert [message.is_append_time for message in messages] == [False, True]


@pytest.mark.parametrize(
    ("committed", "values"),
    [(False, [b"1", b"2", b"plain", b"3"]), (True, [b"2", b"plain", b"3"])],
)
def test_aborted_transactions(committed: bool, values: list[bytes]) -> None:
    log = Log(
        in_transaction(0, 7, b"1"),
        in_transaction(1, 8, b"2"),
        batch(2, b"plain"),
        marker(3, 7, ABORT),
        marker(4, 8, COMMIT),
        in_transaction(5, 7, b"3"),  # The same producer's next one, which is not aborted.
        marker(6, 7, COMMIT),
        aborted=((7, 0),),
    )
    reader = Reader(cast(Client, log), {PART: 0}, committed=committed)
    assert poll(reader) == values
    assert reader.positions == {PART: 7}


def test_outside_of_the_log() -> None:
    log = Log(batch(3, b"d"))
    with pytest.raises(Refused, match="OFFSET_OUT_OF_RANGE"):
        poll(Reader(cast(Client, log), {PART: 5_000}))
    reader = Reader(cast(Client, log), {PART: 5_000}, reset=EARLIEST)
    assert poll(reader) == []
    assert reader.positions == {PART: 3}
    assert poll(reader) == [b"d"]


@pytest.mark.parametrize("position", [61, -2], ids=["a length", "a letter"])
def test_damage_is_said(position: int) -> None:
    broken = bytearray(batch(0, b"abc"))
    broken[position] ^= 0x70
    with pytest.raises(BadAnswer, match="partition 0 of topic t"):
        poll(Reader(cast(Client, Log(bytes(broken))), {PART: 0}))
