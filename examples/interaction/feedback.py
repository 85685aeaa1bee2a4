"""A feedback loop: as many consumers as the queue's length asks for, decided again and again.

Monitor: the broker's own count of ready messages. Analyse: how far it is from what is wanted. Plan:
so many workers more or less, by the difference (a proportional controller with one input and one
output). Execute: start and stop consumers. What it knows: the bounds, the aim and the gain.
"""

from __future__ import annotations

import math
import time
from typing import Any

import entrepot
from examples.interaction.room import WAIT_S, Connect, room

QUEUE = "work"
WORKERS_MIN, WORKERS_MAX = 1, 5
READY_WANTED = 10
GAIN = 0.05  # Workers for each message too many.
WORK_S = 0.01
PERIOD_S = 0.1
MESSAGES = 400


class Workers:
    """The consumers there are: what the loop acts on."""

    def __init__(self, connect: Connect) -> None:
        self.done: set[int] = set()  # A worker that is stopped may leave something to another.
        self._connect = connect
        self._running: list[tuple[entrepot.Client, Any]] = []

    def __len__(self) -> int:
        return len(self._running)

    def scale(self, count: int) -> None:
        while len(self._running) < count:
            client = self._connect()
            self._running.append((client, client.notify(QUEUE, self._work)))
        while len(self._running) > count:
            client, handler = self._running.pop()
            handler.stop()
            client.close()

    def _work(self, message: Any) -> None:
        time.sleep(WORK_S)
        self.done.add(message.value)


def planned(ready: int, workers: int) -> int:
    """Return how many workers there should be."""
    change = (ready - READY_WANTED) * GAIN
    wanted = workers + (math.ceil(change) if change > 0 else math.floor(change))
    return min(max(wanted, WORKERS_MIN), WORKERS_MAX)


def main() -> None:
    with room() as (_, connect):
        broker = connect()
        broker.declare_queue(QUEUE)
        workers = Workers(connect)
        workers.scale(WORKERS_MIN)
        counts = [len(workers)]
        broker.put_many(QUEUE, range(MESSAGES))
        deadline = time.monotonic() + 3 * WAIT_S
        while len(workers.done) < MESSAGES or len(workers) > WORKERS_MIN:
            assert time.monotonic() < deadline, "it does not settle"
            workers.scale(planned(broker.count(QUEUE), len(workers)))
            counts.append(len(workers))
            time.sleep(PERIOD_S)
        print(f"{len(workers.done)} of {MESSAGES} messages are done")
        print(f"workers: {counts[0]} at first, {max(counts)} at most, {counts[-1]} in the end")


if __name__ == "__main__":
    main()
