"""Run the simulations over many seeds: `python -m entrepot.sim --seeds 1000`.

A failing seed prints its number; the same number runs the same world again.
"""

from __future__ import annotations

import logging
import sys

import click

from entrepot.core.clock import SystemClock
from entrepot.sim.crashing_node import Result, crashing_node
from entrepot.sim.loop import run


@click.command()
@click.option("--seeds", default=100, help="How many seeds.", show_default=True)
@click.option("--first", default=0, help="The first seed.", show_default=True)
@click.option("--seconds", default=6.0, help="Simulated seconds each.", show_default=True)
@click.option("--lying-disk", is_flag=True, help="Plant a bug: syncing does nothing.")
@click.option("--verbose", is_flag=True, help="Show the broker's log.")
def main(seeds: int, first: int, seconds: float, lying_disk: bool, verbose: bool) -> None:
    """Simulate a node that keeps crashing, and check that it keeps its promises."""
    logging.basicConfig(level=logging.DEBUG if verbose else logging.CRITICAL + 1)
    clock = SystemClock()
    started, failed = clock.monotonic(), 0
    total = Result(0, 0, 0, 0, "")
    for seed in range(first, first + seeds):
        try:
            result = run(seed, crashing_node(seconds, sync_is_noop=lying_disk))
        except Exception as error:
            failed += 1
            click.echo(f"seed {seed}: {type(error).__name__}: {error}", err=True)
            continue
        sums = [a + b for a, b in zip(total[:4], result[:4], strict=True)]
        total = Result(sums[0], sums[1], sums[2], sums[3], "")
    took = clock.monotonic() - started
    click.echo(
        f"{seeds} seeds, {seeds * seconds:.0f} simulated seconds in {took:.0f} s: "
        f"{total.acked} records acknowledged, {total.reads} read, {total.crashes} crashes, "
        f"{total.faults} disk faults; {failed} seeds failed"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
