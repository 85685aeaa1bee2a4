"""One virtual host, as gateways use it. Its parts are in the other modules of this package.

A coroutine that changes queues, exchanges or bindings returns when the change is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from entrepot.broker.catalog import StoredQueue, Topic
from entrepot.broker.queue.message import Publication, Run
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import Declaration, QueueSettings
from entrepot.broker.router import decision
from entrepot.broker.router.decision import WantedBinding, WantedExchange
from entrepot.broker.router.event import (
    DEFAULT_EXCHANGE,
    Binding,
    Destination,
    DestinationKind,
    Event,
    Exchange,
    ExchangeSettings,
    ExchangeType,
    Unbound,
)
from entrepot.broker.router.router import Held, Router
from entrepot.broker.served_partition import ServedPartition
from entrepot.broker.session.records import StoredSession
from entrepot.broker.session.registry import SessionRegistry
from entrepot.broker.subject.apart import Apart
from entrepot.broker.subject.listener import Listener
from entrepot.broker.subject.listeners import Listeners
from entrepot.broker.subject.retained import Retained, RetainedMessage
from entrepot.broker.subject.subjects import Subjects
from entrepot.broker.virtual_host.deduplication import Deduplication, Memory
from entrepot.broker.virtual_host.delay_store import DelayStore
from entrepot.broker.virtual_host.inventory import Inventory
from entrepot.broker.virtual_host.publisher import Check, Publisher
from entrepot.broker.virtual_host.queue_maker import QueueMaker
from entrepot.broker.virtual_host.routing import Routing
from entrepot.broker.virtual_host.session_queues import SessionQueues
from entrepot.broker.virtual_host.subject_routes import SubjectRoutes
from entrepot.broker.virtual_host.topic_feed import TopicFeed
from entrepot.broker.virtual_host.topic_taps import TopicTaps
from entrepot.broker.virtual_host.traced_publisher import TracedPublisher
from entrepot.core import limits
from entrepot.core.errors import PeerError, QueuesUnavailable, TopicDenied
from entrepot.core.message import Message
from entrepot.core.record import Record
from entrepot.core.steps import parts

if TYPE_CHECKING:
    from entrepot.broker.broker import Broker

log = logging.getLogger("entrepot.vhost")


class VirtualHost:
    def __init__(
        self,
        name: str,
        broker: Broker,
        maker: QueueMaker | None,
        predeclared: Sequence[Exchange] = (),
    ) -> None:
        """Begin without queues. If there is no maker, none can be made, and nothing published."""
        self.name = name
        self._broker = broker
        self._maker = maker
        self._routing = Routing(name, broker, predeclared)
        self._inventory = Inventory(self._routing, broker, maker, self._publish_dead_letters)
        self._feeds: dict[str, TopicFeed] = {}
        self._delay_store: DelayStore | None = None  # None means: no exchange ever delayed.
        self._deduplication: Deduplication | None = None
        self._publisher: Publisher | None = None
        self._sessions: SessionRegistry | None = None
        self._subjects: Subjects | None = None
        self._routes: SubjectRoutes | None = None
        self._taps: TopicTaps | None = None
        self._apart: Apart | None = None  # None means: topics can be reached by subjects.
        self._repeats: Memory | None = None  # Of messages published before.
        if maker is not None:
            self._assemble(maker)

    def _assemble(self, maker: QueueMaker) -> None:
        """Make what publishes, and those who hear it."""
        broker, exchange = self._broker, maker.dialect.subject_exchange
        self._deduplication = Deduplication(self.router, maker.formats)
        listeners = Listeners[Listener]()
        apart = self._apart = None if broker.cluster is None else Apart(broker.topics)
        routes = SubjectRoutes(exchange, self.router, self._inventory.queues, listeners, apart)
        made = Publisher if broker.tracer is None else TracedPublisher
        self._publisher = made(
            self.router,
            self._inventory.queues,
            self._feed,
            self._hold,
            self._deduplication,
            routes,
            maker.clock,
            broker.turns,
            maker.memory_use,
        )
        if broker.tracer is not None and isinstance(self._publisher, TracedPublisher):
            self._publisher.tracer = broker.tracer
        self._routes = routes
        given = exchange, maker.formats, broker.faults, self._is_heard, routes.heard_version
        self._taps = TopicTaps(*given, self._publish_from_topic)
        retained = Retained(self.name, maker.retained, maker.clock)
        self._subjects = Subjects(
            exchange,
            retained,
            self._publish_on_subjects,
            self._publisher.publish_alone,
            listeners,
            maker.clock,
            self._look_again,
        )
        self._sessions = SessionRegistry(
            self.name,
            SessionQueues(self._inventory),
            maker.sessions,
            listeners,
            retained,
            self._publish_will,
            maker.clock,
            broker.entropy,
            broker.turns,
            broker.faults,
            apart,
        )
        self._inventory.on_hidden_gone = self._sessions.queue_gone

    @property
    def is_deleted(self) -> bool:
        return self._inventory.is_deleted

    # --- subjects and sessions

    @property
    def subject_exchange(self) -> str:
        """Return the name of the exchange whose keys are subjects."""
        return self.subjects.exchange

    @property
    def subjects(self) -> Subjects:
        """Return what publishes on subjects. Raises QueuesUnavailable."""
        if self._subjects is None:
            raise QueuesUnavailable("this broker was started without queues")
        return self._subjects

    @property
    def sessions(self) -> SessionRegistry:
        """Return the sessions of clients. Raises QueuesUnavailable."""
        if self._sessions is None:
            raise QueuesUnavailable("this broker was started without queues")
        return self._sessions

    @property
    def retained(self) -> Retained:
        """Return the retained messages. Raises QueuesUnavailable."""
        return self.subjects.retained

    def restore_sessions(
        self, stored: Sequence[StoredSession], retained: Sequence[RetainedMessage]
    ) -> None:
        """Restore sessions and retained messages from their stores, after the queues."""
        if self._sessions is not None:
            self._sessions.restore(stored, [*self._inventory.hidden.values()])
            self.retained.restore(retained)

    # --- finding

    @property
    def router(self) -> Router:
        return self._routing.router

    @property
    def queues(self) -> Mapping[str, Queue]:
        """Return the queues by name, without streams and without the delay queue."""
        return self._inventory.queues

    @property
    def all_queues(self) -> list[Queue]:
        """Return all queues, including those of sessions and the one of the delayed exchanges."""
        hidden = self._inventory.hidden.values()
        return [*self.queues.values(), *hidden, *filter(None, [self.delayed])]

    def queue(self, name: str, owner: object | None = None) -> Queue:
        """Return a queue. `owner` is the connection that asks; None may use exclusive queues, too.

        Raises UnknownQueue, also for a stream; QueueLocked if the queue is exclusive to another
        connection.
        """
        return self._inventory.queue(name, owner)

    @property
    def delayed(self) -> Queue | None:
        """Return the queue with the messages of all delayed exchanges; None if there is none."""
        return self._inventory.delayed

    def stream(self, name: str) -> Topic | None:
        """Return the topic that can be used as a stream of that name, if there is one."""
        return self._inventory.stream(name)

    def watch_stream(self, name: str, reader: object, gone: Callable[[], None]) -> None:
        """Register a reader of a stream. `gone` is called if the stream is deleted."""
        self._inventory.watch_stream(name, reader, gone)

    def unwatch_stream(self, name: str, reader: object) -> None:
        """Unregister a reader. Without effect if the stream is deleted."""
        self._inventory.unwatch_stream(name, reader)

    def reader_count(self, name: str) -> int:
        """Return the number of registered readers of a stream."""
        return self._inventory.reader_count(name)

    # --- queues

    async def declare_queue(self, declaration: Declaration, owner: object) -> Queue | Topic:
        """Make a queue or stream, or check that the existing one has the same settings.

        Raises InvalidQueue, QueueMismatch, QueueLocked, QueueNameRefused, QueuesUnavailable,
        InvalidPartitions (the broker has too many), StorageError.
        """
        return await self._inventory.declare(declaration, owner)

    async def change_queue(
        self, name: str, change: Callable[[QueueSettings], QueueSettings]
    ) -> Queue:
        """Change the settings of a queue; `change` gets the present ones and returns the new.

        What a queue is made of, its lanes, cannot change. Raises UnknownQueue, StorageError, and
        what `change` raises.
        """
        return await self._inventory.change(name, change)

    async def delete_queue(
        self, name: str, owner: object | None, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Delete a queue or stream. Returns how many messages were ready in the queue.

        Returns 0 for a stream, and if there is no such queue.

        Raises QueueLocked, QueueHasConsumers, QueueNotEmpty, StorageError.
        """
        return await self._inventory.delete(name, owner, if_unused=if_unused, if_empty=if_empty)

    def connection_gone(self, owner: object) -> None:
        """Delete the exclusive queues of a connection that is closed."""
        self._inventory.connection_gone(owner)

    # --- exchanges and bindings; for the errors that these raise see `router.decision`

    async def declare_exchange(self, wanted: WantedExchange) -> None:
        events = decision.declare(self.router, wanted)
        if events and wanted.type is ExchangeType.DELAYED:
            await self._open_delay_store()
            events = decision.declare(self.router, wanted)
        await self._change(events)

    async def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        events = decision.delete(self.router, name, if_unused=if_unused)
        if len(events) > limits.BINDINGS_AT_ONCE_MAX:  # Unbind its queues first, in turns.
            bindings = self.router.bindings_from(name)
            to_queues = [
                each for each in bindings if each.destination.kind is DestinationKind.QUEUE
            ]
            for some in parts(to_queues, limits.BINDINGS_AT_ONCE_MAX):
                self._routing.change(tuple(map(Unbound, some)))
                await self._broker.turns.next()
            events = decision.delete(self.router, name)
        await self._change(events)

    async def bind(self, wanted: WantedBinding, owner: object | None = None) -> None:
        self._check_access(wanted.destination, owner)
        if self._apart is not None and wanted.source == self.subject_exchange:
            self._apart.check(wanted.key)
        await self._change(decision.bind(self.router, wanted))

    async def unbind(self, binding: Binding, owner: object | None = None) -> None:
        self._check_access(binding.destination, owner)
        await self._change(decision.unbind(self.router, binding))

    def _check_access(self, destination: Destination, owner: object | None) -> None:
        """Raise QueueLocked if the destination is a queue exclusive to another connection."""
        kind, name = destination
        if kind is DestinationKind.QUEUE and name in self.queues:
            self.queue(name, owner)

    async def _change(self, events: tuple[Event, ...]) -> None:
        if self._routing.change(events):
            await self._routing.permanent()

    # --- messages

    def publish(
        self,
        exchange: str,
        messages: Sequence[Message],
        publication: Publication | None,
        check: Check | None = None,
    ) -> Sequence[Message]:
        """Publish messages to an exchange, which must be the one in their envelopes.

        Returns the messages that no queue or topic gets. `check` is called with the name of each
        topic that the default exchange leads to. Raises what `check` raises, UnknownExchange and
        ExchangeRefused; the messages before the faulty one are published.
        """
        assert self._publisher is not None
        return self._publisher.publish(exchange, messages, publication, check=check)

    def _publish_on_subjects(
        self,
        messages: Sequence[Message],
        publication: Publication | None,
        check: Check | None,
        sender: object | None,
        is_repeated: bool,
        encoded: dict[object, bytes] | None,
    ) -> Sequence[Message]:
        assert self._publisher is not None
        assert self._subjects is not None
        memory = self._memory_of_repeats() if is_repeated else None
        return self._publisher.publish(
            self._subjects.exchange,
            messages,
            publication,
            check=check,
            sender=sender,
            memory=memory,
            encoded=encoded,
        )

    def _memory_of_repeats(self) -> Memory:
        """Return what recognises messages that were published before."""
        if self._repeats is None:
            assert self._maker is not None
            settings = ExchangeSettings(ids_max=limits.REPEATS_SEARCHED_MAX)
            kind = ExchangeType.DEDUPLICATION
            exchange = Exchange(self.subject_exchange, kind, settings=settings)
            self._repeats = Memory(exchange, self._maker.formats, is_old=True)
        return self._repeats

    def _look_again(self) -> None:
        if self._repeats is not None:
            self._repeats.look_again()

    def topic_appended(self, name: str, served: ServedPartition, offset_first: int) -> None:
        """Publish what is appended to a topic on the subject of its name, if anybody listens."""
        if self._taps is not None:
            self._taps.appended(name, served, offset_first)

    def _is_heard(self, name: str) -> bool:
        """Return whether anybody but the topic of that name gets what is published there."""
        assert self._routes is not None
        bound = self.router.route(self.subject_exchange, name, inside=True)
        queues, held, listeners = self._routes.route(name, bound, None)
        return bool(listeners or held or any(queue != name for queue in queues))

    def _publish_from_topic(self, name: str, messages: Sequence[Message]) -> None:
        assert self._publisher is not None
        exchange = self.subject_exchange
        self._publisher.publish(exchange, messages, None, inside=True, avoided=(name,))

    def _publish_will(self, message: Message, is_retained: bool, publication: Publication) -> None:
        subject = message[0].subject

        def check(name: str) -> None:
            """Allow only the name itself: whether it may be written was checked before."""
            if name != subject:
                raise TopicDenied(f"a will for {subject!r} does not land in {name!r}")

        self.subjects.publish([message], publication, is_retained=is_retained, check=check)

    def _publish_dead_letters(
        self, queue: Queue, run: Run, avoided: Sequence[str], publication: Publication | None
    ) -> Sequence[Message]:
        assert self._publisher is not None
        messages = run.messages
        exchange = messages[0][0].exchange
        if self.router.exchange(exchange) is None:
            return messages
        try:
            return self._publisher.publish(
                exchange,
                messages,
                publication,
                inside=True,
                avoided=avoided,
                to_topics=self._may_reach_topics(queue),
            )
        except PeerError as error:
            log.warning("dead letters of queue %s in %s: %s", queue.name, self.name, error)
            return messages

    def _may_reach_topics(self, queue: Queue) -> bool:
        """Return whether dead letters of the queue may go to topics.

        Through the default exchange they would reach topics by their routing key. A key in the
        queue's settings was checked when the queue was declared; a message's own key was not.
        """
        settings = queue.settings
        return (
            settings.dead_letter_exchange != DEFAULT_EXCHANGE
            or settings.dead_letter_key is not None
            or not self._broker.access.is_enforced
        )

    def _feed(self, name: str) -> TopicFeed:
        feed = self._feeds.get(name)
        if feed is None:
            assert self._maker is not None
            served = partial(self._served_partitions_of, name)
            exchange = self._maker.dialect.subject_exchange
            feed = TopicFeed(served, self._broker.codec_worker, self._broker.turns, exchange)
            self._feeds[name] = feed
        return feed

    def _served_partitions_of(self, name: str) -> list[ServedPartition]:
        topic = self.stream(name)
        return [] if topic is None else self._broker.served_partitions(topic)

    # --- delayed exchanges

    async def _open_delay_store(self) -> None:
        await self._inventory.prepare_delayed()
        self._find_delay_store()

    def _find_delay_store(self) -> None:
        queue = self._inventory.delayed
        if self._delay_store is None and queue is not None:
            assert self._maker is not None
            self._delay_store = DelayStore(queue, self._release)

    def _hold(
        self, held: Held, run: Run, publication: Publication | None, until_settled: bool
    ) -> None:
        assert self._delay_store is not None, "no delayed exchange is declared without one"
        self._delay_store.hold(held, run, publication, until_settled)

    def _release(self, start: str, messages: Sequence[Message], publication: Publication) -> None:
        assert self._publisher is not None
        self._publisher.publish(start, messages, publication, inside=True)

    # --- called by the broker

    def add_stream(self, name: str) -> None:
        """Make a new topic known, so that it can be bound and published to."""
        self._inventory.add_stream(name)

    def remove_stream(self, name: str, *records: Record) -> None:
        """Remove a deleted topic and its bindings, and record both together with `records`."""
        self._inventory.remove_stream(name, *records)
        self._feeds.pop(name, None)
        if self._taps is not None:
            self._taps.close(name)

    def restore(self, stored: Sequence[StoredQueue], events: Sequence[Event]) -> None:
        """Restore queues, exchanges and bindings from the catalog.

        All partitions must be open, and all topics added.
        """
        for each in stored:
            self._inventory.restore(each)
        for event in events:
            self.router.apply(event)
        self._find_delay_store()
        if self._deduplication is not None:
            self._deduplication.restored(self.router.exchanges())

    async def clear(self, *records: Record) -> None:
        """Delete everything in the virtual host, and record that together with `records`.

        Raises StorageError, and then the virtual host is not deleted.
        """
        await self._inventory.clear(*records)
        if self._sessions is not None:
            await self._broker.turns.run(self._sessions.clear())
            await self._broker.turns.run(self.retained.clear_all())

    def abandon_sessions(self) -> None:
        """Let sessions publish and record nothing, whatever becomes of their connections."""
        if self._sessions is not None:
            self._sessions.abandon()

    def abandon(self) -> None:
        """Stop all queues at once, and record nothing."""
        for queue in self.all_queues:
            queue.close()

    async def close(self) -> None:
        if self._sessions is not None:
            await self._sessions.close()
        await self._inventory.close()
