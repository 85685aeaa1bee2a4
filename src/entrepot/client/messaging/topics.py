"""Topics: append, read, seek, commit; and transactions of topics.

They are Kafka's topics, over Kafka's protocol. What is appended carries a producer's numbers, so
what is sent again after a connection broke is there once, as long as this client lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from entrepot.client.errors import ClientError
from entrepot.client.messaging.message import encoded
from entrepot.client.messaging.requests import RequestVerbs
from entrepot.core.clock import SystemClock
from entrepot.core.ports import Net

if TYPE_CHECKING:
    from entrepot.client.client import Client as KafkaClient
    from entrepot.client.client import TopicPartition
    from entrepot.client.reader import Reader
    from entrepot.client.transaction_writer import TransactionWriter
    from entrepot.core.record import Record

FIRST, END = "first", "end"  # Where to begin to read.
_CONTENT_TYPE = "content-type"
_SEQUENCE_END = 2**31


class Place(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


class Entry(NamedTuple):
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    body: bytes
    headers: Mapping[str, bytes | None]
    timestamp_ms: int

    @property
    def value(self) -> Any:
        """Return what was appended: a text, what JSON says, or bytes. Raises ValueError."""
        from entrepot.client.messaging.message import Message, head_of

        kind = self.headers.get(_CONTENT_TYPE) or b""
        return Message(self.body, "", "", head_of(kind.decode("utf-8", "replace"))).value


class Append(NamedTuple):
    """A record to be appended."""

    value: Any
    key: str | bytes | None = None
    headers: Mapping[str, str | bytes | None] | None = None


class Topic:
    """A topic's name, and what can be done with it."""

    def __init__(self, verbs: TopicVerbs, name: str) -> None:
        self.name = name
        self._verbs = verbs

    async def append(
        self,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes | None] | None = None,
        partition: int | None = None,
    ) -> Place:
        """Append a record; return where it is. It is on disk then, and there once.

        Records with the same key go to the same partition, from every client of Kafka's.
        """
        record = record_of(value, key, headers)
        number, offset = await self._verbs.appender.append(self.name, partition, [record])
        return Place(number, offset)

    async def append_many(
        self, values: Iterable[Any], *, key: str | bytes | None = None, partition: int | None = None
    ) -> Place:
        """Append records as one batch, to one partition; return where the first is."""
        records = [record_of(value, key, None) for value in values]
        if not records:
            raise ClientError("nothing to append")
        number, offset = await self._verbs.appender.append(self.name, partition, records)
        return Place(number, offset)

    async def read(
        self, start: str | int = FIRST, *, group: str | None = None, committed: bool = True
    ) -> TopicReader:
        """Begin to read all partitions: at the first record, at the end, or at an offset.

        With a group it begins where the group has committed. With `committed` the records of
        transactions are read when these are committed, and never if they are aborted.
        """
        return await self._verbs.reader(self.name, start, group, committed=committed)


