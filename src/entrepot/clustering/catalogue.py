"""What all nodes of a cluster have alike: topics, users, rules and settings.

The coordinator has it, under the keys that the catalogue's records have: it is the catalogue of
the cluster, and its order of changes is that of all nodes. Each node follows it, and does what
came, one change after the other. Of topics it keeps records of its own, because they say what the
directories on its disk are: so a topic that was deleted while the node was away, and made anew
under its name, is not mistaken for the old one. Everything else is read anew at each start.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from entrepot.broker.broker import Broker
from entrepot.broker.catalog import (
    Topic,
    cluster_id_record,
    producer_id_record,
    queue_deleted_record,
    topic_deleted_record,
    topic_record,
)
from entrepot.broker.transaction_coordinator import TOPIC as TRANSACTIONS
from entrepot.broker.virtual_host.queue_maker import LEDGERS
from entrepot.broker.virtual_host.records import DEFAULT_VHOST
from entrepot.cluster.placement import place, with_room
from entrepot.cluster.state import (
    CATALOG,
    Assignment,
    Node,
    encode,
    partition_key,
    read_assignment,
)
from entrepot.core import limits
from entrepot.core.coordinator import Change, Coordinator, Delete, Expected, Put
from entrepot.core.errors import (
    ClusterChanged,
    CoordinatorUnavailable,
    InvalidAssignment,
    InvalidReplication,
    StorageError,
    TopicExists,
)
from entrepot.core.names import PartitionId
from entrepot.core.record import Record

log = logging.getLogger("entrepot.cluster")

_RETRY_S = 0.5
_PATIENCE_S = 30.0  # How long a change is waited for that is made, but not here yet.
MIN_IN_SYNC = "min.insync.replicas"
RETENTION = "retention.bytes"
_TRANSACTIONS_IN_SYNC_MIN = 2
_CHANGES = limits.REPLICAS_CHANGED_AT_ONCE_MAX


class LedWith(NamedTuple):
    """A partition, and who holds it, where another one is to be, and led by its leader."""

    key: str
    leader: int
    replicas: tuple[int, ...]


class SharedCatalogue:
    def __init__(
        self,
        broker: Broker,
        coordinator: Coordinator,
        replication: int,
        alive: Callable[[], list[Node]],
        topic_came: Callable[[Topic], None],
    ) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._replication = replication
        self._alive = alive
        self._topic_came = topic_came
        self._revisions: dict[str, int] = {}  # By key, of what is done here.
        self._there: dict[str, None] = {}  # Keys that the coordinator has.
        self._to_do: deque[tuple[str, bytes | None, int]] = deque()
        self._doing = asyncio.Event()
        self._done_to = 0  # All changes up to this revision are done here.
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    # --- following

    def told(self, key: str, value: bytes | None, revision: int) -> None:
        """Take in a change of the coordinator's, to be done here."""
        if value is None:
            self._there.pop(key, None)
        else:
            self._there[key] = None
        self._to_do.append((key, value, revision))
        self._doing.set()

    def forget_others(self) -> None:
        """Delete what was deleted while this node was away. Everything there is was told."""
        for name, topic in self._broker.topics.items():
            key = key_of(topic_deleted_record(topic.name))
            if key not in self._there and not topic.is_queue:
                log.info("topic %s was deleted meanwhile", name)
                self._to_do.append((key, None, 0))
                self._doing.set()
        for vhost, name in self._broker.catalog.queues:
            key = key_of(queue_deleted_record(vhost, name))
            if key not in self._there:
                log.info("queue %s was deleted meanwhile", name)
                self._to_do.append((key, None, 0))
                self._doing.set()

    async def run(self) -> None:
        """Do what came, for ever, in its order."""
        while True:
            while self._to_do:
                key, value, revision = self._to_do[0]
                if not await self._do(key, value):
                    await asyncio.sleep(_RETRY_S)
                    continue
                self._to_do.popleft()
                self._note(key, value, revision)
            self._doing.clear()
            await self._doing.wait()

    async def _do(self, key: str, value: bytes | None) -> bool:
        """Do one change here. Return whether that has succeeded."""
        record = Record(key.removeprefix(CATALOG).encode(), value)
        try:
            await self._broker.take_over(record)
        except (StorageError, OSError) as error:
            log.warning("%s has to wait: %s", key, error)
            return False
        except Exception as error:
            self._broker.faults.caught(f"{key} is not taken over", error)
        return True

    def _note(self, key: str, value: bytes | None, revision: int) -> None:
        if value is None:
            self._revisions.pop(key, None)
        else:
            self._revisions[key] = revision
        if not self._to_do or self._to_do[0][2] > revision:
            self._done_to = max(self._done_to, revision)
        name = key.removeprefix(CATALOG)
        if value is not None and name.startswith("topic:"):
            topic = self._broker.topics.get(name.removeprefix("topic:"))
            if topic is not None:
                self._topic_came(topic)
        elif value is not None and name.startswith("queue:"):
            vhost, queue = json.loads(name.removeprefix("queue:"))
            stored = self._broker.catalog.queues.get((vhost, queue))
            if stored is not None:
                self._topic_came(stored.topic)
        waiting, self._waiting = self._waiting, []
        for is_over, future in waiting:
            if future.done():
                continue
            if is_over():
                future.set_result(None)
            else:
                self._waiting.append((is_over, future))

    async def _wait(self, is_over: Callable[[], bool]) -> None:
        if is_over():
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((is_over, future))
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await future
        except TimeoutError:
            raise StorageError("the change is made, but this node has not heard of it") from None

    async def done(self, revision: int) -> None:
        await self._wait(lambda: self._done_to >= revision)

    async def applied_all(self) -> None:
        """Wait until all that came is done."""
        await self._wait(lambda: not self._to_do)

    async def topic_known(self, name: str) -> None:
        await self._wait(lambda: name in self._broker.topics)

    # --- changing

    async def _commit(self, expected: Sequence[Expected], changes: Sequence[Change]) -> int | None:
        try:
            return await self._coordinator.commit(expected, changes)
        except CoordinatorUnavailable as error:
            raise StorageError(str(error)) from None

    async def cluster_id(self) -> str:
        """Return the cluster's id; give it one if it has none. Waits for the coordinator."""
        key, failure = key_of(cluster_id_record("")), ""
        while True:
            try:
                entry = await self._coordinator.get(key)
                if entry is not None:
                    return entry.value.decode()
                record = cluster_id_record(self._broker.new_cluster_id())
                await self._coordinator.commit([Expected(key, 0)], [put_of(record)])
            except CoordinatorUnavailable as error:
                if str(error) != failure:
                    failure = str(error)
                    log.warning("waiting for the coordinator: %s", error)
                await asyncio.sleep(_RETRY_S)

    async def change(self, *records: Record) -> None:
        expected = [
            Expected(key, self._revisions.get(key, 0))
            for key in map(key_of, records)
            if key.startswith(f"{CATALOG}topic:")
        ]
        revision = 0
        for first in range(0, len(records), _CHANGES):
            part = [put_of(each) for each in records[first : first + _CHANGES]]
            found = await self._commit(expected if not first else [], part)
            if found is None:
                raise ClusterChanged("another node changed it meanwhile; try again")
            revision = found
        if any(each.value is not None for each in records):
            await self.done(revision)
        else:
            await self._gone(revision, [key_of(each) for each in records])

    async def _gone(self, revision: int, keys: Sequence[str]) -> None:
        """Wait until these keys are gone here. If none of them was there, nothing has changed: the
        revision is of something else then, which this catalogue may never be told of."""
        await self._wait(
            lambda: (
                self._done_to >= revision
                or (not self._to_do and not any(key in self._there for key in keys))
            )
        )

    async def create_topic(
        self,
        topic: Topic,
        replication: int | None,
        assignments: Sequence[Sequence[int]] | None,
        led_with: LedWith | None = None,
    ) -> None:
        if led_with is not None:
            placed = self._placed_with(topic, led_with)
        else:
            placed = self._placed(topic, 0, topic.partition_count, replication, assignments)
        if topic.name == LEDGERS:
            placed = list(map(_led_with_itself, placed))
        elif topic.name == TRANSACTIONS:
            topic = self._with_copies(topic)
        record = topic_record(topic)
        # The partitions first: a topic is there when its record is. Its id is new.
        last = await self._put_partitions(placed, keep=_CHANGES)
        queue = key_of(queue_deleted_record(DEFAULT_VHOST, topic.name))
        expected = [Expected(key_of(record), 0), Expected(queue, 0)]
        revision = await self._commit(expected, [*last, put_of(record)])
        if revision is None:
            await self.remove_partitions(topic)
            raise TopicExists(f"topic {topic.name!r} already exists")
        await self.done(revision)

    def _with_copies(self, topic: Topic) -> Topic:
        """Return the topic with the setting that the end of a transaction is known to two nodes at
        least, if so many have it, whatever other topics require: as with Kafka."""
        usual = int(self._broker.defaults.settings.get(MIN_IN_SYNC, "1"))
        count = max(usual, min(_TRANSACTIONS_IN_SYNC_MIN, self._replication))
        settings = {**topic.settings, MIN_IN_SYNC: str(count)}
        return Topic(topic.name, topic.id, topic.partition_count, settings)

    async def grow_topic(
        self,
        topic: Topic,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        replication: int,
    ) -> None:
        placed = self._placed(topic, topic.partition_count, count, replication, assignments)
        grown = Topic(topic.name, topic.id, count, topic.settings)
        record = topic_record(grown)
        expected = [Expected(key_of(record), self._revisions.get(key_of(record), 0))]
        last = await self._put_partitions(placed, keep=_CHANGES)
        revision = await self._commit(expected, [*last, put_of(record)])
        if revision is None:
            raise ClusterChanged("another node changed the topic meanwhile; try again")
        await self.done(revision)

    async def delete_topic(self, topic: Topic) -> None:
        record = topic_deleted_record(topic.name)
        expected = [Expected(key_of(record), self._revisions.get(key_of(record), 0))]
        revision = await self._commit(expected, [put_of(record)])
        if revision is None:
            raise ClusterChanged("another node changed the topic meanwhile; try again")
        await self.remove_partitions(topic)
        await self.done(revision)

    async def _put_partitions(self, changes: list[Change], keep: int) -> list[Change]:
        """Put partitions into the coordinator; return the last of them, at most `keep`, which go
        with the topic."""
        while len(changes) > keep:
            await self._commit([], changes[:_CHANGES])
            changes = changes[_CHANGES:]
        return changes

    async def remove_partitions(self, topic: Topic) -> None:
        keys: list[Change] = [
            Delete(partition_key(PartitionId(topic.id, number)))
            for number in range(topic.partition_count)
        ]
        for first in range(0, len(keys), _CHANGES):
            await self._commit([], keys[first : first + _CHANGES])

    async def reserve_producer_ids(self, count: int) -> int:
        key = key_of(producer_id_record(0))
        while True:
            try:
                entry = await self._coordinator.get(key)
            except CoordinatorUnavailable as error:
                raise StorageError(str(error)) from None
            first = 0 if entry is None else int(entry.value)
            expected = [Expected(key, 0 if entry is None else entry.revision)]
            reserved = put_of(producer_id_record(first + count))
            if await self._commit(expected, [reserved]) is not None:
                return first

    # --- placement

    def _placed(
        self,
        topic: Topic,
        first: int,
        end: int,
        replication: int | None,
        assignments: Sequence[Sequence[int]] | None,
    ) -> list[Change]:
        """Return the changes that place these partitions on nodes. Raises InvalidReplication,
        InvalidAssignment."""
        nodes = self._alive()
        bytes_max = self._bytes_max(topic)
        roomy = with_room(nodes, bytes_max)
        if assignments is None:
            factor = self._replication if replication is None else replication
            if not 1 <= factor <= len(nodes):
                raise InvalidReplication(
                    f"Unable to replicate the partition {factor} time(s): "
                    f"{len(nodes)} broker(s) are registered"
                )
            if factor > len(roomy):
                raise InvalidReplication(
                    f"Unable to replicate the partition {factor} time(s): with retention.bytes="
                    f"{bytes_max} it fits on the disks of {len(roomy)} broker(s)"
                )
            nodes = roomy
            begin = topic.id.int % len(nodes)
            placed: Sequence[Sequence[int]] = place(nodes, end, factor, begin)[first:]
        else:
            placed = assignments
            self._check(placed, end - first, [node.id for node in nodes])
            self.check_room(topic, list(chain(*placed)))
        alive = {node.id: None for node in nodes}
        changes: list[Change] = []
        for number, replicas in enumerate(placed, first):
            in_sync = tuple(each for each in replicas if each in alive)
            assignment = Assignment(tuple(replicas), in_sync, in_sync[0], 0)
            changes.append(Put(partition_key(PartitionId(topic.id, number)), encode(assignment)))
        return changes

    def check_room(self, topic: Topic, wanted: Sequence[int]) -> None:
        """Raise InvalidAssignment if a partition of the topic may become larger than the disk of
        one of these nodes."""
        nodes, bytes_max = self._alive(), self._bytes_max(topic)
        roomy = [each.id for each in with_room(nodes, bytes_max)]
        for node in nodes:
            if node.id in wanted and node.id not in roomy:
                raise InvalidAssignment(
                    f"a partition with retention.bytes={bytes_max} does not fit on the disk of "
                    f"broker {node.id}, which has {node.disk_bytes} bytes"
                )

    def _bytes_max(self, topic: Topic) -> int:
        """Return how large a partition of the topic may become; -1 means: without a bound."""
        defaults = self._broker.defaults.settings
        return int(topic.settings.get(RETENTION, defaults.get(RETENTION, "-1")))

    def _placed_with(self, topic: Topic, other: LedWith) -> list[Change]:
        """Return the changes that place these partitions where another one is. Nodes that are not
        there copy them when they come back."""
        alive = {node.id: None for node in self._alive()}
        in_sync = tuple(each for each in other.replicas if each in alive or each == other.leader)
        assignment = Assignment(other.replicas, in_sync, other.leader, 0, led_with=other.key)
        value = encode(assignment)
        numbers = range(topic.partition_count)
        return [Put(partition_key(PartitionId(topic.id, each)), value) for each in numbers]

    @staticmethod
    def _check(placed: Sequence[Sequence[int]], count: int, alive: Sequence[int]) -> None:
        if len(placed) != count:
            raise InvalidAssignment(f"{len(placed)} assignments for {count} partitions")
        for replicas in placed:
            if not replicas or len(set(replicas)) != len(replicas):
                raise InvalidAssignment(f"the replicas {list(replicas)} are not different nodes")
            unknown = [each for each in replicas if each not in alive]
            if unknown:
                raise InvalidAssignment(f"there are no nodes {unknown}")
        if len({len(replicas) for replicas in placed}) > 1:
            raise InvalidAssignment("partitions of a topic have equally many replicas")


def _led_with_itself(change: Change) -> Change:
    """Return the assignment of a partition that its leader leads as long as it can."""
    assert isinstance(change, Put)
    return Put(change.key, encode(replace(read_assignment(change.value), led_with=change.key)))


def key_of(record: Record) -> str:
    assert record.key is not None
    return CATALOG + record.key.decode()


def put_of(record: Record) -> Change:
    key = key_of(record)
    return Delete(key) if record.value is None else Put(key, record.value)
