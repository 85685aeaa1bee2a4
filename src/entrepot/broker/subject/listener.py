"""Those who hear what is published on subjects: sessions, and queues that sessions share."""

from __future__ import annotations

from typing import Protocol

from entrepot.broker.session.ports import Broadcast


class Listener(Protocol):
    """Compared by identity."""

    def hear(self, broadcast: Broadcast) -> None:
        """Take messages on subjects that it listens to. Must not fail."""
