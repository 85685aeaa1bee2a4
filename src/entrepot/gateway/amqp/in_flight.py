"""Runs of messages that are published and not committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from entrepot.broker.queue.message import Failure, Publication

if TYPE_CHECKING:
    from entrepot.gateway.amqp.connection import Connection

# Called once, when all messages of a run are committed or have failed.
Told = Callable[[Failure | None], None]


class InFlight(Publication):
    """A run that is published and not committed. Its bytes count as uncommitted until it is.

    A run that is confirmed when it is consumed is not counted; its size is None. Consuming may
    take long, and may need this same connection. Queues have a limit of their own for those.
    """

    __slots__ = ("_connection", "_size")

    def __init__(self, connection: Connection, size: int | None, done: Told | None) -> None:
        super().__init__(done)
        self._connection = connection
        self._size = size
        if size is not None:
            connection.publish_begun(size)

    def _end(self, failure: Failure | None) -> None:
        """Tell the connection. An error of ours there ends this connection only."""
        connection = self._connection
        try:
            self._tell(failure)
            connection.publish_ended(self._size)
        except Exception as error:
            connection.guard(raise_again, error)

    def _tell(self, failure: Failure | None) -> None:
        """Pass on that the run is committed, or has failed."""
        if self._done is not None:
            self._done(failure)

    def give_up(self) -> None:
        """Stop counting the run: it was not sent at all."""
        self._connection.publish_ended(self._size)


def raise_again(error: Exception) -> None:
    """Raise an error that was caught, under a guard that handles it."""
    raise error
