"""Run the simulations over many seeds: `python -m sim --seeds 1000`.

A failing seed prints its number; the same number runs the same world again.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import click

from entrepot.core.clock import SystemClock
from entrepot.log.policy import Durability
from sim.cluster_transactions import cluster_transactions
from sim.cluster_world import cluster_world
from sim.consumer_group_world import consumer_groups
from sim.controller_world import controller_world
from sim.crashing_node import crashing_node
from sim.link_world import link_world
from sim.loop import SimLoop, run
from sim.mqtt_world import mqtt_world
from sim.queue_world import queue_world
from sim.sqs_world import sqs_world
from sim.transaction_world import transaction_world

# Each takes the seconds, `sync_is_noop`, the durability, and a `bug`'s name where it has some.
WORLDS: dict[str, Callable[..., Callable[[SimLoop], Coroutine[Any, Any, Any]]]] = {
    "crashing-node": crashing_node,
    "consumer-groups": consumer_groups,
    "transactions": transaction_world,
    "queues": queue_world,
    "mqtt": mqtt_world,
    "links": link_world,
    "sqs": sqs_world,
    "controller": controller_world,
    "cluster": cluster_world,
    "cluster-transactions": cluster_transactions,
}


@click.command()
@click.option("--world", type=click.Choice(list(WORLDS)), default="crashing-node")
@click.option("--seeds", default=100, help="How many seeds.", show_default=True)
@click.option("--first", default=0, help="The first seed.", show_default=True)
@click.option("--seconds", default=6.0, help="Simulated seconds each.", show_default=True)
@click.option(
    "--durability",
    type=click.Choice([str(each) for each in Durability]),
    default=str(Durability.FSYNC),
    show_default=True,
    help="The node's.",
)
@click.option("--lying-disk", is_flag=True, help="Plant a bug: syncing does nothing.")
@click.option("--bug", help="Plant one of the world's own bugs.")
@click.option("--verbose", is_flag=True, help="Show the broker's log.")
def main(
    world: str,
    seeds: int,
    first: int,
    seconds: float,
    durability: str,
    lying_disk: bool,
    bug: str | None,
    verbose: bool,
) -> None:
    """Simulate a node that keeps crashing, and check that it keeps its promises."""
    logging.basicConfig(level=logging.DEBUG if verbose else logging.CRITICAL + 1)
    options: dict[str, Any] = {"bug": bug} if bug else {}
    options |= {"sync_is_noop": lying_disk, "durability": Durability(durability)}
    clock = SystemClock()
    started, failed = clock.monotonic(), 0
    total: Counter[str] = Counter()
    for seed in range(first, first + seeds):
        try:
            result = run(seed, WORLDS[world](seconds, **options))
        except Exception as error:
            failed += 1
            click.echo(f"seed {seed}: {type(error).__name__}: {error}", err=True)
            continue
        total.update({k: v for k, v in result._asdict().items() if isinstance(v, int)})
    took = clock.monotonic() - started
    found = ", ".join(f"{count} {name}" for name, count in total.items())
    click.echo(
        f"{seeds} seeds, {seeds * seconds:.0f} simulated seconds in {took:.0f} s: "
        f"{found}; {failed} seeds failed"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
