"""Those who hear what is published on subjects: sessions, and queues that sessions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from entrepot.broker.queue.message import Publication, Run
from entrepot.broker.queue.queue import Queue
from entrepot.broker.session.ports import Broadcast


class Published(NamedTuple):
    """What is the same for all who hear a run."""

    publication: Publication | None
    sender: object | None  # The session that publishes it.
    send: Callable[[Queue, Run, Publication | None], None]  # Publishes it to a queue.


class Listener(Protocol):
    """Compared by identity."""

    def hear(self, run: Run, broadcast: Broadcast, published: Published) -> None:
        """Take messages on subjects that it listens to. Must not fail.

        The broadcast has the same run, and is the same object for all who hear it.
        """
