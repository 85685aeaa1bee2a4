"""`entrepot status`: what runs on a data directory, and what of it cannot be used.

A running broker is asked over its management port. Of one that does not run, it is said how
it stopped; what its files are worth is for `entrepot log verify` to find out, which takes as
long as reading them does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from entrepot.cli.management import Api
from entrepot.cli.presence import ENDPOINTS, is_running, process_id
from entrepot.cli.security import chosen_user, read_password, user_options
from entrepot.cli.talk import json_option, show_json
from entrepot.log.layout import CLEAN_CHECKPOINT, PARTITIONS

Status = dict[str, Any]


@click.command()
@click.option(
    "--data-dir",
    metavar="DIR",
    default="data",
    envvar="ENTREPOT_DATA_DIR",
    show_default=True,
    help="Where the broker keeps its data.",
)
@json_option
@user_options
def status(data_dir: str, as_json: bool) -> None:
    """Show what runs on a data directory, and what is refused or stopped, and why.

    Exit code 1 when no broker runs there, or when something cannot be used.
    """
    directory = Path(data_dir)
    if not (directory / PARTITIONS).is_dir():
        raise click.ClickException(f"{directory} is no data directory")
    found = _running(directory) if is_running(directory) else _stopped(directory)
    if as_json:
        show_json([found])
    else:
        _show(directory, found)
    if not found["running"] or found["faults"]:
        sys.exit(1)


def _running(directory: Path) -> Status:
    """Of a broker that is still starting, only that."""
    try:
        endpoints = json.loads((directory / ENDPOINTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        endpoints = {}
    found: Status = {
        "running": True,
        "pid": process_id(directory),
        "endpoints": endpoints,
        "faults": None,
    }
    if "http" in endpoints:
        address = f"{endpoints['http']['host']}:{endpoints['http']['port']}"
        user = chosen_user()
        password = "guest" if user is None else read_password(f"Password of {user}")
        api = Api(address, user or "guest", password)
        found["faults"] = api.get("faults")
        found["bridges"] = api.get("bridges")
    return found


def _stopped(directory: Path) -> Status:
    return {
        "running": False,
        "stopped_cleanly": (directory / CLEAN_CHECKPOINT).exists(),
        "faults": None,
    }


def _show(directory: Path, found: Status) -> None:
    if not found["running"]:
        how = "stopped" if found["stopped_cleanly"] else "killed, or it could not stop cleanly"
        click.echo(f"no broker runs on {directory}: {how}")
        click.echo(f"`entrepot log verify {directory}` checks every byte of it")
        return
    pid = found["pid"]
    click.echo(f"running on {directory}, process {pid}" if pid else f"starting on {directory}")
    for name, endpoint in found["endpoints"].items():
        click.echo(f"  {name:<10} {endpoint['host']}:{endpoint['port']}")
    if found["faults"] is None:
        if pid:
            click.echo("its HTTP port is off: what cannot be used is told in its log")
    elif not found["faults"]:
        click.echo("everything can be used")
    for bridge in found.get("bridges") or ():
        problem = f", {bridge['problem']}" if bridge["problem"] else ""
        click.echo(
            f"bridge {bridge['name']} to {bridge['address']}: {bridge['state']}{problem}, "
            f"{bridge['waiting']} to send, {bridge['received']} received"
        )
    for fault in found["faults"] or ():
        click.echo(f"{fault['kind']} {fault['name']} is {fault['state']}: {fault['reason']}")
