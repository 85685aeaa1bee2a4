"""`entrepot queues`: declare, list, show, check, purge, delete, rewind, peek, move."""

import json
import sys
from typing import Any

import click

from entrepot.cli.management import (
    Refused,
    arguments_of,
    connect,
    management_options,
    vhost_option,
)
from entrepot.cli.talk import json_option, progress, show_json, show_table

MOVED_AT_ONCE = 10_000  # With one request: it is known how far it is, and can be ended.
NOT_FOUND = 404


@click.group()
def queues() -> None:
    """Declare, list, purge and delete queues, look into them, rewind and move."""


@queues.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--transient", is_flag=True, help="Kept in memory only, as its messages.")
@click.option("--auto-delete", is_flag=True, help="Deleted with its last consumer.")
@click.option("--type", "kind", type=click.Choice(["classic", "quorum", "stream"]))
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="As in x-max-length=1000."
)
@vhost_option
@management_options
def declare(
    names: tuple[str, ...],
    transient: bool,
    auto_delete: bool,
    kind: str | None,
    settings: tuple[str, ...],
    vhost: str,
) -> None:
    """Declare queues. Fine when they are there already and the same."""
    arguments = arguments_of(settings) | ({"x-queue-type": kind} if kind else {})
    body = {"durable": not transient, "auto_delete": auto_delete, "arguments": arguments}
    api = connect()
    for name in names:
        api.put("queues", vhost, name, body=body)
        click.echo(f"declared {name}")


@queues.command("list")
@click.option("-p", "--vhost", metavar="NAME", help="Of this virtual host only.")
@json_option
@management_options
def list_(vhost: str | None, as_json: bool) -> None:
    """List queues and what is in them. Topics are queues of the type stream."""
    rows = connect().get("queues", *([vhost] if vhost else []), sort="name")
    if as_json:
        show_json(rows)
        return
    show_table(
        {
            "vhost": row["vhost"],
            "name": row["name"],
            "type": row["type"],
            "ready": row.get("messages_ready", row["state"]),
            "unacked": row.get("messages_unacknowledged", row["state"]),
            "deferred": row.get("messages_deferred", 0),
            "consumers": row["consumers"],
        }
        for row in rows
    )


@queues.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@json_option
@vhost_option
@management_options
def show(names: tuple[str, ...], as_json: bool, vhost: str) -> None:
    """Show queues, who consumes from them, and what is bound to them."""
    api = connect()
    for name in names:
        row = api.get("queues", vhost, name)
        row["bindings"] = api.get("queues", vhost, name, "bindings")
        if as_json:
            show_json([row])
        else:
            _show(row)


def _show(row: dict[str, Any]) -> None:
    click.echo(f"queue {row['name']} in {row['vhost']}")
    kinds = ("durable", "auto_delete", "exclusive")
    said = ", ".join(kind.replace("_", "-") for kind in kinds if row[kind])
    click.echo(f"  {row['type']}{', ' + said if said else ''}")
    for name, value in row["arguments"].items():
        click.echo(f"  {name} = {json.dumps(value)}")
    if row["state"] == "down":
        click.echo(f"  down: {row['reason']}")
    else:
        click.echo(
            f"  {row['messages_ready']} ready, {row['messages_unacknowledged']} unacked, "
            f"{row.get('messages_deferred', 0)} deferred"
        )
    if row.get("messages_dropped"):
        click.echo(f"  dropped: {_reasons(row['messages_dropped'])}")
    for consumer in row["consumer_details"]:
        channel = consumer["channel_details"]
        click.echo(f"  consumer {consumer['consumer_tag']} of {channel['name']}")
    for binding in row["bindings"]:
        if binding["source"]:
            click.echo(f"  bound to {binding['source']} with key {binding['routing_key']!r}")


def _reasons(dropped: dict[str, int]) -> str:
    return ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in dropped.items())


@queues.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("-p", "--vhost", metavar="NAME", help="Of this virtual host only; / for names.")
@json_option
@management_options
def check(names: tuple[str, ...], vhost: str | None, as_json: bool) -> None:
    """Account for every message that queues accepted.

    Ends with 1 when one is missing.

    Figures are since the broker has started. Settled are those that consumers are done with, and
    those whose dead letters have arrived; dying are those whose dead letters are on their way.
    """
    api = connect()
    if names:
        rows = [api.get("accounts", vhost or "/", name) for name in names]
    else:
        rows = api.get("accounts", *([vhost] if vhost else []), sort="name")
    if as_json:
        show_json(rows)
    else:
        show_table(_account(row) for row in rows)
    for row in rows:
        for wrong in row["wrong"]:
            click.echo(f"queue {row['name']} in {row['vhost']}: {wrong}", err=True)
    sys.exit(0 if all(row["ok"] for row in rows) else 1)


