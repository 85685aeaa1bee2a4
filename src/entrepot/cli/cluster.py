"""`entrepot cluster`: start nodes on this machine, and see what a cluster is doing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import click

from entrepot.cli.talk import bootstrap_option, json_option, progress, show_json, show_table, talk
from entrepot.core.steps import finish

if TYPE_CHECKING:
    from entrepot.client.client import Client
    from entrepot.client.cluster import Broker, PartitionInfo, TopicInfo
    from entrepot.cluster.prefixed import PrefixedCoordinator

Moves: TypeAlias = Mapping[tuple[str, int], Sequence[int]]

_NODES_MAX = 16  # On one machine.
_PORTS_APART = 16  # Node 17 would meet ports of other protocols.
assert _NODES_MAX <= _PORTS_APART
_SHOWN_MAX = 20  # Partitions of one kind; --json has all.
_TOPICS_AT_ONCE = 500
_STEP_S = 0.2
_KNOWN_S_MAX = 30.0


@click.group()
def cluster() -> None:
    """Several nodes that are one broker: start some here, see who does what."""


@cluster.command()
@click.option(
    "--nodes", "count", type=click.IntRange(1, _NODES_MAX), default=3, show_default=True,
    help="How many.",
)  # fmt: skip
@click.option(
    "--data-dir", metavar="DIR", default="cluster", envvar="ENTREPOT_CLUSTER_DIR",
    show_default=True, help="Where everything is kept: a directory for each node, and etcd's.",
)  # fmt: skip
@click.option(
    "--etcd", "etcd_urls", metavar="URL", multiple=True,
    help="Use this etcd, as in http://127.0.0.1:2379; else one is started.",
)  # fmt: skip
@click.option(
    "--first-node", "first", type=click.IntRange(0), default=1, show_default=True,
    help="The number of the first one, where other machines have nodes of the cluster, too.",
)  # fmt: skip
@click.option("--any-ports", is_flag=True, help="Take free ports, and not those people know.")
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True,
    help="A setting of every node, as of entrepot serve.",
)  # fmt: skip
def start(
    count: int,
    data_dir: str,
    etcd_urls: tuple[str, ...],
    first: int,
    any_ports: bool,
    settings: tuple[str, ...],
) -> None:
    """Start a cluster on this machine, until Ctrl-C.

    Or this machine's nodes of one.

    An etcd is started for it, and nodes 1, 2, 3: node 1 listens where a broker alone does (Kafka
    on 9092), each further one on the next port. Kill one, and see what happens.

    With --etcd and --first-node each of several machines runs a few nodes, one for each core.
    """
    from entrepot.cli.local_cluster import LocalCluster, interruptible

    arguments = [word for each in settings for word in ("--set", each)]
    local = LocalCluster(
        Path(data_dir), count, arguments, etcd_urls=etcd_urls, any_ports=any_ports, first=first
    )
    with interruptible() as signals:
        try:
            local.start()
            asyncio.run(_wait_known([node.endpoints["kafka"] for node in local.nodes]))
            show_table(
                {"node": node.number, **node.endpoints, "output": str(node.output)}
                for node in local.nodes
            )
            kafka = ",".join(node.endpoints["kafka"] for node in local.nodes)
            click.echo(f"Kafka's clients: bootstrap.servers={kafka}")
            click.echo("ready; Ctrl-C stops all")
            while not signals and not local.is_over:
                time.sleep(_STEP_S)
                for line in local.news():
                    click.echo(line)
        except KeyboardInterrupt:
            pass
        finally:
            local.stop()
    click.echo("stopped")


async def _wait_known(addresses: list[str]) -> None:
    """Wait until each node knows all: only then can a topic have copies on them."""
    from entrepot.client.client import Client
    from entrepot.client.errors import ClientError
    from entrepot.net.sockets import SocketNet
    from entrepot.wire.kafka.kio_loading import load_kio

    load_kio()
    deadline = time.monotonic() + _KNOWN_S_MAX
    for address in addresses:
        known = 0
        while known < len(addresses) and time.monotonic() < deadline:
            await asyncio.sleep(_STEP_S)
            with contextlib.suppress(ClientError):
                async with Client(SocketNet(), address) as client:
                    await client.cluster.describe([])
                    known = len(client.cluster.brokers)


class Place(NamedTuple):
    """A partition, and how many of its replicas have to be in sync."""

    topic: str
    info: PartitionInfo
    min_in_sync: int

    def row(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "partition": self.info.index,
            "leader": self.info.leader,
            "replicas": list(self.info.replicas),
            "in_sync": list(self.info.in_sync),
            "min_in_sync": self.min_in_sync,
        }


class Seen(NamedTuple):
    """A cluster as one of its nodes tells of it."""

    controller: int
    brokers: list[Broker]
    places: list[Place]


@cluster.command()
@json_option
@bootstrap_option
def status(as_json: bool, bootstrap: str) -> None:
    """Show the nodes, and which partitions lack something.

    Replicas, or a leader.

    Exit code 1 when a partition has no leader: it is neither read nor written.
    """
    seen = talk(bootstrap, _look)
    kinds = _kinds(seen)
    if as_json:
        document = {
            "controller": seen.controller,
            "nodes": list(_nodes(seen)),
            "partitions": len(seen.places),
            **{kind: [place.row() for place in places] for kind, places in kinds.items()},
        }
        show_json([document])
    else:
        show_table(_shown(_nodes(seen)))
        counts = ", ".join(
            f"{len(places)} {kind.replace('_', ' ')}" for kind, places in kinds.items()
        )
        click.echo(f"{len(seen.places)} partitions: {counts}")
        _show_some("offline", kinds["offline"])
        _show_some("under-replicated", kinds["under_replicated"])
    if kinds["offline"]:
        sys.exit(1)


@cluster.command()
@json_option
@bootstrap_option
def nodes(as_json: bool, bootstrap: str) -> None:
    """List the nodes: where they are, what they lead and hold."""
    rows = list(_nodes(talk(bootstrap, _look)))
    if as_json:
        show_json(rows)
    else:
        show_table(_shown(rows))


@cluster.command()
@click.argument("node", type=click.IntRange(0))
@click.option(
    "--coordinator", "urls", metavar="URL", multiple=True, required=True,
    help="Where etcd answers; once for each member.",
)  # fmt: skip
@click.option("--name", default="entrepot", show_default=True, help="The cluster's name in etcd.")
def forget(node: int, urls: tuple[str, ...], name: str) -> None:
    """Let another data directory have a node's number.

    Its own is lost for good.

    What was on that disk alone is lost with it. A node that is alive keeps its number.
    """
    from entrepot.cluster.joining import forget as forget_member
    from entrepot.core.errors import CoordinatorUnavailable

    async def do() -> bool:
        coordinator = _coordinator(urls, name)
        try:
            return await forget_member(coordinator, node)
        finally:
            coordinator.close()

    try:
        is_done = asyncio.run(do())
    except CoordinatorUnavailable as error:
        raise click.ClickException(str(error)) from None
    if not is_done:
        raise click.ClickException(f"the cluster knows no node {node}")
    click.echo(f"the number {node} is free")


def _coordinator(urls: tuple[str, ...], name: str) -> PrefixedCoordinator:
    """Return the cluster's part of an etcd. Raises UsageError."""
    from entrepot.cluster.etcd_coordinator import EtcdCoordinator
    from entrepot.cluster.prefixed import PrefixedCoordinator
    from entrepot.config import coordinator_address
    from entrepot.net.sockets import SocketNet

    addresses = [coordinator_address(each) for each in urls]
    endpoints = [each for each in addresses if each is not None]
    if len(endpoints) < len(urls):
        raise click.UsageError("--coordinator is an address as http://10.0.0.1:2379")
    return PrefixedCoordinator(EtcdCoordinator(SocketNet(), endpoints), f"{name}/")


