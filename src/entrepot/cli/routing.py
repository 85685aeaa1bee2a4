"""`entrepot exchanges`, `bind`, `unbind` and `bindings`: where messages go."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from entrepot.broker.subject.filter import to_pattern
from entrepot.cli.management import (
    Refused,
    arguments_of,
    connect,
    management_options,
    vhost_option,
)
from entrepot.cli.queues import NOT_FOUND
from entrepot.cli.talk import json_option, show_json, show_table
from entrepot.core.errors import InvalidName
from entrepot.gateway.rabbitmq.names import SUBJECT_EXCHANGE

_Command = TypeVar("_Command", bound=Callable[..., Any])

_DEFAULT = "amq.default"  # The exchange without a name has one in paths.
_KINDS = {"queue": "q", "topic": "q", "exchange": "e"}
_set_option = click.option("--set", "settings", metavar="KEY=VALUE", multiple=True)


@click.group()
def exchanges() -> None:
    """List, declare and delete exchanges."""


@exchanges.command("list")
@click.option("-p", "--vhost", metavar="NAME", help="Of this virtual host only.")
@json_option
@management_options
def list_(vhost: str | None, as_json: bool) -> None:
    """List exchanges."""
    rows = connect().get("exchanges", *([vhost] if vhost else []))
    if as_json:
        show_json(rows)
        return
    kinds = ("durable", "auto_delete", "internal")
    show_table(
        {
            "vhost": row["vhost"],
            "name": row["name"] or "(default)",
            "type": row["type"],
            "is": ", ".join(kind.replace("_", "-") for kind in kinds if row[kind]),
            "arguments": _text(row["arguments"]),
        }
        for row in rows
    )


@exchanges.command()
@click.argument("name")
@click.option(
    "--type",
    "kind",
    metavar="TYPE",
    default="direct",
    show_default=True,
    help="direct, fanout, topic, headers, x-consistent-hash, x-delayed-message or "
    "x-message-deduplication.",
)
@click.option("--transient", is_flag=True, help="Gone after a restart.")
@click.option("--auto-delete", is_flag=True, help="Deleted with its last binding.")
@click.option("--internal", is_flag=True, help="Reached through other exchanges only.")
@_set_option
@vhost_option
@management_options
def declare(
    name: str,
    kind: str,
    transient: bool,
    auto_delete: bool,
    internal: bool,
    settings: tuple[str, ...],
    vhost: str,
) -> None:
    """Declare an exchange. Fine when it is there already and the same."""
    body = {
        "type": kind,
        "durable": not transient,
        "auto_delete": auto_delete,
        "internal": internal,
        "arguments": arguments_of(settings),
    }
    connect().put("exchanges", vhost, name, body=body)
    click.echo(f"declared {name}")


@exchanges.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--if-unused", is_flag=True, help="Only if nothing is bound to it.")
@click.option("--if-exists", is_flag=True, help="Fine when it is gone already.")
@vhost_option
@management_options
def delete(names: tuple[str, ...], if_unused: bool, if_exists: bool, vhost: str) -> None:
    """Delete exchanges."""
    conditions = {"if-unused": "true"} if if_unused else {}
    api = connect()
    for name in names:
        try:
            api.delete("exchanges", vhost, name, **conditions)
        except Refused as refused:
            if not (if_exists and refused.status == NOT_FOUND):
                raise
        else:
            click.echo(f"deleted {name}")


# Bindings.


def _binding_options(command: _Command) -> _Command:
    command = management_options(vhost_option(_set_option(command)))
    command = click.option("-k", "--key", metavar="KEY", default="", help="The routing key.")(
        command
    )
    command = click.argument("destination")(command)
    return click.argument("exchange")(command)


def _source(exchange: str, key: str) -> tuple[str, str]:
    """Return the exchange and the key; for a filter of paths, as sensors/#, the ones it means."""
    if not any(mark in exchange for mark in "/+#"):
        return exchange, key
    if key:
        raise click.UsageError("a filter such as sensors/# has no key beside it")
    try:
        return SUBJECT_EXCHANGE, to_pattern(exchange)
    except InvalidName as error:
        raise click.UsageError(str(error)) from None


def _ends(exchange: str, destination: str, vhost: str) -> tuple[str, ...]:
    """The path of what is between the two."""
    kind, colon, name = destination.partition(":")
    if not colon or kind not in _KINDS:
        kind, name = "queue", destination
    return "bindings", vhost, "e", exchange or _DEFAULT, _KINDS[kind], name


@click.command()
@_binding_options
def bind(exchange: str, destination: str, key: str, settings: tuple[str, ...], vhost: str) -> None:
    """Send what is published to EXCHANGE with a matching key on to DESTINATION.

    DESTINATION is a queue or a topic (also queue:NAME, topic:NAME), or exchange:NAME. For
    EXCHANGE there may be a filter of subjects, as MQTT writes it: entrepot bind 'sensors/#'
    topic:sensors. In a topic, the names are the records' keys.
    """
    exchange, key = _source(exchange, key)
    body = {"routing_key": key, "arguments": arguments_of(settings)}
    connect().post(*_ends(exchange, destination, vhost), body=body)
    click.echo(f"bound {destination} to {exchange}")


@click.command()
@_binding_options
def unbind(
    exchange: str, destination: str, key: str, settings: tuple[str, ...], vhost: str
) -> None:
    """Undo what `bind` did with the same arguments."""
    exchange, key = _source(exchange, key)
    api, path, arguments = connect(), _ends(exchange, destination, vhost), arguments_of(settings)
    for row in api.get(*path):
        if (row["routing_key"], row["arguments"]) == (key, arguments):
            api.delete(*path, row["properties_key"])
            click.echo(f"unbound {destination} from {exchange}")
            return
    raise click.ClickException(f"{destination} is not bound to {exchange} with the key {key!r}")


@click.command()
@click.option("-p", "--vhost", metavar="NAME", help="Of this virtual host only.")
@click.option("-a", "--all", "shows_all", is_flag=True, help="Also that each queue has its name.")
@json_option
@management_options
def bindings(vhost: str | None, shows_all: bool, as_json: bool) -> None:
    """List bindings."""
    found = connect().get("bindings", *([vhost] if vhost else []))
    rows = [row for row in found if shows_all or row["source"]]
    if as_json:
        show_json(rows)
        return
    show_table(
        {
            "vhost": row["vhost"],
            "exchange": row["source"] or "(default)",
            "destination": f"{row['destination_type']}:{row['destination']}",
            "key": row["routing_key"],
            "arguments": _text(row["arguments"]),
        }
        for row in rows
    )


def _text(arguments: dict[str, Any]) -> str:
    return " ".join(f"{name}={json.dumps(value)}" for name, value in arguments.items())
