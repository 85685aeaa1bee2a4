"""Each strategy by name: the router of one node among others that it knows by their numbers.

All nodes make the same overlay of the same numbers, without a word to each other: a tree, a mesh, a
ring, a space. A node is told only what its strategy needs of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from entrepot.cluster.gossip.framework import Peer
from entrepot.cluster.gossip.peers import Uniform
from entrepot.cluster.overlay.chord import Chord
from entrepot.cluster.overlay.graph import rings, tree
from entrepot.cluster.overlay.zones import ZoneMap, zones_of
from entrepot.cluster.routing.paths import Destinations, GroupTree, LinkMatching, ReversePath
from entrepot.cluster.routing.points import Points
from entrepot.cluster.routing.routers import (
    Deliver,
    Filtering,
    Flat,
    Flooding,
    Hierarchical,
    Informed,
    OnRing,
    Rendezvous,
    Router,
)
from entrepot.core.ports import Entropy

CHILDREN = 3  # Of a node of the tree.
RINGS = 2  # Of the mesh.
WORKERS_MAX = 8


class Place(NamedTuple):
    """Where a node is."""

    me: Peer
    members: Sequence[Peer]  # In order, this node included.
    deliver: Deliver
    entropy: Entropy
    attributes: Sequence[str] = ()  # Of the space in which subscriptions are points.

    def tree(self) -> list[Peer]:
        mine = tree(len(self.members), CHILDREN)[self.members.index(self.me)]
        return [self.members[index] for index in mine]

    def chord(self) -> Chord:
        chord = Chord(self.me)
        chord.arrange(self.members)
        return chord


def _flooding(place: Place) -> Router:
    return Flooding(place.me, place.deliver, rings(place.members, RINGS)[place.me])


def _filtering(place: Place) -> Router:
    return Filtering(place.me, place.deliver, place.tree())


def _advertising(place: Place) -> Router:
    return Filtering(place.me, place.deliver, place.tree(), by_advertisement=True)


def _flat(place: Place) -> Router:
    return Rendezvous(place.me, place.deliver, Flat(place.members))


def _hierarchical(place: Place) -> Router:
    workers = place.members[1 : 1 + WORKERS_MAX] or place.members
    return Rendezvous(place.me, place.deliver, Hierarchical(place.members[0], workers))


def _on_ring(place: Place) -> Router:
    return Rendezvous(place.me, place.deliver, OnRing(place.chord()))


def _informed(place: Place) -> Router:
    others = [peer for peer in place.members if peer != place.me]
    return Informed(place.me, place.deliver, Uniform(others, place.entropy), place.entropy)


def _group_trees(place: Place) -> Router:
    return GroupTree(place.me, place.deliver, place.chord())


def _reverse_paths(place: Place) -> Router:
    return ReversePath(place.me, place.deliver, OnRing(place.chord()))


def _destinations(place: Place) -> Router:
    return Destinations(place.me, place.deliver, place.members)


def _link_matching(place: Place) -> Router:
    return LinkMatching(place.me, place.deliver, place.tree())


def _points(place: Place) -> Router:
    zones = zones_of(len(place.members), 2 * len(place.attributes))
    map_ = ZoneMap(zones, place.members.index(place.me), place.members)
    return Points(place.me, place.deliver, place.attributes, map_)


class Strategy(NamedTuple):
    line: str
    make: Callable[[Place], Router]
    needs_topic: bool = False  # A filter must name one.


STRATEGIES = {
    "flooding": Strategy("everything to everybody, over a mesh", _flooding),
    "filtering": Strategy("where a subscription came from, over a tree", _filtering),
    "advertisements": Strategy("the same, and subscriptions only to publishers", _advertising),
    "hash": Strategy("at the node that a hash of the topic picks", _flat, True),
    "master": Strategy("by a master, at the worker that the hash picks", _hierarchical, True),
    "ring": Strategy("at the node that Chord's ring picks", _on_ring, True),
    "gossip": Strategy("informed gossip", _informed),
    "scribe": Strategy("a tree for each topic, over Chord", _group_trees, True),
    "hermes": Strategy("towards a node of the ring and back along filters", _reverse_paths, True),
    "gryphon": Strategy("by a search tree of all subscriptions, over a tree", _link_matching),
    "medym": Strategy("to destinations that the publisher's node works out", _destinations),
    "meghdoot": Strategy("subscriptions are points, events boxes of a space", _points),
}
