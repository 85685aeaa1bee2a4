"""`entrepot routing`: labs of how events reach subscribers on other nodes."""

from __future__ import annotations

import click

from entrepot.cli.labs import lab_command
from entrepot.lab.systems import ALL_LABS


@click.group()
def routing() -> None:
    """Routing of events over nodes: strategies beside each other. `--runs` is how many events."""


routing.add_command(lab_command(ALL_LABS, "entrepot routing lab strategies"))
