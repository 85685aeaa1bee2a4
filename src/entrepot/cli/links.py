"""`entrepot link`, `links` and `routes`: the broker as a queue manager among others."""

from pathlib import Path

import click

from entrepot.cli.management import connect, management_options
from entrepot.cli.talk import json_option, show_json, show_table


@click.command()
@json_option
@management_options
def links(as_json: bool) -> None:
    """List the links to other queue managers.

    What waits there, what was sent, and what is wrong.
    """
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


@click.group()
def link() -> None:
    """Add and remove links to other queue managers, list them."""


link.add_command(links, "list")


@link.command()
@click.argument("name")
@click.argument("target", metavar="HOST:PORT")
@click.option("-p", "--vhost", default="/", show_default=True, help="Of the other broker.")
@click.option("--login", metavar="USER", default="guest", show_default=True, help="There.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file whose first line is the password there.  [default: guest]",
)
@click.option("--tls", is_flag=True, help="Connect with TLS.")
@management_options
def add(
    name: str, target: str, vhost: str, login: str, password_file: Path | None, tls: bool
) -> None:
    """Link this broker to the queue manager NAME.

    That one speaks AMQP at HOST:PORT.

    It is stored, and the broker connects at once. A link that was added before is replaced.
    """
    body = {"address": target, "vhost": vhost, "user": login, "tls": tls}
    if password_file is not None:
        body["password"] = (password_file.read_text("utf-8").splitlines() or [""])[0]
    connect().put("links", name, body=body)
    click.echo(f"added {name}")


@link.command()
@click.argument("name")
@management_options
def remove(name: str) -> None:
    """Remove the link to the manager NAME. What waits for it stays in the queue `link.NAME`."""
    connect().delete("links", name)
    click.echo(f"removed {name}")


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
