"""What commands share that run a node on a socket for datagrams: options, lines in, lines out."""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import click

from entrepot.cli.talk import show_json
from entrepot.cluster.gossip.node import DatagramNode
from entrepot.core.clock import SystemEntropy
from entrepot.core.ports import Address
from entrepot.net.datagrams import SocketDatagramNet
from entrepot.wire.gossip import limits

LINE_BYTES_MAX = 64 * 1024

Show = Callable[[dict[str, Any]], None]


class Where(NamedTuple):
    """Which node it is, and which others it hears."""

    node: int
    host: str
    port: int
    seeds: list[Address]
    cluster: str
    secret: bytes | None
    period_s: float


_OPTIONS = (
    click.option(
        "--id", "node", type=click.IntRange(0, (1 << 62) - 1), help="Its number; else any."
    ),
    click.option(
        "--host", default="127.0.0.1", show_default=True, help="The address to listen on."
    ),
    click.option("--port", default=0, type=click.IntRange(0, 65_535), help="0 takes any free one."),
    click.option(
        "--join", "seeds", metavar="HOST:PORT", multiple=True, help="Nodes to begin with."
    ),
    click.option("--cluster", default="entrepot", show_default=True, help="Others are not heard."),
    click.option(
        "--secret-file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        envvar="ENTREPOT_GOSSIP_SECRET_FILE",
        show_envvar=True,
        help="What all nodes know; packets without its seal are dropped.",
    ),
    click.option("--insecure", is_flag=True, help="Listen to other machines without a secret."),
    click.option(
        "--period",
        default=1.0,
        type=click.FloatRange(0.02, 3600),
        show_default=True,
        help="Seconds.",
    ),
)


def node_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a node, and call it with `where`."""

    @functools.wraps(command)
    def called(
        node: int | None,
        host: str,
        port: int,
        seeds: tuple[str, ...],
        cluster: str,
        secret_file: Path | None,
        insecure: bool,
        period: float,
        **others: Any,
    ) -> None:
        if secret_file is None and not insecure and not _is_of_this_machine(host):
            raise click.ClickException(
                f"{host}: other machines may say anything here without --secret-file; --insecure "
                "lets them"
            )
        number = SystemEntropy().below(1 << 32) if node is None else node
        try:
            known = [_address(each) for each in seeds]
            secret = None if secret_file is None else secret_file.read_bytes().strip()
        except ValueError as error:
            raise click.ClickException(str(error)) from None
        except OSError as error:
            raise click.ClickException(f"{secret_file}: {error.strerror}") from None
        if secret is not None and len(secret) < limits.SECRET_BYTES_MIN:
            raise click.ClickException(f"a secret has at least {limits.SECRET_BYTES_MIN} bytes")
        command(where=Where(number, host, port, known, cluster, secret, period), **others)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


def shower(as_json: bool) -> Show:
    """Return what prints a line of a node, as an object or for people."""

    def show(found: dict[str, Any]) -> None:
        if as_json:
            show_json([found])
        else:
            click.echo("  ".join(f"{name} {value}" for name, value in found.items()))
        sys.stdout.flush()

    return show


async def run_node(
    node: DatagramNode,
    where: Where,
    show: Show,
    *,
    begin: Callable[[], None],
    take: Callable[[bytes], Awaitable[None]],
    end: Callable[[], None],
) -> None:
    """Run a node until SIGINT or SIGTERM: say where it listens, `begin`, then `take` each line of
    standard input, if it is a pipe or a terminal; at last `end`."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        net = SocketDatagramNet(limits.DATAGRAM_BYTES_MAX)
        here = await node.start(net, where.host, where.port)
    except OSError as error:
        raise click.ClickException(f"{where.host}:{where.port}: {error.strerror}") from None
    if ip_address(here[0]).is_unspecified:
        raise click.ClickException(
            f"{where.host}: others must be told an address at which they reach it"
        )
    show({"what": "ready", "node": where.node, "host": here[0], "port": here[1]})
    begin()
    lines = asyncio.create_task(_read_lines(take))
    try:
        await stop.wait()
    finally:
        lines.cancel()
        end()
        node.stop()


async def _read_lines(take: Callable[[bytes], Awaitable[None]]) -> None:
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    except (OSError, ValueError):
        return
    while line := await _next_line(reader):
        await take(line.rstrip(b"\r\n"))


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """Return a line, or what was read of one that is far too long; nothing at the end."""
    try:
        return await reader.readline()
    except ValueError:
        return bytes(LINE_BYTES_MAX + 1)  # It is refused as one that is too long.


def _is_of_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text}: not of the form HOST:PORT")
    return host.strip("[]"), int(port)
