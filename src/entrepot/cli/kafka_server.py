"""`kafka-server-start` and `kafka-server-stop`."""

from dataclasses import replace
from pathlib import Path

import click

from entrepot.cli import background, properties
from entrepot.cli.serve import run
from entrepot.cli.talk import key_values
from entrepot.config import Config, ConfigError


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
    arguments = ["kafka-server-start", file]
    if config.security.insecure:
        arguments.append("--insecure")
    for override in overrides:
        arguments += ["--override", override]
    background.start(Path(config.data_dir), arguments)


@click.command("kafka-server-stop")
@click.argument("file", metavar="[server.properties]", required=False)
@click.option(
    "--data-dir", metavar="DIR", envvar="ENTREPOT_DATA_DIR", help="Where that server's data are."
)
def kafka_server_stop(file: str | None, data_dir: str | None) -> None:
    """Stop the broker whose data are in DIR, or where the file says, or in ./data."""
    if data_dir is None:
        data_dir = (_load(file, ())[0] if file is not None else Config()).data_dir
    pid = background.stop(Path(data_dir).absolute())
    click.echo(f"stopped process {pid}")
