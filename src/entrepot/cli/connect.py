"""`entrepot connect run FILE`: one connector in this process, until it is told to stop.

SIGTERM and Ctrl-C let it finish the batch it is at; a second one, or ten seconds, end it
at once. Neither loses a record, nor doubles one where that is promised. After Ctrl-C the
exit code is 130, as it is of other commands.
"""

import asyncio
import contextlib
import logging
import signal
import sys
from typing import TYPE_CHECKING

import click

from entrepot.cli.logs import configure
from entrepot.cli.talk import INTERRUPTED, bootstrap_option, json_option, show_json, talk
from entrepot.wire.kafka.kio_loading import load_kio

if TYPE_CHECKING:
    from entrepot.client.client import Client
    from entrepot.connect.running import Run

STOP_S_MAX = 10.0


@click.group()
def connect() -> None:
    """Move data between topics and files, databases, object stores, HTTP, AMQP.

    A TOML file says what a connector reads and writes; docs/guides/connect.md lists all
    there are.
    """


@connect.command("list")
@json_option
def list_connectors(as_json: bool) -> None:
    """The connectors that are built in."""
    from entrepot.connect.registry import CONNECTORS

    if as_json:
        show_json({"name": name} for name in CONNECTORS)
        return
    for name in CONNECTORS:
        click.echo(name)


@connect.command()
@click.argument("file")
@click.option("--once", is_flag=True, help="Move what is there, then end.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info"
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text")
@bootstrap_option
@click.pass_context
def run(
    context: click.Context,
    file: str,
    once: bool,
    log_level: str,
    log_format: str,
    bootstrap: str,
) -> None:
    """Run the connector that FILE describes."""
    load_kio()
    from entrepot.connect.interface import ConnectError
    from entrepot.connect.running import Run
    from entrepot.connect.settings import load
    from entrepot.core.clock import SystemClock

    configure(log_level, log_format)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    try:
        settings = load(file)
        if context.get_parameter_source("bootstrap") is click.core.ParameterSource.DEFAULT:
            bootstrap = settings.bootstrap_servers or bootstrap
        work = Run(settings, file)

        async def move(client: "Client") -> None:
            await _until_told(work, asyncio.create_task(work.run(client, SystemClock(), once=once)))

        talk(bootstrap, move, client_id=f"connect-{settings.name}", properties=settings.kafka)
    except ConnectError as error:
        raise click.ClickException(str(error)) from None


async def _until_told(work: "Run", task: "asyncio.Task[None]") -> None:
    loop = asyncio.get_running_loop()
    signals: list[int] = []

    def told(number: int) -> None:
        signals.append(number)
        if work.stop.is_set():
            task.cancel()
        work.stop.set()
        loop.call_later(STOP_S_MAX, task.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told, number)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    if signal.SIGINT in signals:
        sys.exit(INTERRUPTED)
