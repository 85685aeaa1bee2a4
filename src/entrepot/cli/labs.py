"""What the lab commands share: which labs, their sizes, tables, JSON and pictures."""

from __future__ import annotations

from collections.abc import Mapping

import click

from entrepot.cli.talk import json_option, show_json
from entrepot.lab.table import Lab, Sizes, Table


def lab_command(labs: Mapping[str, Lab], example: str) -> click.Command:
    """Make the command `lab` for these."""

    @click.command("lab", help=_help(labs, example))
    @click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice([*labs]))
    @click.option("--seed", default=1, show_default=True, help="The same gives the same again.")
    @click.option(
        "--nodes", type=click.IntRange(9, 1_000_000), help="How many; else the lab's own."
    )
    @click.option("--runs", type=click.IntRange(1, 1_000_000), help="To take the mean of.")
    @click.option("--plot", metavar="FILE", help="Draw what was found, as .png, .svg or .pdf.")
    @json_option
    def lab(
        names: tuple[str, ...],
        seed: int,
        nodes: int | None,
        runs: int | None,
        plot: str | None,
        as_json: bool,
    ) -> None:
        tables: list[Table] = []
        for name in names or labs:
            table = labs[name].run(Sizes(seed, nodes, runs))
            if as_json:
                show_json(table.objects())
            else:
                click.echo(("\n" if tables else "") + table.text())
            tables.append(table)
        if plot is not None:
            _draw(tables, plot)

    return lab


def _help(labs: Mapping[str, Lab], example: str) -> str:
    width = max(map(len, labs))
    lines = [f"  {name:<{width}}  {lab.line}" for name, lab in labs.items()]
    return (
        "Run labs.\n\nThey print what the lectures say beside what was seen.\n\n"
        f"Without a name all of them, for example: {example}\n\n\b\n" + "\n".join(lines)
    )


def _draw(tables: list[Table], path: str) -> None:
    from entrepot.lab.plots import save

    try:
        drawn = save(tables, path)
    except ModuleNotFoundError as error:
        remedy = "in a checkout of entrepot, .venv/bin/pip install -e '.[demo]'"
        raise click.ClickException(f"{error.name} is missing: {remedy}") from None
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{path}: {error}") from None
    if not drawn:
        raise click.ClickException("there is nothing to draw in these labs")
