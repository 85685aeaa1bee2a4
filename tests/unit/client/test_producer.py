"""Lanes, batches, and what happens after a failure. The client is a list of batches."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from entrepot.client.client import Client
from entrepot.client.cluster import PartitionInfo, TopicInfo
from entrepot.client.errors import Refused
from entrepot.client.producer import Producer
from entrepot.core.batch import Codec, check, records
from entrepot.core.partitioner import partition_of


class FixedClock:
    def now_ms(self) -> int:
        return 1_000

    def monotonic(self) -> float:
        raise NotImplementedError


class Taker:
    """Takes batches after a while; refuses the one of this number."""

    def __init__(self, partitions: int = 1, refuse: int = -1, delay_s: float = 0.0) -> None:
        self.taken: list[tuple[int, bytes, int]] = []
        self.asked = 0
        self.running = 0
        self.running_max = 0
        self._refuse = refuse
        self._delay_s = delay_s
        self._topic = TopicInfo(
            "t", None, False, tuple(PartitionInfo(i, 1, 0, (1,), (1,)) for i in range(partitions))
        )

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        return self._topic

    async def produce(self, topic: str, partition: int, batch: bytes, *, acks: int) -> int:
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        await asyncio.sleep(self._delay_s)
        self.running -= 1
        self.asked += 1
        if self.asked - 1 == self._refuse:
            raise Refused(ErrorCode.message_too_large)
        self.taken.append((partition, batch, acks))
        return 0

    def values(self, partition: int) -> list[bytes | None]:
        batches = [batch for where, batch, _ in self.taken if where == partition]
        return [record.value for batch in batches for record in records(batch)]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def producer(taker: Taker, **options: Any) -> Producer:
    return Producer(cast(Client, taker), FixedClock(), **options)


def test_what_is_sent_together_goes_together_and_in_order() -> None:
    async def work() -> None:
        taker = Taker()
        sender = producer(taker, acks=1, codec=Codec.ZSTD)
        for number in range(100):
            await sender.send("t", b"%d" % number, headers=[("h", b"x")], timestamp_ms=number)
        await sender.flush()
        ((_, batch, acks),) = taker.taken
        header = check(batch)
        assert (header.count, header.codec, acks) == (100, Codec.ZSTD, 1)
        assert taker.values(0) == [b"%d" % number for number in range(100)]
        assert next(records(batch)).headers == (("h", b"x"),)

    run(work())


def test_batches_are_bounded_and_one_at_a_time() -> None:
    async def work() -> None:
        taker = Taker(delay_s=0.001)
        sender = producer(taker, batch_bytes=10_000)
        for number in range(100):
            await sender.send("t", b"%04d" % number * 250)
        await sender.flush()
        assert taker.values(0) == [b"%04d" % number * 250 for number in range(100)]
        assert max(len(batch) for _, batch, _ in taker.taken) < 12_000
        assert taker.running_max == 1

    run(work())


def test_keys_decide_and_the_keyless_take_turns() -> None:
    async def work() -> None:
        taker = Taker(partitions=3)
        sender = producer(taker, linger_ms=0)
        for _ in range(9):
            await sender.send("t", b"keyless")
            await sender.flush()
        assert [partition for partition, _, _ in taker.taken] == [0, 1, 2] * 3
        for key in (b"a", b"b", b"c", b"d"):
            await sender.send("t", key, key=key)
        await sender.send("t", b"given", key=b"a", partition=2)
        await sender.flush()
        for key in (b"a", b"b", b"c", b"d"):
            assert key in taker.values(partition_of(key, 3))
        assert b"given" in taker.values(2)

    run(work())


def test_nothing_follows_a_lost_batch() -> None:
    async def work() -> None:
        taker = Taker(refuse=1)
        sender = producer(taker, batch_bytes=1)
        for number in range(5):
            await sender.send("t", b"%d" % number)
        with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
            await sender.flush()
        assert taker.values(0) == [b"0"]
        with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
            await sender.send("t", b"late")

    run(work())


def test_a_slow_broker_slows_the_sender() -> None:
    async def work() -> None:
        taker = Taker(delay_s=0.01)
        sender = producer(taker, batch_bytes=2_000, waiting_bytes_max=5_000)
        for sent in range(20):
            await sender.send("t", bytes(1_000))
            waiting = sent + 1 - len(taker.values(0))
            assert waiting * 1_100 < 5_000 + 2 * 1_100
        await sender.flush()
        assert len(taker.values(0)) == 20

    run(work())
