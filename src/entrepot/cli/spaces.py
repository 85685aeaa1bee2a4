"""`entrepot spaces`: labs of tuple spaces, shared memory and groups."""

from __future__ import annotations

import click

from entrepot.cli.labs import lab_command
from entrepot.lab.spaces import LABS


@click.group()
def spaces() -> None:
    """Tuple spaces, shared memory and groups: what they promise, and what it costs."""


spaces.add_command(lab_command(LABS, "entrepot spaces lab xu-liskov"))