@cluster.command()
@click.option(
    "--coordinator", "urls", metavar="URL", multiple=True, required=True,
    help="Where etcd answers; once for each member.",
)  # fmt: skip
@click.option("--name", default="entrepot", show_default=True, help="The cluster's name in etcd.")
@click.option("--json", "as_json", is_flag=True, help="A JSON document in each line.")
def watch(urls: tuple[str, ...], name: str, as_json: bool) -> None:
    """Print what happens, until Ctrl-C: first what there is.

    Nodes that come and go, who is the controller, topics and queues that are made and deleted,
    leaders and in-sync sets.
    """
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_watch(urls, name, as_json=as_json))


async def _watch(urls: tuple[str, ...], name: str, *, as_json: bool) -> None:
    from entrepot.cli.cluster_events import Happenings
    from entrepot.core.errors import CoordinatorUnavailable, RevisionCompacted

    coordinator = _coordinator(urls, name)

    def show(happenings: Happenings, key: str, value: bytes | None) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        for event, text, facts in happenings.told(key, value):
            line = json.dumps({"time": at, "event": event, **facts}) if as_json else f"{at} {text}"
            click.echo(line)

    while True:
        happenings = Happenings()
        try:
            snapshot = await coordinator.range("")
            for entry in snapshot.entries:
                show(happenings, entry.key, entry.value)
            following = coordinator.watch("", snapshot.revision + 1)
            with contextlib.closing(following):
                while True:
                    try:
                        events = await following.next()
                    except CoordinatorUnavailable:
                        await asyncio.sleep(_STEP_S)
                        continue
                    # Of one revision the catalog first: it has the names of new partitions' topics.
                    for key, value, _ in sorted(events, key=lambda each: (each.revision, each.key)):
                        show(happenings, key, value)
        except CoordinatorUnavailable as error:
            click.echo(str(error), err=True)
            await asyncio.sleep(1.0)
        except RevisionCompacted:
            click.echo("some was missed; from the beginning:", err=True)


