"""What the commands that talk to a broker share: its address, a client, one-line failures."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from rich.table import Table

    from entrepot.client.client import Client

INTERRUPTED = 128 + signal.SIGINT

_Result = TypeVar("_Result")

bootstrap_option = click.option(
    "-b",
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT",
    default="127.0.0.1:9092",
    envvar="ENTREPOT_BOOTSTRAP",
    show_default=True,
    show_envvar=True,
    help="A broker to connect to; several with commas.",
)


def talk(
    bootstrap: str,
    work: "Callable[[Client], Awaitable[_Result]]",
    *,
    client_id: str = "entrepot-cli",
) -> _Result:
    """Do the work with a connected client; what goes wrong is one line for people."""
    from entrepot.client.client import Client
    from entrepot.client.errors import ClientError
    from entrepot.net.sockets import SocketNet

    async def run() -> _Result:
        async with Client(SocketNet(), bootstrap, client_id=client_id) as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except ClientError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:  # How following and typing end. No news.
        sys.exit(INTERRUPTED)


def key_values(arguments: Iterable[str], flag: str) -> dict[str, str]:
    """`key=value` arguments of a repeated flag."""
    found = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{flag} {argument}: write it as key=value")
        found[key.strip()] = value
    return found


def show_table(rows: Iterable[Mapping[str, object]]) -> None:
    """Aligned columns. Into a pipe they are as wide as they need to be."""
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 1_000)
    console.print(_table(rows))


def _table(rows: Iterable[Mapping[str, object]]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, row in enumerate(rows):
        if index == 0:
            for name, value in row.items():
                table.add_column(name, justify="right" if isinstance(value, int) else "left")
        table.add_row(*(str(value) for value in row.values()))
    return table
