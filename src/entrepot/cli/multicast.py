"""`entrepot multicast`: labs of multicast between nodes, and groups of IP multicast."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import click

from entrepot.cli.labs import lab_command
from entrepot.cli.talk import json_option, show_json
from entrepot.cluster.multicast.addresses import is_group
from entrepot.core.ports import Address
from entrepot.lab.multicast import LABS
from entrepot.net.datagrams import SocketDatagramNet, open_group

DATAGRAM_BYTES_MAX = 65_507  # What IPv4 can carry; more than a frame arrives whole or not at all.


@click.group()
def multicast() -> None:
    """Multicast: one message to many."""


multicast.add_command(lab_command(LABS, "entrepot multicast lab ways"))

_way = click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address of the interface by way of which.",
)


@multicast.command()
@click.argument("group", metavar="GROUP:PORT")
@click.option("-n", "count", type=click.IntRange(1), help="End after so many.")
@_way
@json_option
def listen(group: str, count: int | None, host: str, as_json: bool) -> None:
    """Print what is sent to a group of IP multicast.

    It joins the group, and leaves it at Ctrl-C.
    """
    where = _group(group)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_listen(where, count, host, as_json))


@multicast.command()
@click.argument("group", metavar="GROUP:PORT")
@click.argument("text")
@_way
def send(group: str, text: str, host: str) -> None:
    """Send a text to a group of IP multicast, without being a member."""
    where = _group(group)
    data = text.encode()
    if len(data) > DATAGRAM_BYTES_MAX:
        raise click.ClickException(f"a datagram has at most {DATAGRAM_BYTES_MAX} bytes")
    try:
        with open_group(host, *where, listens=False) as opened:
            opened.sendto(data, where)
    except OSError as error:
        raise click.ClickException(f"{group} by way of {host}: {error.strerror or error}") from None


async def _listen(where: Address, count: int | None, host: str, as_json: bool) -> None:
    done = asyncio.Event()
    seen = 0
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, done.set)

    def received(data: bytes, source: Address) -> None:
        nonlocal seen
        if done.is_set():
            return
        seen += 1
        text = data.decode(errors="replace")
        if as_json:
            show_json([{"host": source[0], "port": source[1], "body": text}])
        else:
            click.echo(text)
        if seen == count:
            done.set()

    try:
        joined = await SocketDatagramNet(DATAGRAM_BYTES_MAX).join(host, *where, received)
    except OSError as error:
        problem = error.strerror or error
        raise click.ClickException(f"{where[0]} by way of {host}: {problem}") from None
    click.echo("listening", err=True)
    await done.wait()
    joined.close()


def _group(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise click.UsageError(f"{text}: not of the form GROUP:PORT")
    if not is_group(host):
        raise click.UsageError(
            f"{host}: no group of IP multicast; these are 224.0.0.0 to 239.255.255.255, whose "
            "first four bits are 1110"
        )
    return host, int(port)
