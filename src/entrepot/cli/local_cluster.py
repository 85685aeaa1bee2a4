"""Several nodes on this machine, and the etcd they agree through, as children of one command.

The children are in sessions of their own: Ctrl-C in a terminal comes to the command alone, which
stops the nodes first and etcd last, so that the nodes can say goodbye. A node that ends by itself,
or is killed, is told of and left alone: to see what the others do then is what this is for.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from types import FrameType

import click

from entrepot.cli.local_etcd import LocalEtcd, version_of
from entrepot.cli.presence import ENDPOINTS, is_running, remove_leftovers
from entrepot.config import Ports

_START_S_MAX = 60.0
_STOP_S_MAX = 60.0
_STEP_S = 0.05

Endpoints = dict[str, str]


class LocalNode:
    """A node of a cluster, as a child of this process."""

    def __init__(
        self, number: int, directory: Path, arguments: Sequence[str], *, output: Path | None
    ) -> None:
        """`output` is a file for all that it says. None means: it logs where we do."""
        self.number = number
        self.directory = directory
        self.output = output
        self.arguments = ["serve", "--node-id", str(number), "--data-dir", str(directory)]
        self.arguments += arguments
        self.endpoints: Endpoints = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.is_told_of = False  # That it has ended.

    def start(self, before: Callable[[], None] | None = None) -> None:
        """Start it. `before` is called in the new process. Raises ClickException."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise click.ClickException(f"{self.directory}: {error.strerror}") from None
        remove_leftovers(self.directory)
        with ExitStack() as files:
            output = None if self.output is None else files.enter_context(self.output.open("ab"))
            self.process = subprocess.Popen(
                [sys.executable, "-m", "entrepot.cli", *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if output is None else output,
                stderr=output,
                start_new_session=True,
                preexec_fn=before,
            )

    @property
    def is_ready(self) -> bool:
        """Return whether it accepts connections; `endpoints` says where."""
        try:
            said = json.loads((self.directory / ENDPOINTS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        self.endpoints = {name: f"{end['host']}:{end['port']}" for name, end in said.items()}
        return True

    @property
    def exit_code(self) -> int | None:
        return None if self.process is None else self.process.poll()


class LocalCluster:
    def __init__(
        self,
        directory: Path,
        count: int,
        arguments: Sequence[str],
        *,
        etcd_urls: Sequence[str] = (),
        any_ports: bool = False,
        first: int = 1,
    ) -> None:
        """Prepare so many nodes, from the number `first` on; without `etcd_urls` they get an etcd
        of their own."""
        self.etcd = None if etcd_urls else LocalEtcd(directory / "etcd")
        urls = etcd_urls if self.etcd is None else [self.etcd.url]
        at = [word for url in urls for word in ("--coordinator", url)]
        self.nodes = [
            LocalNode(
                number,
                directory / f"node-{number}",
                [*at, *_ports(number - first, any_ports=any_ports), *arguments],
                output=directory / f"node-{number}.out",
            )
            for number in range(first, first + count)
        ]

    def start(self) -> None:
        """Start all, and wait until every node accepts connections. Raises ClickException."""
        for node in self.nodes:
            if is_running(node.directory):
                raise click.ClickException(f"{node.directory}: another broker is using it")
        if self.etcd is not None:
            click.echo(f"etcd {version_of(self.etcd.program)}, data in {self.etcd.directory}")
            self.etcd.start()
            self.etcd.wait()
        for node in self.nodes:
            node.start()
        deadline = time.monotonic() + _START_S_MAX
        while not all(node.is_ready for node in self.nodes):
            for node in self.nodes:
                if node.exit_code is not None or time.monotonic() > deadline:
                    assert node.output is not None
                    said = node.output.read_text(encoding="utf-8", errors="replace")
                    last = said.rstrip().rpartition("\n")[2]
                    what = f"node {node.number} did not start"
                    raise click.ClickException(f"{what}: {last}\nmore in {node.output}")
            time.sleep(_STEP_S)

    def news(self) -> Iterator[str]:
        """Yield what has happened since: which nodes have ended."""
        for node in self.nodes:
            if node.exit_code is not None and not node.is_told_of:
                node.is_told_of = True
                again = shlex.join(["entrepot", *node.arguments])
                yield f"node {node.number} has ended ({reason_of(node.exit_code)}): {node.output}"
                yield f"start it again, in another terminal, with\n  {again}"
        if self.etcd is not None and self.etcd.process is not None:
            code = self.etcd.process.poll()
            if code is not None:
                self.etcd.process = None
                yield f"etcd has ended ({reason_of(code)}): the nodes cannot agree on anything new"

    @property
    def is_over(self) -> bool:
        return all(node.exit_code is not None for node in self.nodes)

    def stop(self) -> None:
        """Stop the nodes, then etcd; those that do not stop in time are killed."""
        end_all([node.process for node in self.nodes])
        end_all([None if self.etcd is None else self.etcd.process])


def end_all(processes: Sequence[subprocess.Popen[bytes] | None]) -> None:
    """Ask these processes to stop, and wait until they have; a stopped one (SIGSTOP) goes on."""
    alive = [each for each in processes if each is not None and each.poll() is None]
    try:
        for each in alive:
            each.send_signal(signal.SIGTERM)
            each.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + _STOP_S_MAX
        for each in alive:
            each.wait(max(0.0, deadline - time.monotonic()))
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        click.echo("not waiting any longer", err=True)
    finally:
        for each in alive:
            if each.poll() is None:
                each.kill()
                each.wait()


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Yield a list that gets the first signal to end; a second Ctrl-C ends the waiting."""
    signals: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        if len(signals) > 1:
            raise KeyboardInterrupt

    before = [
        (each, signal.signal(each, note)) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ]
    try:
        yield signals
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _ports(place: int, *, any_ports: bool) -> list[str]:
    """Return the options for ports: each node has the next ones, or any that are free."""
    words: list[str] = []
    defaults = Ports()
    for each in fields(Ports):
        port = getattr(defaults, each.name)
        if port is not None:
            chosen = 0 if any_ports else port + place
            words += [f"--{each.name.replace('_', '-')}-port", str(chosen)]
    return words


def reason_of(code: int) -> str:
    """Return how a process ended: by a signal, or with which exit code."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
