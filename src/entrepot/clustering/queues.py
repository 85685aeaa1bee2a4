"""The home of all queues: whether it is this node, and what it takes to become it and to end.

The home is who leads the partition of ledgers. It leads the partitions of queues as well, because
these are led with that one; a queue for which that is not so is down until it is.

Before this node serves queues it writes under `queues` in the coordinator that it is their home,
and has heard everything that was changed before. From then on nobody else can change queues,
exchanges and bindings: each change is made on the condition that this is still what it wrote.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from entrepot.broker.broker import Broker
from entrepot.broker.catalog import Topic, topic_deleted_record
from entrepot.broker.ledger_store import LEDGER_SETTINGS
from entrepot.broker.replication import Cluster, Holders, Peer
from entrepot.broker.virtual_host.queue_maker import LEDGERS, RETAINED, SESSIONS
from entrepot.cluster.state import CATALOG, HOME, NOBODY, Assignment, encode, partition_key
from entrepot.clustering.catalogue import LedWith, SharedCatalogue, key_of, put_of
from entrepot.clustering.roles import PartitionRole
from entrepot.core import limits
from entrepot.core.coordinator import Change, Coordinator, Expected, Put
from entrepot.core.errors import (
    CoordinatorUnavailable,
    NotLeader,
    PeerError,
    QueueMismatch,
    StorageError,
)
from entrepot.core.names import PartitionId
from entrepot.core.ports import Clock
from entrepot.core.record import Record

log = logging.getLogger("entrepot.cluster")

STORES = (SESSIONS, RETAINED)  # Topics of the home's own, besides the ledgers.
MOVED = "the queues are at another node now"
_RETRY_S = 0.1
_LOOK_S = 0.5  # How often to look whether this node is still the home.
_AGAIN_S = 5.0  # After a mistake of ours.
_PATIENCE_S = 15.0  # How long queues are waited for that cannot be served yet.
_CHANGES = limits.REPLICAS_CHANGED_AT_ONCE_MAX
_PENDING_MAX = 100_000  # Changes on their way to the coordinator.


class QueuesHome:
    """Implements `broker.replication.QueuesHome`."""

    def __init__(
        self,
        broker: Broker,
        coordinator: Coordinator,
        clock: Clock,
        node: int,
        replication: int,
        catalogue: SharedCatalogue,
        cluster: Cluster,
        role: Callable[[PartitionId], PartitionRole],
        told: Callable[[str, bytes | None, int], None],
        came: Callable[[Topic], None],
        do: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._clock = clock
        self._node = node
        self._replication = replication
        self._catalogue = catalogue
        self._cluster = cluster
        self._role = role
        self._told = told
        self._came = came
        self._do = do
        self._is_up = False  # The broker has the queues.
        self._serving: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()  # A partition of a queue is led by another node.
        self._claim = b""  # What we have written under HOME,
        self._revision = 0  # and its revision.
        # The revision of HOME, as far as told, and who waits for it.
        self._heard, self._heard_it = 0, asyncio.Event()
        self._pending: deque[Record] = deque()  # Changes that the coordinator has not yet.
        self._appended = self._flushed = 0  # How many changes there were, and are there.
        self._flushing: asyncio.Task[None] | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._created: dict[PartitionId, tuple[bytes, int]] = {}  # Until they are open.
        self._listeners: dict[object, Callable[[], object]] = {}

    # --- where it is

    @property
    def is_here(self) -> bool:
        return self._is_up

    @property
    def node(self) -> int:
        holders = self._holders()
        return NOBODY if holders is None else holders.leader

    def peer(self) -> Peer | None:
        node = self.node
        if node == self._node:
            return None
        return next((peer for peer in self._cluster.peers() if peer.id == node), None)

    def listen(self, token: object, changed: Callable[[], object]) -> None:
        self._listeners[token] = changed

    def unlisten(self, token: object) -> None:
        self._listeners.pop(token, None)

    async def found(self) -> None:
        while not self._is_up:
            await self._make_ledgers()
            peer = self.peer()
            if peer is not None and peer.queues_port:
                return
            await asyncio.sleep(_RETRY_S)

    async def _make_ledgers(self) -> None:
        """Make the partition of ledgers, if there is none. Not when too few nodes are there."""
        if LEDGERS in self._broker.topics:
            return
        try:
            settings = {**LEDGER_SETTINGS, **self.settings()}
            await self._broker.internal_topic(LEDGERS, 1, settings)
        except (StorageError, PeerError) as error:
            log.warning("queues have to wait: %s", error)
            await asyncio.sleep(_LOOK_S)

    def _ledgers(self) -> PartitionId | None:
        topic = self._broker.topics.get(LEDGERS)
        return None if topic is None else PartitionId(topic.id, 0)

    def _holders(self) -> Holders | None:
        ledgers = self._ledgers()
        return None if ledgers is None else self._cluster.holders(ledgers)

    def changed(self) -> None:
        """Tell those who listen that perhaps another node is the home."""
        for listener in [*self._listeners.values()]:
            self._broker.faults.guard("telling of the queues' home", listener)

    # --- roles

    def heard(self, revision: int) -> None:
        """Note that everything up to this change of HOME was told."""
        self._heard = revision
        self._heard_it.set()

    def began_to_lead(self, identity: PartitionId) -> None:
        if identity == self._ledgers():
            self._end()
            self._serving = asyncio.get_running_loop().create_task(self._serve(identity))
            self._serving.add_done_callback(self._served)

    def ended_to_lead(self, identity: PartitionId) -> None:
        if identity == self._ledgers():
            self._end()
        elif self._is_up and self._is_of_queue(identity):
            self._lost.set()

    def _is_of_queue(self, identity: PartitionId) -> bool:
        catalog = self._broker.catalog
        topic = catalog.by_id.get(identity.topic) or catalog.hidden.get(identity.topic)
        return topic is not None and (topic.is_queue or topic.name in STORES)

    def _served(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broker.faults.caught("the home of queues", error)
            self._lay_down()
            asyncio.get_running_loop().call_later(_AGAIN_S, self._serve_again, task)

    def _serve_again(self, task: asyncio.Task[None]) -> None:
        ledgers = self._ledgers()
        if self._serving is task and ledgers is not None:
            self.began_to_lead(ledgers)

    def _end(self) -> None:
        """Stop to be the home, or to become it."""
        if self._serving is not None:
            self._serving.cancel()
            self._serving = None
        self._lay_down()

    def stop(self) -> None:
        self._end()

    async def _serve(self, ledgers: PartitionId) -> None:
        """Be the home for as long as this node leads the partition of ledgers."""
        role = self._role(ledgers)
        while True:
            await self._become(ledgers, role)
            missing = await self._wait_ready(role)
            if not role.leads:
                await asyncio.sleep(_LOOK_S)
                continue
            self._take_up(missing)
            await self._until_lost(role, len(missing))
            self._lay_down()

    async def _become(self, ledgers: PartitionId, role: PartitionRole) -> None:
        """Say that this node is the home, and hear all that was changed before."""
        key, self._claim = partition_key(ledgers), f"{self._node} {role.epoch}".encode()
        while True:
            leader = role.leader
            try:
                if leader is not None and role.leads:
                    expected = [Expected(key, leader.revision)]
                    change = Put(HOME, self._claim)
                    revision = await self._coordinator.commit(expected, [change])
                    if revision is not None:
                        self._revision = revision
                        break
            except CoordinatorUnavailable as error:
                log.warning("queues have to wait: %s", error)
            await asyncio.sleep(_RETRY_S)
        while self._heard < self._revision:
            self._heard_it.clear()
            await self._heard_it.wait()
        while True:
            try:
                await self._catalogue.applied_all()
                return
            except StorageError as error:
                log.warning("queues have to wait: %s", error)

    async def _wait_ready(self, role: PartitionRole) -> list[str]:
        """Wait until the ledgers can be read, and all queues, these not for ever. Return the
        queues that cannot."""
        until_s = self._clock.monotonic() + _PATIENCE_S
        while role.leads:
            missing = self._broker.vhosts.missing()
            is_late = self._clock.monotonic() >= until_s
            if role.knows_end and (not missing or is_late):
                return missing
            await asyncio.sleep(_RETRY_S / 2)
        return []

    def _take_up(self, missing: Sequence[str]) -> None:
        self._lost.clear()
        self._is_up = True
        self._broker.vhosts.take_up()
        count = len(self._broker.catalog.queues)
        log.info("this node is the home of %d queues", count)
        if missing:
            log.warning("%d of them are down: %s", len(missing), ", ".join(missing[:10]))
        self.changed()

    async def _until_lost(self, role: PartitionRole, missing: int) -> None:
        """Return when this node is the home no more, or should begin again."""
        while role.leads and not self._lost.is_set():
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._lost.wait()
            except TimeoutError:
                if missing and len(self._broker.vhosts.missing()) < missing:
                    return

    def _lay_down(self) -> None:
        if not self._is_up:
            return
        self._is_up = False
        log.info("this node is not the home of queues any more")
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        undecided = [
            key for key in map(key_of, self._pending) if key.startswith(f"{CATALOG}queue:")
        ]
        self._pending.clear()
        self._created.clear()
        if undecided:  # They are done here, and perhaps nowhere else.
            self._do(self._read_again(undecided))
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(NotLeader(MOVED))
        self._broker.vhosts.abandon_sessions()
        for session in self._broker.sessions:
            session.close(MOVED)
        self._broker.vhosts.lay_down()
        self.changed()

    async def _read_again(self, keys: Sequence[str]) -> None:
        """Take over what the coordinator has of these queues."""
        for key in keys:
            while not self._is_up:
                try:
                    entry = await self._coordinator.get(key)
                except CoordinatorUnavailable:
                    await asyncio.sleep(_RETRY_S)
                    continue
                value = None if entry is None else entry.value
                self._catalogue.told(key, value, 0 if entry is None else entry.revision)
                break

    # --- changes, of the home

    def append_change(self, *records: Record) -> None:
        if not self._is_up:
            raise NotLeader(MOVED)
        if len(self._pending) + len(records) > _PENDING_MAX:
            raise StorageError("too many changes are on their way to the coordinator")
        self._pending += records
        self._appended += len(records)
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())
            self._flushing.add_done_callback(self._flush_ended)

    def changes_committed(self) -> Awaitable[None]:
        future = asyncio.get_running_loop().create_future()
        if not self._is_up:
            future.set_exception(NotLeader(MOVED))
        elif self._flushed >= self._appended:
            future.set_result(None)
        else:
            self._waiting.append((self._appended, future))
        return future

    async def _flush(self) -> None:
        while self._pending:
            part: dict[str, Change] = {}
            for record in self._pending:
                key = key_of(record)
                if key in part or len(part) == _CHANGES:
                    break
                part[key] = put_of(record)
            await self._commit([], [*part.values()])
            for _ in part:
                self._pending.popleft()
            self._flushed += len(part)
            while self._waiting and self._waiting[0][0] <= self._flushed:
                _, future = self._waiting.pop(0)
                if not future.done():
                    future.set_result(None)

    def _flush_ended(self, task: asyncio.Task[None]) -> None:
        if self._flushing is task:
            self._flushing = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, NotLeader):
            self._lost.set()
        elif error is not None:
            self._broker.faults.caught("recording changes of queues", error)
            self._lost.set()

    async def _commit(self, expected: Sequence[Expected], changes: Sequence[Change]) -> int:
        """Make changes, as the home. Ask until it is known that they are made.

        Raises NotLeader if another is the home, QueueMismatch if what is expected besides is not
        so.
        """
        while True:
            try:
                home = Expected(HOME, self._revision)
                revision = await self._coordinator.commit([home, *expected], changes)
                if revision is not None:
                    return revision
                entry = await self._coordinator.get(HOME)
            except CoordinatorUnavailable:
                await asyncio.sleep(_RETRY_S)
                continue
            if entry is None or entry.value != self._claim:
                raise NotLeader(MOVED)
            if entry.revision == self._revision:
                raise QueueMismatch("there is a topic of that name")
            self._revision = entry.revision  # A claim of ours that was made late.

    # --- queues' partitions

    def settings(self) -> dict[str, str]:
        holders = self._holders()
        count = self._replication if holders is None else len(holders.wanted)
        usual = int(self._broker.defaults.settings.get("min.insync.replicas", "1"))
        return {"min.insync.replicas": str(max(usual, count // 2 + 1))}

    async def create_store(self, topic: Topic) -> None:
        """Make a topic of the home's own, led where the ledgers are. Raises StorageError."""
        ledgers, holders = self._ledgers(), self._holders()
        if ledgers is None or holders is None or not self._is_up:
            raise NotLeader(MOVED)
        settings = {**topic.settings, **self.settings()}
        topic = Topic(topic.name, topic.id, topic.partition_count, settings)
        replicas = tuple(dict.fromkeys((*holders.wanted, self._node)))
        led_with = LedWith(partition_key(ledgers), self._node, replicas)
        await self._catalogue.create_topic(topic, None, None, led_with)

    async def create_queue(self, topic: Topic, record: Record) -> None:
        ledgers, holders = self._ledgers(), self._holders()
        if ledgers is None or holders is None or not self._is_up:
            raise NotLeader(MOVED)
        await self.changes_committed()  # The same queue may have been deleted just now.
        alive = [peer.id for peer in self._cluster.peers()]
        # While the ledgers move away from this node it leads the queue until they have moved.
        replicas = tuple(dict.fromkeys((*holders.wanted, self._node)))
        in_sync = tuple(each for each in replicas if each in alive or each == self._node)
        key = partition_key(ledgers)
        assignment = Assignment(replicas, in_sync, self._node, 0, led_with=key)
        partitions = [PartitionId(topic.id, number) for number in range(topic.partition_count)]
        value = encode(assignment)
        changes: list[Change] = [Put(partition_key(each), value) for each in partitions]
        expected = []
        if not topic.is_hidden:
            expected.append(Expected(key_of(topic_deleted_record(topic.name)), 0))
        for first in range(0, len(changes), _CHANGES - 1):
            part = changes[first : first + _CHANGES - 1]
            is_last = first + len(part) == len(changes)
            revision = await self._commit(expected, [*part, put_of(record)] if is_last else part)
            for identity in partitions[first : first + len(part)]:
                self._created[identity] = value, revision

    def queue_opened(self, topic: Topic) -> None:
        for number in range(topic.partition_count):
            identity = PartitionId(topic.id, number)
            found = self._created.pop(identity, None)
            if found is not None:
                self._told(partition_key(identity), *found)
        self._came(topic)

    async def delete_queue(self, topic: Topic) -> None:
        await self._catalogue.remove_partitions(topic)
