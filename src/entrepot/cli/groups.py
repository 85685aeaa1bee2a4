"""`entrepot groups`: list, describe, reset-offsets, delete."""

import sys
from typing import TYPE_CHECKING

import click

from entrepot.cli.consume import parse_time
from entrepot.cli.group_offsets import ResetTarget, Row, parse_parts, plan_offsets, rows_of
from entrepot.cli.talk import bootstrap_option, json_option, show_json, show_table, talk

if TYPE_CHECKING:
    from entrepot.client.client import Client, TopicPartition
    from entrepot.client.groups import GroupInfo, GroupListing


@click.group()
def groups() -> None:
    """List, describe and delete consumer groups, and move what they have read."""


@groups.command("list")
@json_option
@bootstrap_option
def list_(as_json: bool, bootstrap: str) -> None:
    """List consumer groups and share groups, and their states."""

    async def work(client: "Client") -> "list[GroupListing]":
        from entrepot.client.groups import GroupAdmin

        return await GroupAdmin(client).all(with_share=True)

    rows = [
        {"group": each.name, "state": each.state, "protocol": each.kind}
        for each in talk(bootstrap, work)
    ]
    if as_json:
        show_json(rows)
    else:
        show_table(rows)


@groups.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@json_option
@bootstrap_option
def describe(names: tuple[str, ...], as_json: bool, bootstrap: str) -> None:
    """Show who reads what in a group, and how far they are."""

    async def work(client: "Client") -> "list[tuple[GroupInfo, list[Row]]]":
        from entrepot.client.groups import GroupAdmin

        admin = GroupAdmin(client)
        infos = [await admin.describe(name) for name in names]
        return [(info, await rows_of(admin, info)) for info in infos]

    for info, rows in talk(bootstrap, work):
        table = [_shown(row) for row in rows]
        if as_json:
            show_json([_document(info, table)])
            continue
        divided = f", divided by {info.assignor}" if info.assignor else ""
        click.echo(f"group {info.name}: {info.state}, {len(info.members)} members{divided}")
        show_table(
            {key: "-" if value is None else value for key, value in r.items()} for r in table
        )
        for member in info.members:
            if not member.parts:
                click.echo(f"{member.id} at {_host(member.host)} has nothing to read")


def _shown(row: Row) -> dict[str, object]:
    return {
        "topic": row.part.topic,
        "partition": row.part.partition,
        "committed": row.committed,
        "end": row.end,
        "lag": row.lag,
        "member": row.member and row.member.id,
        "host": row.member and _host(row.member.host),
    }


def _host(text: str) -> str:
    """Java writes addresses as /127.0.0.1, and so does Kafka's protocol."""
    return text.removeprefix("/")


def _document(info: "GroupInfo", partitions: list[dict[str, object]]) -> dict[str, object]:
    return {
        "group": info.name,
        "state": info.state,
        "assignor": info.assignor,
        "members": [
            {"member": each.id, "client_id": each.client_id, "host": _host(each.host)}
            for each in info.members
        ],
        "partitions": partitions,
    }


@groups.command("reset-offsets")
@click.argument("name")
@click.option(
    "--to",
    "where",
    metavar="WHERE",
    required=True,
    help="earliest, latest, an offset, a time (ISO 8601), or +N and -N from where it is.",
)
@click.option(
    "-t",
    "--topic",
    "scopes",
    metavar="TOPIC[:0,1]",
    multiple=True,
    help="Only this one; else all the group has read.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@bootstrap_option
def reset_offsets(
    name: str, where: str, scopes: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool
) -> None:
    """Let a group go on from elsewhere. It must have no members."""
    target = parse_target(where)

    async def plan(client: "Client") -> "dict[TopicPartition, tuple[int | None, int]]":
        from entrepot.client.groups import GroupAdmin

        committed = await GroupAdmin(client).offsets(name)
        parts = await parse_parts(client, scopes) if scopes else list(committed)
        if not parts:
            raise click.ClickException(f"group {name} has read nothing yet: say --topic")
        planned = await plan_offsets(client, name, parts, target)
        return {part: (committed.get(part), offset) for part, offset in planned.items()}

    async def commit(client: "Client") -> None:
        from entrepot.client.groups import GroupAdmin

        await GroupAdmin(client).commit(name, {part: new for part, (_, new) in planned.items()})

    planned = talk(bootstrap, plan)
    rows: list[dict[str, object]] = [
        {"topic": part.topic, "partition": part.partition, "committed": old, "new": new}
        for part, (old, new) in planned.items()
    ]
    if as_json:
        show_json(rows)
    else:
        show_table(
            row | {"committed": "-" if row["committed"] is None else row["committed"]}
            for row in rows
        )
    if not yes and not sys.stdin.isatty():
        click.echo("nothing is changed: --yes does it", err=True)
        return
    if not yes:
        click.confirm("Commit this?", abort=True, err=True)
    talk(bootstrap, commit)
    click.echo(f"reset {name}", err=as_json)


def parse_target(where: str) -> ResetTarget:
    from entrepot.client.client import EARLIEST, LATEST

    if where in ("earliest", "latest"):
        return ResetTarget(time=EARLIEST if where == "earliest" else LATEST)
    if where[:1] in ("+", "-") and where[1:].isdecimal():
        return ResetTarget(shift=int(where))
    if where.isdecimal():
        return ResetTarget(offset=int(where))
    return ResetTarget(time=parse_time(where, "--to"))


@groups.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: str) -> None:
    """Delete groups with what they have committed. They must have no members."""

    async def work(client: "Client") -> None:
        from entrepot.client.groups import GroupAdmin

        for name in names:
            await GroupAdmin(client).delete(name)
            click.echo(f"deleted {name}")

    talk(bootstrap, work)
