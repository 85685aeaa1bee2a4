"""Flags that Kafka's tools have in common, of today and of the books.

What was renamed over the years is taken under every name. What is gone for good says
what replaces it, because that is what the reader of an old text needs to know.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from entrepot.cli.properties import parse
from entrepot.cli.talk import key_values
from entrepot.config import ConfigError, read_text
from entrepot.wire.kafka.kio_loading import load_kio

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _refuse_zookeeper(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value is not None:
        raise click.UsageError(
            "--zookeeper: there is no ZooKeeper any more, neither here nor in Kafka 4; "
            "write --bootstrap-server localhost:9092 instead"
        )


def _note_broker_list(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    if value is not None:
        click.echo("--broker-list is an old name: write --bootstrap-server", err=True)
    return value


def bootstrap_options(command: _Command) -> _Command:
    """--bootstrap-server and its former names; the command gets `bootstrap`."""
    command = click.option(
        "--zookeeper", expose_value=False, hidden=True, callback=_refuse_zookeeper
    )(command)
    command = click.option(
        "--broker-list", metavar="HOST:PORT", hidden=True, callback=_note_broker_list
    )(command)
    return click.option(
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT",
        default="127.0.0.1:9092",
        envvar="ENTREPOT_BOOTSTRAP",
        show_default=True,
        help="A broker to connect to; several with commas.",
    )(command)


def properties(arguments: Iterable[str], flag: str, files: Iterable[str | None]) -> dict[str, str]:
    """What the files say, under what the command line says."""
    found: dict[str, str] = {}
    for path in files:
        if path is not None:
            try:
                found |= parse(read_text(path))
            except ConfigError as error:
                raise click.ClickException(str(error)) from None
    return found | key_values(arguments, flag)


def note_ignored(given: dict[str, str], known: Iterable[str], flag: str) -> None:
    """Say which properties mean nothing to us. Serializers are the reader's business in Java."""
    ignored = sorted(set(given) - set(known))
    if ignored:
        click.echo(f"{flag}: ignored {', '.join(ignored)}", err=True)


def note_ignored_of_client(given: dict[str, str], known: Iterable[str], flag: str) -> None:
    """The same for a client's properties: who it is, it may always say."""
    load_kio()
    from entrepot.client.security import SECURITY_PROPERTIES

    note_ignored(given, (*known, *SECURITY_PROPERTIES), flag)


def is_true(given: dict[str, str], name: str) -> bool:
    return given.get(name, "").strip().lower() == "true"


def integer(given: dict[str, str], name: str, default: int) -> int:
    try:
        return int(given.get(name, default))
    except ValueError:
        raise click.UsageError(f"{name}={given[name]}: not a number") from None
