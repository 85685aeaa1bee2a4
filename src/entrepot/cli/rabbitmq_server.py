"""`rabbitmq-server`: `serve`, and `-detached` as RabbitMQ has it."""

from pathlib import Path

import click

from entrepot.cli import background
from entrepot.cli.serve import chosen_config, serve


@click.command(
    "rabbitmq-server",
    context_settings={"ignore_unknown_options": True},
    add_help_option=False,
)
@click.option("-detached", "--detached", is_flag=True)
@click.option("-h", "--help", "helps", is_flag=True)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def rabbitmq_server(detached: bool, helps: bool, arguments: tuple[str, ...]) -> None:
    """Start a broker. All options are those of `entrepot serve`."""
    given = ["--help", *arguments] if helps else list(arguments)
    parsed = serve.make_context("rabbitmq-server", given)
    if not detached:
        serve.invoke(parsed)
        return
    if parsed.params.pop("nodes_per_machine") is not None:
        raise click.UsageError("-detached is for one node: it has no --nodes-per-machine")
    config = chosen_config(**parsed.params)
    background.start(Path(config.data_dir), ["serve", *arguments])
