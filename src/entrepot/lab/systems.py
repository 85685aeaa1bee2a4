"""Well-known systems of publish/subscribe, as presets: what a subscription says, where brokers are,
and how events are routed.

A preset is the way that events take, not the product. Of the ten in the lectures' table one is not
here: the CORBA Event Service has one server, and is `examples/interaction/event_channel.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from entrepot.cluster.gossip.framework import Peer, Stack
from entrepot.cluster.overlay.chord import Chord
from entrepot.cluster.overlay.graph import tree
from entrepot.cluster.overlay.zones import ZoneMap, zones_of
from entrepot.cluster.routing.paths import Destinations, GroupTree, LinkMatching, ReversePath
from entrepot.cluster.routing.points import Points
from entrepot.cluster.routing.routers import Deliver, OnRing
from entrepot.lab.routing import (
    LABS,
    Maker,
    Model,
    Strategy,
    dealing_room,
    filtering,
    informed,
    run,
)
from entrepot.lab.table import Lab, Table
from entrepot.lab.ways import ring_of
from entrepot.lab.world import Rounds


@dataclass(frozen=True, slots=True)
class Preset:
    model: Model
    brokers: str
    routing: str
    make: Maker


def _group_trees(count: int, seed: int, told: Callable[[Peer], Deliver]) -> Strategy:
    chords = [Chord(node) for node in range(count)]
    ring_of(chords, Rounds(chords))
    routers = [GroupTree(node, told(node), chords[node]) for node in range(count)]
    pairs = zip(chords, routers, strict=True)
    return Strategy(routers, Rounds([Stack((chord, router.scribe)) for chord, router in pairs]))


def _reverse_paths(count: int, seed: int, told: Callable[[Peer], Deliver]) -> Strategy:
    chords = [Chord(node) for node in range(count)]
    ring_of(chords, Rounds(chords))
    routers = [ReversePath(node, told(node), OnRing(chords[node])) for node in range(count)]
    return Strategy(routers, Rounds([Stack(pair) for pair in zip(chords, routers, strict=True)]))


def _destinations(count: int, seed: int, told: Callable[[Peer], Deliver]) -> Strategy:
    routers = [Destinations(node, told(node), range(count)) for node in range(count)]
    return Strategy(routers, Rounds(routers))


def _link_matching(count: int, seed: int, told: Callable[[Peer], Deliver]) -> Strategy:
    graph = tree(count, 3)
    routers = [LinkMatching(node, told(node), graph[node]) for node in range(count)]
    return Strategy(routers, Rounds(routers))


def _points(count: int, seed: int, told: Callable[[Peer], Deliver]) -> Strategy:
    attributes = ("company", "price")
    zones = zones_of(count, 2 * len(attributes))
    routers = [Points(n, told(n), attributes, ZoneMap(zones, n)) for n in range(count)]
    return Strategy(routers, Rounds(routers))


PRESETS = {
    "TIB Rendezvous": Preset(Model.SUBJECT, "distributed", "filtering", filtering),
    "Scribe": Preset(Model.TOPIC, "peer-to-peer, a ring", "rendezvous, a tree", _group_trees),
    "TERA": Preset(Model.TOPIC, "peer-to-peer", "informed gossip", informed),
    "Siena": Preset(Model.CONTENT, "distributed", "filtering with covering", filtering),
    "Gryphon": Preset(Model.CONTENT, "distributed", "parallel search tree", _link_matching),
    "Hermes": Preset(Model.BOTH, "distributed", "rendezvous and filtering", _reverse_paths),
    "MEDYM": Preset(Model.CONTENT, "distributed", "destinations at the publisher", _destinations),
    "Meghdoot": Preset(Model.CONTENT, "peer-to-peer, a space", "points and boxes", _points),
    "Structure-less CBR": Preset(Model.CONTENT, "peer-to-peer", "informed gossip", informed),
}


def systems(count: int, events: int, seed: int) -> Table:
    rows = []
    for name, preset in PRESETS.items():
        load = dealing_room(count, events, seed, preset.model)
        expected = load.expected()
        found = run(preset.make, load, count, seed)
        rows.append(
            (
                name,
                preset.model.value,
                preset.brokers,
                preset.routing,
                sum(found.delivered.values()),
                found.delivered == expected,
                found.set_up,
                found.messages / events,
                found.state_max,
                found.hops,
            )
        )
    return Table(
        "systems",
        f"Systems of the lectures' table, as presets: {events} events on {count} nodes",
        (
            "system",
            "subscriptions",
            "brokers",
            "routing",
            "delivered",
            "as_expected",
            "set_up",
            "per_event",
            "filters_max",
            "hops",
        ),
        rows,
        ("How much is delivered depends on what a subscription can say, not on the routing.",),
    )


ALL_LABS = LABS | {
    "systems": Lab(
        "well-known systems as presets of model, brokers and routing",
        lambda sizes: systems(sizes.nodes_or(60), sizes.runs_or(200), sizes.seed),
    ),
}
