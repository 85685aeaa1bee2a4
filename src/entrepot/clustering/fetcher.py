"""Copies from one other node all partitions that it leads and this node follows.

One connection, and one request for all partitions at a time. What came is written, and made as
durable as the topics require, before the next request asks for what follows: so its offset says
what this node has. Before a partition is fetched for the first time in an epoch, its log is cut
to where it parts from the leader's.

A partition may get another role at any moment. What came for the old one is thrown away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v13.response import FetchResponse, PartitionData
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from entrepot.broker.served_partition import ServedPartition, heard
from entrepot.client.connection import Connection
from entrepot.client.errors import ClientError
from entrepot.client.sasl import Credentials
from entrepot.cluster.replica import Follower
from entrepot.cluster.state import Node
from entrepot.core import limits
from entrepot.core.batch import check, read_header, walk
from entrepot.core.errors import OffsetOutOfRange, PeerError, StorageError
from entrepot.core.names import PartitionId
from entrepot.core.ports import Clock, Net
from entrepot.log.epochs import EpochEnd
from entrepot.log.log import Log
from entrepot.log.partition import Partition

log = logging.getLogger("entrepot.cluster")

_PATIENCE_S = 10.0  # How long an answer is waited for.
_RETRY_S = 0.2  # After a failed connection, or an error of a partition.
_WAIT_MS = 500  # How long the leader may wait for more.
_WAIT_SOON_MS = 50  # The same, while other partitions may be about to come.
_SOON_S = 2.0


class Followed:
    """A partition that is copied."""

    __slots__ = (
        "high_watermark",
        "is_cutting",
        "log_start",
        "name",
        "retry_s",
        "served",
        "state",
        "topic",
        "was_told",
        "when_cut",
    )

    def __init__(
        self, name: str, served: ServedPartition, state: Follower, when_cut: Callable[[], None]
    ) -> None:
        self.name = name
        self.is_cutting = False  # Until then nobody else may touch the log.
        self.when_cut = when_cut  # Called afterwards.
        self.topic = served.partition.id.topic
        self.served = served
        self.state = state
        self.retry_s = 0.0  # Not asked for before.
        self.high_watermark = 0  # The leader's,
        self.log_start = 0  # and its first offset.
        self.was_told = ""  # The error that was logged last.

    @property
    def identity(self) -> PartitionId:
        return self.served.partition.id

    @property
    def number(self) -> int:
        return self.served.partition.id.number


class Fetcher:
    def __init__(
        self,
        node: int,
        leader: Node,
        net: Net,
        clock: Clock,
        partitions: Log,
        credentials: Credentials | None = None,
    ) -> None:
        self._node = node
        self.leader = leader
        self._net = net
        self._clock = clock
        self._log = partitions
        self._credentials = credentials
        self._followed: dict[PartitionId, Followed] = {}
        self._changed = asyncio.Event()
        self._changed_s = 0.0
        self._failure = ""  # That was logged last.

    def follow(self, followed: Followed) -> None:
        self._followed[followed.identity] = followed
        self._changed_s = self._clock.monotonic()
        self._changed.set()

    def leave(self, identity: PartitionId) -> None:
        self._followed.pop(identity, None)

    async def run(self) -> None:
        """Copy for ever."""
        while True:
            if not self._followed:
                self._changed.clear()
                await self._changed.wait()
            try:
                connection = await self._connect()
                try:
                    while True:
                        await self._round(connection)
                finally:
                    connection.close()
            except ClientError as error:
                if str(error) != self._failure:
                    self._failure = str(error)
                    log.warning("copying from node %d: %s", self.leader.id, error)
            await asyncio.sleep(_RETRY_S)

    async def _connect(self) -> Connection:
        connection = await Connection.open(
            self._net,
            self.leader.host,
            self.leader.port,
            client_id=f"replica-{self._node}",
            timeout_s=_PATIENCE_S,
            credentials=self._credentials,
        )
        if self._failure:
            log.info("copying from node %d again", self.leader.id)
            self._failure = ""
        return connection

    async def _round(self, connection: Connection) -> None:
        """Ask about all partitions once."""
        now_s = self._clock.monotonic()
        due = [
            each
            for each in self._followed.values()
            if each.retry_s <= now_s and each.served.partition.stopped is None
        ]
        damaged = [each for each in self._followed.values() if each.served.partition.refused]
        for each in damaged:
            if each.retry_s <= now_s and self._is_followed(each):
                await self._begin_anew(each, 0)
        asking = [each for each in due if not each.state.is_fetching]
        if asking:
            await self._ask_epochs(connection, asking)
        fetching = [each for each in due if each.state.is_fetching and self._is_followed(each)]
        for each in fetching:  # As a leader it may have written what is not durable yet.
            await self._durable(each)
        fetching = [each for each in fetching if self._is_followed(each) and _has_all(each)]
        if fetching:
            await self._fetch(connection, fetching)
        elif not asking:
            self._changed.clear()
            try:
                async with asyncio.timeout(_RETRY_S if self._followed else _PATIENCE_S):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _is_followed(self, followed: Followed) -> bool:
        return self._followed.get(followed.identity) is followed

    def _wait(self, followed: Followed, why: str) -> None:
        """Ask for the partition later."""
        followed.retry_s = self._clock.monotonic() + _RETRY_S
        if why != followed.was_told:
            followed.was_told = why
            log.info("%s has to wait: %s", followed.served.partition.directory, why)

    # --- where to cut

    async def _ask_epochs(self, connection: Connection, asking: Sequence[Followed]) -> None:
        asked = {(each.name, each.number): each for each in asking}
        topics = [
            OffsetForLeaderTopic(
                topic=TopicName(name),
                partitions=tuple(
                    OffsetForLeaderPartition(
                        partition=i32(each.number),
                        current_leader_epoch=i32(each.state.epoch),
                        leader_epoch=i32(each.state.question),
                    )
                    for each in group
                ),
            )
            for name, group in groupby(asking, key=attrgetter("name"))
        ]
        request = OffsetForLeaderEpochRequest(replica_id=BrokerId(self._node), topics=tuple(topics))
        response = await connection.ask(request, OffsetForLeaderEpochResponse, _PATIENCE_S)
        for topic in response.topics:
            for answer in topic.partitions:
                followed = asked.get((topic.topic, int(answer.partition)))
                if followed is not None and self._is_followed(followed):
                    await self._cut(followed, answer)

    async def _cut(self, followed: Followed, answer: EpochEndOffset) -> None:
        partition, state = followed.served.partition, followed.state
        if answer.error_code is not ErrorCode.none:
            self._wait(followed, answer.error_code.name)
            return
        end = EpochEnd(int(answer.leader_epoch), int(answer.end_offset))
        offset = state.answered(end, partition.offset_end)
        if offset is None:
            self._wait(followed, "the leader does not know its epoch yet")
            return
        if offset >= partition.offset_end:
            return
        log.info("%s is cut at offset %d", partition.directory, offset)
        followed.is_cutting, state.is_fetching, is_all = True, False, state.is_fetching
        # In a task of its own: it must not be left halfway.
        cutting = asyncio.ensure_future(self._truncate(followed, offset))
        if await asyncio.shield(cutting):
            state.is_fetching = is_all
            state.was_cut(is_empty=not partition.size)

    async def _truncate(self, followed: Followed, offset: int) -> bool:
        """Cut the log. Return whether it is done."""
        partition = followed.served.partition
        try:
            await self._log.truncate(partition, max(offset, partition.offset_start))
        except OffsetOutOfRange:  # Readers were shown what the leader has not.
            return await self._drop(followed, 0)
        except (StorageError, OSError) as error:
            if isinstance(error, OSError):  # It is cut, and its view was not folded again.
                partition.stop(f"{partition.directory}: not folded after a cut: {error.strerror}")
            self._wait(followed, str(error))
            return False
        finally:
            followed.is_cutting = False
            followed.when_cut()
        return True

    # --- beginning anew

    async def _begin_anew(self, followed: Followed, offset: int) -> None:
        """Drop the copy, and fetch from this offset on. If the leader has not that one either, it
        says where its log begins."""
        followed.is_cutting, followed.state.is_fetching = True, False
        dropping = asyncio.ensure_future(self._dropping(followed, offset))
        if await asyncio.shield(dropping):
            followed.state.was_cut(is_empty=True)

    async def _dropping(self, followed: Followed, offset: int) -> bool:
        try:
            return await self._drop(followed, offset)
        finally:
            followed.is_cutting = False
            followed.when_cut()

    async def _drop(self, followed: Followed, offset: int) -> bool:
        """Drop the copy. Return whether it is done."""
        partition = followed.served.partition
        log.warning("%s is copied again, from offset %d on", partition.directory, offset)
        try:
            await self._log.begin_anew(partition, offset)
        except StorageError as error:
            self._wait(followed, str(error))
            return False
        followed.high_watermark = followed.log_start = 0
        return True

    # --- copying

    async def _fetch(self, connection: Connection, fetching: Sequence[Followed]) -> None:
        asked = {(each.topic, each.number): each for each in fetching}
        topics = [
            FetchTopic(topic_id=topic, partitions=tuple(map(self._wanted, group)))
            for topic, group in groupby(fetching, key=attrgetter("topic"))
        ]
        is_soon = self._clock.monotonic() - self._changed_s < _SOON_S
        request = FetchRequest(
            replica_id=BrokerId(self._node),
            max_wait=_milliseconds(_WAIT_SOON_MS if is_soon else _WAIT_MS),
            min_bytes=i32(1),
            max_bytes=i32(limits.REPLICA_FETCH_BYTES),
            isolation_level=i8(0),
            session_id=i32(0),
            session_epoch=i32(-1),
            topics=tuple(topics),
            forgotten_topics_data=(),
            rack_id="",
        )
        response = await connection.ask(request, FetchResponse, _PATIENCE_S)
        written: list[Followed] = []
        behind: list[tuple[Followed, int, PartitionData]] = []  # With where to begin anew.
        for topic in response.responses:
            for data in topic.partitions:
                assert topic.topic_id is not None
                followed = asked.get((topic.topic_id, int(data.partition_index)))
                if followed is None or not self._is_followed(followed):
                    continue
                start = _start_of(followed.served.partition, data)
                if start is None:
                    self._take(followed, data)
                    written.append(followed)
                else:
                    behind.append((followed, start, data))
        for followed in written:
            await self._durable(followed)
        for followed, start, data in behind:
            if self._is_followed(followed):
                await self._begin_anew(followed, start)
            if self._is_followed(followed) and data.error_code is ErrorCode.none:
                self._take(followed, data)  # It begins before the leader's first offset.
                await self._durable(followed)

    def _wanted(self, followed: Followed) -> FetchPartition:
        partition = followed.served.partition
        return FetchPartition(
            partition=i32(partition.id.number),
            current_leader_epoch=i32(followed.state.epoch),
            fetch_offset=i64(partition.offset_end),
            last_fetched_epoch=i32(partition.epochs.last),
            log_start_offset=i64(partition.offset_start),
            partition_max_bytes=i32(limits.REPLICA_FETCH_PARTITION_BYTES),
        )

    def _take(self, followed: Followed, data: PartitionData) -> None:
        """Write what came of one partition."""
        if data.error_code is not ErrorCode.none:
            self._wait(followed, data.error_code.name)
            return
        followed.was_told = ""
        followed.high_watermark = int(data.high_watermark)
        followed.log_start = int(data.log_start_offset)
        try:
            if data.records:
                self._append(followed, memoryview(data.records))
        except (StorageError, PeerError, OSError) as error:
            self._wait(followed, str(error))

    def _append(self, followed: Followed, view: memoryview) -> None:
        partition = followed.served.partition
        batches: list[Any] = []
        for position, header in walk(view):
            end = position + header.size
            if end > len(view):
                break
            if header.offset_end > partition.offset_end:
                batch = view[position:end]
                check(batch, allow_gaps=True)  # Of a topic that was ever compacted.
                batches.append((header, batch))
        if batches:
            self._log.append(partition, batches, is_stamped=True)

    def _move_start(self, followed: Followed) -> None:
        """Hide what the leader has no more."""
        partition = followed.served.partition
        offset = min(followed.log_start, partition.high_watermark)
        if offset > partition.offset_start:
            partition.delete_before(offset)
            self._log.sweep(partition)

    async def _durable(self, followed: Followed) -> None:
        """Wait until what was written is durable, and show what the leader shows: all that, before
        the next fetch says that it is here."""
        partition = followed.served.partition
        try:
            await heard(lambda waiter: partition.when_durable(partition.offset_end, waiter))
        except StorageError as error:
            self._wait(followed, str(error))
        if self._is_followed(followed) and partition.stopped is None:
            partition.show(followed.high_watermark)
            self._move_start(followed)


def _has_all(followed: Followed) -> bool:
    """Return whether all that is written here is durable: the offset we ask for says so."""
    partition = followed.served.partition
    return partition.stopped is None and partition.offset_durable >= partition.offset_end


def _start_of(partition: Partition, data: PartitionData) -> int | None:
    """Return where to begin anew, because what was asked for cannot follow what is here; None if
    it can."""
    if data.error_code is ErrorCode.offset_out_of_range:
        start = int(data.log_start_offset)
        return start if start > partition.offset_end else None
    is_empty = not partition.segments or partition.segments[0].offset_base == partition.offset_end
    if is_empty and data.records and data.error_code is ErrorCode.none:
        # The leader's first offset may be within its first batch.
        first = read_header(data.records).offset_first
        return first if first < partition.offset_end else None
    return None


def _milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=count))
