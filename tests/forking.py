"""Starts brokers and other programs of tests without imports, which are most of a start.

A process that has imported all of a broker (`tests/preloaded.py`) forks itself. What it forks
runs the same command line as `Broker` would start, with a log and a process id of its own, and
kill -9 ends it as any other. Tests of the start itself take the fixture `true_command`.
"""

import contextlib
import functools
import multiprocessing
import os
import subprocess
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from entrepot.testing import Broker

ROOT = Path(__file__).parents[1]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.preloaded"])


class Forked:
    """As much of `subprocess.Popen` as `Broker` needs."""

    def __init__(self, process: ForkServerProcess) -> None:
        assert process.pid is not None
        self.pid = process.pid
        self.kill, self.terminate = process.kill, process.terminate
        self._process = process

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(["entrepot", "serve"], timeout)
        return code


def launch(broker: "Broker") -> Forked | None:
    """Return None when the environment has changed since: what was imported may depend on it."""
    if _environment() != _ENVIRONMENT:
        return None
    _ensure_running()
    broker.log_path.touch()
    command = broker._command()
    arguments = command[command.index("serve") :]
    process = _context.Process(target=_serve, args=(arguments, broker.log_path), daemon=True)
    process.start()
    return Forked(process)


def start(program: Callable[..., None], *arguments: object) -> tuple[Forked, BinaryIO]:
    """Call a function in a fork; return also what it prints."""
    _ensure_running()
    ours, theirs = _context.Pipe(duplex=False)
    process = _context.Process(target=_call, args=(theirs, program, arguments), daemon=True)
    with ours, theirs:
        process.start()
        return Forked(process), os.fdopen(os.dup(ours.fileno()), "rb")


@functools.cache
def _ensure_running() -> None:
    """From the root, for the imports of what is preloaded."""
    with contextlib.chdir(ROOT):
        forkserver.ensure_running()


def _environment() -> dict[str, str]:
    """Leave out what pytest tells, as the name of the present test."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


_ENVIRONMENT = _environment()


def _serve(arguments: list[str], log_path: Path) -> None:
    """Do what `python -m entrepot.cli` does."""
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    from entrepot.cli import main

    main(arguments, prog_name="entrepot")


def _call(output: Connection, program: Callable[..., None], arguments: tuple[object, ...]) -> None:
    os.dup2(output.fileno(), 1)
    output.close()
    program(*arguments)
