"""Outcomes of deliveries to clients: what becomes of the messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from entrepot.gateway.unacked import Disposition, Held
from entrepot.gateway.unacked import conclude as conclude_all

if TYPE_CHECKING:
    from entrepot.gateway.amqp10.receiver import ReceiverLink


class Outcome(NamedTuple):
    disposition: Disposition
    is_attempt: bool = True  # Whether a message that is returned counts as delivered once more.


ACCEPTED = Outcome(Disposition.SETTLED)
REJECTED = Outcome(Disposition.REJECTED)
FAILED = Outcome(Disposition.REQUEUED)
RELEASED = Outcome(Disposition.REQUEUED, is_attempt=False)


def conclude(held: Sequence[Held], outcome: Outcome) -> None:
    """Settle, reject or return these deliveries."""
    if outcome.disposition is not Disposition.REQUEUED:
        conclude_all([*held], outcome.disposition)
        return
    for run in held:
        link = cast("ReceiverLink", run.holder)
        link.requeue(run.lane, run.offsets, is_attempt=outcome.is_attempt)
