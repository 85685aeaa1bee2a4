"""The verbs: declare, alter, delete, find. What messages mean, for every gateway alike.

A verb that changes what there is returns when the change is permanent. Appending to and reading
from a partition is in `served_partition`; `Broker.served_partition` finds it by topic and number.
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple
from uuid import UUID

from entrepot.broker.access import Access, AccessSettings
from entrepot.broker.acls import Acls
from entrepot.broker.bridges import Bridges
from entrepot.broker.catalog import (
    CATALOG_ID,
    CATALOG_NAME,
    INTERNAL_NAMES,
    Catalog,
    CatalogView,
    StoredQueue,
    Topic,
    cluster_id_record,
    producer_id_record,
    queue_deleted_record,
    queue_record,
    read_queue,
    read_topic,
    start_record,
    topic_deleted_record,
    topic_record,
)
from entrepot.broker.consumer_group.coordinator import Coordinator
from entrepot.broker.consumer_group.settings import GroupSettings
from entrepot.broker.held import Held
from entrepot.broker.links import Links, StoredLinks
from entrepot.broker.permissions import Permissions
from entrepot.broker.push import PushTopics
from entrepot.broker.quotas import Quotas
from entrepot.broker.replication import Cluster, Peer
from entrepot.broker.router.event import Dialect, Exchange
from entrepot.broker.served_partition import ServedPartition, committed
from entrepot.broker.server_settings import CATALOG_KIND as SERVER_SETTINGS
from entrepot.broker.server_settings import (
    SERVER_NAMES,
    Defaults,
    ServerSettings,
    check_server_settings,
    settings_record,
)
from entrepot.broker.sessions import Sessions
from entrepot.broker.share_group.coordinator import ShareCoordinator
from entrepot.broker.share_group.settings import CATALOG_KIND as GROUP_SETTINGS
from entrepot.broker.topic_config import (
    TIER,
    TopicConfig,
    check_settings,
    check_together,
    topic_config,
)
from entrepot.broker.tracing import Tracer
from entrepot.broker.transaction_coordinator import TransactionCoordinator
from entrepot.broker.turns import Turns
from entrepot.broker.users import Users
from entrepot.broker.virtual_host.claims import Claims
from entrepot.broker.virtual_host.virtual_hosts import VirtualHosts
from entrepot.core import batch, limits
from entrepot.core.errors import (
    InvalidBatch,
    InvalidConfig,
    InvalidName,
    InvalidPartitions,
    PeerError,
    StorageError,
    StoreUnavailable,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from entrepot.core.faults import Faults, Uncaught
from entrepot.core.measures import Histogram
from entrepot.core.names import PartitionId, TopicId, TopicName, check_topic_name
from entrepot.core.neutral import Formats
from entrepot.core.ports import NO_STORES, Clock, Disk, Entropy, Stores, Worker, in_place
from entrepot.core.record import Record
from entrepot.core.steps import Steps, finish
from entrepot.log.copier import Copier
from entrepot.log.log import Log
from entrepot.log.partition import Partition
from entrepot.log.policy import Policy

log = logging.getLogger("entrepot.broker")

_PRODUCER_IDS_PER_BLOCK = 1_000  # Reserved at once, so that most requests need no write.
_TOPICS_CONFIGURED_AT_ONCE = 100
_RESTORE = "restore the data directory from a backup"
_CATALOG_POLICY = Policy(segment_bytes=64 * limits.MIB, retention_ms=-1)


class PartitionFault(NamedTuple):
    """What is wrong with a partition: it cannot be read, or written, or not everywhere."""

    directory: str
    state: str  # refused, stopped or damaged.
    reason: str


def _is_kept(record: Record) -> bool:
    """Return whether a node of a cluster keeps what its own catalog has: what its directories are.
    Anything else it hears from the others."""
    assert record.key is not None
    return record.key.partition(b":")[0] in (b"topic", b"queue", b"start", b"cluster-id")


class Broker:
    links: Links | None = None  # None means: it is no queue manager. Set by the server.
    manager_name = ""  # As a queue manager, told to those who connect. Set by the server.
    cluster: Cluster | None = None  # None means: this node is alone. Set before `open`.
    _reserving: asyncio.Lock | None = None  # Of producer ids, in a cluster.
    _changes: Partition | None = None  # The catalog's partition.
    _partitions_coming = 0  # Partitions that are being created.
    # The next id to give out, below the catalog's `producer_id_next`; in a cluster, this end.
    _producer_id = _producer_ids_end = 0
    _is_locked = False

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        entropy: Entropy,
        defaults: Defaults | None = None,
        *,
        node_id: int = 1,
        check_all: bool = False,
        access: AccessSettings | None = None,
        groups: GroupSettings | None = None,
        worker: Worker = in_place,
        codec_worker: Worker = in_place,
        stores: Stores = NO_STORES,
        formats: Formats | None = None,
        dialect: Dialect | None = None,
        predeclared: Sequence[Exchange] = (),
        faults: Faults | None = None,
        is_clustered: bool = False,
        tracer: Tracer | None = None,
    ) -> None:
        """Make a broker, which is then opened. `worker` hashes passwords, `codec_worker` compresses
        batches. Without `formats` and `dialect` there are no queues; those on disk are kept. Each
        virtual host has the `predeclared` exchanges. With `is_clustered` it gets a `cluster` before
        it is opened. With a `tracer` it makes spans."""
        self.server_settings = ServerSettings(node_id, defaults or Defaults())
        check_settings(self.defaults.settings)
        self._clock = clock
        self.entropy = entropy
        self.faults = faults or Uncaught()
        self._log = Log(
            disk, clock, stores, check_all=check_all, faults=self.faults, codec_worker=codec_worker
        )
        self.turns, self.codec_worker, self.tracer = Turns(clock), codec_worker, tracer
        self.has_queues, self.node_id = dialect is not None, node_id
        self.acls, self.permissions = Acls(), Permissions()
        self.access = Access(access or AccessSettings(), self.acls, self.permissions)
        self.users, self.push, self.quotas = Users(entropy, worker), PushTopics(), Quotas()
        self.stored_links, self.bridges = StoredLinks(), Bridges()
        views: dict[str, CatalogView] = {"acl": self.acls, "user": self.users, "quota": self.quotas}
        views |= {"permission": self.permissions, SERVER_SETTINGS: self.server_settings}
        self.catalog = Catalog(views)
        # By the number of the topic's id, which is hashed faster than the id, and the index.
        self._served: dict[tuple[int, int], ServedPartition] = {}
        self.claims = Claims()  # Names of topics and queues being created, changed or deleted.
        self._internal: dict[str, asyncio.Future[None]] = {}  # Internal topics, being created.
        needs = self.catalog, self.turns, self._has_share_group, clock, entropy
        self.groups = Coordinator(self, *needs, groups or GroupSettings())
        self.share_groups = ShareCoordinator(self, clock)
        views[GROUP_SETTINGS] = self.share_groups.settings
        of_groups = self.groups.complete_transaction, self.groups.check_loaded
        given = self, self.turns, clock, self.new_producer_id
        self.transactions = TransactionCoordinator(*given, *of_groups)
        self.sessions, self.topic_sessions = Sessions(), Sessions()  # Of queues, and of Kafka.
        self.formats = formats or Formats()
        self.vhosts = VirtualHosts(
            self, clock, formats, dialect, predeclared, is_clustered=is_clustered
        )
        views |= {**self.vhosts.views(), **self.push.views(), "access-key": self.users.keys}
        views["link"] = self.stored_links

    # --- life

    def lock(self) -> None:
        """Lock the disk; `open` does it otherwise. Raises BlockingIOError when another broker uses
        the disk."""
        self._log.begin()
        self._is_locked = True

    async def open(self, cluster_id: str | None = None) -> None:
        """Restore everything from the disk. In a cluster its id is given, and the data must be of
        that cluster. Raises BlockingIOError when another broker uses the disk."""
        if not self._is_locked:
            self.lock()
        self._changes = self._log.open(CATALOG_ID, CATALOG_NAME, _CATALOG_POLICY).partition
        self._fold_catalog(self._changes)
        if not self.catalog.cluster_id and self._log.has_others:
            raise StorageError(
                f"{self._changes.directory} is missing or empty, which says what the other "
                f"partitions are; {_RESTORE}"
            )
        known_id = self.catalog.cluster_id
        if cluster_id is not None and known_id and known_id != cluster_id:
            raise StorageError(
                f"the data is of another cluster, or of a broker alone: {known_id}, not "
                f"{cluster_id}. A node begins with an empty data directory"
            )
        for topic in self.catalog.all_topics():
            self.open_partitions(topic)
        await self._log.ready(self.catalog.directory_names.__contains__)
        self._producer_id = self.catalog.producer_id_next
        if not self.catalog.cluster_id:
            await self._change(cluster_id_record(cluster_id or self.new_cluster_id()))
        self.groups.open(power_failed=self._log.power_failed)
        self.share_groups.open()
        if self.cluster is not None:
            self.transactions.join(self.cluster)
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
        """Read the catalog. Raises StorageError: without all of it nothing can be served."""
        try:
            changes.check_served()
            for data in changes.batches():
                for record in batch.records(data):
                    if self.cluster is None or _is_kept(record):
                        self.catalog.apply(record)
        except (StorageError, InvalidBatch, OSError) as error:
            reason = f"the catalog cannot be read: {error}"
            raise StorageError(f"{reason}. If it is damaged: {_RESTORE}") from None

    def open_partitions(self, topic: Topic) -> None:
        self._served.update(finish(self._open(topic)))

    def _open(self, topic: Topic, first: int = 0) -> Steps[dict[tuple[int, int], ServedPartition]]:
        """Open a topic's partitions from the index `first` on, and return them."""
        config = self.config_of(topic)
        served_partitions = {}
        for index in range(first, topic.partition_count):
            identity = PartitionId(topic.id, index)
            opened = self._log.open(identity, topic.directory_name, config.policy)
            partition = opened.partition
            if topic.is_queue:  # Nothing may be deleted until its ledger says what is settled.
                partition.offset_needed = lambda: 0
            start = self.catalog.offset_starts.get(identity, 0)
            if partition.offset_start < start <= partition.offset_end:
                partition.offset_start = start
            served = ServedPartition(self._log, self._clock, opened, config)
            if self.cluster is not None:
                served.role = self.cluster.role(identity)
                partition.replicate(partition.offset_start)
            is_heard = self.cluster is None and not topic.is_queue and not topic.is_hidden
            if is_heard and topic.name not in INTERNAL_NAMES:
                served.on_append = partial(self._appended, topic.name)
            served_partitions[topic.id.int, index] = served
            yield
        return served_partitions

    def _appended(self, name: str, served: ServedPartition, offset_first: int) -> None:
        """Publish an append on the subject of the topic's name, for those who listen to it."""
        self.vhosts.default.topic_appended(name, served, offset_first)

    def _change(self, *records: Record) -> Awaitable[None]:
        """Append records to the catalog and apply them. Await the result for the commit."""
        self._append_here(*records)
        for record in records:
            self.catalog.apply(record)
        return self._committed_here()

    def append_change(self, *records: Record) -> None:
        """Append records to the catalog, all or none; in a cluster, to that of all nodes. The
        caller must apply them."""
        if self.cluster is None:
            self._append_here(*records)
        else:
            self.cluster.queues.append_change(*records)

    def changes_committed(self) -> Awaitable[None]:
        """Wait until all records that were appended to the catalog are permanent."""
        if self.cluster is None:
            return self._committed_here()
        return self.cluster.queues.changes_committed()

    def _append_here(self, *records: Record) -> None:
        assert self._changes is not None
        data = batch.build(records, now_ms=self._clock.now_ms())
        self._log.append(self._changes, [(batch.read_header(data), data)])

    def _committed_here(self) -> Awaitable[None]:
        assert self._changes is not None
        return committed(self._changes, self._changes.offset_end)

    def catalog_progress(self) -> tuple[int, int]:
        """Return the end of the catalog's partition, and its high watermark."""
        assert self._changes is not None
        return self._changes.offset_end, self._changes.high_watermark

    # --- in a cluster

    def began_to_lead(self, topic: Topic, served: ServedPartition) -> None:
        """Take up what is folded out of a partition that this node leads now."""
        if topic.name == self.groups.topic_name:
            self.groups.began_to_lead(served.partition.id.number)
        elif topic.name == self.transactions.topic_name:
            self.transactions.began_to_lead(served.partition.id.number)

    def ended_to_lead(self, identity: PartitionId) -> None:
        """Drop what is folded out of a partition that this node leads no more."""
        topic = self.catalog.by_id.get(identity.topic)
        name = "" if topic is None else topic.name
        if name == self.groups.topic_name:
            self.groups.ended_to_lead(identity.number)
        elif name == self.transactions.topic_name:
            self.transactions.ended_to_lead(identity.number)

    def missing_here(self, topic: Topic) -> str | None:
        """Return why a queue cannot be served here: another node leads a partition of it, or its
        end is not known yet. None means: it can."""
        for served in self.served_partitions(topic):
            role = served.role
            if role is not None and not (role.leads and role.knows_end):
                return "no node that has all of its messages is there, or not for long enough"
        return None

    def leader_of(self, name: str, index: int) -> Peer | None:
        """Return the node that leads a partition; None if nobody does, or it is not known."""
        topic = self.catalog.topics.get(name)
        if self.cluster is None or topic is None:
            return None
        holders = self.cluster.holders(PartitionId(topic.id, index))
        peers = {peer.id: peer for peer in self.cluster.peers()}
        return None if holders is None else peers.get(holders.leader)

    # --- finding

    @property
    def defaults(self) -> Defaults:
        """Return the default settings of topics. `alter_server_settings` replaces them."""
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

    def any_topic_by_id(self, identity: TopicId) -> Topic:
        """Return a topic, also one that only its virtual host sees. For other replicas."""
        found = self.catalog.hidden.get(identity)
        return self.topic_by_id(identity) if found is None else found

    def _has_share_group(self, group: str) -> bool:
        return self.share_groups.has(group)

    def is_internal(self, name: str) -> bool:
        return name in INTERNAL_NAMES

    def check_foreign(self, name: str) -> None:
        """Raise InvalidName for one of the broker's own topics, and for a queue.

        As topics, these can only be read.
        """
        if name in INTERNAL_NAMES:
            raise InvalidName(f"the topic {name!r} is the broker's own")
        self._check_not_queue(name)

    def _check_not_queue(self, name: str) -> None:
        topic = self.catalog.topics.get(name)
        if topic is not None and topic.is_queue:
            raise InvalidName(f"{name!r} is a queue: as a topic it can be read, and no more")

    def served_partition(self, topic: Topic, index: int) -> ServedPartition:
        found = self._served.get((topic.id.int, index))
        if found is None:
            raise UnknownTopic(f"topic {topic.name!r} has no partition {index}")
        return found

    def served_partitions(self, topic: Topic) -> list[ServedPartition]:
        return [self.served_partition(topic, index) for index in range(topic.partition_count)]

    def held(self) -> Iterator[Held]:
        """Yield who holds each partition, as far as that is known; nothing for a broker alone."""
        cluster = self.cluster
        if cluster is None:
            return
        for topic in list(self.catalog.all_topics()):
            for number in range(topic.partition_count):
                with suppress(UnknownTopic):  # It may be deleted by now.
                    holders = cluster.holders(PartitionId(topic.id, number))
                    if holders is not None:
                        config = self.served_partition(topic, number).config
                        yield Held(topic.name, number, holders, config.in_sync_min)

    def fault_of(self, topic: Topic) -> str | None:
        """Return why a partition of the topic cannot be read. None means: all can."""
        partitions = (served.partition for served in self.served_partitions(topic))
        return next((each.stopped for each in partitions if each.refused), None)

    def partition_faults(self) -> list[PartitionFault]:
        """Return the partitions that are refused or stopped, or in which a reader found damage."""
        found = []
        for partition in self._log.partitions.values():
            reason = partition.stopped or partition.damage
            if reason is not None:
                state = "refused" if partition.refused else "stopped"
                state = state if partition.stopped is not None else "damaged"
                found.append(PartitionFault(partition.directory, state, reason))
        return found

    @property
    def commit_latency(self) -> Histogram:
        """Return how long commits took, in seconds."""
        return self._log.committer.latency

    @property
    def sync_errors(self) -> int:
        """Return how many syncs have failed since the start."""
        return self._log.committer.sync_errors

    @property
    def log(self) -> Log:
        """Return the log, for what copies partitions from other nodes."""
        return self._log

    @property
    def copier(self) -> Copier:
        """Return what copies segments to topics' tiers."""
        return self._log.copier

    def config_of(self, topic: Topic) -> TopicConfig:
        return topic_config(topic.settings, self.defaults.settings)

    # --- changing

    def check_new_topic(
        self, name: str, partition_count: int | None, settings: Mapping[str, str]
    ) -> Topic:
        """Return the topic that `create_topic` would make. Raises what that would raise."""
        legal = check_topic_name(name)
        if legal in self.vhosts.default.queues:
            raise TopicExists(f"there is a queue {name!r}")
        self.check_foreign(legal)
        if legal in self.catalog.topics or legal in self.claims:
            raise TopicExists(f"topic {name!r} already exists")
        count = self.defaults.partition_count if partition_count is None else partition_count
        self._check_partition_count(count, count)
        self.check_topic_settings(settings)
        return Topic(legal, self.new_id(), count, dict(settings))

    async def create_topic(
        self,
        name: str,
        partition_count: int | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        replication: int | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic. In a cluster each partition has so many replicas (None means: as many
        as the cluster's settings say), or those on the nodes of its assignment."""
        topic = self.check_new_topic(name, partition_count, settings or {})
        if self.cluster is not None:
            await self.cluster.create_topic(topic, replication, assignments)
            return topic
        if topic.settings.get(TIER):
            await self._check_tier(topic.settings[TIER])
            self.check_new_topic(name, partition_count, topic.settings)  # It may be there by now.
        self.claims.take(topic.name)
        self._partitions_coming += topic.partition_count
        # Shielded: the creation goes on when the caller is cancelled.
        await asyncio.shield(asyncio.ensure_future(self._create(topic)))
        return topic

    async def internal_topic(
        self, name: str, partition_count: int, settings: Mapping[str, str]
    ) -> Topic:
        """Return one of the broker's own topics. It is made when it is first needed."""
        assert name in INTERNAL_NAMES, name
        if name not in self.catalog.topics:
            if name not in self._internal:
                topic = Topic(TopicName(name), self.new_id(), partition_count, dict(settings))
                self._internal[name] = asyncio.ensure_future(self._create_internal(topic))
                self._internal[name].add_done_callback(partial(self._internal_made, name))
            await asyncio.shield(self._internal[name])
        return self.catalog.topics[name]

    def _internal_made(self, name: str, task: asyncio.Future[None]) -> None:
        del self._internal[name]
        if not task.cancelled():
            task.exception()  # Whoever waited may be gone. The next who needs it tries again.

    async def _create_internal(self, topic: Topic) -> None:
        if self.cluster is None:
            await self._create_here(topic)
            return
        try:
            await self.cluster.create_topic(topic)
        except TopicExists:
            await self.cluster.topic_known(topic.name)
        except PeerError as error:
            raise StorageError(f"{topic.name}: {error}") from None

    async def _create_here(self, topic: Topic) -> None:
        self.claims.take(topic.name)
        self._partitions_coming += topic.partition_count
        await self._create(topic)

    async def _create(self, topic: Topic) -> None:
        """Create a topic. It can be found only once its creation is committed: otherwise a crash
        could take the topic back after its first records were acknowledged."""
        record = topic_record(topic)
        try:
            self._append_here(record)
            await self._committed_here()
            served_partitions = await self.turns.run(self._open(topic))
            self.catalog.apply(record)
            self._served.update(served_partitions)
            if self.cluster is None and topic.name not in INTERNAL_NAMES:
                self.vhosts.default.add_stream(topic.name)
        finally:
            self._partitions_coming -= topic.partition_count
            self.claims.release(topic.name)
        log.info("topic %s created with %d partitions", topic.name, topic.partition_count)

    async def delete_topic(self, topic: Topic) -> None:
        self.check_foreign(topic.name)
        if self.cluster is not None:
            await self.cluster.delete_topic(topic)
        else:
            await self._delete_here(topic)

    async def _delete_here(self, topic: Topic) -> None:
        topic = await self._unclaimed(topic)
        deleted = topic_deleted_record(topic.name)
        if self.cluster is None:
            self.vhosts.default.remove_stream(topic.name, deleted)
        else:
            self._append_here(deleted)
        self.catalog.apply(deleted)
        forgotten = self.groups.topic_deleted(topic.name)
        # Its directories have its name, and so have offsets that groups committed: no other topic
        # may have that name until they are gone.
        self.claims.take(topic.name)
        await asyncio.shield(asyncio.ensure_future(self._delete(topic, forgotten)))

    async def _delete(self, topic: Topic, forgotten: asyncio.Future[None]) -> None:
        try:
            await self._committed_here()
            await self.drop_partitions(topic)
            await forgotten
        finally:
            self.claims.release(topic.name)
        log.info("topic %s deleted", topic.name)

    async def create_queue(self, stored: StoredQueue) -> StoredQueue:
        """Record a queue, or a hidden stream, and open its partitions. Returns it when that is
        permanent; in a cluster, with what its topic requires of the copies."""
        if self.cluster is not None:
            settings = {**stored.topic.settings, **self.cluster.queues.settings()}
            stored = replace(stored, topic=replace(stored.topic, settings=settings))
        record = queue_record(stored)
        if self.cluster is None:
            self._append_here(record)
            await self._committed_here()
        else:
            await self.cluster.queues.create_queue(stored.topic, record)
        self.catalog.apply(record)
        self.open_partitions(stored.topic)
        if self.cluster is not None:
            self.cluster.queues.queue_opened(stored.topic)
        return stored

    async def drop_queues(self, *topics: Topic) -> None:
        """Delete the partitions of queues and hidden streams whose deletion is committed."""
        if self.cluster is not None:
            for topic in topics:
                await self.cluster.queues.delete_queue(topic)
        await self.drop_partitions(*topics)

    async def drop_partitions(self, *topics: Topic) -> None:
        """Delete the partitions of topics whose deletion is committed. Afterwards the names can
        be used again."""
        await self.turns.run(self._drop(topics))
        await self._log.dropped()

    def _drop(self, topics: Sequence[Topic]) -> Steps[None]:
        for topic in topics:
            for index in range(topic.partition_count):
                served = self._served.pop((topic.id.int, index))
                self._log.drop(served.partition)
                yield

    async def _unclaimed(self, topic: Topic) -> Topic:
        """Wait until nothing else changes the topic, and return it. Raises UnknownTopic."""
        await self.claims.wait(topic.name)
        return self.topic_by_id(topic.id)

    def check_partition_count(self, topic: Topic, count: int) -> None:
        """Raise what `create_partitions` would raise."""
        self.check_foreign(topic.name)
        if count <= topic.partition_count:
            raise InvalidPartitions(
                f"topic {topic.name!r} has {topic.partition_count} partitions; "
                "there can only be more"
            )
        self._check_partition_count(count, count - topic.partition_count)

    async def create_partitions(
        self,
        topic: Topic,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Give a topic more partitions; in a cluster on the nodes of these assignments, if there
        are any."""
        if self.cluster is not None:
            self.check_partition_count(topic, count)
            await self.cluster.grow_topic(topic, count, assignments)
        else:
            await self._grow_here(topic, count)

    async def _grow_here(self, topic: Topic, count: int) -> None:
        topic = await self._unclaimed(topic)
        self.check_partition_count(topic, count)
        self.claims.take(topic.name)
        self._partitions_coming += count - topic.partition_count
        await asyncio.shield(asyncio.ensure_future(self._grow(topic, count)))

    async def _grow(self, topic: Topic, count: int) -> None:
        try:
            larger = replace(topic, partition_count=count)
            served_partitions = await self.turns.run(self._open(larger, topic.partition_count))
            # Its settings may have been altered meanwhile.
            larger = replace(self.catalog.by_id[topic.id], partition_count=count)
            permanent = self._change(topic_record(larger))
            self._served.update(served_partitions)
            self._configure(larger)
            await permanent
        finally:
            self._partitions_coming -= count - topic.partition_count
            self.claims.release(topic.name)

    def check_topic_settings(self, settings: Mapping[str, str]) -> None:
        """Raise InvalidConfig for settings that a topic cannot have."""
        check_settings(settings)
        check_together(settings, self.defaults.settings)
        self._check_in_sync_min(settings)
        if self.cluster is not None and settings.get(TIER):
            raise InvalidConfig(f"{TIER} cannot be set in a cluster yet")

    def _check_in_sync_min(self, settings: Mapping[str, str]) -> None:
        if self.cluster is None and settings.get("min.insync.replicas", "1") != "1":
            raise InvalidConfig("min.insync.replicas cannot be more than 1: this node is alone")

    async def _check_tier(self, address: str) -> None:
        """Raise InvalidConfig unless segments can be copied to this address."""
        try:
            await self.copier.check(address)
        except StoreUnavailable as error:
            raise InvalidConfig(f"{TIER} cannot be {address!r}: {error}") from None

    async def alter_settings(self, topic: Topic, settings: Mapping[str, str]) -> None:
        """Set the topic's settings to exactly these; others go back to their defaults."""
        self._check_not_queue(topic.name)
        self.check_topic_settings(settings)
        address = settings.get(TIER)
        if address and address != topic.settings.get(TIER):
            self.check_foreign(topic.name)
            await self._check_tier(address)
            if self.topic_by_id(topic.id) != topic:
                raise PeerError(f"topic {topic.name!r} was altered meanwhile; try again")
        altered = replace(topic, settings=dict(settings))
        if self.cluster is not None:
            await self.cluster.change(topic_record(altered))
            return
        permanent = self._change(topic_record(altered))
        self._configure(altered)
        await permanent

    def _configure(self, topic: Topic) -> None:
        """Apply the topic's present settings to its partitions."""
        config = self.config_of(topic)
        for served in self.served_partitions(topic):
            served.config, served.partition.policy = config, config.policy

    async def alter_server_settings(self, name: str, settings: Mapping[str, str]) -> None:
        """Set the settings of a node, or of all nodes if `name` is empty, to exactly these, and
        apply them to all topics."""
        check_server_settings(settings)
        self._check_in_sync_min(settings)
        self._check_tiered_topics(settings.get(SERVER_NAMES["cleanup.policy"], ""))
        if self.cluster is not None:
            await self.cluster.change(settings_record(name, settings))
            return
        permanent = self._change(settings_record(name, settings))
        # Shielded: the topics are changed even if the caller is cancelled.
        await asyncio.shield(asyncio.ensure_future(self._configure_all()))
        await permanent

    def _check_tiered_topics(self, cleanup: str) -> None:
        """Raise InvalidConfig if a default would make a topic with a tier a compacted one."""
        for topic in self.catalog.topics.values():
            if topic.settings.get(TIER):
                check_together(topic.settings, {"cleanup.policy": cleanup})

    async def _configure_all(self) -> None:
        for count, topic in enumerate(list(self.catalog.all_topics())):
            if count % _TOPICS_CONFIGURED_AT_ONCE == 0:
                await asyncio.sleep(0)  # Other tasks run. They may delete the topic,
            current = self.catalog.by_id.get(topic.id, topic)  # or change its settings.
            if (current.id.int, 0) in self._served:
                self._configure(current)

    async def delete_records(self, served: ServedPartition, offset: int) -> int:
        """Delete records below an offset (-1: all). Returns the new start offset."""
        partition = served.partition
        self.check_foreign(self.topic_by_id(partition.id.topic).name)
        target = partition.high_watermark if offset == -1 else offset
        if partition.has_gap:  # After a power failure, deleted offsets must not be given out again.
            await self._log.flush(partition)
        if target > partition.offset_start or offset < 0:
            partition.delete_before(target)
            await self._change(start_record(partition.id, target))
            self._log.sweep(partition)
        return partition.offset_start

    async def change_security(self, *records: Record) -> None:
        """Change users, ACLs and quotas, all or none. Returns when that is committed."""
        if records:
            await self.change_catalog(*records)

    async def change_catalog(self, *records: Record) -> None:
        """Append records to the catalog; in a cluster, to that of all nodes."""
        if self.cluster is not None:
            await self.cluster.change(*records)
        else:
            await self._change(*records)

    async def take_over(self, record: Record) -> None:
        """Do here what was decided for all nodes of the cluster. Raises StorageError."""
        assert record.key is not None
        kind, _, name = record.key.decode().partition(":")
        if kind == "topic":
            await self._take_over_topic(name, record.value)
            return
        if kind == "queue":
            await self._take_over_queue(name, record)
            return
        await self._change(record)
        if kind == SERVER_SETTINGS:
            await self._configure_all()

    async def _take_over_topic(self, name: str, value: bytes | None) -> None:
        present = self.catalog.topics.get(name)
        wanted = None if value is None else read_topic(name, value)
        if present is not None and (wanted is None or wanted.id != present.id):
            await self._delete_here(present)
            present = None
        if wanted is None:
            return
        if present is None:
            await self._create_here(wanted)
            return
        if wanted.partition_count > present.partition_count:
            await self._grow_here(present, wanted.partition_count)
        if wanted.settings != present.settings:
            permanent = self._change(topic_record(wanted))
            self._configure(wanted)
            await permanent

    async def _take_over_queue(self, identity: str, record: Record) -> None:
        assert self.cluster is not None
        if self.cluster.queues.is_here:  # It was done here when it was decided, perhaps long ago.
            self._append_here(record)
            await self._committed_here()
            return
        vhost, name = json.loads(identity)
        present = self.catalog.queues.get((vhost, name))
        wanted = None if record.value is None else read_queue(vhost, name, record.value)
        if present is not None and (wanted is None or wanted.topic.id != present.topic.id):
            await self._change(queue_deleted_record(vhost, name))
            if not present.topic.is_hidden:
                self.groups.topic_deleted(name)
            await self.drop_partitions(present.topic)
            present = None
        if wanted is not None:
            await self._change(record)
            if (wanted.topic.id.int, 0) not in self._served:
                self.open_partitions(wanted.topic)

    async def new_producer_id(self) -> int:
        """Return a producer id that was never used, even before a crash: blocks are reserved."""
        if self.cluster is not None:
            return await self._new_shared_producer_id(self.cluster)
        mine = self._producer_id
        self._producer_id += 1
        if mine >= self.catalog.producer_id_next:
            await self._change(producer_id_record(mine + _PRODUCER_IDS_PER_BLOCK))
        else:  # The record that reserves the block may not be committed yet.
            await self.changes_committed()
        return mine

    async def _new_shared_producer_id(self, cluster: Cluster) -> int:
        self._reserving = self._reserving or asyncio.Lock()
        async with self._reserving:
            if self._producer_id >= self._producer_ids_end:
                self._producer_id = await cluster.reserve_producer_ids(_PRODUCER_IDS_PER_BLOCK)
                self._producer_ids_end = self._producer_id + _PRODUCER_IDS_PER_BLOCK
            self._producer_id += 1
            return self._producer_id - 1

    def _check_partition_count(self, count: int, added: int) -> None:
        count_max = limits.PARTITIONS_PER_TOPIC_MAX
        if not 1 <= count <= count_max:
            raise InvalidPartitions(f"{count} partitions; a topic has 1 to {count_max}")
        self.check_partitions_in_all(added)

    def check_partitions_in_all(self, added: int) -> None:
        if len(self._served) + self._partitions_coming + added > limits.PARTITIONS_MAX:
            raise InvalidPartitions(f"more than {limits.PARTITIONS_MAX} partitions in all")

    def new_cluster_id(self) -> str:
        return urlsafe_b64encode(self.entropy.token(16)).decode().rstrip("=")

    def new_id(self) -> UUID:
        return UUID(bytes=self.entropy.token(16), version=4)
