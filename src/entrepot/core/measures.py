"""Counters and histograms that the parts of the broker keep, for whoever reads metrics.

Each is a plain object that its owner changes and the metrics page reads. Nothing is ever reset:
rates are computed by the reader.
"""

from __future__ import annotations

from bisect import bisect_left

COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
ANSWER_SECONDS = (0.0001, 0.00025, *COMMIT_SECONDS, 10.0)


class Traffic:
    """What went through the connections of one listener."""

    __slots__ = ("bytes_received", "bytes_sent", "closed", "opened")

    def __init__(self) -> None:
        self.opened = 0  # Connections that were accepted.
        self.closed = 0  # Connections that have ended; never more than `opened`.
        self.bytes_received = 0
        self.bytes_sent = 0


class Histogram:
    """Counts values by size."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds  # Inclusive, ascending.
        self.counts = [0] * (len(bounds) + 1)  # The last one is of values above all bounds.
        self.total = 0.0  # The sum of all values.

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Latency:
    """How long something takes, of a sample: to time every message would cost too much.

    Who begins something looks at `is_due`, and times it if that is set. A timer sets it again
    (`Pulse`), whether what is being timed has ended or not: so a second in which nothing is
    answered counts as much as any other second.
    """

    __slots__ = ("histogram", "is_due")

    def __init__(self) -> None:
        self.histogram = Histogram(ANSWER_SECONDS)
        self.is_due = True  # Whether the next one is to be timed.

    def begin(self, now_s: float) -> float:
        """Time what begins now. Return when that was, for whoever notes its end."""
        self.is_due = False
        return now_s


class MessageCount:
    """How many messages clients of one listener published, and were delivered."""

    __slots__ = ("answering", "delivered", "fetching", "published")

    def __init__(self) -> None:
        self.published = 0
        self.delivered = 0
        self.answering = Latency()  # From what is published to its answer.
        self.fetching = Latency()  # From a fetch to its answer, if that need not wait.


class Pulse:
    """How the process itself is: what is noted at every beat, some times a second."""

    __slots__ = ("collections", "lag")

    def __init__(self) -> None:
        self.lag = Histogram(ANSWER_SECONDS)  # How late the event loop calls a timer.
        self.collections = Histogram(ANSWER_SECONDS)  # How long full garbage collections take.
