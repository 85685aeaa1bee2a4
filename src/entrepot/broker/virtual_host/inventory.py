"""The queues and streams of a virtual host: declaring, finding and deleting them.

A durable queue can be found only when its record is committed, for messages must not outlive
their queue. A deleted queue cannot be found from then on; when its deletion is committed, its
ledger and its files are deleted.

An exclusive queue belongs to one connection and is deleted with it. A crash ends all
connections, so an exclusive queue is kept in memory, even if it was declared durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from entrepot.broker.catalog import (
    INTERNAL_NAMES,
    StoredQueue,
    Topic,
    queue_deleted_record,
    queue_record,
)
from entrepot.broker.queue.lane import Lane
from entrepot.broker.queue.memory_lane import MemoryLane
from entrepot.broker.queue.queue import PublishDeadLetters, Queue, Surroundings
from entrepot.broker.queue.settings import Declaration, QueueSettings, QueueSpec
from entrepot.broker.queue.traced_queue import TracedQueue
from entrepot.broker.router import decision
from entrepot.broker.virtual_host import streams
from entrepot.broker.virtual_host.claims import Claims
from entrepot.broker.virtual_host.queue_maker import QueueMaker
from entrepot.broker.virtual_host.records import DEFAULT_VHOST, routing_deleted_records
from entrepot.broker.virtual_host.routing import Routing
from entrepot.core import limits
from entrepot.core.errors import (
    InvalidQueue,
    QueueDown,
    QueueHasConsumers,
    QueueLocked,
    QueueNameRefused,
    QueueNotEmpty,
    QueuesUnavailable,
    StorageError,
    UnknownQueue,
    UnknownVhost,
)
from entrepot.core.names import is_short
from entrepot.core.record import Record
from entrepot.core.steps import Steps, finish, listed

if TYPE_CHECKING:
    from entrepot.broker.broker import Broker

log = logging.getLogger("entrepot.vhost")

_HIDDEN = ("$session/", "$share/")  # How the names of hidden queues begin. Persisted.


class Inventory:
    def __init__(
        self,
        routing: Routing,
        broker: Broker,
        maker: QueueMaker | None,
        publish_dead_letters: PublishDeadLetters,
    ) -> None:
        """Begin without queues. If there is no maker, none can be made; stored ones are kept."""
        self.queues: dict[str, Queue] = {}  # Without streams.
        self.delayed: Queue | None = None  # Has the delayed messages; clients cannot find it.
        # Of sessions and of those who share a subscription; clients cannot find them.
        self.hidden: dict[str, Queue] = {}
        self.on_hidden_gone: Callable[[str], None] = lambda name: None
        self.is_deleted = False  # Whether the virtual host is deleted, or being deleted.
        self._routing = routing
        self._vhost = routing.router.vhost
        self._broker = broker
        self._catalog = broker.catalog
        self._maker = maker
        self._publish_dead_letters = publish_dead_letters
        self._claims = broker.claims if self._vhost == DEFAULT_VHOST else Claims()
        self._streams: dict[str, Topic] = {}  # Those that only this virtual host knows.
        # By the name of a stream: its readers, and what to call when it is deleted.
        self._readers: dict[str, dict[object, Callable[[], None]]] = {}
        self._owned: dict[object, dict[str, None]] = {}  # Names of queues, by connection.
        self._removals: dict[asyncio.Task[None], None] = {}  # Deletions under way.

    # --- finding

    def queue(self, name: str, owner: object | None) -> Queue:
        found = self.queues.get(name)
        if found is None:
            raise UnknownQueue(f"no {self._place(name)}")
        if owner is not None and found.owner not in (None, owner):
            raise self._locked(name)
        return found

    def stream(self, name: str) -> Topic | None:
        if self._broker.cluster is not None and self._maker is not None:
            return None  # Its partitions are led by many nodes.
        found = self._streams.get(name)
        if found is None and self._vhost == DEFAULT_VHOST and name not in INTERNAL_NAMES:
            found = self._broker.topics.get(name)
        return None if found is None or found.is_queue else found

    def watch_stream(self, name: str, reader: object, gone: Callable[[], None]) -> None:
        self._readers.setdefault(name, {})[reader] = gone

    def unwatch_stream(self, name: str, reader: object) -> None:
        readers = self._readers.get(name, {})
        readers.pop(reader, None)
        if not readers:
            self._readers.pop(name, None)

    def reader_count(self, name: str) -> int:
        return len(self._readers.get(name, ()))

    def _place(self, name: str) -> str:
        return f"queue '{name}' in vhost '{self._vhost}'"

    def _locked(self, name: str) -> QueueLocked:
        return QueueLocked(
            f"cannot obtain exclusive access to locked {self._place(name)}. It could be originally "
            "declared on another connection or the exclusive property value does not match that "
            "of the original declaration."
        )

    # --- declaring

    async def declare(self, declaration: Declaration, owner: object) -> Queue | Topic:
        name = declaration.name
        self._check_name(name)
        await self._wait_for(name)
        queue, topic = self.queues.get(name), self.stream(name)
        if queue is not None:
            if queue.owner is not (owner if declaration.exclusive else None):
                raise self._locked(name)
            declaration.check_same(queue.spec)
            queue.touch()
            return queue
        if topic is not None:
            if declaration.exclusive:
                raise self._locked(name)
            stored = self._catalog.queues.get((self._vhost, name))
            declaration.check_same(streams.spec_of(topic, stored))
            return topic
        return await self._make(declaration.spec(), owner)

    def _check_name(self, name: str) -> None:
        if not name or not is_short(name):
            raise InvalidQueue(f"a queue's name has 1 to {limits.NAME_BYTES_MAX} bytes")
        if name in INTERNAL_NAMES or self._is_delay_queue(name) or name.startswith(_HIDDEN):
            raise QueueNameRefused(f"queue name '{name}' is the broker's own")

    def _is_delay_queue(self, name: str) -> bool:
        return self._maker is not None and name == self._maker.dialect.delay_queue

    async def _make(self, spec: QueueSpec, owner: object) -> Queue | Topic:
        settings = spec.settings
        if self._maker is None:
            raise QueuesUnavailable("this broker was started without queues")
        if len(self.queues) + len(self._streams) >= limits.QUEUES_PER_VHOST_MAX:
            limit = f"queue limit of {limits.QUEUES_PER_VHOST_MAX} is reached"
            raise QueuesUnavailable(f"cannot declare {self._place(spec.name)}: {limit}")
        is_stream = settings.is_stream
        if is_stream and self._broker.cluster is not None:
            raise QueuesUnavailable("in a cluster, streams are for Kafka's clients only")
        if not is_stream and (spec.exclusive or not spec.durable):
            lanes = self._maker.memory_lanes(settings)
            return self._add(spec, lanes, owner if spec.exclusive else None)
        make = streams.stream_topic if is_stream else streams.queue_topic
        is_reserved = self._maker.dialect.is_reserved(spec.name)
        identity = self._broker.new_id()
        topic = make(self._vhost, spec.name, settings, identity, is_reserved=is_reserved)
        if is_stream and not topic.is_hidden:
            return await self._broker.create_topic(topic.name, 1, topic.settings)
        facts = (spec.auto_delete, settings, spec.arguments)
        return await self._keep(StoredQueue(self._vhost, spec.name, topic, *facts))

    async def change(self, name: str, change: Callable[[QueueSettings], QueueSettings]) -> Queue:
        await self._wait_for(name)
        queue = self.queue(name, None)
        settings = change(queue.settings)
        stored = self._catalog.queues.get((self._vhost, name))
        if stored is not None:
            record = queue_record(replace(stored, settings=settings))
            self._broker.append_change(record)
            self._catalog.apply(record)
        queue.change_settings(settings)
        if stored is not None:
            await self._routing.permanent()
        return queue

    async def prepare_delayed(self) -> None:
        """Make the queue of the delayed exchanges, unless there is one."""
        if self._maker is None:
            raise QueuesUnavailable("this broker was started without queues")
        name = self._maker.dialect.delay_queue
        await self._wait_for(name)
        if self.delayed is None:
            # A message's TTL counts from the end of its delay, so it must not expire here.
            settings, identity = QueueSettings(heeds_expiration=False), self._broker.new_id()
            topic = streams.queue_topic(self._vhost, name, settings, identity, is_reserved=True)
            await self._keep(StoredQueue(self._vhost, name, topic, settings=settings))

    async def prepare_hidden(self, name: str, settings: QueueSettings) -> Queue:
        """Return a queue that clients cannot find; make it if need be."""
        assert name.startswith(_HIDDEN), name
        if self._maker is None:
            raise QueuesUnavailable("this broker was started without queues")
        await self._wait_for(name)
        found = self.hidden.get(name)
        if found is None:
            identity = self._broker.new_id()
            topic = streams.queue_topic(self._vhost, name, settings, identity, is_reserved=True)
            await self._keep(StoredQueue(self._vhost, name, topic, settings=settings))
        return self.hidden[name]

    def in_memory(self, name: str, settings: QueueSettings) -> Queue:
        """Make a queue in memory that only the caller knows."""
        assert self._maker is not None
        lanes = self._maker.memory_lanes(settings)
        queue = self._new(QueueSpec(name, settings=settings), lanes, None)
        queue.refuses_when_gone = False
        return queue

    async def delete_hidden(self, name: str) -> None:
        queue = self.hidden.get(name)
        if queue is not None:
            await asyncio.shield(self._remove(queue))

    async def _wait_for(self, name: str) -> None:
        """Wait until nothing of that name is being made or deleted.

        Raises UnknownVhost if the virtual host is deleted by then.
        """
        await self._claims.wait(name)
        if self.is_deleted:
            raise UnknownVhost(f"vhost '{self._vhost}' is deleted")

    async def _keep(self, stored: StoredQueue) -> Queue | Topic:
        """Record a queue or stream, and make it when the record is committed."""

        async def make() -> Queue | Topic:
            assert self._maker is not None
            try:
                await self._maker.ledgers.prepare()
                return self.restore(await self._broker.create_queue(stored))
            finally:
                self._claims.release(stored.name)

        self._broker.check_partitions_in_all(stored.topic.partition_count)
        self._claims.take(stored.name)
        # Shielded: the change goes on even if the client that asked for it disconnects.
        return await asyncio.shield(asyncio.ensure_future(make()))

    def restore(self, stored: StoredQueue) -> Queue | Topic:
        """Make a queue or stream that the catalog has. Its partitions must be open."""
        name, topic = stored.name, stored.topic
        if not topic.is_queue:
            self._streams[name] = topic
        # Without a maker, only its bindings are kept.
        if not topic.is_queue or self._maker is None:
            self.add_stream(name)
            return topic
        missing = self._broker.missing_here(topic)
        if missing is None:
            lanes = self._maker.log_lanes(topic)
        else:  # The queue is down until this node leads it.
            lanes = [MemoryLane(self._maker.memory_use) for _ in range(topic.partition_count)]
        settings, error = stored.settings, None
        if settings is None:
            settings, error = self._settings_of_old(stored, len(lanes))
        spec = QueueSpec(name, True, False, stored.auto_delete, settings, stored.arguments)
        if self._is_delay_queue(name):
            self.delayed = self._new(spec, lanes, None)
            queue = self.delayed
        elif name.startswith(_HIDDEN):
            queue = self.hidden[name] = self._new(spec, lanes, None)
            queue.refuses_when_gone = False
        else:
            queue = self._add(spec, lanes, None)
        if missing is not None:
            queue.stop(missing)
        if error is not None:
            log.error("%s is not served: %s", self._place(name), error)
            queue.stop(str(error))
        return queue

    def _settings_of_old(
        self, stored: StoredQueue, lane_count: int
    ) -> tuple[QueueSettings, InvalidQueue | None]:
        """Return a queue's settings from its arguments, which is all that older releases stored.

        If the arguments are refused today, also return the error: the queue is then restored,
        but stopped, so that it can be deleted.
        """
        assert self._maker is not None
        if self._is_delay_queue(stored.name):
            return QueueSettings(heeds_expiration=False), None
        try:
            where = self._place(stored.name)
            return self._maker.dialect.queue_settings(stored.arguments, where), None
        except InvalidQueue as error:
            return QueueSettings(priority_max=lane_count - 1), error

    def _add(self, spec: QueueSpec, lanes: Sequence[Lane], owner: object) -> Queue:
        queue = self.queues[spec.name] = self._new(spec, lanes, owner)
        is_durable = spec.durable and not spec.exclusive
        self._routing.change(
            decision.add_queue(self._routing.router, spec.name, durable=is_durable)
        )
        if owner is not None:
            self._owned.setdefault(owner, {})[spec.name] = None
        return queue

    def _new(self, spec: QueueSpec, lanes: Sequence[Lane], owner: object) -> Queue:
        assert self._maker is not None
        around = Surroundings(
            self._maker.clock,
            self._publish_dead_letters,
            self._unused,
            self._broker.turns,
            self._broker.faults,
        )
        tracer = self._broker.tracer
        if tracer is None:
            return Queue(self._vhost, spec, lanes, around, owner)
        queue = TracedQueue(self._vhost, spec, lanes, around, owner)
        queue.tracer = tracer
        return queue

    def add_stream(self, name: str) -> None:
        """Make a topic known to the router, as a queue that can be bound."""
        self._routing.change(decision.add_queue(self._routing.router, name, durable=True))

    # --- deleting

    async def delete(
        self, name: str, owner: object | None, *, if_unused: bool, if_empty: bool
    ) -> int:
        topic = self.stream(name)
        if topic is not None:
            if if_unused and self.reader_count(name):
                raise QueueHasConsumers(f"{self._place(name)} in use")
            await self._delete_stream(topic, if_empty=if_empty)
            return 0
        if name not in self.queues:
            return 0
        queue = self.queue(name, owner)
        if if_unused and queue.consumer_count:
            raise QueueHasConsumers(f"{self._place(name)} in use")
        if if_empty:
            queue.check_up()
        count = queue.ready_count
        if if_empty and count:
            raise QueueNotEmpty(f"{self._place(name)} not empty")
        await asyncio.shield(self._remove(queue))
        return count

    async def _delete_stream(self, topic: Topic, *, if_empty: bool) -> None:
        partitions = [served.partition for served in self._broker.served_partitions(topic)]
        fault = self._broker.fault_of(topic)
        if if_empty and fault is not None:
            raise QueueDown(f"{self._place(topic.name)} is down: {fault}")
        if if_empty and any(each.offset_start < each.offset_end for each in partitions):
            raise QueueNotEmpty(f"{self._place(topic.name)} not empty")
        stored = self._catalog.queues.get((self._vhost, topic.name))
        if stored is None:
            await self._broker.delete_topic(topic)
            return
        deleted = queue_deleted_record(self._vhost, topic.name)
        self.remove_stream(topic.name, deleted)
        self._catalog.apply(deleted)
        self._claims.take(topic.name)
        await asyncio.shield(self._spawn(self._finish_removal(None, stored)))

    def remove_stream(self, name: str, *records: Record) -> None:
        """Remove a topic and its bindings, and record both together with `records`."""
        self._routing.change(decision.remove_queue(self._routing.router, name), *records)
        self._streams.pop(name, None)
        for gone in self._readers.pop(name, {}).values():
            gone()

    def _remove(self, queue: Queue) -> asyncio.Task[None]:
        """Delete a queue. The task ends when that is committed and the files are deleted."""
        name = queue.name
        stored = self._catalog.queues.get((self._vhost, name))
        deleted = [] if stored is None else [queue_deleted_record(self._vhost, name)]
        events = decision.remove_queue(self._routing.router, name)
        is_recorded = self._routing.change(events, *deleted, is_tolerant=stored is None)
        if self.hidden.get(name) is queue:
            del self.hidden[name]
        else:
            del self.queues[name]
        if queue.owner is not None:
            self._owned[queue.owner].pop(name)
        if stored is None:
            queue.delete()
        else:
            self._claims.take(name)
            self._catalog.apply(deleted[0])
            if not stored.topic.is_hidden:
                self._broker.groups.topic_deleted(name)
        return self._spawn(self._finish_removal(queue, stored, is_recorded=is_recorded))

    async def _finish_removal(
        self, queue: Queue | None, stored: StoredQueue | None, *, is_recorded: bool = True
    ) -> None:
        """Wait until the deletion is committed, then delete the ledger and the files.

        The ledger must not go first: after a crash the queue would be back with its settled
        messages ready again.
        """
        try:
            if is_recorded:
                await self._routing.permanent()
            if stored is not None:
                await self._take_off_disk(queue, stored)
        finally:
            if stored is not None:
                self._claims.release(stored.name)

    async def _take_off_disk(self, queue: Queue | None, stored: StoredQueue) -> None:
        if queue is not None:
            queue.delete()
        await self._broker.drop_queues(stored.topic)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._removals[task] = None
        task.add_done_callback(self._spawned)
        return task

    def _spawned(self, task: asyncio.Task[None]) -> None:
        del self._removals[task]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StorageError):
            log.error("what is deleted may come back at the next start: %s", error)
        elif error is not None:
            self._broker.faults.caught("a deletion", error)

    def _unused(self, queue: Queue) -> None:
        """Delete a queue: its last consumer is gone (auto-delete), or its idle time is over."""
        is_hidden = self.hidden.get(queue.name) is queue
        if is_hidden or self.queues.get(queue.name) is queue:
            try:
                self._remove(queue)
            except StorageError as error:
                log.error("%s stays: %s", self._place(queue.name), error)
                return
            if is_hidden:
                self.on_hidden_gone(queue.name)

    def connection_gone(self, owner: object) -> None:
        """Delete the connection's exclusive queues: at once, or in turns if they are many."""
        removal = self._remove_owned(owner)
        if len(self._owned.get(owner, ())) <= limits.QUEUES_AT_ONCE_MAX:
            finish(removal)
        else:
            self._broker.turns.start(removal)

    def _remove_owned(self, owner: object) -> Steps[None]:
        owned = self._owned.get(owner, {})
        while owned:
            self._remove(self.queues[next(iter(owned))])
            yield
        self._owned.pop(owner, None)

    # --- deleting everything

    async def clear(self, *records: Record) -> None:
        """Delete all queues, streams and exchanges, and record that together with `records`."""
        self.is_deleted = True
        try:
            await self._claims.wait_all()
            await self._clear(*records)
        except StorageError:
            self.is_deleted = False
            raise

    async def _clear(self, *records: Record) -> None:
        stored = [name for vhost, name in self._catalog.queues if vhost == self._vhost]
        deleted = [queue_deleted_record(self._vhost, name) for name in stored]
        routing = routing_deleted_records(self._routing.router)
        self._broker.append_change(*records, *deleted, *routing)
        turns = self._broker.turns
        gone, topics = await turns.run(self._forget(dict.fromkeys([*self.queues, *stored])))
        if self.delayed is not None:
            gone.append(self.delayed)
            self.delayed = None
        await self._routing.permanent()
        await turns.run(listed(queue.delete() for queue in gone))
        await self._broker.drop_queues(*topics)

    def _forget(self, names: Iterable[str]) -> Steps[tuple[list[Queue], list[Topic]]]:
        """Remove these names from the catalog and the router.

        Return their queues, and the topics that have their messages, without those that were
        deleted by somebody else meanwhile.
        """
        gone: list[Queue] = []
        topics: list[Topic] = []
        for name in names:
            stored = self._catalog.queues.get((self._vhost, name))
            if stored is not None:
                topics.append(stored.topic)
                self._catalog.apply(queue_deleted_record(self._vhost, name))
            for event in decision.remove_queue(self._routing.router, name):
                self._routing.router.apply(event)
            self._streams.pop(name, None)
            queue = self.queues.pop(name, None) or self.hidden.pop(name, None)
            if queue is not None:
                gone.append(queue)
            yield
        return gone, topics

    async def close(self) -> None:
        """Wait for deletions under way, and close all queues."""
        if self._removals:
            await asyncio.wait(list(self._removals))
        for queue in [*self.queues.values(), *self.hidden.values()]:
            queue.close()
        if self.delayed is not None:
            self.delayed.close()
