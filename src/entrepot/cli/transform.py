"""`entrepot transform`: formats, rules between them, and whoever applies the rules."""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from entrepot.cli.talk import (
    CONNECT_S,
    INTERRUPTED,
    json_option,
    key_values,
    server_option,
    show_json,
    show_table,
)
from entrepot.client.errors import ClientError
from entrepot.client.messaging.client import AMQP, AsyncClient
from entrepot.transform.kinds import KINDS
from entrepot.transform.refusal import Refused
from entrepot.transform.repository import Repository
from entrepot.transform.running import PAUSE_S, Runner

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _broker(command: _Command) -> _Command:
    amqp = click.option(
        "--amqp", default=AMQP, envvar="ENTREPOT_AMQP", show_default=True, show_envvar=True,
        help="Where queues are.",
    )  # fmt: skip
    user = click.option("--user", default="guest", show_default=True, help="For queues.")
    password = click.option(
        "--password", default="guest", envvar="ENTREPOT_PASSWORD", show_envvar=True
    )
    return server_option(amqp(user(password(command))))


@click.group()
def transform() -> None:
    """Formats of messages, and rules by which one is read where another was written."""


@transform.command("add-format")
@click.argument("name")
@click.argument("kind", type=click.Choice(KINDS))
@click.option(
    "--schema",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON; for protobuf, what protoc --descriptor_set_out wrote.",
)
@click.option("--message", metavar="NAME", help="Of protobuf: which of the file's messages.")
@_broker
def add_format(
    name: str, kind: str, schema: Path | None, message: str | None, **broker: str
) -> None:
    """Add a format, or replace it."""
    said: Any = {}
    if kind == "protobuf":
        if schema is None or message is None:
            raise click.UsageError("protobuf needs --schema and --message")
        said = {"descriptors": b64encode(schema.read_bytes()).decode(), "message": message}
    elif schema is not None:
        try:
            said = json.loads(schema.read_text())
        except ValueError as error:
            raise click.ClickException(f"{schema}: {error}") from None
    _with(broker, lambda repository: repository.add_format(name, kind, said))
    click.echo(f"added format {name}")


@transform.command("add-rule")
@click.argument("name")
@click.argument("source", metavar="FROM")
@click.argument("source_format", metavar="FORMAT")
@click.argument("target", metavar="TO")
@click.argument("target_format", metavar="FORMAT")
@click.option("--rename", "renames", metavar="OLD=NEW", multiple=True, help="A field.")
@_broker
def add_rule(
    name: str,
    source: str,
    source_format: str,
    target: str,
    target_format: str,
    renames: tuple[str, ...],
    **broker: str,
) -> None:
    """Add a rule, or replace it.

    From topic:NAME or queue:NAME in one format to another place.
    """
    said = {
        "from": source,
        "from_format": source_format,
        "to": target,
        "to_format": target_format,
        "rename": key_values(renames, "--rename"),
    }
    _with(broker, lambda repository: repository.add_rule(name, said))
    click.echo(f"added rule {name}")


@transform.command("remove-format")
@click.argument("name")
@_broker
def remove_format(name: str, **broker: str) -> None:
    """Remove a format that no rule needs."""
    _with(broker, lambda repository: repository.remove_format(name))
    click.echo(f"removed format {name}")


@transform.command("remove-rule")
@click.argument("name")
@_broker
def remove_rule(name: str, **broker: str) -> None:
    """Remove a rule: what comes from now on stays where it is."""
    _with(broker, lambda repository: repository.remove_rule(name))
    click.echo(f"removed rule {name}")


@transform.command("list")
@json_option
@_broker
def list_(as_json: bool, **broker: str) -> None:
    """List formats and rules."""

    async def rows(repository: Repository) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        formats = repository.formats.values()
        return (
            [{"format": each.name, **each.said()} for each in formats],
            [{"rule": each.name, **each.said()} for each in repository.rules.values()],
        )

    formats, rules = _with(broker, rows)
    if as_json:
        show_json([*formats, *rules])
        return
    show_table({"format": each["format"], "kind": each["kind"]} for each in formats)
    show_table(
        {
            "rule": each["rule"],
            "from": f"{each['from']} ({each['from_format']})",
            "to": f"{each['to']} ({each['to_format']})",
        }
        for each in rules
    )


@transform.command()
@_broker
def run(**broker: str) -> None:
    """Apply all rules, until Ctrl-C. Several of these share the work, and replace each other."""

    has_connected = False

    async def work() -> None:
        nonlocal has_connected
        async with _client(broker) as client:
            has_connected = True
            await Runner(client).run()

    async def keep_working() -> None:
        """Begin anew whenever the broker is lost, for example when it is started again."""
        while True:
            try:
                return await work()
            except ClientError as error:
                if not has_connected:
                    raise
                click.echo(f"{error}; again in {PAUSE_S:.0f} s", err=True)
                await asyncio.sleep(PAUSE_S)

    _run(keep_working())


_Result = TypeVar("_Result")


def _with(broker: dict[str, str], work: Callable[[Repository], Awaitable[_Result]]) -> _Result:
    async def with_repository(client: AsyncClient) -> _Result:
        repository = Repository(client)
        await repository.start()
        return await work(repository)

    return _connected(broker, with_repository)


def _connected(
    broker: dict[str, str], work: Callable[[AsyncClient], Awaitable[_Result]]
) -> _Result:
    async def connected() -> _Result:
        async with _client(broker) as client:
            return await work(client)

    return _run(connected())


def _client(broker: dict[str, str]) -> AsyncClient:
    return AsyncClient(
        broker["amqp"],
        broker["bootstrap"],
        user=broker["user"],
        password=broker["password"],
        connect_s=CONNECT_S,
    )


def _run(work: Coroutine[Any, Any, _Result]) -> _Result:
    try:
        return asyncio.run(work)
    except (ClientError, Refused) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
