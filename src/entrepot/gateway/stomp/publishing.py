"""Publishing a run of messages, and counting it until it is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from entrepot.broker.queue.message import Failure, Publication
from entrepot.core.errors import PeerError
from entrepot.core.message import Message
from entrepot.gateway.timing import timed

if TYPE_CHECKING:
    from entrepot.gateway.stomp.connection import Connection

# Called once, when all messages of a run are committed or have failed.
Told = Callable[[Failure | None], None]


class InFlight(Publication):
    """A run that is published and not committed. Its bytes count as uncommitted until it is."""

    __slots__ = ("_connection", "_size")

    def __init__(self, connection: Connection, size: int, done: Told) -> None:
        super().__init__(done)
        self._connection = connection
        self._size = size
        connection.publish_begun(size)

    def _end(self, failure: Failure | None) -> None:
        self._connection.guard(self._finish, failure)

    def _finish(self, failure: Failure | None) -> None:
        if self._done is not None:
            self._done(failure)
        self.give_up()

    def give_up(self) -> None:
        """Stop counting the run: it is committed, has failed, or was not sent at all."""
        self._connection.publish_ended(self._size)


def publish(
    connection: Connection,
    exchange: str,
    messages: Sequence[Message],
    done: Told,
    receipt_bytes: int = 0,
) -> None:
    """Send messages to the queues. `done` is called when all are committed or have failed, and
    keeps so many bytes of receipts until then."""
    size = sum([len(body) + len(envelope.head) for envelope, body in messages]) + receipt_bytes
    in_flight = InFlight(connection, size, done)
    counted = connection.context.messages
    counted.published += len(messages)
    timing: Publication = in_flight
    if counted.answering.is_due:
        timing = timed(in_flight, counted.answering, connection.context.clock)
    try:
        connection.vhost.publish(exchange, messages, timing, connection.topic_check())
    except PeerError:
        in_flight.give_up()
        raise
    if timing is not in_flight:
        timing.arrived()
    in_flight.arrived()
