"""What a process of a trial writes down, and where it stops until it is let go, or killed.

A note is a line, written with one call to the system, so a killed process leaves whole ones.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple, NoReturn

STEP_S = 0.01


class Note(NamedTuple):
    what: str
    number: int
    at_s: float


class Notes:
    def __init__(self, directory: Path, role: str) -> None:
        self.path = directory / f"{role}.notes"
        self._directory = directory
        self._role = role
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, number: int = 0) -> None:
        os.write(self._file, f"{what} {number} {time.monotonic()}\n".encode())

    def read(self) -> list[Note]:
        lines = self.path.read_text().splitlines()
        cells = [line.split() for line in lines]
        return [Note(what, int(number), float(at)) for what, number, at in cells]

    def numbers(self, what: str) -> list[int]:
        return [note.number for note in self.read() if note.what == what]

    def close(self) -> None:
        os.close(self._file)

    # --- where a process stops

    def crash(self, number: int) -> NoReturn:
        """Say that now is the time to be killed, and wait for it."""
        self.write("crash", number)
        while True:
            time.sleep(60)

    def hold(self, number: int) -> None:
        """Wait until somebody lets us go."""
        self.write("hold", number)
        while not self._go(number).exists():
            time.sleep(STEP_S)

    def let_go(self, number: int) -> None:
        self._go(number).touch()

    def _go(self, number: int) -> Path:
        return self._directory / f"{self._role}.go-{number}"
