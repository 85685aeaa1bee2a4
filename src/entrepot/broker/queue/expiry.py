"""When a message has waited too long: after its own time or its queue's, whichever is less.

A message's time begins when it comes. It is looked at when it has come to the front, as in
RabbitMQ: behind one that waits longer it may be overdue and still there.
"""

from __future__ import annotations

from entrepot.broker.ledger import NEVER
from entrepot.broker.queue.message import PropertyReader, Run
from entrepot.core.envelope import kinds


def expiry_ms(run: Run, place: int, ttl_ms: int | None, reader: PropertyReader) -> int:
    """When that message of the run expires; NEVER when it does not."""
    own_ms = reader.facts(run.messages[place][0].properties).ttl_ms
    if own_ms is None:
        return NEVER if ttl_ms is None else run.time_ms + ttl_ms
    return run.time_ms + (own_ms if ttl_ms is None else min(ttl_ms, own_ms))


def has_own_times(run: Run, reader: PropertyReader) -> bool:
    """Whether any of its messages brings a time of its own."""
    return any(reader.facts(each).ttl_ms is not None for each in kinds(run.messages))
