"""Transactions of a channel: publishes and acknowledgements that are held until `tx.commit`.

A commit publishes everything, then acknowledges everything, and is answered when all of it
is committed to disk. It is not atomic over several queues, here as in RabbitMQ: a crash in
between may leave a part. A rollback drops the publishes, and the deliveries that were
acknowledged become unacknowledged again.
"""

from __future__ import annotations

from collections.abc import Sequence

from entrepot.core.message import Message
from entrepot.gateway.unacked import Disposition, Held, Holder, conclude
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.publish_method import PublishTarget


class ChannelTransaction:
    """The publishes and acknowledgements that are not committed."""

    def __init__(self) -> None:
        self._published: list[tuple[PublishTarget, Sequence[Message]]] = []
        self._dispositions: list[tuple[list[Held], Disposition]] = []
        self._bytes = 0
        self.message_count = 0

    @property
    def disposition_count(self) -> int:
        return sum(len(run.offsets) for run in self.taken())

    def hold(self, target: PublishTarget, messages: Sequence[Message]) -> None:
        """Hold messages until the commit. Raises AmqpError when they become too many."""
        self._bytes += sum([len(body) for _, body in messages])
        self.message_count += len(messages)
        if (
            self._bytes > amqp_limits.TRANSACTION_BYTES_MAX
            or self.message_count > amqp_limits.TRANSACTION_MESSAGES_MAX
        ):
            raise AmqpError(ReplyCode.RESOURCE_ERROR, "a transaction that is too large")
        self._published.append((target, messages))

    def hold_disposition(self, taken: list[Held], disposition: Disposition) -> None:
        self._dispositions.append((taken, disposition))

    def taken(self) -> list[Held]:
        """Return the deliveries that were acknowledged, rejected or requeued."""
        return [run for taken, _ in self._dispositions for run in taken]

    def published(self) -> list[tuple[PublishTarget, Sequence[Message]]]:
        return self._published

    def conclude(self) -> list[Holder]:
        """Settle, reject or requeue the deliveries, as the client asked; return their holders."""
        for taken, disposition in self._dispositions:
            conclude(taken, disposition)
        return list({id(run.holder): run.holder for run in self.taken()}.values())
