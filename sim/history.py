"""What was promised and what was seen: the checker of a simulated log.

Every value is written at most once by whoever made it, so a log is wrong when a
value changes its offset, an offset its value, something acknowledged or once read
is gone, a value is there twice, or one that nobody wrote is there. Where a power failure
may take what was acknowledged, it takes the end of a partition and nothing before it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


class Violation(AssertionError):
    """A promise that was not kept."""


@dataclass(slots=True)
class History:
    written: dict[str, int] = field(default_factory=dict)  # Value -> partition, once sent.
    known: dict[tuple[int, int], str] = field(default_factory=dict)  # (partition, offset) -> value.
    acked: list[tuple[int, int, str]] = field(default_factory=list)  # In order of their answers.
    acks: int = 0  # Of all times.
    reads: int = 0
    _doubtful: list[dict[tuple[int, int], str]] = field(default_factory=list)  # What was known.
    _trace: hashlib._Hash = field(default_factory=hashlib.sha256)

    def note(self, time: float, *event: object) -> None:
        """Part of the trace: one seed gives one."""
        self._trace.update(repr((time, event)).encode())

    @property
    def trace(self) -> str:
        return self._trace.hexdigest()

    def write(self, partition: int, value: str) -> None:
        assert value not in self.written, value
        self.written[value] = partition

    def lose(self) -> None:
        """The power failed: what was known may be lost."""
        self._doubtful.append(self.known)
        self.known = {}
        self.acked.clear()

    def ack(self, partition: int, offset: int, values: list[str]) -> None:
        self.acks += len(values)
        for number, value in enumerate(values):
            self._learn(partition, offset + number, value)
            self.acked.append((partition, offset + number, value))

    def read(self, partition: int, offset: int, value: str) -> None:
        self.reads += 1
        if self.written.get(value) != partition:
            raise Violation(f"nobody wrote {value!r} to partition {partition}")
        self._learn(partition, offset, value)

    def _learn(self, partition: int, offset: int, value: str) -> None:
        before = self.known.setdefault((partition, offset), value)
        if before != value:
            raise Violation(
                f"partition {partition} offset {offset} was {before!r} and is now {value!r}"
            )

    def check_final(self, logs: dict[int, list[tuple[int, str]]]) -> None:
        """`logs`: partition -> every (offset, value), read at the end."""
        final = {(p, offset): value for p, rows in logs.items() for offset, value in rows}
        for place, value in self.known.items():
            if final.get(place) != value:
                raise Violation(f"{value!r} at {place} is lost: there is {final.get(place)!r}")
        self._check_lost(final)
        for partition, rows in logs.items():
            offsets = [offset for offset, _ in rows]
            if offsets != list(range(len(offsets))):
                raise Violation(f"partition {partition} has holes: {offsets}")
        values = [value for rows in logs.values() for _, value in rows]
        if len(values) != len(dict.fromkeys(values)):
            raise Violation("a value is there twice")
        self._check_order()

    def _check_lost(self, final: dict[tuple[int, int], str]) -> None:
        """What was lost at once is the end of a partition, as far as it was known."""
        for known in self._doubtful:
            ended: dict[int, int] = {}  # By partition: the first offset that is lost.
            for (partition, offset), value in sorted(known.items()):
                if final.get((partition, offset)) != value:
                    ended.setdefault(partition, offset)
                elif partition in ended:
                    raise Violation(
                        f"partition {partition} lost offset {ended[partition]}, but not {offset}"
                    )

    def _check_order(self) -> None:
        """What one producer got acknowledged in one partition stands in the order sent."""
        last: dict[tuple[int, str], tuple[int, int]] = {}
        for partition, offset, value in self.acked:
            producer, _, number = value.partition(":")
            before = last.get((partition, producer))
            if before is not None and not before < (int(number), offset):
                raise Violation(f"{value!r} stands before what {producer} sent earlier")
            last[partition, producer] = (int(number), offset)
