"""Reading and writing: what a client asks of the brokers that lead its partitions.

Requests are written once, in a version every broker of the last years knows, with
topics by name; an older broker gets its own version of the same. What may succeed
later is repeated, a bounded number of times; so what is produced through a broken
connection may be there twice, unless the batches carry a producer's numbers.

Topics and their settings are in `admin`; records, instead of batches, in `producer`
and `reader`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple, Self, TypeVar

from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v12.response import FetchResponse, PartitionData
from kio.schema.list_offsets.v7.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.produce.v12.request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kio.schema.produce.v12.response import ProduceResponse
from kio.schema.types import BrokerId, TopicName, TransactionalId
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

from entrepot.client.cluster import Cluster, TopicInfo
from entrepot.client.errors import check
from entrepot.client.sasl import Credentials
from entrepot.core.limits import MIB
from entrepot.core.ports import Buffer, Net

# Timestamps with a meaning of their own in `list_offsets`.
LATEST = -1
EARLIEST = -2
YOUNGEST = -3  # The record with the largest timestamp.
ACKS_ALL = -1

FETCH_BYTES = 16 * MIB
FETCH_PARTITION_BYTES = 1 * MIB
FETCH_WAIT_MS = 500

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of topic {self.topic}"


class OffsetAt(NamedTuple):
    offset: int  # -1: no record is that young.
    timestamp_ms: int  # Of the record there; -1 for the log's ends.


class Fetched(NamedTuple):
    """Batches as they are in the log; the last one may be cut off."""

    batches: Buffer
    high_watermark: int
    offset_start: int  # The log's first offset; -1 from an old broker.
    aborted: tuple[tuple[int, int], ...]  # Producer id and first offset of aborted transactions.


class Client:
    def __init__(
        self,
        net: Net,
        bootstrap: str,
        *,
        client_id: str = "entrepot",
        timeout_s: float = 30.0,
        connect_s: float | None = None,
        attempts: int = 10,
        credentials: Credentials | None = None,
    ) -> None:
        """`bootstrap` is `host:port`, several with commas; `attempts=1` never repeats.

        A connection is given up after `connect_s`, or else like any answer after `timeout_s`.
        """
        self.cluster = Cluster(
            net,
            bootstrap,
            client_id=client_id,
            timeout_s=timeout_s,
            connect_s=connect_s,
            attempts=attempts,
            credentials=credentials,
        )
        self._timeout = milliseconds(int(timeout_s * 1000))

    async def __aenter__(self) -> Self:
        """Connected, or `Unreachable` at once."""
        await self.cluster.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.cluster.close()

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """The topic; with `create` the broker may make one that is missing."""
        if create:
            return await self.cluster.retry(lambda: self.cluster.topic(name, create=True))
        return await self.cluster.topic(name)

    async def produce(
        self,
        topic: str,
        partition: int,
        batch: Buffer,
        *,
        acks: int = ACKS_ALL,
        transactional_id: str | None = None,
    ) -> int:
        """Append one batch; the offset of its first record, or -1 with acks=0.

        In a transaction the batch carries its producer; the partition joins by it.
        """
        data = PartitionProduceData(index=i32(partition), records=Records(batch))
        request = ProduceRequest(
            transactional_id=None
            if transactional_id is None
            else TransactionalId(transactional_id),
            acks=i16(acks),
            timeout=self._timeout,
            topic_data=(TopicProduceData(name=TopicName(topic), partition_data=(data,)),),
        )

        async def attempt() -> int:
            leader = await self.cluster.leader(topic, partition)
            if acks == 0:
                await self.cluster.tell(request, node=leader)
                return -1
            answer = await self.cluster.ask(request, ProduceResponse, node=leader)
            (result,) = answer.responses[0].partition_responses
            about = TopicPartition(topic, partition)
            check(result.error_code, about, result.error_message)
            return result.base_offset

        return await self.cluster.retry(attempt)

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]:
        """The first offset whose record is at least that young, or one of the places above."""

        async def ask(
            leader: int, wanted: dict[TopicPartition, int]
        ) -> dict[TopicPartition, OffsetAt]:
            request = ListOffsetsRequest(
                replica_id=BrokerId(-1),
                isolation_level=i8(committed),
                topics=tuple(
                    ListOffsetsTopic(
                        name=TopicName(topic),
                        partitions=tuple(
                            ListOffsetsPartition(partition_index=i32(p), timestamp=i64(t))
                            for p, t in partitions
                        ),
                    )
                    for topic, partitions in by_topic(wanted)
                ),
            )
            answer = await self.cluster.ask(request, ListOffsetsResponse, node=leader)
            found = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    name = TopicPartition(topic.name, each.partition_index)
                    check(each.error_code, name)
                    found[name] = OffsetAt(each.offset, each.timestamp)
            return found

        return await self.per_leader(timestamps, ask)

    async def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        wait_ms: int = FETCH_WAIT_MS,
        bytes_min: int = 1,
        bytes_max: int = FETCH_BYTES,
        partition_bytes_max: int = FETCH_PARTITION_BYTES,
        committed: bool = False,
    ) -> dict[TopicPartition, Fetched]:
        """What is at these offsets and after; waits for it, but no longer than told."""

        async def ask(
            leader: int, wanted: dict[TopicPartition, int]
        ) -> dict[TopicPartition, Fetched]:
            request = FetchRequest(
                max_wait=milliseconds(wait_ms),
                min_bytes=i32(bytes_min),
                max_bytes=i32(bytes_max),
                isolation_level=i8(committed),
                topics=_fetch_topics(wanted, partition_bytes_max),
                forgotten_topics_data=(),
            )
            answer = await self.cluster.ask(request, FetchResponse, node=leader)
            check(answer.error_code)
            found = {}
            for topic in answer.responses:
                for each in topic.partitions:
                    name = TopicPartition(topic.topic, each.partition_index)
                    check(each.error_code, name)
                    found[name] = _fetched(each)
            return found

        return await self.per_leader(positions, ask)

    async def per_leader(
        self,
        wanted: Mapping[TopicPartition, _Value],
        ask: Callable[
            [int, dict[TopicPartition, _Value]], Awaitable[dict[TopicPartition, _Result]]
        ],
    ) -> dict[TopicPartition, _Result]:
        """Ask each leader about its partitions, all at once; repeat what failed for now."""

        async def attempt() -> dict[TopicPartition, _Result]:
            leaders: dict[int, dict[TopicPartition, _Value]] = {}
            for name, value in wanted.items():
                leader = await self.cluster.leader(*name)
                leaders.setdefault(leader, {})[name] = value
            answers = await asyncio.gather(*(ask(*entry) for entry in leaders.items()))
            return {name: result for answer in answers for name, result in answer.items()}

        return await self.cluster.retry(attempt)


def by_topic(
    wanted: Mapping[TopicPartition, _Value],
) -> Iterable[tuple[str, list[tuple[int, _Value]]]]:
    """As the protocol nests it: per topic, its partitions."""
    topics: dict[str, list[tuple[int, _Value]]] = {}
    for (topic, partition), value in wanted.items():
        topics.setdefault(topic, []).append((partition, value))
    return topics.items()


def milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=count))


def _fetch_topics(
    wanted: Mapping[TopicPartition, int], partition_bytes_max: int
) -> tuple[FetchTopic, ...]:
    return tuple(
        FetchTopic(
            topic=TopicName(topic),
            partitions=tuple(
                FetchPartition(
                    partition=i32(partition),
                    fetch_offset=i64(offset),
                    partition_max_bytes=i32(partition_bytes_max),
                )
                for partition, offset in partitions
            ),
        )
        for topic, partitions in by_topic(wanted)
    )


def _fetched(data: PartitionData) -> Fetched:
    return Fetched(
        batches=data.records or b"",
        high_watermark=data.high_watermark,
        offset_start=data.log_start_offset,
        aborted=tuple((t.producer_id, t.first_offset) for t in data.aborted_transactions or ()),
    )
