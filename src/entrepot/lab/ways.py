"""Labs of multicast: one message by every way, Chord's lookups, Scribe's tree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from entrepot.cluster.gossip.framework import Machine, Peer, Sends, Stack
from entrepot.cluster.gossip.peers import Others, Uniform
from entrepot.cluster.gossip.rumor import RumorMonger
from entrepot.cluster.gossip.store import Store
from entrepot.cluster.multicast.forwarding import (
    HOPS_MAX,
    Flooding,
    Forwarding,
    LimitedFlooding,
    RandomWalk,
    Rule,
)
from entrepot.cluster.multicast.replication import Replication
from entrepot.cluster.multicast.scribe import Scribe
from entrepot.cluster.overlay.chord import Chord, Then, key_of, position_of
from entrepot.cluster.overlay.graph import Graph, random_mesh, tree
from entrepot.lab.neighbours import Dissemination
from entrepot.lab.table import Curve, Picture, Table
from entrepot.lab.underlay import Underlay
from entrepot.lab.world import Rounds, SeededEntropy, Timeline
from entrepot.wire.gossip.messages import GroupMessage, GroupSend

GROUP = "a group"
SOURCE = 0
JOINS_PER_ROUND = 8


class Flight:
    """One message on its way over the network below: who sent whom a copy, who has it when."""

    def __init__(self, underlay: Underlay, entropy: SeededEntropy) -> None:
        self.underlay = underlay
        self.transmissions: list[tuple[Peer, Peer]] = []
        self.arrived: dict[Peer, float] = {}
        self.world = Timeline(entropy.random, underlay.delay, self._record)

    def run(self, machines: Sequence[Machine], sends: Sends, end: float = math.inf) -> None:
        for node, machine in enumerate(machines):
            self.world.attach(node, machine)
        self.arrived[SOURCE] = 0.0
        self.world.send(SOURCE, sends)
        self.world.run_until(end)

    def delivered(self, node: Peer) -> Callable[[Any], None]:
        def deliver(message: Any) -> None:
            self.arrived.setdefault(node, self.world.now)

        return deliver

    def row(self, name: str) -> tuple[Any, ...]:
        """Return what it cost, and whom it reached."""
        stress = self.underlay.stress(self.transmissions)
        others = [(host, time) for host, time in self.arrived.items() if host != SOURCE]
        stretch = [time / self.underlay.delay(SOURCE, host) for host, time in others]
        return (
            name,
            len(self.transmissions),
            sum(sender == SOURCE for sender, _ in self.transmissions),
            len(self.arrived),
            max(stress.values(), default=0),
            sum(stress.values()) / max(len(stress), 1),
            sum(stretch) / max(len(stretch), 1),
        )

    def _record(self, sender: Peer, peer: Peer, message: Any) -> bool:
        self.transmissions.append((sender, peer))
        return False


def ways(count: int, seed: int) -> Table:
    """One message from one node to all others, by every way there is."""
    entropy = SeededEntropy(seed)
    underlay = Underlay(count, max(count // 4, 8), entropy)
    mesh = random_mesh(count, 4, entropy)
    rows = [_unicast(underlay, entropy), _native(underlay)]
    for name, graph, rule, ttl in (
        ("a tree of two children", tree(count, 2), Flooding(), HOPS_MAX),
        ("a tree of eight children", tree(count, 8), Flooding(), HOPS_MAX),
        ("a mesh of four, flooded", mesh, Flooding(), HOPS_MAX),
        ("the mesh, flooded for 3 hops", mesh, LimitedFlooding(), 3),
        ("the mesh, flooded for 5 hops", mesh, LimitedFlooding(), 5),
        (f"a random walk of {5 * count} hops", mesh, RandomWalk(entropy), 5 * count),
    ):
        rows.append(_forwarded(underlay, entropy, name, graph, rule, ttl))
    rows += [_scribe(underlay, entropy), _rumor(underlay, entropy)]
    return Table(
        "ways",
        f"One message from one node to {count - 1} others, over a network of "
        f"{max(count // 4, 8)} routers",
        (
            "way", "messages", "at_the_source", "reached", "link_stress_max", "link_stress_mean",
            "stretch",
        ),
        rows,
        (
            "Stress: copies that cross one link. Stretch: delay over that of the shortest path.",
            "The source of unicast sends every copy itself; with an overlay, as many as it has",
            "neighbours; with IP multicast one, and the routers the others.",
        ),
    )  # fmt: skip


def _unicast(underlay: Underlay, entropy: SeededEntropy) -> tuple[Any, ...]:
    flight = Flight(underlay, entropy)
    machines = [Replication(host, flight.delivered(host)) for host in range(underlay.hosts)]
    flight.run(machines, machines[SOURCE].send(b"", range(underlay.hosts)))
    return flight.row("unicast from the source")


def _native(underlay: Underlay) -> tuple[Any, ...]:
    """Return what the routers would make of it: a tree of shortest paths, each link once."""
    crossed = Counter(list(underlay.native_tree(SOURCE)))
    mean = sum(crossed.values()) / len(crossed)
    return ("IP multicast, by the routers", 1, 1, underlay.hosts, max(crossed.values()), mean, 1.0)


def _forwarded(
    underlay: Underlay, entropy: SeededEntropy, name: str, graph: Graph, rule: Rule, ttl: int
) -> tuple[Any, ...]:
    flight = Flight(underlay, entropy)
    machines = [
        Forwarding(host, graph[host], rule, flight.delivered(host))
        for host in range(underlay.hosts)
    ]
    flight.run(machines, machines[SOURCE].send(b"", ttl))
    return flight.row(name)


def _scribe(underlay: Underlay, entropy: SeededEntropy) -> tuple[Any, ...]:
    flight = Flight(underlay, entropy)
    chords, scribes = scribe_nodes(underlay.hosts, flight.delivered)
    members = [scribes[host] for host in range(underlay.hosts)]
    stacks = joined(chords, members, range(underlay.hosts))
    flight.run(stacks, members[SOURCE].send(GROUP, b""))
    return flight.row("Scribe over Chord")


def _rumor(underlay: Underlay, entropy: SeededEntropy) -> tuple[Any, ...]:
    flight = Flight(underlay, entropy)
    count = underlay.hosts
    stores = [Store(host, flight.delivered(host)) for host in range(count)]
    mongers = [
        RumorMonger(
            store, Uniform(Others(count, host), entropy), entropy, k=4, with_feedback=False,
            period_s=10.0,
        )
        for host, store in enumerate(stores)
    ]  # fmt: skip
    mongers[SOURCE].tell(stores[SOURCE].put("update", b""))
    for host, monger in enumerate(mongers):
        flight.world.add(host, monger)
    flight.arrived[SOURCE] = 0.0
    flight.world.run_until(1_000.0)
    return flight.row("a rumor, p_stop = 1/4")


def scribe_nodes(
    count: int, delivered: Callable[[Peer], Callable[[GroupMessage], None]]
) -> tuple[list[Chord], list[Scribe]]:
    chords = [Chord(node) for node in range(count)]
    return chords, [Scribe(chord, delivered(chord.me)) for chord in chords]


def joined(
    chords: Sequence[Chord], scribes: Sequence[Scribe], members: Sequence[Peer], group: str = GROUP
) -> list[Stack]:
    """Make a ring of the nodes, and then a group of the members."""
    stacks = [Stack(pair) for pair in zip(chords, scribes, strict=True)]
    world = Rounds(stacks)
    ring_of(chords, world)
    for node in members:
        world.send(node, scribes[node].join(group))
    for _ in range(5):
        world.run_round()
    return stacks


def ring_of(chords: Sequence[Chord], world: Rounds) -> int:
    """Let nodes join a ring, some in each round; return the rounds until it is settled."""
    for number, chord in enumerate(chords[1:]):
        world.send(chord.me, chord.join(chords[0].me))
        if number % JOINS_PER_ROUND == 0:
            world.run_round()
    return settle(chords, world)


def settle(chords: Sequence[Chord], world: Rounds, rounds_max: int = 200) -> int:
    """Run until everybody knows who comes next, and has looked for all fingers; return rounds."""
    ring = sorted((chord.me for chord in chords if chord.me not in world.down), key=position_of)
    after = dict(zip(ring, ring[1:] + ring[:1], strict=True))
    begin = world.round
    while world.round - begin < rounds_max and any(
        chords[node].successors[:1] != [following] for node, following in after.items()
    ):
        world.run_round()
    settled = world.round - begin
    for _ in range(2 * math.ceil(math.log2(len(ring) + 1)) + 4):
        world.run_round()
    return settled


def lookups(counts: Sequence[int], runs: int, seed: int) -> Table:
    """Hops of Chord's lookups against log2 N."""
    rows = []
    for count in counts:
        entropy = SeededEntropy(seed)
        chords = [Chord(node) for node in range(count)]
        world = Rounds(chords)
        rounds = ring_of(chords, world)
        found: list[tuple[int, Peer, int]] = []
        for number in range(runs):
            key = key_of(f"{seed} {number}")
            asker = chords[entropy.below(count)]
            world.send(asker.me, asker.lookup(key, _noted(found, key)))
        positions = sorted((position_of(node), node) for node in range(count))
        right = sum(
            node == next((n for p, n in positions if p >= key), positions[0][1])
            for key, node, _ in found
        )
        hops = [each for *_, each in found]
        half = math.log2(count) / 2
        rows.append((count, rounds, right / runs, half, sum(hops) / runs, max(hops)))
    ns = [row[0] for row in rows]
    picture = Picture(
        "nodes",
        "hops of a lookup",
        (
            Curve("half of log2 N", ns, [row[3] for row in rows], True),
            Curve("seen, mean", ns, [row[4] for row in rows]),
            Curve("seen, most", ns, [row[5] for row in rows]),
        ),
        x_is_log=True,
    )
    return Table(
        "chord",
        f"Chord: {runs} lookups each",
        ("nodes", "rounds_to_settle", "right", "half_of_log2_N", "hops", "hops_max"),
        rows,
        ("A node also knows its next eight, which saves the last hops of a way.",),
        (picture,),
    )


