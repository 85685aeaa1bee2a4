"""`kafka-server-start` and `kafka-server-stop`.

The server to stop is found by its data directory, never by what a process looks like.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import click

from entrepot.cli import properties
from entrepot.cli.presence import ENDPOINTS, is_running, process_id, remove_leftovers
from entrepot.cli.serve import run
from entrepot.cli.talk import key_values
from entrepot.config import Config, ConfigError

OUTPUT = "server.out"  # Of a server in the background.
WAIT_S_MAX = 30.0
WAIT_S_STEP = 0.02


@click.command("kafka-server-start")
@click.option("-daemon", "--daemon", is_flag=True, help="In the background, once it is ready.")
@click.argument("file", metavar="server.properties")
@click.option("--override", "overrides", metavar="NAME=VALUE", multiple=True)
@click.option(
    "--insecure", is_flag=True, help="Listen to other machines, as entrepot serve --insecure does."
)
def kafka_server_start(daemon: bool, file: str, overrides: tuple[str, ...], insecure: bool) -> None:
    """Start a broker from a Kafka server.properties.

    Understood: listeners, advertised.listeners, log.dirs, node.id, num.partitions,
    auto.create.topics.enable, message.max.bytes, compression.type and the log.flush,
    log.retention, log.segment and log.roll settings. What else the file says is logged
    and has no effect; ours say more (see entrepot serve --help).
    """
    config, ignored = _load(file, overrides)
    config = replace(config, security=replace(config.security, insecure=insecure))
    if daemon:
        _start_daemon(config, file, overrides)
    else:
        notes = tuple(
            f"{file}: {name} is not a setting of this broker: ignored" for name in ignored
        )
        run(config, notes)


def _load(file: str, overrides: tuple[str, ...]) -> tuple[Config, list[str]]:
    try:
        return properties.load(file, key_values(overrides, "--override"))
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


def _start_daemon(config: Config, file: str, overrides: tuple[str, ...]) -> None:
    directory = Path(config.data_dir)
    if is_running(directory):
        raise click.ClickException(f"{directory}: another broker is using it")
    command = [sys.executable, "-m", "entrepot.cli", "kafka-server-start", file]
    if config.security.insecure:
        command.append("--insecure")
    for override in overrides:
        command += ["--override", override]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        remove_leftovers(directory)
        output = (directory / OUTPUT).open("ab")
    except OSError as error:
        raise click.ClickException(f"{directory}: {error.strerror}") from None
    with output:
        server = subprocess.Popen(
            command,
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


@click.command("kafka-server-stop")
@click.argument("file", metavar="[server.properties]", required=False)
@click.option(
    "--data-dir", metavar="DIR", envvar="ENTREPOT_DATA_DIR", help="Where that server's data are."
)
def kafka_server_stop(file: str | None, data_dir: str | None) -> None:
    """Stop the broker whose data are in DIR, or where the file says, or in ./data."""
    if data_dir is None:
        data_dir = (_load(file, ())[0] if file is not None else Config()).data_dir
    directory = Path(data_dir).absolute()
    pid = process_id(directory)
    if pid is None:
        raise click.ClickException(f"no broker to stop: none is running on {directory}")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + WAIT_S_MAX
    while is_running(directory):
        if time.monotonic() > deadline:
            raise click.ClickException(f"process {pid} has not stopped within {WAIT_S_MAX:g} s")
        time.sleep(WAIT_S_STEP)
    click.echo(f"stopped process {pid}")
