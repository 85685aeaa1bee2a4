"""`entrepot gossip`: labs of gossip, and a node that gossips with others."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from entrepot.cli.labs import lab_command
from entrepot.cli.nodes import Show, Where, node_options, run_node, shower
from entrepot.cli.talk import json_option
from entrepot.cluster.gossip.agent import Agent, Hooks
from entrepot.cluster.gossip.node import GossipNode
from entrepot.cluster.gossip.swim import Member, MemberState, Settings
from entrepot.cluster.overlay.chord import key_of, packed
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.core.faults import Faults
from entrepot.lab.gossip import LABS
from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import Entry, Event, GroupMessage, MemberUpdate

_STATES = {
    MemberState.ALIVE: "alive",
    MemberState.SUSPECT: "suspected",
    MemberState.DEAD: "dead",
    MemberState.LEFT: "left",
}


@click.group()
def gossip() -> None:
    """Gossip: nodes that each tell a few others, again and again, until all of them know."""


gossip.add_command(lab_command(LABS, "entrepot gossip lab residue --plot residue.png"))


@gossip.command()
@node_options
@click.option("--fact", "facts", metavar="KEY=VALUE", multiple=True, help="To tell all nodes.")
@click.option("--group", "groups", metavar="NAME", multiple=True, help="Groups to be in.")
@click.option("--value", default=0.0, help="What it brings into average, sum, minimum, maximum.")
@json_option
def node(
    where: Where,
    facts: tuple[str, ...],
    groups: tuple[str, ...],
    value: float,
    as_json: bool,
) -> None:
    """Run a node of gossip until Ctrl-C.

    It prints who comes, is suspected, dead or back, and what it is told.

    Each line of standard input is an event that is sent to all nodes; `@NAME TEXT` goes to the
    members of a group, and `?` prints what this node knows.
    """
    show = shower(as_json)
    agent = Agent(
        MemberUpdate(where.node, where.host, where.port, 0, MemberState.ALIVE),
        where.cluster,
        SystemEntropy(),
        secret=where.secret,
        seeds=where.seeds,
        settings=Settings(period_s=where.period_s),
        value=value,
        hooks=Hooks(
            lambda member: show(_member(member)),
            lambda entry: show(_fact(entry)),
            lambda event: show(_event(event)),
            lambda message: show(_group_message(message, groups)),
        ),
    )
    try:
        for fact in facts:
            key, _, told = fact.partition("=")
            agent.put(*_checked(key, told))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    asyncio.run(_run(agent, where, groups, show))


async def _run(agent: Agent, where: Where, groups: tuple[str, ...], show: Show) -> None:
    node = GossipNode(agent, SystemClock(), Faults())

    def begin() -> None:
        for group in groups:
            node.join_group(group)

    await run_node(
        node,
        where,
        show,
        begin=begin,
        take=lambda line: _take(node, line, show),
        end=lambda: _summarise(node, show),
    )


async def _take(node: GossipNode, line: bytes, show: Show) -> None:
    if line == b"?":
        _summarise(node, show)
    elif len(line) > limits.VALUE_BYTES_MAX:
        click.echo(f"an event has at most {limits.VALUE_BYTES_MAX} bytes", err=True)
    elif line.startswith(b"@"):
        group, _, text = line[1:].partition(b" ")
        node.send_to_group(group.decode(errors="replace"), text)
    elif line:
        node.multicast(line)


def _summarise(node: GossipNode, show: Show) -> None:
    """Show what the node knows: members, facts, aggregates, and how many packets it refused."""
    agent = node.agent
    found = agent.aggregation.last or agent.aggregation.found()
    show(
        {
            "what": "summary",
            "members": {str(each.node): _STATES[each.state] for each in node.members()},
            "facts": {
                f"{entry.owner}/{entry.key}": entry.value.decode(errors="replace")
                for entry in agent.store.entries()
            },
            "ring": {"before": agent.chord.before, "after": agent.chord.successors},
            "average": found.average,
            "sum": found.total,
            "count": found.nodes,
            "minimum": found.minimum,
            "maximum": found.maximum,
            "refused": {reason.value: count for reason, count in agent.packets.refused.items()},
        }
    )


def _member(member: Member) -> dict[str, Any]:
    return {
        "what": _STATES[member.state],
        "node": member.node,
        "host": member.host,
        "port": member.port,
        "incarnation": member.incarnation,
    }


def _fact(entry: Entry) -> dict[str, Any]:
    value = entry.value.decode(errors="replace")
    return {"what": "fact", "node": entry.owner, "key": entry.key, "value": value}


def _event(event: Event) -> dict[str, Any]:
    return {"what": "event", "node": event.sender, "body": event.body.decode(errors="replace")}


def _group_message(message: GroupMessage, groups: tuple[str, ...]) -> dict[str, Any]:
    names = {packed(key_of(name)): name for name in groups}
    return {
        "what": "message",
        "group": names.get(message.group),
        "node": message.origin,
        "hops": message.hops,
        "body": message.body.decode(errors="replace"),
    }


def _checked(key: str, value: str) -> tuple[str, bytes]:
    told = value.encode()
    if not 0 < len(key) <= limits.KEY_BYTES_MAX or len(told) > limits.VALUE_BYTES_MAX:
        raise ValueError(
            f"a fact is KEY=VALUE, of at most {limits.KEY_BYTES_MAX} characters and "
            f"{limits.VALUE_BYTES_MAX} bytes"
        )
    return key, told
