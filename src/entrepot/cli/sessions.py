"""`entrepot sessions` and `entrepot retained`: what the broker keeps for MQTT's clients."""

from datetime import UTC, datetime
from typing import Any

import click

from entrepot.cli.management import Refused, connect, management_options
from entrepot.cli.queues import NOT_FOUND
from entrepot.cli.talk import json_option, show_json, show_table


@click.group()
def sessions() -> None:
    """List, show and delete the sessions of MQTT's clients."""


@sessions.command("list")
@json_option
@management_options
def list_sessions(as_json: bool) -> None:
    """List sessions: who is connected, and what waits for whom."""
    rows = connect().get("sessions", sort="client_id")
    if as_json:
        show_json(rows)
        return
    show_table(
        {
            "client": row["client_id"],
            "user": row["user"],
            "connected": "yes" if row["connected"] else "no",
            "subscriptions": row["subscriptions"],
            "ready": row["messages_ready"],
            "unacked": row["messages_unacknowledged"],
            "expires": _expiry(row),
        }
        for row in rows
    )


@sessions.command()
@click.argument("names", metavar="CLIENT...", nargs=-1, required=True)
@json_option
@management_options
def show(names: tuple[str, ...], as_json: bool) -> None:
    """Show sessions and what they have subscribed to."""
    api = connect()
    for name in names:
        row = api.get("sessions", name)
        if as_json:
            show_json([row])
        else:
            _show(row)


def _show(row: dict[str, Any]) -> None:
    click.echo(f"session {row['client_id']} of {row['user']}")
    state = "connected" if row["connected"] else f"away since {_time(row['ended_ms'])}"
    click.echo(f"  {state}, expires {_expiry(row)}")
    waiting = f"{row['messages_ready']} ready, {row['messages_unacknowledged']} unacked"
    click.echo(f"  {waiting}")
    for each in row["subscription_details"]:
        click.echo(f"  subscribed to {each['filter']} with QoS {each['qos']}")


@sessions.command()
@click.argument("names", metavar="CLIENT...", nargs=-1, required=True)
@management_options
def delete(names: tuple[str, ...]) -> None:
    """Delete sessions with all that waits in them. Their clients are disconnected."""
    api = connect()
    missing = 0
    for name in names:
        try:
            api.delete("sessions", name)
            click.echo(f"deleted {name}")
        except Refused as refused:
            if refused.status != NOT_FOUND:
                raise
            click.echo(f"there is no session {name}", err=True)
            missing += 1
    if missing:
        raise SystemExit(1)


@click.group()
def retained() -> None:
    """List and clear the messages that MQTT's clients have published to be kept."""


@retained.command("list")
@click.argument("filter", default="#")
@json_option
@management_options
def list_retained(filter: str, as_json: bool) -> None:
    """List retained messages on the topics that match FILTER, or all."""
    rows = connect().get("retained", filter=filter, sort="topic")
    if as_json:
        show_json(rows)
        return
    show_table(
        {"topic": row["topic"], "bytes": row["bytes"], "published": _time(row["published_ms"])}
        for row in rows
    )


@retained.command()
@click.argument("filter")
@management_options
def clear(filter: str) -> None:
    """Delete the retained messages of some topics.

    Of those that match FILTER; # is all.
    """
    count = connect().delete("retained", filter=filter)["deleted"]
    click.echo(f"deleted {count} message{'' if count == 1 else 's'}")


def _expiry(row: dict[str, Any]) -> str:
    expiry_ms = row["expiry_ms"]
    if expiry_ms is None:
        return "never"
    if not expiry_ms:
        return "with its connection"
    if row["ended_ms"] is None:
        return f"{expiry_ms // 1_000} s after its connection"
    return _time(row["ended_ms"] + expiry_ms)


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
