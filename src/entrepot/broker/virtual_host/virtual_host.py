"""One virtual host: what gateways ask for. Its parts are in the modules beside.

A verb that changes what there is returns when the change is permanent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from entrepot.broker.catalog import StoredQueue, Topic
from entrepot.broker.queue.message import Publication, Run
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import Declaration
from entrepot.broker.router import decision
from entrepot.broker.router.decision import WantedBinding, WantedExchange
from entrepot.broker.router.event import (
    DEFAULT_EXCHANGE,
    Binding,
    Destination,
    Event,
    Exchange,
    ExchangeType,
    Kind,
    Unbound,
)
from entrepot.broker.router.router import Held, Router
from entrepot.broker.stream import Stream
from entrepot.broker.virtual_host.deduplication import Deduplication
from entrepot.broker.virtual_host.inventory import Inventory
from entrepot.broker.virtual_host.publisher import Check, Publisher
from entrepot.broker.virtual_host.queue_maker import QueueMaker
from entrepot.broker.virtual_host.routing import Routing
from entrepot.broker.virtual_host.topic_feed import TopicFeed
from entrepot.broker.virtual_host.waiting_room import WaitingRoom
from entrepot.core import limits
from entrepot.core.envelope import Message
from entrepot.core.errors import PeerError
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
        """Without a maker there are no queues, and nothing can be published."""
        self.name = name
        self._broker = broker
        self._maker = maker
        self._routing = Routing(name, broker, predeclared)
        self._inventory = Inventory(self._routing, broker, maker, self._dead_letters)
        self._feeds: dict[str, TopicFeed] = {}
        self._waiting_room: WaitingRoom | None = None  # Once there is a delayed exchange.
        self._deduplication: Deduplication | None = None
        self._publisher = None if maker is None else self._new_publisher(maker)

    def _new_publisher(self, maker: QueueMaker) -> Publisher:
        self._deduplication = Deduplication(self.router, maker.reader)
        return Publisher(
            self.router,
            self._inventory.queues,
            self._feed,
            self._hold,
            self._deduplication,
            maker.reader,
            maker.clock,
            self._broker.turns,
        )

    @property
    def is_deleted(self) -> bool:
        return self._inventory.is_deleted

    # --- finding

    @property
    def router(self) -> Router:
        return self._routing.router

    @property
    def queues(self) -> Mapping[str, Queue]:
        """Without streams."""
        return self._inventory.queues

    @property
    def all_queues(self) -> list[Queue]:
        """With what waits at delayed exchanges."""
        return [*self.queues.values(), *filter(None, [self.delayed])]

    def queue(self, name: str, owner: object | None = None) -> Queue:
        """`owner` is the connection that asks; None: whoever may look at everything.

        Raises UnknownQueue, also for a stream; QueueLocked for another connection's own.
        """
        return self._inventory.queue(name, owner)

    @property
    def delayed(self) -> Queue | None:
        """What waits at delayed exchanges: to be looked at, and its times to be changed."""
        return self._inventory.waiting

    def stream(self, name: str) -> Topic | None:
        """A topic as a stream: to be bound, published to, and read by offset."""
        return self._inventory.stream(name)

    def watch_stream(self, name: str, reader: object, gone: Callable[[], None]) -> None:
        """Somebody reads it, until `unwatch_stream`, and is told when it is deleted."""
        self._inventory.watch_stream(name, reader, gone)

    def unwatch_stream(self, name: str, reader: object) -> None:
        """Fine when it is gone."""
        self._inventory.unwatch_stream(name, reader)

    def reader_count(self, name: str) -> int:
        """How many read the stream, of those who let us know."""
        return self._inventory.reader_count(name)

    # --- queues

    async def declare_queue(self, declaration: Declaration, owner: object) -> Queue | Topic:
        """Make it, or check that it is the same.

        Raises InvalidQueue, QueueMismatch, QueueLocked, QueueNameRefused, QueuesUnavailable,
        InvalidPartitions (too many in all), StorageError.
        """
        return await self._inventory.declare(declaration, owner)

    async def delete_queue(
        self, name: str, owner: object | None, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """A queue or a stream. Returns how many messages were ready; 0 if there is no such queue.

        Raises QueueLocked, QueueHasConsumers, QueueNotEmpty, StorageError.
        """
        return await self._inventory.delete(name, owner, if_unused=if_unused, if_empty=if_empty)

    def connection_gone(self, owner: object) -> None:
        """Its own queues go with it."""
        self._inventory.connection_gone(owner)

    # --- exchanges and bindings; what can be wrong with them: see `router.decision`

    async def declare_exchange(self, wanted: WantedExchange) -> None:
        events = decision.declare(self.router, wanted)
        if events and wanted.type is ExchangeType.DELAYED:
            await self._open_waiting_room()
            events = decision.declare(self.router, wanted)
        await self._change(events)

    async def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        events = decision.delete(self.router, name, if_unused=if_unused)
        if len(events) > limits.BINDINGS_AT_ONCE_MAX:  # Most of what leads away goes before.
            bindings = self.router.bindings_from(name)
            to_queues = [each for each in bindings if each.destination.kind is Kind.QUEUE]
            for some in parts(to_queues, limits.BINDINGS_AT_ONCE_MAX):
                self._routing.change(tuple(map(Unbound, some)))
                await self._broker.turns.next()
            events = decision.delete(self.router, name)
        await self._change(events)

    async def bind(self, wanted: WantedBinding, owner: object | None = None) -> None:
        self._check_access(wanted.destination, owner)
        await self._change(decision.bind(self.router, wanted))

    async def unbind(self, binding: Binding, owner: object | None = None) -> None:
        self._check_access(binding.destination, owner)
        await self._change(decision.unbind(self.router, binding))

    def _check_access(self, destination: Destination, owner: object | None) -> None:
        kind, name = destination
        if kind is Kind.QUEUE and name in self.queues:
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
        """To that exchange, which is in their envelopes, too. Returns those that went nowhere.

        `check` is asked about topics that are reached by their names alone. Raises what it
        does, UnknownExchange, ExchangeRefused, InvalidRoutingHeader; what came before the
        message that is wrong is published.
        """
        assert self._publisher is not None
        return self._publisher.publish(exchange, messages, publication, check=check)

    def _dead_letters(
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
        """Whether its dead letters may, by name: the declared key was checked with who declared
        it, those of the messages were not."""
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
            streams = partial(self._streams_of, name)
            reader, broker = self._maker.reader, self._broker
            feed = TopicFeed(streams, reader, broker.codec_worker, broker.turns)
            self._feeds[name] = feed
        return feed

    def _streams_of(self, name: str) -> list[Stream]:
        topic = self.stream(name)
        if topic is None:
            return []
        return [self._broker.stream(topic, index) for index in range(topic.partition_count)]

    # --- delayed exchanges

    async def _open_waiting_room(self) -> None:
        await self._inventory.prepare_waiting()
        self._find_waiting_room()

    def _find_waiting_room(self) -> None:
        queue = self._inventory.waiting
        if self._waiting_room is None and queue is not None:
            assert self._maker is not None
            self._waiting_room = WaitingRoom(queue, self._maker.reader, self._release)

    def _hold(
        self, held: Held, run: Run, publication: Publication | None, until_settled: bool
    ) -> None:
        assert self._waiting_room is not None, "no delayed exchange is declared without one"
        self._waiting_room.hold(held, run, publication, until_settled)

    def _release(self, start: str, messages: Sequence[Message], publication: Publication) -> None:
        assert self._publisher is not None
        self._publisher.publish(start, messages, publication, inside=True)

    # --- life, for the broker

    def add_stream(self, name: str) -> None:
        """There is a topic."""
        self._inventory.add_stream(name)

    def remove_stream(self, name: str, *records: Record) -> None:
        """The topic is deleted, which is recorded together with what leads to it."""
        self._inventory.remove_stream(name, *records)
        self._feeds.pop(name, None)

    def restore(self, stored: Sequence[StoredQueue], events: Sequence[Event]) -> None:
        """What the catalog has. All streams are open, and all topics are added."""
        for each in stored:
            self._inventory.restore(each)
        for event in events:
            self.router.apply(event)
        self._find_waiting_room()
        if self._deduplication is not None:
            self._deduplication.restored(self.router.exchanges())

    async def clear(self, *records: Record) -> None:
        """The virtual host is deleted, which is recorded together with all that is in it.

        Raises StorageError, and then it is not.
        """
        await self._inventory.clear(*records)

    async def close(self) -> None:
        await self._inventory.close()