def _noted(found: list[tuple[int, Peer, int]], key: int) -> Then:
    return lambda node, hops: found.append((key, node, hops))


def scribe_tree(count: int, seed: int) -> Table:
    """The tree of a group with every third node in it."""
    members = [node for node in range(count) if node % 3 == seed % 3]
    got: dict[Peer, int] = {}

    def delivered(node: Peer) -> Callable[[GroupMessage], None]:
        return lambda message: got.__setitem__(node, message.hops)

    chords, scribes = scribe_nodes(count, delivered)
    stacks = joined(chords, scribes, members)
    world = Rounds(stacks)
    source = members[-1]
    world.send(source, scribes[source].send(GROUP, b""))
    root = min(range(count), key=lambda node: (position_of(node) - key_of(GROUP)) % (1 << 64))
    rows: list[tuple[Any, ...]] = []
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        what = "root" if node == root else "member" if node in members else "forwarder"
        children = scribes[node].children(GROUP)
        rows.append(("  " * depth + f"node {node}", what, node in members, len(children), depth))
        waiting += [(child, depth + 1) for child in sorted(children, reverse=True)]
    down = world.sent[GroupMessage]
    return Table(
        "scribe",
        f"The tree of a group: {len(members)} members of {count} nodes; its root is the node "
        "that is responsible for its name",
        ("node", "what", "is_member", "children", "depth"),
        rows,
        (
            f"A message from node {source}: {world.sent[GroupSend]} hops to the root, {down} "
            f"messages down the tree, {len(got)} of {len(members)} members have it.",
        ),
    )


def walks(count: int, runs: int, seed: int) -> Table:
    """Flooding with a hop limit and random walks over the same mesh: reached, for how much."""
    entropy = SeededEntropy(seed)
    mesh = random_mesh(count, 4, entropy)
    rows: list[tuple[Any, ...]] = []
    rules: list[tuple[str, Rule, int]] = [("flooding", Flooding(), HOPS_MAX)]
    rules += [("with a hop limit", LimitedFlooding(), ttl) for ttl in range(1, 8)]
    rules += [("a random walk", RandomWalk(entropy), count * times) for times in (1, 2, 4, 8, 16)]
    for name, rule, ttl in rules:
        found = [Dissemination(mesh, rule, entropy.below(count), ttl) for _ in range(runs)]
        messages = sum(each.messages for each in found) / runs
        reached = sum(each.reached for each in found) / runs
        rows.append((name, None if ttl == HOPS_MAX else ttl, messages, reached, messages / reached))
    return Table(
        "walks",
        f"Over a mesh of {count} nodes with four neighbours, mean of {runs} sources",
        ("way", "hops", "messages", "reached", "messages_per_node"),
        rows,
    )
