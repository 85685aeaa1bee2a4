"""The labs of multicast by name, with the sizes they have by default."""

from __future__ import annotations

from entrepot.lab import ways
from entrepot.lab.table import Lab

LABS = {
    "ways": Lab(
        "one message to all: unicast, IP multicast, trees, meshes, walks, Scribe",
        lambda sizes: ways.ways(sizes.nodes_or(100), sizes.seed),
    ),
    "walks": Lab(
        "flooding with a hop limit, and random walks",
        lambda sizes: ways.walks(sizes.nodes_or(200), sizes.runs_or(5), sizes.seed),
    ),
    "chord": Lab(
        "lookups in O(log N) hops",
        lambda sizes: ways.lookups(
            sizes.up_to((16, 64, 256, 1_024)), sizes.runs_or(500), sizes.seed
        ),
    ),
    "scribe": Lab(
        "the tree of a group",
        lambda sizes: ways.scribe_tree(sizes.nodes_or(40), sizes.seed),
    ),
}
