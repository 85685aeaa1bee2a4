"""The queue manager of a broker: its links, its routing table, and what neighbours announce."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from entrepot.broker.broker import Broker
from entrepot.broker.links import LinkFacts, RouteRow
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import PLAIN, QueueSettings, QueueSpec
from entrepot.broker.virtual_host.records import DEFAULT_VHOST
from entrepot.client.queue_leases import Login
from entrepot.core import limits
from entrepot.core.errors import InvalidQueue
from entrepot.core.ports import Clock, Entropy, Net
from entrepot.linking.link import ManagerLink
from entrepot.linking.table import (
    PREFIX,
    ROUTES,
    UNDELIVERABLE,
    Announcement,
    RoutingTable,
    transmission_queue,
)

log = logging.getLogger("entrepot.link")

EVERYTHING = "*"  # In place of names of queues: all durable ones are announced.


class Neighbour(NamedTuple):
    """Another manager, as the settings have it."""

    name: str
    address: str
    login: Login
    net: Net
    vhost: str = DEFAULT_VHOST


@dataclass(frozen=True, slots=True)
class _QueueDeclaration:
    """A queue that a manager uses itself. Implements `Declaration`."""

    name: str
    durable: bool
    settings: QueueSettings
    exclusive: bool = False

    def spec(self) -> QueueSpec:
        return QueueSpec(self.name, self.durable, settings=self.settings)

    def check_same(self, current: QueueSpec) -> None:
        """Accept the queue as it is: its settings may have been changed by hand."""


class QueueManager:
    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        entropy: Entropy,
        table: RoutingTable,
        neighbours: Sequence[Neighbour],
        *,
        announced: Sequence[str] = (),
        stores: bool = True,
    ) -> None:
        """`announced` are names of queues, or EVERYTHING. Without `stores` it only routes."""
        self._broker = broker
        self._clock = clock
        self._entropy = entropy
        self._neighbours = neighbours
        self._announced = announced
        self._stores = stores
        self._vhost = broker.vhosts.default
        self.table = table
        self._links: list[ManagerLink] = []
        self._listener: _Listener | None = None

    async def start(self) -> None:
        """Make the queues that are needed, and connect in the background. Raises a PeerError,
        StorageError."""
        await self._declare(UNDELIVERABLE, durable=True)
        control = QueueSettings(length_max=limits.LINK_ANNOUNCEMENTS_MAX)
        routes = await self._declare(ROUTES, durable=False, settings=control)
        self._listener = _Listener(self.table, self._clock)
        routes.add_consumer(self._listener)
        for neighbour in self._neighbours:
            self._links.append(await self._link(neighbour))
        self._vhost.router.elsewhere = self.table.queue_for
        for link in self._links:
            link.start()

    async def stop(self) -> None:
        for link in self._links:
            await link.stop()

    async def _link(self, neighbour: Neighbour) -> ManagerLink:
        settings = QueueSettings(dead_letter_exchange="", dead_letter_key=UNDELIVERABLE)
        name = transmission_queue(neighbour.name)
        queue = await self._declare(name, durable=self._stores, settings=settings)
        queue.confirms_when_settled = not self._stores
        stored = self._broker.catalog.queues.get((DEFAULT_VHOST, name))
        identity = self._entropy.token(16).hex() if stored is None else stored.topic.id.hex
        return ManagerLink(
            neighbour.name,
            neighbour.address,
            neighbour.login,
            neighbour.net,
            self._clock,
            self.table,
            queue,
            identity,
            stores=self._stores,
            vhost=neighbour.vhost,
            refresh=self._refresh,
        )

    async def _declare(self, name: str, *, durable: bool, settings: QueueSettings = PLAIN) -> Queue:
        declaration = _QueueDeclaration(name, durable, settings)
        made = await self._vhost.declare_queue(declaration, None)
        if not isinstance(made, Queue):
            raise InvalidQueue(f"'{name}' is a topic, and should be the queue of a link")
        return made

    def _refresh(self) -> None:
        """Update what neighbours are told, and forget what they have not repeated."""
        names = self._announced
        queues: Mapping[str, Queue] = self._vhost.queues
        if EVERYTHING in names:
            names = [
                name
                for name, queue in queues.items()
                if queue.spec.durable and not name.startswith(PREFIX)
            ]
        self.table.announce_queues([name for name in names if name in queues])
        self.table.expire(self._clock.monotonic())

    # --- facts

    def links(self) -> list[LinkFacts]:
        return [link.facts() for link in self._links]

    def routes(self) -> list[RouteRow]:
        self._refresh()
        return self.table.rows()


class _Listener:
    """The consumer of what neighbours announce."""

    tag = "routes"
    auto_ack = True
    is_exclusive = True
    priority = 0

    def __init__(self, table: RoutingTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    def room(self) -> int:
        return limits.LINK_ANNOUNCEMENTS_MAX

    def deliver(self, lane: int, taken: Taken) -> None:
        for _, body in taken.run.messages:
            if len(body) > limits.LINK_ANNOUNCEMENT_BYTES_MAX:
                log.warning("an announcement of %d bytes is ignored", len(body))
                continue
            try:
                announcement = msgspec.json.decode(body, type=Announcement)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                log.warning("an announcement that cannot be read is ignored: %s", error)
                continue
            if not self._table.hear(announcement, self._clock.monotonic()):
                text = "an announcement of %r is ignored: there is no link to it"
                log.warning(text, announcement.manager[:100])

    def cancelled(self) -> None:
        log.error("the queue %s is deleted: routes are not learned until the next start", ROUTES)

    def activated(self, is_active: bool) -> None:
        """Do nothing: it is the only consumer."""
