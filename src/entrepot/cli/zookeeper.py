"""`zookeeper-server-start`, `zookeeper-server-stop` and `zkServer`: what has become of them.

Texts and scripts of older times start ZooKeeper before Kafka. There is nothing to start any more,
so these commands do nothing, say what replaces them, and succeed: what comes next may go on.
"""

from __future__ import annotations

import click

_NO_SERVER = "There is no ZooKeeper any more, neither here nor in Kafka 4"
_ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}


@click.command(context_settings=_ANYTHING)
def zookeeper_server_start() -> None:
    """Say what replaces it: a broker keeps its own metadata, a cluster has an etcd."""
    _say_start()


@click.command(context_settings=_ANYTHING)
def zookeeper_server_stop() -> None:
    """Say what replaces it."""
    _say_stop()


@click.command(context_settings=_ANYTHING)
@click.option("--config", expose_value=False, hidden=True)
@click.argument("action", default="status")
def zkserver(action: str) -> None:
    """Say what replaces zkServer start, stop, restart and status."""
    if action in ("start", "start-foreground", "restart"):
        _say_start()
    elif action == "stop":
        _say_stop()
    elif action == "status":
        click.echo(f"{_NO_SERVER}. `entrepot status` shows a broker, `entrepot cluster status` a")
        click.echo("cluster: who leads, who is in sync, who is suspected.")
    else:
        raise click.UsageError(f"{action}: neither start, stop, restart nor status")


def _say_start() -> None:
    click.echo(f"{_NO_SERVER}, and nothing was started. Start a broker, which keeps its")
    click.echo("own metadata: kafka-server-start config/server.properties, or entrepot serve.")
    click.echo("The nodes of a cluster agree through etcd: entrepot cluster start.")


def _say_stop() -> None:
    click.echo(f"{_NO_SERVER}, and nothing was stopped. kafka-server-stop ends a broker.")
