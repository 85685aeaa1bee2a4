"""`entrepot gossip`: labs of gossip, and a node that gossips with others."""

from __future__ import annotations

import click

from entrepot.cli.labs import lab_command
from entrepot.lab.gossip import LABS


@click.group()
def gossip() -> None:
    """Gossip: nodes that each tell a few others, again and again, until all of them know."""


gossip.add_command(lab_command(LABS, "entrepot gossip lab residue --plot residue.png"))
