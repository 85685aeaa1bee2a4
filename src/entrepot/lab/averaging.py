"""Labs of what nodes compute together: aggregates, and random samples of each other."""

from __future__ import annotations

import math
from statistics import pstdev, pvariance

from entrepot.cluster.gossip.aggregate import Aggregation
from entrepot.cluster.gossip.framework import Exchange
from entrepot.cluster.gossip.peers import Others, Uniform
from entrepot.cluster.gossip.sampling import PeerSampling
from entrepot.lab.spreading import losing
from entrepot.lab.table import Curve, Picture, Table
from entrepot.lab.world import Rounds, SeededEntropy

FACTOR = 1 / (2 * math.sqrt(math.e))  # What a round leaves of the variance, in theory.


def aggregates(count: int, rounds: int, seed: int, loss: float = 0.0) -> Table:
    """Average, sum, count, minimum and maximum of all nodes' values, as each node sees them."""
    entropy = SeededEntropy(seed)
    values = [float(node) for node in range(count)]
    machines = [
        Aggregation(value, Uniform(Others(count, node), entropy), counts=node == 0)
        for node, value in enumerate(values)
    ]
    world = Rounds(machines, in_turn=True, loses=losing(loss, entropy.random) if loss else None)
    begin = pvariance(values)
    rows = [_row(0, machines, begin, begin)]
    for number in range(1, rounds + 1):
        world.run_round()
        rows.append(_row(number, machines, begin, rows[-1][2]))
    picture = Picture(
        "round",
        "variance of what nodes take for the average",
        (
            Curve("seen", [row[0] for row in rows], [row[2] for row in rows]),
            Curve(
                "1 / (2 sqrt e) a round",
                [row[0] for row in rows],
                [begin * FACTOR ** row[0] for row in rows],
                True,
            ),
        ),
        y_is_log=True,
    )
    average, total = sum(values) / count, sum(values)
    return Table(
        "aggregate",
        f"Aggregates of {count} values: average {average:g}, sum {total:g}, count {count}, "
        f"minimum {min(values):g}, maximum {max(values):g}",
        (
            "round",
            "average_at_worst",
            "variance",
            "factor",
            "factor_expected",
            "count_at_worst",
            "sum_at_worst",
            "know_minimum",
            "know_maximum",
        ),
        rows,
        (
            "At worst: at the node that is farthest off. The mean of all stays exact: what one"
            " node adds, another one gives.",
        ),
        (picture,),
    )


def _row(
    number: int, machines: list[Aggregation], begin: float, before: float
) -> tuple[int, float, float, float | None, float, float | None, float | None, int, int]:
    count = len(machines)
    exact = sum(each.mean for each in machines) / count
    variance = pvariance([each.mean for each in machines])
    counts = [each.count for each in machines if each.count is not None]
    totals = [each.total for each in machines if each.total is not None]
    all_count = len(counts) == count
    return (
        number,
        max((each.mean for each in machines), key=lambda mean: abs(mean - exact)),
        variance,
        variance / before if number and before else None,
        FACTOR,
        max(counts, key=lambda each: abs(each - count)) if all_count else None,
        max(totals, key=lambda each: abs(each - exact * count)) if all_count else None,
        sum(each.minimum == 0 for each in machines),
        sum(each.maximum == count - 1 for each in machines),
    )


def sampling(count: int, rounds: int, seed: int, view: int = 20) -> Table:
    """Views of peer sampling from a ring: how random they get, and what becomes of the dead."""
    entropy = SeededEntropy(seed)
    samples = [
        PeerSampling(node, [(node + 1 + i) % count for i in range(view)], entropy, view)
        for node in range(count)
    ]
    world = Rounds([Exchange(each, each) for each in samples])
    rows = []
    for number in range(2 * rounds + 1):
        if number == rounds + 1:
            world.down = dict.fromkeys(range(0, count, 2))
        if number:
            world.run_round()
        if number % 5 == 0 or number == rounds + 1:
            rows.append(_sampled(number, samples, world, view))
    return Table(
        "sampling",
        f"Peer sampling among {count} nodes that begin as a ring; half of them are killed after "
        f"round {rounds}",
        (
            "round",
            "alive",
            "known_by_mean",
            "known_by_deviation",
            "random_expected",
            "links_to_dead",
            "connected",
        ),
        rows,
        (f"A view has {view} nodes. Expected of views drawn at random: the root of {view}.",),
    )


def _sampled(
    number: int, samples: list[PeerSampling], world: Rounds, view: int
) -> tuple[int, int, float, float, float, float, bool]:
    alive = [node for node in range(len(samples)) if node not in world.down]
    known_by = dict.fromkeys(alive, 0)
    dead = links = 0
    for node in alive:
        for peer in samples[node].peers:
            links += 1
            if peer in world.down:
                dead += 1
            else:
                known_by[peer] += 1
    linked: dict[int, list[int]] = {node: [] for node in alive}
    for node in alive:
        for peer in samples[node].peers:
            if peer not in world.down:
                linked[node].append(peer)
                linked[peer].append(node)
    reached, waiting = {alive[0]: None}, [alive[0]]
    while waiting:
        for peer in linked[waiting.pop()]:
            if peer not in reached:
                reached[peer] = None
                waiting.append(peer)
    degrees = list(known_by.values())
    return (
        number,
        len(alive),
        sum(degrees) / len(degrees),
        pstdev(degrees),
        math.sqrt(view),
        dead / links,
        len(reached) == len(alive),
    )
