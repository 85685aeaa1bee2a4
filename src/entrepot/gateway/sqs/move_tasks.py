"""Tasks that move messages from one queue to others: those that run, and those that have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from entrepot.broker.queue.queue import Queue
from entrepot.wire.sqs import limits as sqs_limits

RUNNING, COMPLETED, FAILED = "RUNNING", "COMPLETED", "FAILED"
CANCELLING, CANCELLED = "CANCELLING", "CANCELLED"


@dataclass(slots=True, eq=False)
class MoveTask:
    id: str
    source: Queue
    target: str | None  # None means: where each message came from.
    rate: int | None  # Messages in a second. None means: as many as can be.
    count: int  # How many there were at the beginning.
    started_ms: int
    moved: int = 0
    status: str = RUNNING
    reason: str = ""

    @property
    def is_active(self) -> bool:
        return self.status in (RUNNING, CANCELLING)


@dataclass(slots=True)
class MoveTasks:
    """The tasks of an endpoint: those that run, and the last ones of each queue."""

    by_source: dict[Queue, list[MoveTask]] = field(default_factory=dict)
    running: dict[asyncio.Task[None], None] = field(default_factory=dict)

    def of(self, source: Queue) -> list[MoveTask]:
        """Return the tasks of a queue, the newest first."""
        return self.by_source.get(source, [])

    def add(self, task: MoveTask) -> None:
        kept = self.of(task.source)
        self.by_source.pop(task.source, None)
        self.by_source[task.source] = [task, *kept][: sqs_limits.MOVE_TASKS_KEPT]
        for source in [*self.by_source]:
            is_old = len(self.by_source) > sqs_limits.MOVE_SOURCES_MAX
            if source.is_gone or (is_old and not self.by_source[source][0].is_active):
                del self.by_source[source]

    def start(self, task: MoveTask, moving: Coroutine[Any, Any, None]) -> None:
        self.add(task)
        work = asyncio.ensure_future(moving)
        self.running[work] = None
        work.add_done_callback(lambda done: self.running.pop(done))
