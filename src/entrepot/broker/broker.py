"""The verbs: declare, alter, delete, find. What messages mean, for every gateway alike.

A verb that changes what there is returns when the change is permanent. Appending
and reading are the streams' (`stream`), found here by topic name or id.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from entrepot.broker.access import Access
from entrepot.broker.catalog import (
    CATALOG_ID,
    CATALOG_NAME,
    INTERNAL_NAMES,
    Catalog,
    Topic,
    View,
    cluster_id_record,
    producer_id_record,
    start_record,
    topic_deleted_record,
    topic_record,
)
from entrepot.broker.consumer_group.coordinator import Coordinator
from entrepot.broker.consumer_group.settings import GroupSettings
from entrepot.broker.permissions import Permissions
from entrepot.broker.queue.message import PropertyReader
from entrepot.broker.quotas import Quotas
from entrepot.broker.router.event import Exchange
from entrepot.broker.server_settings import CATALOG_KIND as SERVER_SETTINGS
from entrepot.broker.server_settings import (
    Defaults,
    ServerSettings,
    check_server_settings,
    settings_record,
)
from entrepot.broker.sessions import Sessions
from entrepot.broker.share_group.coordinator import ShareCoordinator
from entrepot.broker.share_group.settings import CATALOG_KIND as GROUP_SETTINGS
from entrepot.broker.stream import Stream, committed
from entrepot.broker.topic_config import TopicConfig, check_settings, topic_config
from entrepot.broker.transaction_coordinator import TransactionCoordinator
from entrepot.broker.turns import Turns
from entrepot.broker.users import Users
from entrepot.broker.virtual_host.claims import Claims
from entrepot.broker.virtual_host.virtual_hosts import VirtualHosts
from entrepot.core import batch, limits
from entrepot.core.errors import (
    InvalidBatch,
    InvalidName,
    InvalidPartitions,
    StorageError,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from entrepot.core.faults import Faults, Uncaught
from entrepot.core.names import PartitionId, TopicId, TopicName, check_topic_name
from entrepot.core.ports import Clock, Disk, Entropy, Worker, in_place
from entrepot.core.record import Record
from entrepot.core.steps import Steps, finish
from entrepot.log.log import Log
from entrepot.log.partition import Partition
from entrepot.log.policy import Policy

log = logging.getLogger("entrepot.broker")

_PRODUCER_IDS_PER_BLOCK = 1_000  # Reserved at once, so that most requests need no write.
_TOPICS_CONFIGURED_AT_ONCE = 100
_RESTORE = "Restore the data directory from a backup"
_CATALOG_POLICY = Policy(segment_bytes=64 * limits.MIB, retention_ms=-1)


class PartitionFault(NamedTuple):
    """What is wrong with a partition: it is neither read nor written, or not written, or
    cannot be read everywhere."""

    directory: str
    state: str  # refused, stopped or damaged.
    reason: str


class Broker:
    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        entropy: Entropy,
        defaults: Defaults | None = None,
        *,
        node_id: int = 1,
        check_all: bool = False,
        access: Access | None = None,
        groups: GroupSettings | None = None,
        worker: Worker = in_place,
        codec_worker: Worker = in_place,
        property_reader: PropertyReader | None = None,
        predeclared: Sequence[Exchange] = (),
        faults: Faults | None = None,
    ) -> None:
        """Passwords are hashed by `worker` and batches compressed by `codec_worker`.

        Without a `property_reader` there are no queues; what the disk has of them is kept. Each
        virtual host has the `predeclared` exchanges."""
        self.server_settings = ServerSettings(node_id, defaults or Defaults())
        check_settings(self.defaults.settings)
        self._clock = clock
        self.entropy = entropy
        self.faults = faults or Uncaught()
        self._log = Log(
            disk, clock, check_all=check_all, faults=self.faults, codec_worker=codec_worker
        )
        self.turns = Turns(clock)
        self.codec_worker = codec_worker
        self.access = access or Access()
        self.users = Users(entropy, worker)
        self.quotas = Quotas()
        self.permissions = Permissions(self.access)
        views: dict[str, View] = {"acl": self.access, "user": self.users, "quota": self.quotas}
        views |= {"permission": self.permissions, SERVER_SETTINGS: self.server_settings}
        self.catalog = Catalog(views)
        self._changes: Partition | None = None  # The catalog's partition.
        self._streams: dict[PartitionId, Stream] = {}
        self._partitions_coming = 0  # Of topics that are being created, or get more of them.
        self.claims = Claims()  # Names of topics and queues being created, changed or deleted.
        self._internal: dict[str, asyncio.Future[None]] = {}  # Topics of ours, being created.
        self._producer_id = 0  # The next to give; the catalog says up to where it may.
        self.groups = Coordinator(self, clock, entropy, groups or GroupSettings())
        self.share_groups = ShareCoordinator(self, clock)
        views[GROUP_SETTINGS] = self.share_groups.settings
        ended = self.groups.complete_transaction
        self.transactions = TransactionCoordinator(self, clock, ended)
        self.sessions = Sessions()  # Of those who use queues.
        self.vhosts = VirtualHosts(self, clock, property_reader, predeclared)
        views.update(self.vhosts.views())

    # --- life

    async def open(self) -> None:
        """Recover or resume everything. Raises BlockingIOError when the directory is taken."""
        self._log.begin()
        self._changes = self._log.open(CATALOG_ID, CATALOG_NAME, _CATALOG_POLICY).partition
        self._fold_catalog(self._changes)
        if not self.catalog.cluster_id and self._log.has_others:
            raise StorageError(
                f"{self._changes.directory} is missing or empty, which says what the other "
                f"partitions are. {_RESTORE}"
            )
        for topic in self.catalog.all_topics():
            self.open_streams(topic)
        await self._log.ready(self.catalog.directory_names.__contains__)
        self._producer_id = self.catalog.producer_id_next
        if not self.catalog.cluster_id:
            token = urlsafe_b64encode(self.entropy.token(16)).decode().rstrip("=")
            await self._change(cluster_id_record(token))
        self.groups.open()
        self.share_groups.open()
        if await self.transactions.open(power_failed=self._log.power_failed):
            await self._log.remember_boot()
        self.vhosts.open()

    async def close(self) -> None:
        await self.vhosts.close()
        self.groups.close()
        self.share_groups.close()
        await self.transactions.close()
        await self._log.close()

    def _fold_catalog(self, changes: Partition) -> None:
        """Raises StorageError: without all of it nothing can be served."""
        try:
            changes.check_served()
            for data in changes.batches():
                for record in batch.records(data):
                    self.catalog.apply(record)
        except (StorageError, InvalidBatch, OSError) as error:
            raise StorageError(f"the catalog is damaged: {error}. {_RESTORE}") from None

    def open_streams(self, topic: Topic) -> None:
        self._streams.update(finish(self._open(topic)))

    def _open(self, topic: Topic, first: int = 0) -> Steps[dict[PartitionId, Stream]]:
        """Open its partitions, from the first that is not open. Nobody finds them yet."""
        config = self.config_of(topic)
        streams = {}
        for index in range(first, topic.partition_count):
            identity = PartitionId(topic.id, index)
            opened = self._log.open(identity, topic.directory_name, config.policy)
            partition = opened.partition
            if topic.is_queue:  # Its ledger knows better, once there is one.
                partition.offset_needed = lambda: 0
            start = self.catalog.offset_starts.get(identity, 0)
            if partition.offset_start < start <= partition.offset_end:
                partition.offset_start = start
            streams[identity] = Stream(self._log, self._clock, opened, config)
            yield
        return streams

    def _change(self, *records: Record) -> Awaitable[None]:
        """Append to the catalog and apply; await the result for its permanence."""
        self.append_change(*records)
        for record in records:
            self.catalog.apply(record)
        return self.changes_committed()

    def append_change(self, *records: Record) -> None:
        """Append to the catalog: all of these or none. It is the caller's to apply them."""
        assert self._changes is not None
        data = batch.build(records, now_ms=self._clock.now_ms())
        self._log.append(self._changes, [(batch.read_header(data), data)])

    def changes_committed(self) -> Awaitable[None]:
        """Wait until all that was appended so far is permanent."""
        assert self._changes is not None
        return committed(self._changes, self._changes.offset_end)

    def catalog_progress(self) -> tuple[int, int]:
        """The end of the catalog's partition, and how much of it is permanent."""
        assert self._changes is not None
        return self._changes.offset_end, self._changes.high_watermark

    # --- finding

    @property
    def defaults(self) -> Defaults:
        """Others after `alter_server_settings`."""
        return self.server_settings.defaults

    @property
    def cluster_id(self) -> str:
        return self.catalog.cluster_id

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self.catalog.topics

    def topic(self, name: str) -> Topic:
        found = self.catalog.topics.get(name)
        if found is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        return found

    def topic_by_id(self, identity: TopicId) -> Topic:
        found = self.catalog.by_id.get(identity)
        if found is None:
            raise UnknownTopicId(f"there is no topic with id {identity}")
        return found

    def is_internal(self, name: str) -> bool:
        return name in INTERNAL_NAMES

    def check_foreign(self, name: str) -> None:
        """The broker's own topics are for others to read, not to make, write or change.

        So are queues, for those who see topics.
        """
        if name in INTERNAL_NAMES:
            raise InvalidName(f"the topic {name!r} is the broker's own")
        self._check_not_queue(name)

    def _check_not_queue(self, name: str) -> None:
        topic = self.catalog.topics.get(name)
        if topic is not None and topic.is_queue:
            raise InvalidName(f"{name!r} is a queue: as a topic it can be read, and no more")

    def stream(self, topic: Topic, index: int) -> Stream:
        found = self._streams.get(PartitionId(topic.id, index))
        if found is None:
            raise UnknownTopic(f"topic {topic.name!r} has no partition {index}")
        return found

    def fault_of(self, topic: Topic) -> str | None:
        """Why some of it cannot be read; None when all can."""
        partitions = [self.stream(topic, index).partition for index in range(topic.partition_count)]
        return next((each.stopped for each in partitions if each.refused), None)

    def partition_faults(self) -> list[PartitionFault]:
        """Partitions that are refused, or stopped, or in which a reader came upon damage."""
        found = []
        for partition in self._log.partitions.values():
            reason = partition.stopped or partition.damage
            if reason is not None:
                state = "refused" if partition.refused else "stopped"
                state = state if partition.stopped is not None else "damaged"
                found.append(PartitionFault(partition.directory, state, reason))
        return found

    def config_of(self, topic: Topic) -> TopicConfig:
        return topic_config(topic.settings, self.defaults.settings)

    # --- changing

    def check_new_topic(
        self, name: str, partition_count: int | None, settings: Mapping[str, str]
    ) -> Topic:
        """The topic that `create_topic` would make; raises what it would raise."""
        legal = check_topic_name(name)
        if legal in self.vhosts.default.queues:
            raise TopicExists(f"there is a queue {name!r}")
        self.check_foreign(legal)
        if legal in self.catalog.topics or legal in self.claims:
            raise TopicExists(f"topic {name!r} already exists")
        count = self.defaults.partition_count if partition_count is None else partition_count
        self._check_partition_count(count, count)
        check_settings(settings)
        return Topic(legal, self.new_id(), count, dict(settings))

    async def create_topic(
        self,
        name: str,
        partition_count: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Topic:
        topic = self.check_new_topic(name, partition_count, settings or {})
        self.claims.take(topic.name)
        self._partitions_coming += topic.partition_count
        # Shielded: who asked may go away, the change goes on.
        await asyncio.shield(asyncio.ensure_future(self._create(topic)))
        return topic

    async def internal_topic(
        self, name: str, partition_count: int, settings: Mapping[str, str]
    ) -> Topic:
        """One of the broker's own, made when it is first needed."""
        assert name in INTERNAL_NAMES, name
        if name not in self.catalog.topics:
            if name not in self._internal:
                topic = Topic(TopicName(name), self.new_id(), partition_count, dict(settings))
                self.claims.take(name)
                self._partitions_coming += partition_count
                self._internal[name] = asyncio.ensure_future(self._create(topic))
                self._internal[name].add_done_callback(lambda _: self._internal.pop(name))
            await asyncio.shield(self._internal[name])
        return self.catalog.topics[name]

    async def _create(self, topic: Topic) -> None:
        """There for others once it is permanent: records must not outlive their topic."""
        record = topic_record(topic)
        try:
            self.append_change(record)
            await self.changes_committed()
            streams = await self.turns.run(self._open(topic))
            self.catalog.apply(record)
            self._streams.update(streams)
            if topic.name not in INTERNAL_NAMES:
                self.vhosts.default.add_stream(topic.name)
        finally:
            self._partitions_coming -= topic.partition_count
            self.claims.release(topic.name)
        log.info("topic %s created with %d partitions", topic.name, topic.partition_count)

    async def delete_topic(self, topic: Topic) -> None:
        self.check_foreign(topic.name)
        topic = await self._unclaimed(topic)
        deleted = topic_deleted_record(topic.name)
        self.vhosts.default.remove_stream(topic.name, deleted)
        self.catalog.apply(deleted)
        self.groups.topic_deleted(topic.name)
        # Its directories carry its name: nobody else may have it until they are gone.
        self.claims.take(topic.name)
        await asyncio.shield(asyncio.ensure_future(self._delete(topic)))

    async def _delete(self, topic: Topic) -> None:
        try:
            await self.changes_committed()
            await self.drop_streams(topic)
        finally:
            self.claims.release(topic.name)
        log.info("topic %s deleted", topic.name)

    async def drop_streams(self, *topics: Topic) -> None:
        """They are deleted, and that is permanent. Their names may be others' when this
        returns."""
        await self.turns.run(self._drop(topics))
        await self._log.dropped()

    def _drop(self, topics: Sequence[Topic]) -> Steps[None]:
        for topic in topics:
            for index in range(topic.partition_count):
                stream = self._streams.pop(PartitionId(topic.id, index))
                self._log.drop(stream.partition)
                yield

    async def _unclaimed(self, topic: Topic) -> Topic:
        """The topic as it is once nobody else changes it. Raises UnknownTopic when it is gone."""
        await self.claims.wait(topic.name)
        return self.topic_by_id(topic.id)

    def check_partition_count(self, topic: Topic, count: int) -> None:
        """Raises what `create_partitions` would raise."""
        self.check_foreign(topic.name)
        if count <= topic.partition_count:
            raise InvalidPartitions(
                f"topic {topic.name!r} has {topic.partition_count} partitions; "
                "there can only be more"
            )
        self._check_partition_count(count, count - topic.partition_count)

    async def create_partitions(self, topic: Topic, count: int) -> None:
        topic = await self._unclaimed(topic)
        self.check_partition_count(topic, count)
        self.claims.take(topic.name)
        self._partitions_coming += count - topic.partition_count
        await asyncio.shield(asyncio.ensure_future(self._grow(topic, count)))

    async def _grow(self, topic: Topic, count: int) -> None:
        try:
            larger = replace(topic, partition_count=count)
            streams = await self.turns.run(self._open(larger, topic.partition_count))
            # Its settings may have been altered meanwhile.
            larger = replace(self.catalog.by_id[topic.id], partition_count=count)
            permanent = self._change(topic_record(larger))
            self._streams.update(streams)
            self._configure(larger)
            await permanent
        finally:
            self._partitions_coming -= count - topic.partition_count
            self.claims.release(topic.name)

    async def alter_settings(self, topic: Topic, settings: Mapping[str, str]) -> None:
        """Set exactly these; what is left out goes back to its default."""
        self._check_not_queue(topic.name)
        check_settings(settings)
        altered = replace(topic, settings=dict(settings))
        permanent = self._change(topic_record(altered))
        self._configure(altered)
        await permanent

    def _configure(self, topic: Topic) -> None:
        """Let its partitions follow the settings that count now."""
        config = self.config_of(topic)
        for index in range(topic.partition_count):
            stream = self.stream(topic, index)
            stream.config, stream.partition.policy = config, config.policy

    async def alter_server_settings(self, name: str, settings: Mapping[str, str]) -> None:
        """Set exactly these on a node, or on all of them (no name), and let topics follow."""
        check_server_settings(settings)
        permanent = self._change(settings_record(name, settings))
        # Shielded: who asked may go away, the topics follow.
        await asyncio.shield(asyncio.ensure_future(self._configure_all()))
        await permanent

    async def _configure_all(self) -> None:
        for count, topic in enumerate(list(self.catalog.all_topics())):
            if count % _TOPICS_CONFIGURED_AT_ONCE == 0:
                await asyncio.sleep(0)  # Others have their turn. So a topic may be gone by now,
            current = self.catalog.by_id.get(topic.id, topic)  # or have other settings.
            if PartitionId(current.id, 0) in self._streams:
                self._configure(current)

    async def delete_records(self, stream: Stream, offset: int) -> int:
        """Forget what is below an offset (-1: all of it); returns the new log start."""
        partition = stream.partition
        self.check_foreign(self.topic_by_id(partition.id.topic).name)
        target = partition.high_watermark if offset == -1 else offset
        if partition.has_gap:  # Offsets that a deletion speaks of must not be given again.
            await self._log.flush(partition)
        if target > partition.offset_start or offset < 0:
            partition.delete_before(target)
            await self._change(start_record(partition.id, target))
            self._log.sweep(partition)
        return partition.offset_start

    async def change_security(self, *records: Record) -> None:
        """Users, ACLs and quotas: all of these or none. Returns when it is permanent."""
        if records:
            await self._change(*records)

    async def new_producer_id(self) -> int:
        """Never given twice, also not after a crash: ids are reserved in blocks."""
        assert self._changes is not None
        mine = self._producer_id
        self._producer_id += 1
        if mine >= self.catalog.producer_id_next:
            await self._change(producer_id_record(mine + _PRODUCER_IDS_PER_BLOCK))
        else:  # The block may have been reserved a moment ago.
            await committed(self._changes, self._changes.offset_end)
        return mine

    def _check_partition_count(self, count: int, added: int) -> None:
        if not 1 <= count <= limits.PARTITIONS_PER_TOPIC_MAX:
            raise InvalidPartitions(
                f"{count} partitions; a topic has 1 to {limits.PARTITIONS_PER_TOPIC_MAX}"
            )
        self.check_partitions_in_all(added)

    def check_partitions_in_all(self, added: int) -> None:
        if len(self._streams) + self._partitions_coming + added > limits.PARTITIONS_MAX:
            raise InvalidPartitions(f"more than {limits.PARTITIONS_MAX} partitions in all")

    def new_id(self) -> UUID:
        return UUID(bytes=self.entropy.token(16), version=4)
