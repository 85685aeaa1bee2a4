"""A cluster, as one of its nodes knows it: who is there, who leads what, what lacks replicas."""

from __future__ import annotations

from typing import Any

from entrepot.broker.held import Held, Stands, moves_off
from entrepot.broker.replication import Cluster
from entrepot.core.errors import InvalidAssignment
from entrepot.core.names import PartitionId
from entrepot.core.steps import Steps
from entrepot.gateway.http.console.paging import Listing, page
from entrepot.gateway.http.management.call import Call, denied
from entrepot.gateway.http.management.fields import bad
from entrepot.wire.http.request import HttpError

Row = dict[str, Any]
_STEP = 100


def _cluster(call: Call) -> Cluster:
    if not call.sees_all:
        raise denied("Not monitor user")
    if call.broker.cluster is None:
        raise HttpError(404, "this broker is alone")
    return call.broker.cluster


async def show(call: Call) -> Row:
    """Show the nodes, with what each leads and holds, and how many partitions lack something."""
    return await call.broker.turns.run(_shown(call, _cluster(call)))


def _shown(call: Call, cluster: Cluster) -> Steps[Row]:
    peers = {each.id: each for each in cluster.peers()}
    alive, problems = set(peers), dict[str, int]()
    counts: dict[int, dict[str, int]] = {}
    total = 0
    for total, place in enumerate(call.broker.held(), 1):
        problem = place.problem(alive)
        if problem is not None:
            problems[problem] = problems.get(problem, 0) + 1
        for node in place.holders.replicas:
            row = counts.setdefault(node, {"leads": 0, "replicas": 0, "not_in_sync": 0})
            row["leads"] += node == place.holders.leader
            row["replicas"] += 1
            row["not_in_sync"] += node not in place.holders.in_sync
        if total % _STEP == 0:
            yield
    nodes = []
    for node in sorted(alive | counts.keys()):
        peer = peers.get(node)
        counted = counts.get(node, {"leads": 0, "replicas": 0, "not_in_sync": 0})
        nodes.append(
            {
                "id": node,
                "address": None if peer is None else f"{peer.host}:{peer.port}",
                "rack": None if peer is None else peer.rack,
                "controller": node == cluster.controller,
                "here": node == call.broker.node_id,
                **counted,
            }
        )
    return {"nodes": nodes, "partitions": total, "problems": problems}


async def list_partitions(call: Call) -> Row:
    """List a page of the partitions and who holds each; with `problems`, those that lack
    something."""
    cluster = _cluster(call)
    alive, has_all = {each.id for each in cluster.peers()}, call.query.get("problems") != "true"
    listing = Listing[Held](
        name=lambda place: f"{place.topic} {place.number}",
        columns={
            "leader": lambda place: place.holders.leader,
            "epoch": lambda place: place.holders.leader_epoch,
            "problem": lambda place: place.problem(alive) or "",
        },
        describe=lambda place: {
            "topic": place.topic,
            "partition": place.number,
            "leader": place.holders.leader,
            "epoch": place.holders.leader_epoch,
            "replicas": list(place.holders.replicas),
            "in_sync": list(place.holders.in_sync),
            "problem": place.problem(alive),
        },
    )
    every = call.broker.held()
    found = (place for place in every if has_all or place.problem(alive) is not None)
    return await call.broker.turns.run(page(found, listing, call.query))


async def drain(call: Call) -> Row:
    """Begin to move all that a node holds to the others; with `preview`, say how much that is."""
    cluster = _cluster(call)
    call.require_administrator()
    node, is_preview = call.fields.number("node"), call.fields.truth("preview")
    others = {each.id: Stands(each.rack, each.host) for each in cluster.peers() if each.id != node}
    held = (
        (
            _partition(call, each),
            f"{each.topic}:{each.number}",
            each.holders.target or each.holders.replicas,
        )
        for each in call.broker.held()
        if not each.holders.moves_with
    )
    try:
        moves = await call.broker.turns.run(moves_off(node, others, held))
    except InvalidAssignment as error:
        raise bad(str(error)) from None
    if not is_preview:
        for partition, replicas in moves.items():
            await cluster.reassign(partition, replicas)
    return {"partitions": len(moves)}


def _partition(call: Call, place: Held) -> PartitionId:
    return PartitionId(call.broker.topic(place.topic).id, place.number)
