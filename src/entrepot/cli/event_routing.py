"""`entrepot routing`: labs of how events reach subscribers on other nodes, and real nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import msgspec

from entrepot.cli.labs import lab_command
from entrepot.cli.nodes import Show, Where, node_options, run_node, shower
from entrepot.cli.talk import json_option, show_json
from entrepot.cluster.gossip.swim import MemberState, Settings
from entrepot.cluster.routing.agent import RoutingAgent
from entrepot.cluster.routing.matching import parse_filter
from entrepot.cluster.routing.messages import Attributes, Publication
from entrepot.cluster.routing.node import RoutingNode
from entrepot.cluster.routing.strategies import STRATEGIES
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.core.faults import Faults
from entrepot.lab.systems import ALL_LABS
from entrepot.wire.gossip.messages import MemberUpdate

PAUSE_S = 0.005  # Before it is looked again whether there is room for an event.

_EVENT = msgspec.json.Decoder(Attributes)
_STRATEGY = click.option(
    "--strategy", default="filtering", show_default=True, type=click.Choice([*STRATEGIES])
)


@click.group()
def routing() -> None:
    """Routing of events over nodes: strategies beside each other, and real nodes.

    Of a laboratory, `--runs` is how many events.
    """


routing.add_command(lab_command(ALL_LABS, "entrepot routing lab strategies"))


@routing.command()
@node_options
@_STRATEGY
@click.option(
    "--subscribe",
    "subscriptions",
    metavar="FILTER",
    multiple=True,
    help="Triples: '{(topic, =, \"bonds\"), (price, <, 80)}'.",
)
@click.option("--advertise", "advertisements", metavar="FILTER", multiple=True)
@click.option(
    "--attributes",
    metavar="NAME,...",
    default="company,price",
    show_default=True,
    help="Of the space of `meghdoot`: all nodes have the same.",
)
@json_option
def node(
    where: Where,
    strategy: str,
    subscriptions: tuple[str, ...],
    advertisements: tuple[str, ...],
    attributes: str,
    as_json: bool,
) -> None:
    """Run a node that routes events, until Ctrl-C.

    It prints what is published that it wants.

    Lines of standard input: `publish {"topic": "bonds", "price": 75}`, `subscribe FILTER`,
    `unsubscribe FILTER`, `advertise FILTER`; and `?` prints what it knows and what it has sent.
    """
    show = shower(as_json)
    clock = SystemClock()
    agent = RoutingAgent(
        # Of two processes with one number, the one that was started later counts.
        MemberUpdate(where.node, where.host, where.port, clock.now_ms(), MemberState.ALIVE),
        where.cluster,
        strategy,
        SystemEntropy(),
        lambda publication: show(_event(publication)),
        secret=where.secret,
        seeds=where.seeds,
        settings=Settings(period_s=where.period_s),
        attributes=attributes.split(",") if strategy == "meghdoot" else (),
    )
    running = RoutingNode(agent, clock, Faults())
    try:
        for each in advertisements:
            running.advertise(parse_filter(each))
        for each in subscriptions:
            running.subscribe(parse_filter(each))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    asyncio.run(
        run_node(
            running,
            where,
            show,
            begin=lambda: None,
            take=lambda line: _take(running, line, show),
            end=lambda: _summarise(running, show),
        )
    )


async def _take(node: RoutingNode, line: bytes, show: Show) -> None:
    """Do what a line says; a mistake in it is told on standard error."""
    try:
        word, _, rest = line.decode().strip().partition(" ")
        match word:
            case "publish":
                event = _EVENT.decode(rest)
                while node.agent.is_busy:  # noqa: ASYNC110  # Nothing says when.
                    await asyncio.sleep(PAUSE_S)
                node.publish(event)
            case "subscribe":
                node.subscribe(parse_filter(rest))
            case "unsubscribe":
                node.unsubscribe(parse_filter(rest))
            case "advertise":
                node.advertise(parse_filter(rest))
            case "?":
                _summarise(node, show)
            case "":
                pass
            case _:
                raise ValueError(f"{word}: neither publish, subscribe, unsubscribe nor advertise")
    except (ValueError, msgspec.MsgspecError) as error:
        click.echo(str(error), err=True)


def _summarise(node: RoutingNode, show: Show) -> None:
    """Show who is there, what was sent of which kind, and how many filters are kept here."""
    agent = node.agent
    show(
        {
            "what": "summary",
            "node": agent.swim.me.node,
            "members": [peer for peer, _ in agent.view],
            "view": f"{agent.view_number:x}",
            "views": agent.views,
            "sent": dict(agent.sent),
            "filters": agent.router.state,
            "waiting": agent.streams.waiting,
            "repeated": agent.streams.repeated,
            "dropped": agent.streams.dropped + agent.malformed,
            "refused": {why.value: count for why, count in agent.packets.refused.items()},
        }
    )


@routing.command()
@click.argument("names", metavar="[STRATEGY]...", nargs=-1, type=click.Choice([*STRATEGIES]))
@click.option("--nodes", default=8, type=click.IntRange(4, 100), show_default=True)
@click.option("--events", default=100, type=click.IntRange(4, 10_000), show_default=True)
@click.option("--seed", default=1, show_default=True, help="Of the dealing room.")
@click.option("--kill", type=click.IntRange(0), help="A node that is killed in the middle.")
@click.option(
    "--period", default=0.25, type=click.FloatRange(0.05, 60), show_default=True, help="Seconds."
)
@json_option
def live(
    names: tuple[str, ...],
    nodes: int,
    events: int,
    seed: int,
    kill: int | None,
    period: float,
    as_json: bool,
) -> None:
    """Compare the strategies between real processes.

    One workload by each of them, on this machine: the table of the lab `strategies`, from what
    really was sent.
    """
    from entrepot.cli.live_routing import Stuck, live_table

    if kill is not None and kill >= nodes:
        raise click.UsageError(f"there are the nodes 0 to {nodes - 1}")
    try:
        table = live_table(names or tuple(STRATEGIES), nodes, events, seed, period, kill)
    except Stuck as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        show_json(table.objects())
    else:
        click.echo(table.text())


def _event(publication: Publication) -> dict[str, Any]:
    node, number = publication.name
    return {
        "what": "event",
        "node": node,
        "number": number,
        "hops": publication.hops,
        "event": dict(publication.event),
    }
