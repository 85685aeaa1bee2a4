"""How long others wait while somebody is served: a client that asks for little, all the time.

A node is one loop, so a request that keeps it busy keeps everybody waiting. The pinger is a
process of its own that asks the broker for its API versions every few milliseconds and notes
how long each answer took. It pings a process that does nothing but echo in the same way: what
both waited for was the machine, what only the broker's pings waited for was the broker.

On a busy machine that is not enough, because a process that does nothing is let run at once, and
one that works is not. Linux counts for each thread how long it ran, and how long it was ready to
run and was not let (/proc/PID/task/ID/schedstat); given the broker's id, the latter is taken off
each wait, for the broker's loop and for the pinger itself. While the loop sleeps it may wait for a
thread that holds the interpreter's lock and is not let run: as much of the longest such time of
another thread is taken off as the loop slept. What the loop itself ran is never taken off.

    with Pinger(host, port, pid) as pinger:
        pinger.waits()  # From here on.
        ...             # What is to be measured.
        print(pinger.waits().stall_ms)
"""

import contextlib
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple, Self

from bench.wire import Refused

INTERVAL_S = 0.003  # From an answer to the next ping.

_PING = struct.pack(">ihhih", 10, 18, 0, 0, -1)  # ApiVersions v0, with no client id.
_SIZE = struct.Struct(">i")


class Scheduled(NamedTuple):
    """How long a thread ran so far, and how long it was ready to run and was not let."""

    ran_s: float
    kept_s: float

    def since(self, before: "Scheduled") -> "Scheduled":
        return Scheduled(self.ran_s - before.ran_s, self.kept_s - before.kept_s)


_NEVER = Scheduled(0.0, 0.0)


class Waits(NamedTuple):
    """The longest waits for an answer since the last time somebody asked."""

    broker_ms: float
    busy_ms: float | None  # The same without what the system let them wait; None: not known.
    control_ms: float  # Of the process that only echoes.
    pings: int

    @property
    def stall_ms(self) -> float:
        """What the broker added to what the machine did."""
        if self.busy_ms is not None:
            return self.busy_ms
        return max(0.0, self.broker_ms - self.control_ms)


class Pinger:
    """Pings a broker from its beginning to its end."""

    def __init__(self, host: str, port: int, pid: int = 0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.pinger", host, str(port), str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        self.waits()  # It pings by now.
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def waits(self) -> Waits:
        """Return the longest waits since the last call. An answer that is still due counts."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise Refused("the pinger ended: the broker closed its connection")
        return Waits(*json.loads(line))


class _Pinged:
    """One that is pinged: a ping is under way, or the next is due."""

    def __init__(self, to: socket.socket, pid: int = 0) -> None:
        self.socket = to
        self._pid = pid
        self._sent_s: float | None = None
        self._before: dict[str, Scheduled] = {}  # By thread.
        self._due_s = 0.0
        self._answer = b""
        self._longest_s = self._busiest_s = 0.0
        self.pings = 0

    def due_s(self, now_s: float) -> float | None:
        """Return in how many seconds it is to be pinged; None while it has to answer."""
        return None if self._sent_s is not None else max(0.0, self._due_s - now_s)

    def ping(self, now_s: float) -> None:
        self._before = self._scheduled()
        self.socket.sendall(_PING)
        self._sent_s = now_s
        self.pings += 1

    def hear(self) -> bool:
        """Read some of the answer. Returns False at the end of the connection."""
        data = self.socket.recv(65_536)
        self._answer += data
        now_s = time.monotonic()
        if len(self._answer) >= 4 and len(self._answer) >= 4 + _SIZE.unpack_from(self._answer)[0]:
            self._note_wait(now_s)
            self._sent_s, self._answer, self._due_s = None, b"", now_s + INTERVAL_S
        return bool(data)

    def _note_wait(self, now_s: float) -> None:
        if self._sent_s is not None:
            waited_s = now_s - self._sent_s
            self._longest_s = max(self._longest_s, waited_s)
            threads = self._scheduled()
            since = {
                name: each.since(self._before.get(name, _NEVER)) for name, each in threads.items()
            }
            own, loop = since.pop("self", _NEVER), since.pop(str(self._pid), _NEVER)
            busy_s = busy(waited_s, own, loop, [*since.values()])
            self._busiest_s = max(self._busiest_s, busy_s)

    def _scheduled(self) -> dict[str, Scheduled]:
        """Return the times of this process and of each thread of the broker."""
        if not self._pid:
            return {}
        found = {"self": _read_schedstat("/proc/self/schedstat")}
        tasks = f"/proc/{self._pid}/task"
        for thread in os.listdir(tasks):
            # It has ended meanwhile.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found[thread] = _read_schedstat(f"{tasks}/{thread}/schedstat")
        return found

    def take_longest_ms(self) -> tuple[float, float]:
        self._note_wait(time.monotonic())
        longest = round(self._longest_s * 1e3, 3), round(self._busiest_s * 1e3, 3)
        self._longest_s = self._busiest_s = 0.0
        return longest


def busy(waited_s: float, own: Scheduled, loop: Scheduled, others: Sequence[Scheduled]) -> float:
    """Return the part of a wait that the broker caused, in seconds.

    `own` is of the pinger, `loop` of the broker's loop, and `others` are its other threads.
    """
    waited_s -= own.kept_s + loop.kept_s
    slept_s = max(0.0, waited_s - loop.ran_s)
    return waited_s - min(slept_s, max([each.kept_s for each in others], default=0.0))


def _read_schedstat(path: str) -> Scheduled:
    with open(path, encoding="ascii") as file:
        ran, kept, _ = file.read().split()
    return Scheduled(int(ran) / 1e9, int(kept) / 1e9)


def _echo(with_whom: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while data := with_whom.recv(65_536):
            with_whom.sendall(data)


def _ping_until_told(host: str, port: int, pid: int) -> None:
    """Answer every line of standard input with a line of figures, until there are no more."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        _echo(theirs)
        os._exit(0)
    theirs.close()
    to_broker = socket.create_connection((host, port), timeout=60)
    to_broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    broker, control = _Pinged(to_broker, pid), _Pinged(ours)
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ, None)
        for each in (broker, control):
            selector.register(each.socket, selectors.EVENT_READ, each)
        while True:
            now_s = time.monotonic()
            for each in (broker, control):
                if each.due_s(now_s) == 0.0:
                    each.ping(now_s)
            waits = [due for each in (broker, control) if (due := each.due_s(now_s)) is not None]
            for key, _ in selector.select(min(waits, default=None)):
                if key.data is not None:
                    if not key.data.hear():
                        return
                elif not os.read(0, 1):
                    return
                else:
                    longest_ms, busy_ms = broker.take_longest_ms()
                    control_ms, _ = control.take_longest_ms()
                    found = [longest_ms, busy_ms if pid else None, control_ms, broker.pings]
                    print(json.dumps(found), flush=True)
                    broker.pings = 0


if __name__ == "__main__":
    _ping_until_told(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
