"""What a virtual host routes by, and the record of it.

A wish becomes events (`router.decision`). Those that survive are appended to the catalog,
together with what else must be so at the same time; then all of them are applied.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrepot.broker.router.event import Event, Exchange
from entrepot.broker.router.router import Router
from entrepot.broker.virtual_host.records import routing_records
from entrepot.core.errors import StorageError
from entrepot.core.record import Record

if TYPE_CHECKING:
    from entrepot.broker.broker import Broker

log = logging.getLogger("entrepot.vhost")


class Routing:
    def __init__(self, vhost: str, broker: Broker, predeclared: Sequence[Exchange] = ()) -> None:
        self.router = Router(vhost, predeclared)
        self._broker = broker

    def change(
        self, events: tuple[Event, ...], *records: Record, is_tolerant: bool = False
    ) -> bool:
        """Returns whether there may be something to wait for.

        Raises StorageError when it cannot be recorded, and then nothing is changed; it is
        nevertheless, until the next start, for who `is_tolerant`.
        """
        kept = [*records, *routing_records(self.router, events)]
        try:
            if kept:
                self._broker.append_change(*kept)
        except StorageError as error:
            if not is_tolerant:
                raise
            log.error("changed until the next start only: %s", error)
        for event in events:
            self.router.apply(event)
        return bool(kept) or not events

    async def permanent(self) -> None:
        """All that was changed so far. Raises StorageError."""
        await self._broker.changes_committed()
