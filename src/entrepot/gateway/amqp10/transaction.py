"""Transactions: messages and dispositions that are held until they are discharged.

A client declares and discharges transactions by messages on a link to the coordinator. A commit
sends everything, then settles everything, and is answered when all of it is committed to disk.
What is sent to one queue is one run if it is not large, and appended as one batch; a commit over
several queues is not atomic if the broker is killed in the middle of it, here as with AMQP 0-9-1.
A rollback, and the end of the connection, drop the messages and return what was settled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from entrepot.broker.queue.message import Publication
from entrepot.core.errors import PeerError, StorageError
from entrepot.core.message import Message
from entrepot.gateway.amqp10.outcome import FAILED, Outcome, conclude
from entrepot.gateway.amqp10.sender import ACCEPTED, Delivery, SenderLink
from entrepot.gateway.completion import check_stored, completion
from entrepot.gateway.unacked import Held
from entrepot.wire.amqp10 import limits as amqp_limits
from entrepot.wire.amqp10 import message as wire
from entrepot.wire.amqp10 import types
from entrepot.wire.amqp10.errors import Amqp10Error, Condition, Scope
from entrepot.wire.amqp10.performatives import (
    Declare,
    Declared,
    Discharge,
    Error,
    Rejected,
    TransactionalState,
    read,
)

if TYPE_CHECKING:
    from entrepot.gateway.amqp10.connection import Connection
    from entrepot.gateway.amqp10.session import Session

_TURN_MESSAGES_MAX = 1_000  # Sent at once by a commit.


class Transaction:
    """What is held."""

    def __init__(self, id: bytes) -> None:
        self.id = id
        self._messages: list[Message] = []
        self._outcomes: list[tuple[list[Held], Outcome]] = []
        self.bytes_held = 0
        self.action_count = 0

    def hold(self, message: Message, session: Session, delivery: Delivery) -> None:
        """Hold a message, and tell the client that it will be accepted."""
        envelope, body = message
        self._messages.append(message)
        self.bytes_held += len(body) + len(envelope.head)
        self.action_count += 1
        if not delivery.is_settled:
            session.settle(delivery.number, TransactionalState(self.id, ACCEPTED))

    def hold_outcome(self, held: list[Held], outcome: Outcome) -> None:
        self._outcomes.append((held, outcome))
        self.action_count += sum(len(run.offsets) for run in held)

    async def commit(self, connection: Connection) -> None:
        """Send and settle everything; return when it is committed. Raises PeerError."""
        publication, done = completion()
        try:
            await self._publish(connection, publication)
        except PeerError:
            self.roll_back()
            raise
        holders = {id(run.holder): run.holder for held, _ in self._outcomes for run in held}
        for held, outcome in self._outcomes:
            conclude(held, outcome)
        for holder in holders.values():
            publication.expect()
            holder.when_settled(publication.arrived)
        publication.arrived()
        check_stored(await done)

    async def _publish(self, connection: Connection, publication: Publication) -> None:
        count = 0
        for exchange, group in groupby(self._messages, lambda each: each[0].exchange):
            messages = [*group]
            for start in range(0, len(messages), _TURN_MESSAGES_MAX):
                some = messages[start : start + _TURN_MESSAGES_MAX]
                count += len(some)
                if count > _TURN_MESSAGES_MAX:
                    count = len(some)
                    await connection.context.broker.turns.next()
                connection.context.messages.published += len(some)
                check = connection.topic_check()
                connection.vhost.publish(exchange, some, publication, check)

    def roll_back(self) -> None:
        """Drop the messages, and return what was settled."""
        outcomes, self._outcomes = self._outcomes, []
        for held, _ in outcomes:
            conclude(held, FAILED)


class Transactions:
    """The open transactions of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._open: dict[bytes, Transaction] = {}
        self._last = 0

    def declare(self) -> Transaction:
        if len(self._open) >= amqp_limits.TRANSACTIONS_MAX:
            text = f"more than {amqp_limits.TRANSACTIONS_MAX} open transactions"
            raise Amqp10Error(Condition.LIMIT_EXCEEDED, text, Scope.LINK)
        self._last += 1
        made = Transaction(self._last.to_bytes(8, "big"))
        self._open[made.id] = made
        return made

    def find(self, id: bytes) -> Transaction:
        """Return a transaction that something is to be held in. Raises Amqp10Error."""
        found = self._open.get(id)
        if found is None:
            raise Amqp10Error(Condition.UNKNOWN_TRANSACTION, "no such transaction", Scope.LINK)
        is_large = (
            sum(each.bytes_held for each in self._open.values()) > amqp_limits.TRANSACTION_BYTES_MAX
            or sum(each.action_count for each in self._open.values())
            >= amqp_limits.TRANSACTION_ACTIONS_MAX
        )
        if is_large:
            text = "transactions that are too large"
            raise Amqp10Error(Condition.LIMIT_EXCEEDED, text, Scope.LINK)
        return found

    def take(self, id: bytes) -> Transaction:
        """Return a transaction, which is over now. Raises Amqp10Error."""
        found = self._open.pop(id, None)
        if found is None:
            raise Amqp10Error(Condition.UNKNOWN_TRANSACTION, "no such transaction", Scope.LINK)
        return found

    def roll_back_all(self) -> None:
        """Roll all of them back: the connection ends."""
        transactions, self._open = self._open, {}
        for transaction in transactions.values():
            transaction.roll_back()


class CoordinatorLink(SenderLink):
    """A link whose messages declare and discharge transactions."""

    def __init__(self, session: Session, handle: int, name: str) -> None:
        super().__init__(session, handle, name, None)

    def serve(self, deliveries: Sequence[Delivery]) -> Awaitable[None]:
        return self._serve_all(deliveries)

    async def _serve_all(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            outcome = await self._outcome(_request(delivery))
            if not delivery.is_settled:
                self.session.settle(delivery.number, outcome)

    async def _outcome(self, request: Any) -> Any:
        transactions = self.session.connection.transactions
        if isinstance(request, Declare):
            return Declared(transactions.declare().id)
        transaction = transactions.take(request.txn_id)
        if request.fail:
            transaction.roll_back()
            return ACCEPTED
        try:
            await transaction.commit(self.session.connection)
        except (PeerError, StorageError) as error:
            return Rejected(Error(Condition.ROLLED_BACK.value, str(error)))
        return ACCEPTED


def _request(delivery: Delivery) -> Any:
    """Return what a message to the coordinator asks for. Raises Amqp10Error."""
    parts = wire.split(b"".join(delivery.chunks))
    section = None if parts.body_kind.section else types.decode(parts.body)
    if isinstance(section, types.Described) and isinstance(section.value, types.Described):
        found = read(section.value)
        if isinstance(found, Declare | Discharge):
            return found
    text = "the coordinator understands Declare and Discharge"
    raise Amqp10Error(Condition.NOT_IMPLEMENTED, text, Scope.LINK)