@cluster.command()
@click.argument("place", metavar="TOPIC:PARTITION")
@click.argument("nodes", metavar="NODE,NODE...")
@bootstrap_option
def reassign(place: str, nodes: str, bootstrap: str) -> None:
    """Move a partition to these nodes, the preferred leader first. It is served all the time.

    Returns when it is there: `entrepot cluster reassign orders:0 1,2,4`.
    """
    topic, _, number = place.rpartition(":")
    try:
        partition, target = int(number), [int(node) for node in nodes.split(",")]
    except ValueError:
        raise click.UsageError("as in: entrepot cluster reassign orders:0 1,2,4") from None
    if not topic:
        raise click.UsageError("as in: entrepot cluster reassign orders:0 1,2,4")
    talk(bootstrap, partial(_move_all, moves={(topic, partition): target}))


@cluster.command()
@click.argument("node", type=click.IntRange(0))
@bootstrap_option
def drain(node: int, bootstrap: str) -> None:
    """Move all that a node holds to the others.

    Then it can be taken away.

    Each partition goes to another machine, if there is one, and there to the node that holds
    least. Returns when the node holds nothing.
    """
    talk(bootstrap, partial(_drain, node=node))


async def _drain(client: Client, node: int) -> None:
    from entrepot.broker.held import Stands, moves_off
    from entrepot.broker.virtual_host.queue_maker import LEDGERS
    from entrepot.core.errors import InvalidAssignment

    seen = await _look(client)
    others = {each.id: Stands("", each.host) for each in seen.brokers if each.id != node}
    held = (
        ((each.topic, each.info.index), f"{each.topic}:{each.info.index}", each.info.replicas)
        for each in seen.places
    )
    try:
        moves = finish(moves_off(node, others, held))
    except InvalidAssignment as error:
        raise click.ClickException(str(error)) from None
    ledgers = (LEDGERS, 0)
    if ledgers in moves:  # Queues move with them, to the same nodes.
        await _begin_to_move(client, {ledgers: moves[ledgers]})
    rest = {each: target for each, target in moves.items() if each != ledgers}
    await _begin_to_move(client, rest, but=f"with {LEDGERS}" if ledgers in moves else "")
    await _wait_moved(client, moves, lambda each, replicas: node not in replicas)


async def _move_all(client: Client, moves: Moves) -> None:
    """Move partitions, and wait until they have arrived."""
    await _begin_to_move(client, moves)
    await _wait_moved(client, moves, lambda each, replicas: set(replicas) == set(moves[each]))


