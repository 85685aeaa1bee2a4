"""Servers in the background: started, and stopped, by their data directory.

A server to stop is found by its data, never by what a process looks like.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from entrepot.cli.presence import ENDPOINTS, is_running, process_id, remove_leftovers

OUTPUT = "server.out"  # Of a server in the background.
WAIT_S_MAX = 30.0
WAIT_S_STEP = 0.02


def start(directory: Path, arguments: Sequence[str]) -> None:
    """Run `entrepot` with these arguments; return when it is ready."""
    if is_running(directory):
        raise click.ClickException(f"{directory}: another broker is using it")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        remove_leftovers(directory)
        output = (directory / OUTPUT).open("ab")
    except OSError as error:
        raise click.ClickException(f"{directory}: {error.strerror}") from None
    with output:
        server = subprocess.Popen(
            [sys.executable, "-m", "entrepot.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + WAIT_S_MAX
    while server.poll() is None and time.monotonic() < deadline:
        if (directory / ENDPOINTS).exists():
            click.echo(f"ready, process {server.pid}, output in {directory / OUTPUT}")
            return
        time.sleep(WAIT_S_STEP)
    raise click.ClickException(f"the broker did not start: see {directory / OUTPUT}")


def stop(directory: Path) -> int:
    """Ask the server to stop, wait until it has, and say which process it was."""
    pid = process_id(directory)
    if pid is None:
        raise click.ClickException(f"no broker to stop: none is running on {directory}")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + WAIT_S_MAX
    while is_running(directory):
        if time.monotonic() > deadline:
            raise click.ClickException(f"process {pid} has not stopped within {WAIT_S_MAX:g} s")
        time.sleep(WAIT_S_STEP)
    return pid
