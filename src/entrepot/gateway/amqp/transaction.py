"""Transactions of a channel: publishes and acknowledgements that wait for `tx.commit`.

A commit publishes everything, then acknowledges everything, and is answered when all of it
is permanent. It is not atomic over several queues, here as in RabbitMQ: a crash in between
may leave a part. A rollback forgets the publishes, and what was acknowledged is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from entrepot.core import limits
from entrepot.core.envelope import Message
from entrepot.gateway.amqp.unacked import Held, Holder
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.place import Target


class Outcome(Enum):
    SETTLED = "settled"
    REJECTED = "rejected"
    REQUEUED = "requeued"


def conclude(taken: list[Held], outcome: Outcome) -> None:
    for _, _, holder, lane, offsets in taken:
        if outcome is Outcome.SETTLED:
            holder.settle(lane, offsets)
        elif outcome is Outcome.REJECTED:
            holder.reject(lane, offsets)
        else:
            holder.requeue(lane, offsets)


class Transaction:
    """What is not committed."""

    def __init__(self) -> None:
        self._published: list[tuple[Target, Sequence[Message]]] = []
        self._outcomes: list[tuple[list[Held], Outcome]] = []
        self._bytes = 0
        self.message_count = 0

    @property
    def outcome_count(self) -> int:
        return sum(len(run.offsets) for run in self.taken())

    def hold(self, target: Target, messages: Sequence[Message]) -> None:
        self._bytes += sum([len(body) for _, body in messages])
        self.message_count += len(messages)
        if (
            self._bytes > limits.AMQP_TRANSACTION_BYTES_MAX
            or self.message_count > limits.AMQP_TRANSACTION_MESSAGES_MAX
        ):
            raise AmqpError(ReplyCode.RESOURCE_ERROR, "a transaction that is too large")
        self._published.append((target, messages))

    def hold_outcome(self, taken: list[Held], outcome: Outcome) -> None:
        self._outcomes.append((taken, outcome))

    def taken(self) -> list[Held]:
        """What was acknowledged or rejected."""
        return [run for taken, _ in self._outcomes for run in taken]

    def published(self) -> list[tuple[Target, Sequence[Message]]]:
        return self._published

    def conclude(self) -> list[Holder]:
        """Carry out the acknowledgements; returns those whom they concern."""
        for taken, outcome in self._outcomes:
            conclude(taken, outcome)
        return list({id(run.holder): run.holder for run in self.taken()}.values())