async def _begin_to_move(client: Client, moves: Moves, but: str = "") -> None:
    """Let these partitions move. Those that are refused with such a text move by themselves."""
    from entrepot.client.admin import Admin

    failed = await Admin(client).reassign(moves)
    failed = {each: why for each, why in failed.items() if not but or but not in str(why)}
    if failed:
        (topic, number), why = next(iter(failed.items()))
        raise click.ClickException(f"{topic}:{number}: {why} ({len(failed)} not moved)")


async def _wait_moved(
    client: Client, moves: Moves, is_there: Callable[[tuple[str, int], Sequence[int]], bool]
) -> None:
    click.echo(f"{len(moves)} partitions move")
    left = [*moves]
    with progress(len(moves)) as advance:
        while left:
            await asyncio.sleep(_STEP_S)
            places = (await _look(client)).places
            seen = {(place.topic, place.info.index): place.info.replicas for place in places}
            there = len(left)
            left = [each for each in left if each in seen and not is_there(each, seen[each])]
            advance(there - len(left))
    click.echo("they are there")


async def _look(client: Client) -> Seen:
    from entrepot.client.admin import Admin
    from entrepot.client.cluster import TopicInfo

    admin = Admin(client)
    topics = [each for each in await admin.describe() if isinstance(each, TopicInfo)]
    minimums: dict[str, int] = {}
    names = sorted(topic.name for topic in topics)
    for first in range(0, len(names), _TOPICS_AT_ONCE):
        found = await admin.settings(names[first : first + _TOPICS_AT_ONCE])
        for name, settings in found.items():
            values = {each.name: each.value for each in settings}
            minimums[name] = int(values.get("min.insync.replicas") or 1)
    places = [place for topic in topics for place in _places(topic, minimums)]
    places.sort(key=lambda place: (place.topic, place.info.index))
    brokers = sorted(client.cluster.brokers.values())
    return Seen(client.cluster.controller, brokers, places)


def _places(topic: TopicInfo, minimums: dict[str, int]) -> Iterable[Place]:
    for partition in topic.partitions:
        yield Place(topic.name, partition, minimums.get(topic.name, 1))


def _kinds(seen: Seen) -> dict[str, list[Place]]:
    """Return the partitions that somebody should know of, by what is wrong; as Kafka's tools
    count them."""
    alive = {broker.id for broker in seen.brokers}
    kinds: dict[str, list[Place]] = {
        "offline": [], "under_replicated": [], "under_min_in_sync": [], "at_min_in_sync": [],
    }  # fmt: skip
    for place in seen.places:
        count = len(place.info.in_sync)
        if place.info.leader not in alive:
            kinds["offline"].append(place)
        if count < len(place.info.replicas):
            kinds["under_replicated"].append(place)
        if count < place.min_in_sync:
            kinds["under_min_in_sync"].append(place)
        if count == place.min_in_sync:
            kinds["at_min_in_sync"].append(place)
    return kinds


def _nodes(seen: Seen) -> Iterable[dict[str, object]]:
    """Yield a row for each node, also for those that hold something and are away."""
    addresses = {broker.id: f"{broker.host}:{broker.port}" for broker in seen.brokers}
    holding = {number for place in seen.places for number in place.info.replicas}
    for number in sorted(addresses.keys() | holding):
        held = [place.info for place in seen.places if number in place.info.replicas]
        yield {
            "node": number,
            "address": addresses.get(number),
            "alive": number in addresses,
            "controller": number == seen.controller,
            "leads": sum(info.leader == number for info in held),
            "replicas": len(held),
            "not_in_sync": sum(number not in info.in_sync for info in held),
        }


def _shown(rows: Iterable[dict[str, object]]) -> Iterable[dict[str, object]]:
    for row in rows:
        state = "controller" if row["controller"] else "" if row["alive"] else "away"
        yield {
            "node": row["node"], "address": row["address"] or "-", "": state,
            "leads": row["leads"], "replicas": row["replicas"], "not in sync": row["not_in_sync"],
        }  # fmt: skip


def _show_some(title: str, places: list[Place]) -> None:
    if places:
        click.echo(f"{title}:")
        show_table(
            {key: str(value) if isinstance(value, list) else value for key, value in each.items()}
            for each in (place.row() for place in places[:_SHOWN_MAX])
        )
    if len(places) > _SHOWN_MAX:
        click.echo(f"and {len(places) - _SHOWN_MAX} more")
