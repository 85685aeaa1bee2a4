"""Whether a consumer is sent each message at once, or many together.

By default at once. One that is woken for nothing by single messages may say when it is worth
it: as soon as `x-batch-count` messages are ready, or `x-batch-ms` milliseconds after the first
of them, whatever is sooner. Meanwhile they stay in the queue, where others may have them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from entrepot.broker.queue.queue import Queue
from entrepot.core import limits
from entrepot.wire.amqp.errors import AmqpError, ReplyCode

COUNT, WAIT_MS = "x-batch-count", "x-batch-ms"


class Patience:
    def __init__(self, queue: Queue, count: int, wait_ms: int) -> None:
        self._queue = queue
        self._count = count
        self._wait_ms = wait_ms
        self._timer: asyncio.TimerHandle | None = None  # Since something is ready.
        self._is_over = False

    def is_over(self) -> bool:
        """Whether to send what is ready; asked when something is."""
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
        """Anew: something was sent, or nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_over = False


def patience(queue: Queue, arguments: Mapping[str, object]) -> Patience | None:
    """None: none. Raises AmqpError."""
    if COUNT not in arguments and WAIT_MS not in arguments:
        return None
    count = _number(arguments, COUNT, limits.AMQP_BATCH_COUNT_MAX)
    wait_ms = _number(arguments, WAIT_MS, limits.AMQP_BATCH_MS_MAX)
    return Patience(queue, count, wait_ms)


def _number(arguments: Mapping[str, object], name: str, most: int) -> int:
    """Each needs the other: a batch that is never full must not wait for ever."""
    value = arguments.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED,
            f"{COUNT} and {WAIT_MS} go together, and {name} is a number from 1 to {most}",
        )
    return value