def _account(row: dict[str, Any]) -> dict[str, object]:
    return {
        "vhost": row["vhost"],
        "name": row["name"],
        "ready": row["ready"],
        "unacked": row["unacked"],
        "deferred": row["deferred"],
        "dying": row["dying"],
        "settled": row["consumed"] + row["dead_lettered"],
        "dropped": sum(row["dropped"].values()),
        "state": "ok" if row["ok"] else "WRONG",
        "dropped because": _reasons(row["dropped"]),
    }


@queues.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@vhost_option
@management_options
def purge(names: tuple[str, ...], vhost: str) -> None:
    """Throw away what is ready."""
    api = connect()
    for name in names:
        api.delete("queues", vhost, name, "contents")
        click.echo(f"purged {name}")


@queues.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--if-unused", is_flag=True, help="Only if nobody consumes from it.")
@click.option("--if-empty", is_flag=True, help="Only if nothing is ready.")
@click.option("--if-exists", is_flag=True, help="Fine when it is gone already.")
@vhost_option
@management_options
def delete(
    names: tuple[str, ...], if_unused: bool, if_empty: bool, if_exists: bool, vhost: str
) -> None:
    """Delete queues and everything in them, for good."""
    given = {"if-unused": if_unused, "if-empty": if_empty}
    conditions = {name: "true" for name, is_given in given.items() if is_given}
    api = connect()
    for name in names:
        try:
            api.delete("queues", vhost, name, **conditions)
        except Refused as refused:
            if not (if_exists and refused.status == NOT_FOUND):
                raise
        else:
            click.echo(f"deleted {name}")


@queues.command()
@click.argument("name")
@click.option(
    "--to",
    "where",
    metavar="WHERE",
    required=True,
    help="earliest, an offset, or a time as 2030-01-02T03:04:05 (UTC).",
)
@vhost_option
@management_options
def rewind(name: str, where: str, vhost: str) -> None:
    """Make what was consumed since then ready again.

    What is gone is what retention has taken: x-retention-ms of the queue, a day by default.
    """
    body: dict[str, object] = {"time": 0 if where == "earliest" else where}
    if where.isdecimal():
        body = {"offset": int(where)}
    api = connect()
    api.post("queues", vhost, name, "rewind", body=body)
    ready = api.get("queues", vhost, name)["messages_ready"]
    click.echo(f"rewound {name}: {ready} ready")


@queues.command()
@click.argument("name")
@click.option("-n", "--count", type=click.IntRange(1), default=10, show_default=True)
@json_option
@vhost_option
@management_options
def peek(name: str, count: int, as_json: bool, vhost: str) -> None:
    """Print the next messages. They stay where they are, and nobody notices."""
    asked = {"count": count, "ackmode": "peek", "encoding": "auto"}
    for row in connect().post("queues", vhost, name, "get", body=asked):
        if as_json:
            show_json([row])
        else:
            click.echo(row["payload"])


@queues.command()
@click.argument("source")
@click.argument("target")
@click.option("-n", "--count", type=click.IntRange(1), help="So many; else all that is ready.")
@vhost_option
@management_options
def move(source: str, target: str, count: int | None, vhost: str) -> None:
    """Move messages to another queue, in their order."""
    api, moved = connect(), 0
    if count is None:
        # What comes meanwhile is not counted: else it might never end.
        count = int(api.get("queues", vhost, source).get("messages_ready", 0))
    with progress(count) as advance:
        while moved < count or not moved:
            body = {"to": target, "count": max(1, min(MOVED_AT_ONCE, count - moved))}
            some = api.post("queues", vhost, source, "move", body=body)["moved"]
            if not some:
                break
            moved += some
            advance(some)
    click.echo(f"moved {moved} from {source} to {target}")


@queues.command()
@click.argument("name")
@click.option("--cancel", metavar="OFFSET", multiple=True, help="Do not deliver it.")
@click.option("--change", metavar="OFFSET=TIME", multiple=True, help="Deliver it at another time.")
@json_option
@vhost_option
@management_options
def deferred(
    name: str, cancel: tuple[str, ...], change: tuple[str, ...], as_json: bool, vhost: str
) -> None:
    """List messages that wait for their time.

    Or cancel some, or change the time of others.

    Where the queue has priorities, an offset is PRIORITY:OFFSET.
    """
    from entrepot.cli.talk import key_values

    changes = key_values(change, "--change")
    api = connect()
    for offset in cancel:
        api.delete("queues", vhost, name, "deferred", offset)
    for offset, due in changes.items():
        api.put("queues", vhost, name, "deferred", offset, body={"due": due})
    rows = api.get("queues", vhost, name, "deferred")
    if as_json:
        show_json(rows)
    else:
        show_table(rows)
