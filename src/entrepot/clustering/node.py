"""This node in the cluster: follows the coordinator, and gives each partition its role.

Everything that the coordinator has comes in one order, by `began` and `told`. Roles change at
once, unless the partition's log is being cut or its topic is not here yet; then as soon as that
is over. What all nodes share is in `catalogue`.

The in-sync set is changed by its leader, and by the controller when a node dies; each in a
transaction that expects what it has seen. A leader that does not know whether its change was made
asks again with the same expectation until it knows: until then everybody counts who may be in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from entrepot.broker.broker import Broker
from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.replication import Holders, Peer
from entrepot.broker.transaction import ProducerIdentity
from entrepot.broker.virtual_host.queue_maker import LEDGERS
from entrepot.client.sasl import Credentials
from entrepot.cluster.controller import move, settle, stay
from entrepot.cluster.joining import join
from entrepot.cluster.membership import Membership
from entrepot.cluster.state import (
    CATALOG,
    CONTROLLER,
    HOME,
    NOBODY,
    NODES,
    PARTITIONS,
    Assignment,
    Node,
    encode,
    node_key,
    partition_key,
    read_assignment,
    read_node,
    read_partition_key,
)
from entrepot.clustering.calls import Calls
from entrepot.clustering.catalogue import SharedCatalogue
from entrepot.clustering.fetcher import Fetcher
from entrepot.clustering.queues import STORES, QueuesHome
from entrepot.clustering.roles import PartitionRole
from entrepot.core.coordinator import Coordinator, Expected, Put, Snapshot
from entrepot.core.errors import (
    ClusterChanged,
    CoordinatorUnavailable,
    ElectionNotNeeded,
    InvalidAssignment,
    LeaseLost,
    NoLeaderToElect,
    NotMoving,
    StaleEpoch,
    StorageError,
    UnknownTopic,
)
from entrepot.core.marker import Marker
from entrepot.core.names import PartitionId
from entrepot.core.ports import Clock, Disk, Entropy, Net
from entrepot.core.record import Record
from entrepot.log import layout

log = logging.getLogger("entrepot.cluster")

_RETRY_S = 0.2
_LEAVING_S = 2.0


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    node: int
    rack: str = ""
    replication: int = 3
    lease_seconds: int = 6
    lag_s: float = 30.0
    secret: str = ""  # Without it nobody joins; empty means: there is none.
    is_tls: bool = (
        False  # Nodes speak to each other on their TLS ports, over the net that is given.
    )


class ClusterNode:
    """Implements `broker.replication.Cluster`, and `cluster.membership.Observer`."""

    def __init__(
        self,
        broker: Broker,
        coordinator: Coordinator,
        net: Net,
        clock: Clock,
        settings: ClusterSettings,
        credentials: Credentials | None = None,
    ) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._net = net
        self._clock = clock
        self._settings = settings
        self._credentials = credentials
        self._membership: Membership | None = None
        self._disk_bytes = 0  # Of this node's disk.
        self._nodes: dict[int, Node] = {}
        self._registrations: dict[int, int] = {}  # The revision of each node's registration.
        self._controller = NOBODY
        self._assignments: dict[PartitionId, tuple[Assignment, int]] = {}
        self._known: dict[str, int] = {}  # The revision of each key, as far as told.
        self._roles: dict[PartitionId, PartitionRole] = {}
        self._fetchers: dict[int, tuple[Fetcher, asyncio.Task[None]]] = {}
        self._to_check: dict[PartitionId, None] = {}  # Whose in-sync set may have to change.
        self._checking = asyncio.Event()
        self._synced = asyncio.Event()  # Everything was taken in once.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._calls = Calls(settings.node, net, self._find, credentials)
        self._catalogue = SharedCatalogue(
            broker, coordinator, settings.replication, self.alive, self._topic_came
        )
        self._queues = QueuesHome(
            broker,
            coordinator,
            clock,
            settings.node,
            settings.replication,
            self._catalogue,
            self,
            self.role,
            self.told,
            self._topic_came,
            self._do,
        )

    # --- life

    async def begin(self, disk: Disk, entropy: Entropy) -> str:
        """Join the cluster and return its id, before the broker is opened; the disk is locked.
        Waits for the coordinator. Raises CannotJoin."""
        await join(
            self._coordinator,
            disk,
            entropy,
            node=self._settings.node,
            secret=self._settings.secret,
            is_empty=not disk.names(layout.PARTITIONS),
            tell=log.warning,
        )
        self._disk_bytes = (await disk.space()).size
        return await self._catalogue.cluster_id()

    async def start(self, host: str, port: int, tls_port: int = 0, amqp_port: int = 0) -> None:
        """Take part: other nodes, and clients, find this one there. Return when it knows its
        roles."""
        settings = self._settings
        node = Node(settings.node, host, port, settings.rack, tls_port, amqp_port, self._disk_bytes)
        self._membership = Membership(
            self._coordinator, self._clock, node, settings.lease_seconds, self
        )
        self._do(self._membership.run())
        self._do(self._catalogue.run())
        self._do(self._check_in_sync())
        await self._synced.wait()
        await self._catalogue.applied_all()

    async def stop(self) -> None:
        """Leave the cluster: others lead what this node led."""
        self._queues.stop()
        tasks = [*self._tasks, *(task for _, task in self._fetchers.values())]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._membership is not None:
            try:
                async with asyncio.timeout(_LEAVING_S):
                    await self._membership.leave()
            except (CoordinatorUnavailable, LeaseLost, TimeoutError) as error:
                log.warning("the coordinator does not know that this node leaves: %s", error)
        for role in self._roles.values():
            role.resign()
        self._calls.close()
        self._coordinator.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broker.faults.caught("the cluster", error)

    # --- for the broker

    @property
    def queues(self) -> QueuesHome:
        return self._queues

    @property
    def controller(self) -> int:
        return self._controller

    def peers(self) -> list[Peer]:
        nodes = sorted(self._nodes.items())
        return [
            Peer(number, n.host, n.port, n.rack, n.tls_port, n.amqp_port) for number, n in nodes
        ]

    def alive(self) -> list[Node]:
        return [node for _, node in sorted(self._nodes.items())]

    def holders(self, partition: PartitionId) -> Holders | None:
        found = self._assignments.get(partition)
        if found is None:
            return None
        assignment, _ = found
        return Holders(
            assignment.leader,
            assignment.leader_epoch,
            assignment.replicas,
            assignment.in_sync,
            assignment.target,
            assignment.origin,
            LEDGERS if assignment.led_with not in ("", partition_key(partition)) else "",
        )

    def role(self, partition: PartitionId) -> PartitionRole:
        found = self._roles.get(partition)
        if found is None:
            found = PartitionRole(partition, self._clock, self._is_member, self._catches_up)
            self._roles[partition] = found
        return found

    async def create_topic(
        self,
        topic: Topic,
        replication: int | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> None:
        if topic.name in STORES:
            await self._queues.create_store(topic)
        else:
            await self._catalogue.create_topic(topic, replication, assignments)

    async def delete_topic(self, topic: Topic) -> None:
        await self._catalogue.delete_topic(topic)

    async def grow_topic(
        self, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        replicas = [
            holders.replicas
            for number in range(topic.partition_count)
            if (holders := self.holders(PartitionId(topic.id, number))) is not None
        ]
        await self._catalogue.grow_topic(topic, count, assignments, len(replicas[0]))

    async def elect(self, partition: PartitionId, *, unclean: bool) -> None:
        present, revision = self._assigned(partition)
        preferred = present.replicas[0]
        if present.leader in self._nodes if unclean else present.leader == preferred:
            raise ElectionNotNeeded("Leader election not needed for topic partition.")
        successor = settle(present, self._nodes, is_unclean=unclean)
        if successor.leader == NOBODY or (not unclean and successor.leader != preferred):
            raise NoLeaderToElect("none of its replicas that may lead is there")
        await self._put(partition, successor, revision)

    async def reassign(self, partition: PartitionId, replicas: Sequence[int] | None) -> None:
        await self._reassign(partition, replicas)
        key = partition_key(partition)
        for each, (assignment, _) in list(self._assignments.items()):
            if assignment.led_with == key and each != partition:
                with suppress(NotMoving):
                    await self._reassign(each, replicas, moves_with=key)

    async def _reassign(
        self, partition: PartitionId, replicas: Sequence[int] | None, moves_with: str = ""
    ) -> None:
        present, revision = self._assigned(partition)
        if present.led_with not in ("", partition_key(partition), moves_with):
            raise InvalidAssignment(f"queues move together, with {LEDGERS}:0")
        if replicas is not None:
            strangers = [node for node in replicas if node not in (*self._nodes, *present.replicas)]
            if strangers:
                raise InvalidAssignment(
                    f"The manual partition assignment includes broker {min(strangers)}, but no "
                    "such broker is registered."
                )
            topic = self._broker.any_topic_by_id(partition.topic)
            self._catalogue.check_room(
                topic, [each for each in replicas if each not in present.replicas]
            )
            # With all of them in sync it is done at once.
            successor: Assignment | None = settle(move(present, replicas), self._nodes)
        elif not present.origin:
            raise NotMoving("No partition reassignment is in progress.")
        else:
            successor = stay(present)
        if successor is None:
            raise InvalidAssignment("none of the nodes that held it has everything any more")
        await self._put(partition, successor, revision)

    def _assigned(self, partition: PartitionId) -> tuple[Assignment, int]:
        found = self._assignments.get(partition)
        if found is None:
            raise UnknownTopic("the coordinator does not know the partition yet")
        return found

    async def _put(self, partition: PartitionId, successor: Assignment, revision: int) -> None:
        """Let the coordinator have an assignment in place of that of the revision. Raises
        ClusterChanged, StorageError."""
        key, value = partition_key(partition), encode(successor)
        try:
            done = await self._coordinator.commit([Expected(key, revision)], [Put(key, value)])
        except CoordinatorUnavailable as error:
            raise StorageError(str(error)) from None
        if done is None:
            raise ClusterChanged("it has changed meanwhile; try again")
        self.told(key, value, done)

    async def change(self, *records: Record) -> None:
        await self._catalogue.change(*records)

    async def topic_known(self, name: str) -> None:
        await self._catalogue.topic_known(name)

    async def reserve_producer_ids(self, count: int) -> int:
        return await self._catalogue.reserve_producer_ids(count)

    async def ask_coordinator(
        self,
        node: int,
        transactional_id: str,
        producer: ProducerIdentity,
        place: TopicPartition,
        *,
        joins: bool,
    ) -> None:
        await self._calls.ask_coordinator(node, transactional_id, producer, place, joins=joins)

    async def write_markers(
        self, node: int, marker: Marker, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, str]:
        return await self._calls.write_markers(node, marker, places)

    def _find(self, number: int) -> Node | None:
        return self._reached(number) if number in self._nodes else None

    def _reached(self, number: int) -> Node:
        """Return a node with the port that nodes speak on."""
        node = self._nodes[number]
        return msgspec.structs.replace(node, port=node.tls_port) if self._settings.is_tls else node

    def _is_member(self) -> bool:
        return self._membership is not None and self._membership.is_member

    # --- what the coordinator has

    def began(self, snapshot: Snapshot) -> None:
        there = {entry.key: entry for entry in snapshot.entries}
        for key in [key for key in self._known if key not in there]:
            self.told(key, None, snapshot.revision)
        for key, value, revision, _ in snapshot.entries:
            self.told(key, value, revision)
        if not self._synced.is_set():
            self._catalogue.forget_others()
            self._synced.set()

    def told(self, key: str, value: bytes | None, revision: int) -> None:
        if revision <= self._known.get(key, 0):
            return
        if value is None:
            self._known.pop(key, None)
        else:
            self._known[key] = revision
        if key.startswith(CATALOG):
            self._catalogue.told(key, value, revision)
        elif key.startswith(PARTITIONS):
            self._told_assignment(read_partition_key(key), value, revision)
        elif key.startswith(NODES):
            self._told_node(int(key.removeprefix(NODES)), value, revision)
            self._queues.changed()
        elif key == HOME:
            self._queues.heard(revision)
        elif key == CONTROLLER:
            self._controller = NOBODY if value is None else int(value)

    def _told_node(self, number: int, value: bytes | None, revision: int) -> None:
        self._calls.forget(number)
        if value is None:
            self._nodes.pop(number, None)
            self._registrations.pop(number, None)
            return
        before, node = self._nodes.get(number), read_node(value)
        self._nodes[number], self._registrations[number] = node, revision
        fetcher = self._fetchers.get(number)
        if fetcher is not None and fetcher[0].leader != self._reached(number):
            self._replace_fetcher(number)
        if before is None:
            for identity, (assignment, _) in list(self._assignments.items()):
                if assignment.leader == number and self.role(identity).fetcher is None:
                    self._assign(identity)

    def _told_assignment(self, identity: PartitionId, value: bytes | None, revision: int) -> None:
        if value is None:
            self._assignments.pop(identity, None)
            role = self._roles.get(identity)
            if role is not None and not role.is_cutting:
                self._resign(role)
                role.epoch = -1
        else:
            before, us = self._assignments.get(identity), self._settings.node
            now = read_assignment(value)
            self._assignments[identity] = now, revision
            self._assign(identity)
            if before is None or before[0].leader != now.leader:
                self._queues.changed()
            if before is not None and us in before[0].replicas and us not in now.replicas:
                self._do(self._drop_copy(identity))

    async def _drop_copy(self, identity: PartitionId) -> None:
        """Drop what is here of a partition that has moved to other nodes."""
        role = self.role(identity)
        try:
            topic = self._broker.any_topic_by_id(identity.topic)
            partition = self._broker.served_partition(topic, identity.number).partition
        except UnknownTopic:
            return
        if role.is_cutting or not partition.segments:
            return
        role.is_dropping = True
        try:
            log.info("%s: dropped, others hold it", partition.directory)
            await self._broker.log.begin_anew(partition, 0)
        except StorageError as error:
            log.warning("%s: not dropped: %s", partition.directory, error)
        finally:
            role.is_dropping = False
            self._assign(identity)

    def _topic_came(self, topic: Topic) -> None:
        """Give the partitions of a topic their roles: it is here now, or has grown."""
        for number in range(topic.partition_count):
            self._assign(PartitionId(topic.id, number))

    # --- roles

    def _assign(self, identity: PartitionId) -> None:
        """Give a partition the role that the coordinator has for it, if it can be done now."""
        found, role = self._assignments.get(identity), self.role(identity)
        if role.is_cutting:
            return
        if found is None:
            self._resign(role)
            return
        (assignment, revision), us = found, self._settings.node
        try:
            topic = self._broker.any_topic_by_id(identity.topic)
            served = self._broker.served_partition(topic, identity.number)
        except UnknownTopic:
            return
        is_new = assignment.leader_epoch != role.epoch
        try:
            if assignment.leader == us:
                if is_new:
                    self._resign(role)
                    role.lead(us, served, assignment, revision)
                    log.info("%s: leading, epoch %d", served.partition.directory, role.epoch)
                    self._broker.began_to_lead(topic, served)
                    self._queues.began_to_lead(identity)
                elif role.leader is not None:
                    role.told(assignment, revision)
            elif us in assignment.replicas and assignment.leader in self._nodes:
                if is_new or role.fetcher is None:
                    self._resign(role)
                    fetcher = self._fetcher(assignment.leader)
                    when_cut = partial(self._assign, identity)
                    role.follow(topic.directory_name, served, assignment, fetcher, when_cut)
            else:
                self._resign(role)
                role.epoch = assignment.leader_epoch
        except StaleEpoch as error:
            log.error("%s: the coordinator is behind: %s", served.partition.directory, error)

    def _resign(self, role: PartitionRole) -> None:
        led = role.leader is not None
        role.resign()
        if led:
            self._broker.ended_to_lead(role.identity)
            self._queues.ended_to_lead(role.identity)

    def _fetcher(self, leader: int) -> Fetcher:
        found = self._fetchers.get(leader)
        if found is not None:
            return found[0]
        fetcher = Fetcher(
            self._settings.node,
            self._reached(leader),
            self._net,
            self._clock,
            self._broker.log,
            self._credentials,
        )
        task = asyncio.get_running_loop().create_task(fetcher.run())
        task.add_done_callback(self._done)
        self._fetchers[leader] = fetcher, task
        return fetcher

    def _replace_fetcher(self, leader: int) -> None:
        """Copy from the address that a node has now."""
        old, task = self._fetchers.pop(leader)
        task.cancel()
        fetcher = self._fetcher(leader)
        for role in self._roles.values():
            if role.fetcher is old and role.followed is not None:
                role.fetcher = fetcher
                fetcher.follow(role.followed)

    # --- in-sync sets

    def _catches_up(self, role: PartitionRole) -> None:
        self._to_check[role.identity] = None
        self._checking.set()

    async def _check_in_sync(self) -> None:
        """Look at those of which something is heard, and now and then at all."""
        every_s = min(1.0, self._settings.lag_s / 4)
        all_at_s = 0.0
        while True:
            try:
                async with asyncio.timeout(every_s):
                    await self._checking.wait()
            except TimeoutError:
                pass
            self._checking.clear()
            to_check, self._to_check = [*self._to_check], {}
            if self._clock.monotonic() >= all_at_s:
                all_at_s = self._clock.monotonic() + every_s
                to_check = [*self._roles]
            for identity in to_check:
                role = self._roles.get(identity)
                if role is None or not role.leads:
                    continue
                wanted = role.propose(self._settings.lag_s, self._registrations)
                if wanted is not None:
                    self._do(self._change_in_sync(role, wanted))
                successor = role.hand_over(self._registrations)
                if successor is not None:
                    self._do(self._hand_over(role, successor))

    async def _change_in_sync(self, role: PartitionRole, wanted: tuple[int, ...]) -> None:
        """Let the coordinator have another in-sync set; ask until it is known what became of it."""
        leader = role.leader
        assert leader is not None
        key, revision = partition_key(role.identity), leader.revision
        added = [each for each in wanted if each not in leader.assignment.in_sync]
        expected = [Expected(key, revision)]
        # Who registered anew since may have lost what it had.
        expected += [Expected(node_key(each), self._registrations.get(each, 0)) for each in added]
        present = leader.assignment
        successor = msgspec.structs.replace(present, in_sync=wanted)
        while role.leader is leader and leader.revision == revision:
            try:
                done = await self._coordinator.commit(expected, [Put(key, encode(successor))])
                if done is not None:
                    self._changed_in_sync(role, successor, done)
                    return
                entry = await self._coordinator.get(key)
            except CoordinatorUnavailable:
                await asyncio.sleep(_RETRY_S)
                continue
            if entry is not None and entry.revision == revision:
                leader.refused()
            elif entry is not None:
                self.told(key, entry.value, entry.revision)
            return

    async def _hand_over(self, role: PartitionRole, successor: Assignment) -> None:
        """Let another replica lead: the log here has failed."""
        leader, key = role.leader, partition_key(role.identity)
        assert leader is not None
        try:
            expected = [Expected(key, leader.revision)]
            await self._coordinator.commit(expected, [Put(key, encode(successor))])
        except CoordinatorUnavailable as error:
            log.warning("%s is not handed over: %s", key, error)

    def _changed_in_sync(self, role: PartitionRole, now: Assignment, revision: int) -> None:
        log.info("%s: in sync are %s", partition_key(role.identity), list(now.in_sync))
        self.told(partition_key(role.identity), encode(now), revision)
