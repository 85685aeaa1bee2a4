"""The virtual hosts of a broker. The first, `/`, always exists and has the topics, too."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from entrepot.broker.catalog import INTERNAL_NAMES, CatalogView, StoredQueue
from entrepot.broker.permissions import permission_deleted_record
from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.router.event import Dialect, Exchange
from entrepot.broker.session.records import StoredSession, StoredSessions
from entrepot.broker.subject.retained import StoredRetained
from entrepot.broker.virtual_host.queue_maker import RETAINED, SESSIONS, QueueMaker
from entrepot.broker.virtual_host.records import (
    DEFAULT_VHOST,
    KeptRouting,
    KeptVhosts,
    vhost_deleted_record,
    vhost_record,
)
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core import limits
from entrepot.core.errors import UnknownVhost, VhostRefused
from entrepot.core.names import is_short
from entrepot.core.neutral import Formats
from entrepot.core.ports import Clock

if TYPE_CHECKING:
    from entrepot.broker.broker import Broker


class VirtualHosts:
    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        formats: Formats | None,
        dialect: Dialect | None,
        predeclared: Sequence[Exchange] = (),
        *,
        is_clustered: bool = False,
    ) -> None:
        """Make the first virtual host. Without `formats` and `dialect`, queues can neither be made
        nor used; their records are kept. Each virtual host has the predeclared exchanges. In a
        cluster there are queues from `take_up` to `lay_down`."""
        self._broker = broker
        self._clock = clock
        self._predeclared = predeclared
        self._formats, self._dialect = formats, dialect
        self._is_clustered = is_clustered
        self._maker = None if is_clustered else self._new_maker()
        self._kept = KeptVhosts()
        self._kept_routing = KeptRouting(dialect, is_taken_once=not is_clustered)
        self._vhosts = {DEFAULT_VHOST: self._new(DEFAULT_VHOST)}

    def _new_maker(self) -> QueueMaker | None:
        if self._formats is None or self._dialect is None:
            return None
        return QueueMaker(self._broker, self._clock, self._formats, self._dialect)

    def _new(self, name: str) -> VirtualHost:
        is_served = self._maker is not None or not self._is_clustered
        predeclared = self._predeclared if is_served else ()
        return VirtualHost(name, self._broker, self._maker, predeclared)

    # --- finding

    @property
    def names(self) -> list[str]:
        return list(self._vhosts)

    @property
    def default(self) -> VirtualHost:
        return self._vhosts[DEFAULT_VHOST]

    def get(self, name: str) -> VirtualHost:
        """Return a virtual host. Raises UnknownVhost."""
        found = self._vhosts.get(name)
        if found is None or found.is_deleted:
            raise UnknownVhost(f"vhost '{name}' not found")
        return found

    @property
    def memory_use(self) -> MemoryUse | None:
        """Return the memory that transient messages use; None means: this broker has no queues."""
        return None if self._maker is None else self._maker.memory_use

    # --- changing

    async def create(self, name: str) -> VirtualHost:
        """Create a virtual host, or return the existing one.

        Raises VhostRefused, StorageError; UnknownVhost while it is being deleted.
        """
        if not name or not name.isprintable() or not is_short(name):
            raise VhostRefused(
                f"a vhost's name is printable and has 1 to {limits.NAME_BYTES_MAX} bytes"
            )
        if name not in self._vhosts:
            if len(self._vhosts) >= limits.VHOSTS_MAX:
                raise VhostRefused(f"vhost limit of {limits.VHOSTS_MAX} is reached")
            self._broker.append_change(vhost_record(name))
            self._vhosts[name] = self._new(name)
        await self._broker.changes_committed()
        return self.get(name)

    async def delete(self, name: str) -> None:
        """Delete a virtual host and all that is in it, and close the connections to it.

        Raises UnknownVhost, VhostRefused, StorageError.
        """
        self.get(name)
        if name == DEFAULT_VHOST:
            raise VhostRefused(f"vhost '{name}' is always there")
        # Shielded: the change goes on even if the client that asked for it disconnects.
        await asyncio.shield(asyncio.ensure_future(self._delete(name)))

    async def _delete(self, name: str) -> None:
        vhost = self.get(name)  # Again: another call may have begun to delete it in this turn.
        entries = self._broker.permissions.entries
        permissions = [permission_deleted_record(user, of) for user, of in entries if of == name]
        await vhost.clear(vhost_deleted_record(name), *permissions)
        for record in permissions:
            self._broker.catalog.apply(record)
        del self._vhosts[name]
        for session in self._broker.sessions:
            if session.facts().vhost == name:
                session.close(f"vhost '{name}' is deleted")

    # --- start and stop

    def views(self) -> Mapping[str, CatalogView]:
        """Return the views that the catalog fills with its records at a start."""
        return {"vhost": self._kept, "routing": self._kept_routing}

    def open(self) -> None:
        """Make the virtual hosts and queues that the catalog has. The log must be open."""
        if not self._is_clustered:
            self._open()

    def take_up(self) -> None:
        """Make what the catalog has: this node is the home of queues now. It must lead the
        partitions of ledgers and queues, and know their ends."""
        self._maker = self._new_maker()
        self._vhosts = {DEFAULT_VHOST: self._new(DEFAULT_VHOST)}
        self._open()

    def missing(self) -> list[str]:
        """Return the names of the queues that cannot be served here now."""
        queues = [(each.name, each.topic) for each in self._broker.catalog.queues.values()]
        topics = self._broker.topics
        stores = [(each, topics[each]) for each in (SESSIONS, RETAINED) if each in topics]
        return [
            name
            for name, topic in (*stores, *queues)
            if self._broker.missing_here(topic) is not None
        ]

    def abandon_sessions(self) -> None:
        """Let sessions publish and record nothing any more: their connections are closed next."""
        for vhost in self._vhosts.values():
            vhost.abandon_sessions()

    def lay_down(self) -> None:
        """Forget all queues: another node is their home. Records nothing."""
        maker, vhosts = self._maker, self._vhosts
        self._maker = None
        self._vhosts = {DEFAULT_VHOST: self._new(DEFAULT_VHOST)}
        if maker is not None:
            maker.ledgers.abandon()
            maker.sessions.abandon()
            maker.retained.abandon()
        for vhost in vhosts.values():
            vhost.abandon()

    def _open(self) -> None:
        for name in self._kept.names:
            self._vhosts.setdefault(name, self._new(name))
        if self._maker is not None:
            self._maker.ledgers.open()
        for topic in () if self._is_clustered else self._broker.topics.values():
            if not topic.is_queue and topic.name not in INTERNAL_NAMES:
                self.default.add_stream(topic.name)
        stored: dict[str, list[StoredQueue]] = {}
        for queue in self._broker.catalog.queues.values():
            stored.setdefault(queue.vhost, []).append(queue)
        for name, vhost in self._vhosts.items():
            vhost.restore(stored.get(name, ()), self._kept_routing.take(name))
        if self._maker is not None:
            self._open_sessions(self._maker)
            if not self.missing():  # What is settled in those that are missing is still needed.
                self._maker.ledgers.forget_others()

    def _open_sessions(self, maker: QueueMaker) -> None:
        """Read the stored sessions and retained messages, and give each virtual host its own."""
        sessions, retained = StoredSessions(maker.formats), StoredRetained(maker.formats)
        maker.sessions.open(sessions.apply)
        maker.retained.open(retained.apply)
        by_vhost: dict[str, list[StoredSession]] = {}
        for stored in sessions.by_number.values():
            if stored.facts is not None and stored.facts.vhost in self._vhosts:
                by_vhost.setdefault(stored.facts.vhost, []).append(stored)
            elif not stored.is_empty:  # A crash left them when the session ended.
                maker.sessions.put(*stored.deletions())
        maker.retained.put(*retained.deletions(self._vhosts))
        messages = retained.by_vhost()
        for name, vhost in self._vhosts.items():
            vhost.restore_sessions(by_vhost.get(name, ()), messages.get(name, ()))

    async def close(self) -> None:
        for vhost in self._vhosts.values():
            await vhost.close()
        if self._maker is not None:
            self._maker.sessions.close()
            self._maker.retained.close()
            self._maker.ledgers.close()
