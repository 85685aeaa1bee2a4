"""Delivery in batches, for consumers that ask for it.

By default a message is delivered at once. A consumer for which that is too often can ask for
batches: messages are delivered when `x-batch-count` of them are ready, or `x-batch-ms`
milliseconds after the first of them, whichever is sooner. Until then they stay in the queue,
where other consumers may get them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from entrepot.broker.queue.queue import Queue
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.errors import AmqpError, ReplyCode

COUNT, WAIT_MS = "x-batch-count", "x-batch-ms"


class Patience:
    """Decides when the next batch of one consumer is delivered."""

    def __init__(self, queue: Queue, count: int, wait_ms: int) -> None:
        self._queue = queue
        self._count = count
        self._wait_ms = wait_ms
        self._timer: asyncio.TimerHandle | None = None  # Runs while messages are ready.
        self._is_over = False  # Whether the timer has ended.

    def is_over(self) -> bool:
        """Return whether to deliver now. Called when messages are ready; starts the timer."""
        if not self._is_over and self._queue.ready_count < self._count:
            if self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(self._wait_ms / 1_000, self._end)
            return False
        return True

    def _end(self) -> None:
        self._is_over = True
        self._queue.dispatch()

    def begin(self) -> None:
        """Reset the timer, after a delivery or when the consumer stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_over = False


def patience(queue: Queue, arguments: Mapping[str, object]) -> Patience | None:
    """Read a consumer's arguments. None means: deliver at once. Raises AmqpError."""
    if COUNT not in arguments and WAIT_MS not in arguments:
        return None
    count = _number(arguments, COUNT, amqp_limits.BATCH_COUNT_MAX)
    wait_ms = _number(arguments, WAIT_MS, amqp_limits.BATCH_MS_MAX)
    return Patience(queue, count, wait_ms)


def _number(arguments: Mapping[str, object], name: str, most: int) -> int:
    """Read one of the two arguments. Each needs the other: a batch that is never full must not
    wait for ever."""
    value = arguments.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED,
            f"{COUNT} and {WAIT_MS} go together, and {name} is a number from 1 to {most}",
        )
    return value
