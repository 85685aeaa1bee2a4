"""Transactions: messages and acknowledgements that are held until `COMMIT`.

A commit sends everything, then acknowledges everything, and is answered when all of it is
committed to disk. Everything was checked when it was held, so that a commit does not fail in the
middle because of a mistake; what may have gone since is looked for before it begins. What is sent
to one queue through one exchange is one run, and appended as one batch, so it is there as a whole
or not at all, whenever the broker is killed. A commit over several queues is not atomic then, here
as with AMQP, and neither is a large one, which is sent in turns, so that others need not wait for
it. `ABORT`, and the end of the connection, drop the messages; what was acknowledged is
unacknowledged again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.broker.queue.message import Publication
from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.message import Message
from entrepot.core.neutral import record_section
from entrepot.core.steps import Steps
from entrepot.gateway.completion import check_stored, completion
from entrepot.gateway.stomp.publishing import publish
from entrepot.gateway.stomp.subscription import Subscription
from entrepot.gateway.unacked import Disposition, Held, conclude
from entrepot.wire.stomp import limits as stomp_limits
from entrepot.wire.stomp.frames import Frame, Headers

if TYPE_CHECKING:
    from entrepot.gateway.stomp.connection import Connection

TURN_MESSAGES_MAX = 2_000  # Sent at once by a commit; also at most as many bytes as a batch has.
_RECORD_BYTES = 100  # Of a record, beside its value and its headers; more than there are.


class HeldRun:
    """Consecutive messages to one exchange, as many as are sent at once."""

    __slots__ = ("exchange", "messages", "size")

    def __init__(self, exchange: str, message: Message) -> None:
        self.exchange = exchange
        self.messages = [message]
        self.size = _size(message)  # Bytes, as records.

    def has_room_for(self, exchange: str, message: Message) -> bool:
        """Return whether the message goes there, too. A large one is always alone."""
        return (
            exchange == self.exchange
            and self.size + _size(message) <= limits.QUEUE_BATCH_BYTES
            and len(self.messages) < TURN_MESSAGES_MAX
        )

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self.size += _size(message)


def _size(message: Message) -> int:
    envelope, body = message
    return len(body) + len(record_section(envelope)) + _RECORD_BYTES


class Transaction:
    """What is held."""

    def __init__(self) -> None:
        self._runs: list[HeldRun] = []
        self._queues: dict[str, None] = {}  # Those that must be there for the messages.
        self._dispositions: list[tuple[Subscription, list[Held], Disposition]] = []
        self.bytes_held = 0
        self.message_count = 0
        self.disposition_count = 0

    def hold(self, exchange: str, message: Message, queue: str | None) -> None:
        envelope, body = message
        self.bytes_held += len(body) + len(envelope.head)
        self.message_count += 1
        if queue is not None:
            self._queues[queue] = None
        if self._runs and self._runs[-1].has_room_for(exchange, message):
            self._runs[-1].add(message)
        else:
            self._runs.append(HeldRun(exchange, message))

    def hold_disposition(
        self, subscription: Subscription, taken: list[Held], disposition: Disposition
    ) -> None:
        self.disposition_count += sum(len(run.offsets) for run in taken)
        self._dispositions.append((subscription, taken, disposition))

    def check(self, connection: Connection) -> None:
        """Raise PeerError if an exchange or a queue that is needed is gone."""
        vhost = connection.vhost
        for exchange in dict.fromkeys(run.exchange for run in self._runs):
            if vhost.router.exchange(exchange) is None:
                raise PeerError(f"no exchange '{exchange}' in vhost '{vhost.name}'")
        for queue in self._queues:
            if queue not in vhost.queues and vhost.stream(queue) is None:
                raise PeerError(f"no queue '{queue}' in vhost '{vhost.name}'")

    async def commit(self, connection: Connection) -> None:
        """Do everything that is held, and wait until it is committed. Raises PeerError."""
        publication, done = completion()
        await self._publish(connection, publication)
        await connection.context.broker.turns.run(self._conclude())
        for subscription in {each.number: each for each, _, _ in self._dispositions}.values():
            publication.expect()
            subscription.when_settled(publication.arrived)
        connection.dispatch()
        publication.arrived()
        check_stored(await done)

    async def _publish(self, connection: Connection, publication: Publication) -> None:
        """Send the messages, in several turns if they are many."""
        size = count = 0
        for run in self._runs:
            size += run.size
            count += len(run.messages)
            if size > limits.QUEUE_BATCH_BYTES or count > TURN_MESSAGES_MAX:
                size, count = run.size, len(run.messages)
                await connection.context.broker.turns.next()
            publication.expect()
            publish(connection, run.exchange, run.messages, publication.arrived)

    def _conclude(self) -> Steps[None]:
        """Settle, reject or requeue the deliveries."""
        for _, taken, disposition in self._dispositions:
            for run in taken:
                conclude([run], disposition)
                yield

    def restore(self) -> None:
        """Make the deliveries unacknowledged again."""
        held: dict[int, tuple[Subscription, list[Held]]] = {}  # By the subscription's number.
        for subscription, taken, _ in self._dispositions:
            held.setdefault(subscription.number, (subscription, []))[1].extend(taken)
        for subscription, runs in held.values():
            subscription.unacked.restore(runs)


def open_transaction(connection: Connection, headers: Headers) -> Transaction | None:
    """Return the transaction that a frame is part of; None for none. Raises PeerError."""
    name = headers.get("transaction")
    if name is None:
        return None
    transaction = _named(connection, name)
    open_ones = connection.transactions.values()
    if sum(each.bytes_held for each in open_ones) > stomp_limits.TRANSACTION_BYTES_MAX:
        raise PeerError("transactions that are too large")
    actions = sum(each.message_count + each.disposition_count for each in open_ones)
    if actions >= stomp_limits.TRANSACTION_ACTIONS_MAX:
        raise PeerError("transactions with too many frames")
    return transaction


def begin(connection: Connection, frame: Frame) -> None:
    name = frame.headers["transaction"]
    if name in connection.transactions:
        raise PeerError(f"transaction '{name[:100]}' is open already")
    if len(connection.transactions) >= stomp_limits.TRANSACTIONS_MAX:
        raise PeerError(f"more than {stomp_limits.TRANSACTIONS_MAX} open transactions")
    connection.transactions[name] = Transaction()
    connection.receipt(frame)


async def commit(connection: Connection, frame: Frame) -> None:
    transaction = _named(connection, frame.headers["transaction"])
    transaction.check(connection)
    del connection.transactions[frame.headers["transaction"]]
    await connection.commit(transaction)
    connection.receipt(frame)


def abort(connection: Connection, frame: Frame) -> None:
    _named(connection, frame.headers["transaction"]).restore()
    del connection.transactions[frame.headers["transaction"]]
    connection.receipt(frame)


def _named(connection: Connection, name: str) -> Transaction:
    transaction = connection.transactions.get(name)
    if transaction is None:
        raise PeerError(f"no transaction '{name[:100]}' is open")
    return transaction


assert limits.QUEUE_BATCH_BYTES <= limits.LARGE_BYTES
