"""The exchanges and bindings of a virtual host: changes are recorded, then applied.

`router.decision` turns what a client asks for into events. The durable ones are appended to the
catalog, in one batch with other records that belong to the same change; then all are applied.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from entrepot.broker.ports import CatalogChanges
from entrepot.broker.router.event import Event, Exchange
from entrepot.broker.router.router import Router
from entrepot.broker.virtual_host.records import routing_records
from entrepot.core.errors import StorageError
from entrepot.core.record import Record

log = logging.getLogger("entrepot.vhost")


class Routing:
    def __init__(
        self, vhost: str, catalog: CatalogChanges, predeclared: Sequence[Exchange] = ()
    ) -> None:
        self.router = Router(vhost, predeclared)
        self._catalog = catalog

    def change(
        self, events: tuple[Event, ...], *records: Record, is_tolerant: bool = False
    ) -> bool:
        """Record and apply events. Returns whether the caller should wait for a commit.

        Raises StorageError if they cannot be recorded, and then nothing is changed. If the caller
        `is_tolerant`, they are applied even then, and last until the next start.
        """
        kept = [*records, *routing_records(self.router, events)]
        try:
            if kept:
                self._catalog.append_change(*kept)
        except StorageError as error:
            if not is_tolerant:
                raise
            log.error("changed until the next start only: %s", error)
        for event in events:
            self.router.apply(event)
        return bool(kept) or not events

    async def permanent(self) -> None:
        """Wait until all changes so far are committed. Raises StorageError."""
        await self._catalog.changes_committed()
