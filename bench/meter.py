"""What a run cost: wall time, the busiest thread of the client, the cores the broker used.

A throughput number says something about a broker only while the client has breath left.
The generator runs in this process, so its threads are ours to read; the broker's are the
sum over its process.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import NamedTuple

CLIENT_BOUND = 0.9  # One of the client's threads this busy, and the client is what we measured.
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Sample(NamedTuple):
    """One reading of one row."""

    value: float
    mb_per_second: float | None = None
    client: float | None = None  # The busiest client thread, as a share of a core.
    broker: float | None = None  # Cores used by the broker.


class Meter:
    """Measures between construction and `sample`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._threads = _own_threads()
        self._broker = process_cpu_s(pid)
        self._start = time.perf_counter()

    def sample(self, messages: int, payload: int) -> Sample:
        """Messages per second since the start; `payload` is the bytes of their values."""
        elapsed = time.perf_counter() - self._start
        broker = process_cpu_s(self._pid) - self._broker
        spent = (ns - self._threads.get(thread, 0) for thread, ns in _own_threads().items())
        return Sample(
            messages / elapsed,
            payload / elapsed / 1e6,
            max(spent) / 1e9 / elapsed,
            broker / elapsed,
        )


def process_cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def tree_cpu_s(pid: int) -> float:
    """Of a process and all below it so far, with those of them that have ended."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It ended between the listing and the reading.
            fields = path.read_text().rpartition(")")[2].split()
            stats[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    total, generation = 0, [pid]
    while generation:
        total += sum(stats[each][1] for each in generation)
        generation = [each for each, (parent, _) in stats.items() if parent in generation]
    return total * _TICK_S


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"process {pid} is gone")


def _own_threads() -> dict[str, int]:
    """Nanoseconds on a processor, by thread."""
    spent = {}
    for thread in os.listdir("/proc/self/task"):
        try:
            text = Path(f"/proc/self/task/{thread}/schedstat").read_text()
        except FileNotFoundError:
            continue  # It ended between the listing and the reading.
        spent[thread] = int(text.split()[0])
    return spent
