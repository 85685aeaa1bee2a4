"""The gossip of well-known systems, as choices of this framework.

Each is what its designers describe, in the words of the parts here; what else a system does with
what it gossips is its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from entrepot.cluster.gossip.framework import Exchange, Machine, Mode, Peer, PeerSelection
from entrepot.cluster.gossip.peers import LeastContacted, Uniform
from entrepot.cluster.gossip.rumor import RumorMonger
from entrepot.cluster.gossip.sampling import PeerSampling, Sampled
from entrepot.cluster.gossip.store import Reconciliation, Store
from entrepot.core.ports import Entropy


class Selection(Enum):
    UNIFORM = "any live node"
    LEAST_CONTACTED = "the least contacted"
    SAMPLE = "a changing sample"


class Sending(Enum):
    EVERYTHING = "all that is known"
    DIGESTS = "digests, then what is missing"
    NEWS = "news only, then digests"


@dataclass(frozen=True, slots=True)
class Policy:
    selection: Selection
    sending: Sending
    mode: Mode
    period_s: float
    what: str  # What is gossiped.


POLICIES = {
    "dynamo": Policy(
        Selection.UNIFORM, Sending.EVERYTHING, Mode.PUSH_PULL, 1.0,
        "who is a member and has which part of the ring",
    ),
    "cassandra": Policy(
        Selection.UNIFORM, Sending.DIGESTS, Mode.PUSH_PULL, 1.0,
        "state and load of all nodes, by generation and version",
    ),
    "s3": Policy(
        Selection.UNIFORM, Sending.EVERYTHING, Mode.PUSH, 1.0,
        "which servers can be reached, to route around the others",
    ),
    "bittorrent": Policy(
        Selection.SAMPLE, Sending.DIGESTS, Mode.PUSH_PULL, 60.0,
        "which peers are in a swarm (peer exchange)",
    ),
    "cockroachdb": Policy(
        Selection.LEAST_CONTACTED, Sending.DIGESTS, Mode.PUSH_PULL, 1.0,
        "addresses of nodes, first ranges, configuration",
    ),
    "fastly": Policy(
        Selection.UNIFORM, Sending.NEWS, Mode.PUSH, 0.1,
        "which objects of the caches are no longer valid (by bimodal multicast there)",
    ),
}  # fmt: skip


def machines_of(
    policy: Policy, store: Store, me: Peer, peers: list[Peer], entropy: Entropy
) -> list[Machine]:
    """Return the machines of one node that gossips its store as this system does."""
    selection: PeerSelection
    machines: list[Machine] = []
    if policy.selection is Selection.SAMPLE:
        sample = PeerSampling(me, peers, entropy)
        machines.append(Exchange(sample, sample, Mode.PUSH_PULL, policy.period_s))
        selection = Sampled(sample, entropy)
    elif policy.selection is Selection.LEAST_CONTACTED:
        selection = LeastContacted(peers, entropy)
    else:
        selection = Uniform(peers, entropy)
    if policy.sending is Sending.EVERYTHING:
        machines.append(Exchange(store, selection, policy.mode, policy.period_s))
    else:
        machines.append(Reconciliation(store, selection, policy.period_s))
    if policy.sending is Sending.NEWS:
        machines.append(RumorMonger(store, selection, entropy, period_s=policy.period_s))
    return machines
