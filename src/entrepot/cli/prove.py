"""`entrepot prove`: every delivery semantics, over every protocol that offers it, with crashes."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import click

from entrepot.cli.talk import json_option, progress, show_json
from entrepot.lab.table import Table
from entrepot.prove.clients import PACKAGES
from entrepot.prove.semantics import OFFERS, PREDICTIONS, PROTOCOLS, Outcome, Semantics, holds


@click.command()
@click.option(
    "--semantics",
    "names",
    multiple=True,
    type=click.Choice([each.value for each in Semantics]),
    help="These only.",
)
@click.option("--protocol", "protocols", multiple=True, type=click.Choice(PROTOCOLS))
@json_option
def prove(names: tuple[str, ...], protocols: tuple[str, ...], as_json: bool) -> None:
    """Send 60 messages under each delivery semantics, and kill everybody meanwhile.

    Each row is a trial with a broker, a producer and a consumer of its own, and the client that
    people use for this protocol. Each of the three is killed with kill -9, where it hurts most.
    Exit code 1 if something comes otherwise than the lectures predict.
    """
    chosen = [
        (semantics, protocol)
        for semantics in Semantics
        for protocol in OFFERS[semantics]
        if (not names or semantics.value in names) and (not protocols or protocol in protocols)
    ]
    if not chosen:
        raise click.UsageError("none of these protocols offers that")
    _need_clients([protocol for _, protocol in chosen])
    from entrepot.prove.trial import Stuck, run

    rows: list[tuple[object, ...]] = []
    failed = 0
    with progress(len(chosen)) as advance:
        for semantics, protocol in chosen:
            try:
                outcome = run(semantics, protocol)
            except Stuck as error:
                raise click.ClickException(f"{semantics.value}, {protocol}: {error}") from None
            is_so = holds(semantics, outcome)
            failed += not is_so
            rows.append(_row(semantics, protocol, outcome, is_so))
            if as_json:
                show_json(_table(rows[-1:]).objects())
            advance(1)
    if not as_json:
        click.echo(_table(rows).text())
    if failed:
        click.echo(f"{failed} of {len(chosen)} predictions do not hold", err=True)
        sys.exit(1)


def _need_clients(protocols: list[str]) -> None:
    missing = [each for each in dict.fromkeys(protocols) if find_spec(PACKAGES[each]) is None]
    if missing:
        raise click.ClickException(
            f"the clients of {', '.join(missing)} are missing: pip install 'entrepot[prove]'"
        )


def _row(semantics: Semantics, protocol: str, outcome: Outcome, is_so: bool) -> tuple[object, ...]:
    return (
        semantics.value,
        protocol,
        outcome.sent,
        len(outcome.delivered),
        outcome.redelivered,
        outcome.came_late,
        outcome.unfinished,
        outcome.lost,
        outcome.duplicated,
        outcome.reordered,
        PREDICTIONS[semantics],
        "yes" if is_so else "NO",
    )


def _table(rows: list[tuple[object, ...]]) -> Table:
    return Table(
        "prove",
        "Producer, consumer and broker are killed with kill -9, once each",
        (
            "semantics", "protocol", "sent", "delivered", "again", "late", "unfinished", "lost",
            "duplicated", "reordered", "predicted", "holds",
        ),
        rows,
        (
            "delivered, again, late: what came to the consumer, once more, and behind a later one.",
            "unfinished: what came and died with the consumer, which had acknowledged it already.",
            "lost: what did not come or is unfinished: sent - (delivered - again) + unfinished.",
            "lost, duplicated, reordered: what the consumer's work left in the end.",
        ),
    )  # fmt: skip