class TopicReader:
    """Reads a topic from a position that it knows."""

    def __init__(
        self, client: KafkaClient, topic: str, group: str | None, *, committed: bool
    ) -> None:
        self.topic = topic
        self.group = group
        self._client = client
        self._committed = committed
        self._reader: Reader | None = None

    async def begin(self, start: str | int, partition: int | None = None) -> None:
        from entrepot.client.client import EARLIEST, LATEST, TopicPartition
        from entrepot.client.offsets import committed_offsets
        from entrepot.client.reader import Reader

        info = await self._client.topic(self.topic, create=True)
        parts = [
            TopicPartition(self.topic, each.index)
            for each in info.partitions
            if partition in (None, each.index)
        ]
        found: dict[TopicPartition, int] = {}
        if isinstance(start, int):
            found = dict.fromkeys(parts, start)
        elif start not in (FIRST, END):
            raise ClientError(f"a reader begins at '{FIRST}', at '{END}' or at an offset")
        elif self.group is not None:
            found = await committed_offsets(self._client.cluster, self.group, parts)
        left = [part for part in parts if part not in found]
        if left:
            wanted = dict.fromkeys(left, EARLIEST if start == FIRST else LATEST)
            places = await self._client.list_offsets(wanted, committed=self._committed)
            found |= {part: place.offset for part, place in places.items()}
        self._reader = Reader(self._client, found, reset=EARLIEST, committed=self._committed)

    @property
    def reader(self) -> Reader:
        assert self._reader is not None, "the reader has not begun"
        return self._reader

    @property
    def positions(self) -> dict[int, int]:
        """Return the next offset to read, by partition."""
        return {part.partition: offset for part, offset in self.reader.positions.items()}

    async def poll(self, timeout_s: float = 0.5) -> list[Entry]:
        """Return the next records: what is there, or comes before the time is over."""
        found = []
        for message in await self.reader.poll(round(timeout_s * 1000)):
            part, record, _ = message
            found.append(
                Entry(
                    part.topic,
                    part.partition,
                    record.offset,
                    record.key,
                    bytes(record.value or b""),
                    dict(record.headers),
                    record.timestamp_ms,
                )
            )
        return found

    def seek(self, offset: int, partition: int = 0) -> None:
        """Go on there. Raises ClientError for a partition that the topic does not have."""
        from entrepot.client.client import TopicPartition

        part = TopicPartition(self.topic, partition)
        if part not in self.reader.positions:
            raise ClientError(f"topic '{self.topic}' has no partition {partition}")
        self.reader.positions[part] = offset

    async def commit(self) -> None:
        """Write down how far the group has read: up to what `poll` returned last."""
        from entrepot.client.offsets import commit_offsets

        if self.group is None:
            raise ClientError("only a reader with a group can commit")
        await commit_offsets(self._client.cluster, self.group, self.reader.positions)

    async def committed(self) -> dict[int, int]:
        """Return how far the group has read, by partition, where it has committed anything."""
        from entrepot.client.offsets import committed_offsets

        if self.group is None:
            raise ClientError("only a reader with a group can commit")
        parts = [*self.reader.positions]
        found = await committed_offsets(self._client.cluster, self.group, parts)
        return {part.partition: offset for part, offset in found.items()}

    async def stop(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def __aiter__(self) -> AsyncIterator[Entry]:
        while True:
            for entry in await self.poll():
                yield entry


class TopicTransaction:
    """Records of any topics, and positions of readers: all of it or nothing."""

    def __init__(self, client: KafkaClient, writer: TransactionWriter) -> None:
        self._client = client
        self._writer = writer

    async def append(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        """Append a record that nobody sees before the commit, except who reads uncommitted."""
        from entrepot.client.client import TopicPartition

        record = record_of(value, key, headers)
        info = await self._client.topic(topic, create=True)
        number = chosen(len(info.partitions), record.key, partition)
        await self._writer.write({TopicPartition(topic, number): [record]})

    async def append_many(self, topic: str, appends: Iterable[Append]) -> None:
        """Append records of different keys and headers, each partition's with one request."""
        from entrepot.client.client import TopicPartition

        info = await self._client.topic(topic, create=True)
        found: dict[TopicPartition, list[Record]] = {}
        for turn, each in enumerate(appends):
            record = record_of(each.value, each.key, each.headers)
            number = chosen(len(info.partitions), record.key, None, turn)
            found.setdefault(TopicPartition(topic, number), []).append(record)
        await self._writer.write(found)

    async def commit_position(self, reader: TopicReader) -> None:
        """Commit how far a reader's group has read, together with the rest."""
        if reader.group is None:
            raise ClientError("only a reader with a group can commit")
        await self._writer.commit_offsets(reader.group, reader.reader.positions)


class Stoppable(Protocol):
    async def stop(self) -> None: ...


class Appender:
    """Appends records as one producer: each batch is there once, however often it is sent."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._clock = SystemClock()
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._keyless = 0

    async def append(
        self, topic: str, partition: int | None, records: list[Record]
    ) -> tuple[int, int]:
        """Return the partition, and the offset of the first record."""
        info = await self._client.topic(topic, create=True)
        self._keyless += 1
        number = chosen(len(info.partitions), records[0].key, partition, self._keyless)
        lane = self._lanes.setdefault((topic, number), _Lane())
        async with lane.lock:  # One batch is on its way at a time: numbers must not overtake.
            return number, await self._send(lane, topic, number, records)

    async def _send(self, lane: _Lane, topic: str, number: int, records: list[Record]) -> int:
        from entrepot.client.transactions import idempotent_producer
        from entrepot.core.batch import build

        if lane.producer is None:
            lane.producer, lane.sequence = await idempotent_producer(self._client), 0
        batch = build(
            records,
            now_ms=self._clock.now_ms(),
            producer_id=lane.producer[0],
            producer_epoch=lane.producer[1],
            sequence_first=lane.sequence,
        )
        try:
            offset = await self._client.produce(topic, number, batch)
        except BaseException:
            lane.producer = None  # Nobody knows what arrived: the next one counts anew.
            raise
        lane.sequence = (lane.sequence + len(records)) % _SEQUENCE_END
        return offset


class _Lane:
    """The batches for one partition."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.producer: tuple[int, int] | None = None  # Its id and epoch.
        self.sequence = 0  # Of the next record.


class TopicVerbs(RequestVerbs):
    """The part of a client that is about topics."""

    _replicas: list[Stoppable]

    _net: Net
    _bootstrap: str
    _kafka: KafkaClient | None
    appender: Appender

    async def reader(
        self,
        name: str,
        start: str | int,
        group: str | None,
        *,
        committed: bool,
        partition: int | None = None,
    ) -> TopicReader:
        """Return a reader of one partition, or all, with connections of its own: a broker answers
        each in order, and nothing must wait for a reader that waits for records."""
        client = copy(await self.kafka())
        client.cluster = client.cluster.twin()
        reader = TopicReader(client, name, group, committed=committed)
        self.stops(reader)
        await reader.begin(start, partition)
        return reader

    def stops(self, replica: Stoppable) -> None:
        """Have it stopped when the client is closed."""
        self._replicas.append(replica)

    async def kafka(self) -> KafkaClient:
        """Return the connection to Kafka's port, made when it is first needed."""
        if self._kafka is None:
            from entrepot.wire.kafka.kio_loading import load_kio

            load_kio()
            from entrepot.client.client import Client

            self._kafka = Client(self._net, self._bootstrap, attempts=40)
            self.appender = Appender(self._kafka)
        return self._kafka

    async def topic(self, name: str, *, partitions: int | None = None) -> Topic:
        """Return a topic; with a number of partitions, make it if there is none."""
        client = await self.kafka()
        if partitions is not None:
            from entrepot.client.admin import Admin, NewTopic

            await Admin(client).ensure_topic(NewTopic(name, partitions))
        return Topic(self, name)

    @asynccontextmanager
    async def topic_transaction(self, transactional_id: str) -> AsyncIterator[TopicTransaction]:
        """Append to topics and commit positions, all or nothing: when the block ends, or never.

        Whoever takes the same id next aborts what this one has left open, and fences it off.
        Queues cannot be part of it: see `transaction`.
        """
        from entrepot.client.transaction_writer import TransactionWriter
        from entrepot.client.transactions import Transactions

        client = await self.kafka()
        taken = await Transactions(client).take(transactional_id)
        writer = TransactionWriter(client, SystemClock(), taken)
        try:
            yield TopicTransaction(client, writer)
        except BaseException:
            await writer.abort()
            raise
        await writer.commit()


def record_of(
    value: Any, key: str | bytes | None, headers: Mapping[str, str | bytes | None] | None
) -> Record:
    """Return a value as a record, which says what kind it is. Raises ClientError."""
    from entrepot.core.record import Record

    body, content_type = encoded(value)
    found = [
        (name, text.encode() if isinstance(text, str) else text)
        for name, text in (headers or {}).items()
    ]
    if content_type is not None:
        found.append((_CONTENT_TYPE, content_type.encode()))
    return Record(key.encode() if isinstance(key, str) else key, body, tuple(found), -1)


def chosen(count: int, key: bytes | None, partition: int | None, turn: int = 0) -> int:
    """Return the partition that a record goes to."""
    from entrepot.core.partitioner import partition_of

    if partition is not None:
        return partition
    return turn % count if key is None else partition_of(key, count)
