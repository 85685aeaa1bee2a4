"""`entrepot gossip`: labs of gossip, and a node that gossips with others."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import click

from entrepot.cli.labs import lab_command
from entrepot.cli.talk import json_option, show_json
from entrepot.cluster.gossip.agent import Agent, Hooks
from entrepot.cluster.gossip.node import GossipNode
from entrepot.cluster.gossip.swim import Member, MemberState, Settings
from entrepot.cluster.overlay.chord import key_of, packed
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.core.faults import Faults
from entrepot.core.ports import Address
from entrepot.lab.gossip import LABS
from entrepot.net.datagrams import SocketDatagramNet
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
@click.option("--id", "node", type=click.IntRange(0, (1 << 62) - 1), help="Its number; else any.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=0, type=click.IntRange(0, 65_535), help="0 takes any free one.")
@click.option("--join", "seeds", metavar="HOST:PORT", multiple=True, help="Nodes to begin with.")
@click.option("--cluster", default="entrepot", show_default=True, help="Others are not heard.")
@click.option(
    "--secret-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="ENTREPOT_GOSSIP_SECRET_FILE",
    show_envvar=True,
    help="What all nodes know; packets without its seal are dropped.",
)
@click.option("--insecure", is_flag=True, help="Listen to other machines without a secret.")
@click.option(
    "--period", default=1.0, type=click.FloatRange(0.02, 3600), show_default=True, help="Seconds."
)
@click.option("--fact", "facts", metavar="KEY=VALUE", multiple=True, help="To tell all nodes.")
@click.option("--group", "groups", metavar="NAME", multiple=True, help="Groups to be in.")
@click.option("--value", default=0.0, help="What it brings into average, sum, minimum, maximum.")
@json_option
def node(
    node: int | None,
    host: str,
    port: int,
    seeds: tuple[str, ...],
    cluster: str,
    secret_file: Path | None,
    insecure: bool,
    period: float,
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
    if secret_file is None and not insecure and not _is_of_this_machine(host):
        raise click.ClickException(
            f"{host}: other machines may say anything here without --secret-file; --insecure lets "
            "them"
        )
    entropy = SystemEntropy()
    show = _shower(as_json)
    number = entropy.below(1 << 32) if node is None else node
    try:
        agent = Agent(
            MemberUpdate(number, host, port, 0, MemberState.ALIVE),
            cluster,
            entropy,
            secret=None if secret_file is None else secret_file.read_bytes().strip(),
            seeds=[_address(each) for each in seeds],
            settings=Settings(period_s=period),
            value=value,
            hooks=Hooks(
                lambda member: show(_member(member)),
                lambda entry: show(_fact(entry)),
                lambda event: show(_event(event)),
                lambda message: show(_group_message(message, groups)),
            ),
        )
        for fact in facts:
            key, _, told = fact.partition("=")
            agent.put(*_checked(key, told))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{secret_file}: {error.strerror}") from None
    asyncio.run(_run(agent, host, port, groups, show))


async def _run(
    agent: Agent,
    host: str,
    port: int,
    groups: tuple[str, ...],
    show: Callable[[dict[str, Any]], None],
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = GossipNode(agent, SystemClock(), Faults())
    try:
        here = await node.start(SocketDatagramNet(limits.DATAGRAM_BYTES_MAX), host, port)
    except OSError as error:
        raise click.ClickException(f"{host}:{port}: {error.strerror}") from None
    if ip_address(here[0]).is_unspecified:
        raise click.ClickException(f"{host}: others must be told an address at which they reach it")
    show({"what": "ready", "node": agent.swim.me.node, "host": here[0], "port": here[1]})
    for group in groups:
        node.join_group(group)
    lines = asyncio.create_task(_read_lines(node, show))
    ended = loop.create_task(stop.wait())
    try:
        await ended
    finally:
        lines.cancel()
        _summarise(node, show)
        node.stop()


async def _read_lines(node: GossipNode, show: Callable[[dict[str, Any]], None]) -> None:
    """Send each line of standard input as an event, where it is a pipe or a terminal."""
    reader = asyncio.StreamReader(limit=64 * 1024)
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    except (OSError, ValueError):
        return
    while line := await _next_line(reader):
        body = line.rstrip(b"\r\n")
        if body == b"?":
            _summarise(node, show)
        elif len(body) > limits.VALUE_BYTES_MAX:
            click.echo(f"an event has at most {limits.VALUE_BYTES_MAX} bytes", err=True)
        elif body.startswith(b"@"):
            group, _, text = body[1:].partition(b" ")
            node.send_to_group(group.decode(errors="replace"), text)
        elif body:
            node.multicast(body)


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """Return a line, or what was read of one that is far too long; nothing at the end."""
    try:
        return await reader.readline()
    except ValueError:
        return bytes(limits.VALUE_BYTES_MAX + 1)  # It is refused as one that is too long.


def _summarise(node: GossipNode, show: Callable[[dict[str, Any]], None]) -> None:
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
            "refused": {reason.value: count for reason, count in agent.refused.items()},
        }
    )


def _shower(as_json: bool) -> Callable[[dict[str, Any]], None]:
    def show(found: dict[str, Any]) -> None:
        if as_json:
            show_json([found])
        else:
            click.echo("  ".join(f"{name} {value}" for name, value in found.items()))
        sys.stdout.flush()

    return show


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


def _is_of_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _checked(key: str, value: str) -> tuple[str, bytes]:
    told = value.encode()
    if not 0 < len(key) <= limits.KEY_BYTES_MAX or len(told) > limits.VALUE_BYTES_MAX:
        raise ValueError(
            f"a fact is KEY=VALUE, of at most {limits.KEY_BYTES_MAX} characters and "
            f"{limits.VALUE_BYTES_MAX} bytes"
        )
    return key, told


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text}: not of the form HOST:PORT")
    return host.strip("[]"), int(port)
