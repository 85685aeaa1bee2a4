"""`entrepot links` and `entrepot routes`: the broker as a queue manager among others."""

import click

from entrepot.cli.management import connect, management_options
from entrepot.cli.talk import json_option, show_json, show_table


@click.command()
@json_option
@management_options
def links(as_json: bool) -> None:
    """List the links to other queue managers: what waits, what was sent, and what is wrong."""
    rows = connect().get("links")
    if as_json:
        show_json(rows)
        return
    show_table(
        {
            "to": row["neighbour"],
            "address": row["address"],
            "state": "connected" if row["is_connected"] else "waiting",
            "waiting": row["waiting"],
            "sent": row["sent"],
            "undeliverable": row["undeliverable"],
            "delivery": "once" if row["is_exactly_once"] else "at least once",
            "problem": row["problem"] or "",
        }
        for row in rows
    )


@click.command()
@json_option
@management_options
def routes(as_json: bool) -> None:
    """Show the routing table: the managers that are known, and the queues that are there."""
    rows = connect().get("routes")
    if as_json:
        show_json(rows)
        return
    show_table(
        {
            "manager": row["manager"],
            "via": row["via"] or "-",
            "steps": "" if row["distance"] is None else row["distance"],
            "source": row["source"],
            "queues": ", ".join(row["queues"]),
        }
        for row in rows
    )
