"""`entrepot doctor`: what a broker would suffer from on this machine, and what to do about it.

Each check is a line: ok, warn or bad. It changes nothing, but for a file in the data directory
that it writes, syncs and removes, to measure the disk.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from entrepot.cli.talk import json_option, show_json
from entrepot.config import Config, ConfigError, load

_COLOURS = {"ok": "green", "warn": "yellow", "bad": "red"}


@click.command()
@click.option("--config", "config_file", metavar="FILE", help="Settings, as `serve` takes them.")
@click.option(
    "--data-dir", metavar="DIR", envvar="ENTREPOT_DATA_DIR", help="Where everything is kept."
)
@json_option
def doctor(config_file: str | None, data_dir: str | None, as_json: bool) -> None:
    """Look for what a broker would suffer from on this machine.

    Descriptors, memory, the clock, ports, the data directory and how fast its disk syncs, this
    Python, and for Spark Java and a compiled decoder. Exit code 1 when something is bad.
    """
    from entrepot.cli.doctor_checks import findings

    try:
        config: Config = load(config_file, {"data_dir": data_dir} if data_dir else None)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    is_bad = False
    for found in findings(config, Path(config.data_dir)):
        is_bad = is_bad or found.state == "bad"
        if as_json:
            show_json([found._asdict()])
            continue
        state = click.style(f"{found.state:<5}", fg=_COLOURS[found.state])
        click.echo(f"{state} {found.name:<12} {found.text}")
        if found.advice:
            click.echo(f"{'':<18} {found.advice}")
    if is_bad:
        sys.exit(1)
