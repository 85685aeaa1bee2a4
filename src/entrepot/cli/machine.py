"""`entrepot serve --nodes-per-machine N`: several nodes of a cluster on this machine, as children
of one command, because a node uses one core.

They share the settings and the address. Each has a number, a data directory and ports of its own,
counted up from those of the settings. The command itself has no data and no port.

A node that ends by itself or is killed is started again, after a pause, and the others go on: this
runs a machine, and to end them would take away copies that are in sync. (`entrepot cluster start`
leaves it ended, to see what the others do.) But a node that ends before it was ever ready ends the
command: most likely the settings are wrong, and whoever gave them should hear of it at once.
"""

from __future__ import annotations

import ctypes
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from entrepot.cli.local_cluster import LocalNode, end_all, interruptible, reason_of
from entrepot.cli.logs import configure
from entrepot.cli.presence import is_running
from entrepot.cli.talk import show_table
from entrepot.config import PROTOCOLS, Config
from entrepot.log.layout import LOCK

_PORT_MAX = 65_535
_STEP_S = 0.1
_PAUSE_S, _PAUSE_S_MAX = 1.0, 30.0  # Before a node is started again.
_LONG_S = 60.0  # One that ran for so long is started again after the shortest pause.
_PR_SET_PDEATHSIG = 1  # Of Linux's prctl: which signal comes when the parent is gone.
# What is different for each node, and so is not passed on as it was given.
_OWN = {"node_id", "data_dir", "advertised.kafka_port",
        "advertised.kafka_tls_port", *(f"ports.{each}" for each in PROTOCOLS)}  # fmt: skip

log = logging.getLogger(__name__)


def serve_machine(
    count: int,
    config: Config,
    config_file: str | None,
    settings: Sequence[str],
    given: Mapping[str, Any],
) -> None:
    """Run so many nodes until a signal to end. `config` is what the rest says, as for one node.

    Raises ClickException.
    """
    nodes = _nodes(count, config, _passed_on(config_file, settings, given))
    configure(config.log_level, config.log_format)
    with interruptible() as signals:
        try:
            for node in nodes:
                node.start()
            is_said = False
            while not signals:
                time.sleep(_STEP_S)
                for node in nodes:
                    node.look()
                if not is_said and all(node.is_ready_once for node in nodes):
                    is_said = True
                    _say_ready(config, nodes)
        except KeyboardInterrupt:
            pass
        finally:
            end_all([node.process for node in nodes])
    _say("stopped")


class _Node(LocalNode):
    """A node that is started again when it has ended."""

    def __init__(self, number: int, directory: Path, arguments: Sequence[str]) -> None:
        super().__init__(number, directory, arguments, output=None)
        self.is_ready_once = False
        self._is_waited_for = True  # Until it is ready.
        self._pause_s = _PAUSE_S
        self._started = 0.0
        self._again: float | None = None  # When it is to be started. None means: it is not ended.

    def start(self, before: Callable[[], None] | None = None) -> None:
        self._started = time.monotonic()
        self._again = None
        self._is_waited_for = True
        super().start(before or _end_with_parent)

    def look(self) -> None:
        """Note that it is ready, or has ended; start it again when it is time.

        Raises ClickException when it has ended and was never ready.
        """
        now = time.monotonic()
        if self._again is not None:
            if now >= self._again:
                self.start()
        elif (code := self.exit_code) is not None:
            if not self.is_ready_once:
                raise click.ClickException(f"node {self.number} did not start ({reason_of(code)})")
            is_long = now - self._started >= _LONG_S
            self._pause_s = _PAUSE_S if is_long else min(2 * self._pause_s, _PAUSE_S_MAX)
            self._again = now + self._pause_s
            log.error(
                "a node has ended, and will be started again",
                extra={
                    "node": self.number, "reason": reason_of(code), "pause_s": self._pause_s,
                },
            )  # fmt: skip
        elif self._is_waited_for and self.is_ready:
            self._is_waited_for = False
            if self.is_ready_once:
                log.warning("a node is ready again", extra={"node": self.number})
            self.is_ready_once = True


def _nodes(count: int, config: Config, passed_on: Sequence[str]) -> list[_Node]:
    """Prepare the nodes. Raises ClickException."""
    directory = Path(config.data_dir)
    if not config.cluster.coordinator:
        raise click.ClickException(
            f"--nodes-per-machine {count}: several nodes agree through etcd; say where one "
            "answers, with --coordinator http://HOST:2379. To try it on this machine alone, "
            "`entrepot cluster start` brings an etcd of its own"
        )
    if (directory / LOCK).exists():
        raise click.ClickException(
            f"{directory}: has the data of one node; several have a directory each below it. "
            f"If it is node {config.node_id}, move it to {directory / f'node-{config.node_id}'}"
        )
    _check_ports(count, config)
    nodes = []
    for place in range(count):
        number = config.node_id + place
        own = [*passed_on, *_ports(config, place)]
        nodes.append(_Node(number, directory / f"node-{number}", own))
    for node in nodes:
        if is_running(node.directory):
            raise click.ClickException(f"{node.directory}: another broker is using it")
    return nodes


def _passed_on(
    config_file: str | None, settings: Sequence[str], given: Mapping[str, Any]
) -> list[str]:
    """Return the arguments that all nodes have in common: what was given to the command."""
    words = [] if config_file is None else ["--config", config_file]
    for name, value in given.items():
        if name in _OWN or name.endswith("_port") or value in (None, ()):
            continue
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        else:
            values = value if isinstance(value, tuple) else (value,)
            words += [word for each in values for word in (flag, str(each))]
    for each in settings:
        if each.partition("=")[0].strip() not in _OWN:
            words += ["--set", each]
    return words


def _ports(config: Config, place: int) -> Iterator[str]:
    """Yield the arguments for a node's ports: as configured for the first, then the next ones."""
    for name, port in _counted(config, place):
        yield from (f"--{name.replace('_', '-')}-port", "off" if port is None else str(port))
    for name in ("kafka_port", "kafka_tls_port"):
        told = getattr(config.advertised, name)
        if told:
            yield from ("--set", f"advertised.{name}={told + place}")


def _counted(config: Config, place: int) -> Iterator[tuple[str, int | None]]:
    """Yield each protocol and the port of this node for it: 0 for any, None for none."""
    for name in PROTOCOLS:
        port: int | None = getattr(config.ports, name)
        yield name, port + place if port else port


def _check_ports(count: int, config: Config) -> None:
    """Raise ClickException unless each port is of one node and protocol alone."""
    taken: dict[int, str] = {}
    for place in range(count):
        for name, port in _counted(config, place):
            whose = f"{name} of node {config.node_id + place}"
            if not port:
                continue
            if port > _PORT_MAX:
                raise click.ClickException(f"there is no port {port} for {whose}")
            if port in taken:
                raise click.ClickException(
                    f"port {port} would be that of {taken[port]} and of {whose}: "
                    f"leave {count} ports for each protocol"
                )
            taken[port] = whose


def _end_with_parent() -> None:
    """Have this process asked to stop when the one that started it is gone, kill -9 included."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _say_ready(config: Config, nodes: Iterable[_Node]) -> None:
    _say(f"data in {Path(config.data_dir).absolute()}, durability {config.durability}")
    with suppress(BrokenPipeError):
        show_table({"node": node.number, **node.endpoints} for node in nodes)
    _say("ready")


def _say(line: str) -> None:
    with suppress(BrokenPipeError):  # Nobody reads. That does not stop a broker.
        click.echo(line)
