"""What the commands that talk to a broker share: its address, a client, one-line failures."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from entrepot.cli.security import chosen_security, security_options
from entrepot.wire.kafka.kio_loading import load_kio

if TYPE_CHECKING:
    from rich.table import Table

    from entrepot.client.client import Client

# So long every command tries to connect, whatever it speaks; an answer may take longer.
CONNECT_S = 5.0

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

_Result = TypeVar("_Result")
_Command = TypeVar("_Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
server_option = click.option(
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


def bootstrap_option(command: _Command) -> _Command:
    """Where the broker is, and who we are; the command gets `bootstrap`, `talk` the rest."""
    return server_option(security_options(command))


def talk(
    bootstrap: str,
    work: "Callable[[Client], Awaitable[_Result]]",
    *,
    client_id: str = "entrepot-cli",
    properties: Mapping[str, str] | None = None,
) -> _Result:
    """Do the work with a connected client; what goes wrong is one line for people.

    SIGTERM ends the work as Ctrl-C does, by cancelling it: a member leaves its group.
    `properties` are Kafka's, of a tool that has read its own file.
    """
    load_kio()
    from entrepot.client.client import Client
    from entrepot.client.errors import ClientError

    net, credentials = chosen_security(properties)

    async def run() -> _Result:
        task = asyncio.current_task()
        assert task is not None
        with contextlib.suppress(ValueError, RuntimeError):  # Signals are the main thread's.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        client = Client(
            net, bootstrap, client_id=client_id, credentials=credentials, connect_s=CONNECT_S
        )
        async with client:
            return await work(client)

    try:
        return asyncio.run(run())
    except ClientError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:  # How following and typing end. No news.
        sys.exit(INTERRUPTED)
    except asyncio.CancelledError:
        sys.exit(TERMINATED)


def key_values(arguments: Iterable[str], flag: str) -> dict[str, str]:
    """`key=value` arguments of a repeated flag."""
    found = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{flag} {argument}: write it as key=value")
        found[key.strip()] = value
    return found


def show_json(things: Iterable[object]) -> None:
    """Print one JSON object per line: what `--json` means, whatever the command lists."""
    for thing in things:
        click.echo(json.dumps(thing))


@contextlib.contextmanager
def progress(total: int, *, of_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar, where somebody looks and it takes long enough to be seen. What it yields advances
    it."""
    if not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TimeRemainingColumn,
    )

    how_much = DownloadColumn() if of_bytes else MofNCompleteColumn()
    columns = (BarColumn(), how_much, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda size: bar.advance(task, size)


def show_table(rows: Iterable[Mapping[str, object]]) -> None:
    """Aligned columns. Into a pipe they are as wide as they need to be."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 1_000
    console = Console(highlight=False, markup=False, width=width)  # A name may have brackets.
    table = _table(rows)
    if table.row_count:
        console.print(table)


def _table(rows: Iterable[Mapping[str, object]]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, row in enumerate(rows):
        if index == 0:
            for name, value in row.items():
                table.add_column(name, justify="right" if isinstance(value, int) else "left")
        table.add_row(*(str(value) for value in row.values()))
    return table
