"""The queue manager of a broker: its links, its routing table, and what neighbours announce."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from entrepot.broker.broker import Broker
from entrepot.broker.links import (
    LinkFacts,
    RouteRow,
    StoredLink,
    link_deleted_record,
    link_record,
)
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import PLAIN, QueueSettings, QueueSpec
from entrepot.broker.virtual_host.records import DEFAULT_VHOST
from entrepot.client.queue_leases import Login
from entrepot.core import limits
from entrepot.core.errors import InvalidLink, InvalidQueue
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
        neighbour_of: Callable[[StoredLink], Neighbour] | None = None,
    ) -> None:
        """`announced` are names of queues, or EVERYTHING. Without `stores` it only routes.
        `neighbour_of` makes neighbours of links that are added later; it raises InvalidLink.
        """
        self._broker = broker
        self._clock = clock
        self._entropy = entropy
        self._neighbours = neighbours
        self._announced = announced
        self._stores = stores
        self._vhost = broker.vhosts.default
        self.table = table
        self._neighbour_of = neighbour_of
        self._links: dict[str, ManagerLink] = {}  # By neighbour.
        self._changing = asyncio.Lock()
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
            self._links[neighbour.name] = await self._link(neighbour)
        for stored in self._broker.stored_links.all().values():
            if stored.to not in self._links:  # The configuration counts more.
                self.table.add_neighbour(stored.to)
                self._links[stored.to] = await self._link(self._neighbour(stored))
        self._vhost.router.elsewhere = self.table.queue_for
        for link in self._links.values():
            link.start()

    async def stop(self) -> None:
        for link in self._links.values():
            await link.stop()

    # --- changing

    def _neighbour(self, stored: StoredLink) -> Neighbour:
        assert self._neighbour_of is not None
        return self._neighbour_of(stored)

    async def add(self, link: StoredLink) -> None:
        """Implement `Links`."""
        if link.to == self.table.own:
            raise InvalidLink(f"{link.to} is this manager itself")
        neighbour = self._neighbour(link)
        async with self._changing:
            self._check_added(link.to, "is configured, and cannot be changed")
            if link.to not in self._links and len(self._links) >= limits.LINKS_MAX:
                raise InvalidLink(f"a manager has at most {limits.LINKS_MAX} links")
            await self._broker.change_security(link_record(link))
            old = self._links.pop(link.to, None)
            if old is not None:
                await old.stop()
            else:
                self.table.add_neighbour(link.to)
            self._links[link.to] = made = await self._link(neighbour)
            made.start()

    async def remove(self, name: str) -> None:
        """Implement `Links`."""
        async with self._changing:
            self._check_added(name, "is configured, and cannot be removed")
            if name not in self._links:
                raise InvalidLink(f"there is no link to {name}")
            await self._broker.change_security(link_deleted_record(name))
            await self._links.pop(name).stop()
            self.table.remove_neighbour(name)
            queue = self._vhost.queues.get(transmission_queue(name))
            if queue is not None and not queue.has_waiting and not queue.unacked_count:
                await self._vhost.delete_queue(queue.name, None, if_empty=True)

    def _check_added(self, name: str, problem: str) -> None:
        if any(each.name == name for each in self._neighbours):
            raise InvalidLink(f"the link to {name} {problem} here")

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
        return [link.facts() for link in self._links.values()]

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
