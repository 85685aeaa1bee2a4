"""Processes that run a node which talks to others by datagrams, and the lines that they print."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

WAIT_S_MAX = 60.0


class Process:
    """One of `entrepot COMMAND node`."""

    def __init__(self, command: str, number: int, *arguments: str) -> None:
        self.lines: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "entrepot.cli", command, "node", "--json"),
                *("--id", str(number), *arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.port = self.wait("ready")["port"]
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def told(self, what: str, node: int | None = None, begin: int = 0) -> list[dict[str, Any]]:
        """Return the lines of a kind, perhaps only those about a node."""
        lines = self.lines[begin:]
        return [each for each in lines if each["what"] == what and node in (None, each.get("node"))]

    def wait(self, what: str, node: int | None = None, begin: int = 0) -> dict[str, Any]:
        """Return the first line of a kind, when it has come."""
        eventually(lambda: self.told(what, node, begin))
        return self.told(what, node, begin)[0]

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def summary(self) -> dict[str, Any]:
        begin = len(self.lines)
        self.say("?")
        return self.wait("summary", begin=begin)

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)


def eventually(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
