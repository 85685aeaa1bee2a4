"""Labs of gossip over an overlay: by chance on nine nodes, and the blind counter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from entrepot.cluster.gossip.framework import Peer
from entrepot.cluster.multicast.forwarding import (
    HOPS_MAX,
    BlindCounter,
    ByChance,
    Flooding,
    Forwarding,
    Rule,
)
from entrepot.cluster.overlay.graph import Graph, random_mesh, scale_free, torus
from entrepot.core.ports import Entropy
from entrepot.lab.table import Curve, Picture, Table
from entrepot.lab.world import Rounds, SeededEntropy
from entrepot.wire.gossip.messages import Carried

SLIDE = (11, 7)  # Messages sent and nodes reached, in the example of the lectures.


class Dissemination:
    """One message over a graph by a rule; what it cost, and whom it reached."""

    def __init__(self, graph: Graph, rule: Rule, source: Peer = 0, ttl: int = HOPS_MAX) -> None:
        self.hops: dict[Peer, int] = {}
        self.machines = [
            Forwarding(node, neighbours, rule, self._delivered(node))
            for node, neighbours in enumerate(graph)
        ]
        world = Rounds(self.machines)
        world.send(source, self.machines[source].send(b"", ttl))
        self.messages = world.sent[Carried]
        self.reached = len(self.hops)
        self.time = max(self.hops.values())

    def _delivered(self, node: Peer) -> Callable[[Carried], None]:
        def deliver(message: Carried) -> None:
            self.hops[node] = message.hops

        return deliver


def nine(runs: int, seed: int, chance: float = 0.5) -> Table:
    """Probabilistic gossip against flooding on nine nodes, over many seeds."""
    graph = torus(3)
    flooded = Dissemination(graph, Flooding())
    entropy = SeededEntropy(seed)
    seen = Counter(
        (found.messages, found.reached)
        for found in (Dissemination(graph, ByChance(chance, entropy)) for _ in range(runs))
    )
    mean_sent = sum(sent * times for (sent, _), times in seen.items()) / runs
    mean_reached = sum(reached * times for (_, reached), times in seen.items()) / runs
    often = [(sent, reached, times) for (sent, reached), times in seen.most_common(8)]
    rows: list[tuple[object, ...]] = [
        ("flooding", float(flooded.messages), float(flooded.reached), 1.0),
        (f"by chance, p = {chance}: mean", mean_sent, mean_reached, 1.0),
        ("the lectures' example", float(SLIDE[0]), float(SLIDE[1]), seen[SLIDE] / runs),
    ]
    rows += [("one of the most frequent", float(s), float(r), t / runs) for s, r, t in often]
    picture = Picture(
        "nodes reached",
        "share of runs",
        (
            Curve(
                f"p = {chance}",
                range(1, 10),
                [sum(t for (_, r), t in seen.items() if r == n) / runs for n in range(1, 10)],
            ),
        ),
        are_bars=True,
    )
    return Table(
        "nine",
        f"Nine nodes of four neighbours: probabilistic gossip and flooding, {runs} runs",
        ("what", "messages", "reached", "share_of_runs"),
        rows,
        ("A torus, three by three. The lectures do not say which graph theirs was.",),
        (picture,),
    )


def counter(count: int, runs: int, seed: int, fan_out: int = 2, times: int = 2) -> Table:
    """Blind counter rumors with B and F against flooding, on two kinds of overlay."""
    makers: dict[str, Callable[[Entropy], Graph]] = {
        "scale-free, 3 links a node": lambda entropy: scale_free(count, 3, entropy),
        "random, 8 neighbours": lambda entropy: random_mesh(count, 8, entropy),
    }
    rows: list[tuple[object, ...]] = [("the lectures", None, None, 0.5, 0.9, 2.0)]
    for name, make in makers.items():
        entropy = SeededEntropy(seed)
        flooded, told = [], []
        for _ in range(runs):
            graph = make(entropy)
            source = entropy.below(count)
            flooded.append(Dissemination(graph, Flooding(), source))
            told.append(Dissemination(graph, BlindCounter(fan_out, times, entropy), source))
        cost = [sum(each.messages for each in found) / runs for found in (flooded, told)]
        reached = sum(each.reached for each in told) / runs / count
        slower = sum(each.time for each in told) / sum(each.time for each in flooded)
        rows.append((name, cost[0], cost[1], cost[1] / cost[0], reached, slower))
    return Table(
        "counter",
        f"Blind counter with B = {fan_out}, F = {times} among {count} nodes, against flooding",
        ("overlay", "flooding", "blind_counter", "of_its_messages", "coverage", "times_slower"),
        rows,
        ("Time is the hops until the last node that is reached has it.",),
    )
