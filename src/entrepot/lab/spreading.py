"""Labs of how an update spreads: rounds and messages over N, residues, rumors beside anti-entropy,
failed nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

from entrepot.cluster.gossip.framework import Exchange, Mode, Peer, Stack
from entrepot.cluster.gossip.peers import Others, Uniform, some_of
from entrepot.cluster.gossip.rumor import Interest, RumorMonger
from entrepot.cluster.gossip.store import Reconciliation, Store
from entrepot.lab.table import Curve, Picture, Table
from entrepot.lab.world import Loses, Rounds, SeededEntropy
from entrepot.wire.gossip.messages import Delta, Entries, Entry, Push, PushPull, Reply, Rumor

ROUNDS_MAX = 1_000
_EXCHANGED = (Push, PushPull, Reply)


def residue(k: int) -> float:
    """Return the smaller solution of s = exp(-(k + 1)(1 - s)): what share never hears a rumor."""
    share = 0.0
    while True:
        following = math.exp(-(k + 1) * (1 - share))
        if abs(following - share) < 1e-15:
            return following
        share = following


class Spread:
    """One update among N nodes, and how many have it."""

    def __init__(self, count: int, seed: int) -> None:
        self.entropy = SeededEntropy(seed)
        self.know = 1
        self.carried = 0  # Messages that had the update in them.
        self.stores = [Store(node, self._heard) for node in range(count)]
        self.entry = self.stores[0].put("update", b"1")

    def uniform(self, node: Peer) -> Uniform:
        return Uniform(Others(len(self.stores), node), self.entropy)

    def count(self, sender: Peer, peer: Peer, message: Any) -> bool:
        """Count the messages that have the update in them; lose none."""
        told = message.payload if type(message) in _EXCHANGED else message
        if type(told) in (Entries, Delta) and told.entries:
            self.carried += 1
        return False

    def _heard(self, entry: Entry) -> None:
        self.know += 1


def anti_entropy(count: int, mode: Mode | None, seed: int) -> tuple[int, int, list[int], Spread]:
    """Spread an update to all; `mode` None is push-pull by digests. Return the rounds, all
    messages, how many knew after each round, and the world."""
    spread = Spread(count, seed)
    machines = [
        Reconciliation(store, spread.uniform(node))
        if mode is None
        else Exchange(store, spread.uniform(node), mode)
        for node, store in enumerate(spread.stores)
    ]
    world = Rounds(machines, loses=spread.count)
    known = [1]
    while spread.know < count and world.round < ROUNDS_MAX:
        world.run_round()
        known.append(spread.know)
    return world.round, sum(world.sent.values()), known, spread


def rounds_over_nodes(counts: Sequence[int], seed: int) -> Table:
    """Push-pull to full coverage: rounds against log N, messages against N ln ln N."""
    rows = []
    for count in counts:
        rounds, _, _, spread = anti_entropy(count, Mode.PUSH_PULL, seed)
        per_log = spread.carried / (count * math.log(math.log(count)))
        rows.append(
            (count, rounds, math.log(count), rounds / math.log(count), spread.carried, per_log)
        )
    slope, begin, fit = line([row[2] for row in rows], [row[1] for row in rows])
    expected = [begin + slope * row[2] for row in rows]
    picture = Picture(
        "nodes",
        "rounds until all know",
        (
            Curve("seen", [row[0] for row in rows], [row[1] for row in rows]),
            Curve(f"{begin:.1f} + {slope:.2f} ln N", [r[0] for r in rows], expected, True),
        ),
        x_is_log=True,
    )
    return Table(
        "rounds",
        "Push-pull: O(log N) rounds, O(N ln ln N) messages that carry the update",
        ("nodes", "rounds", "ln_N", "rounds_per_ln_N", "messages", "messages_per_N_ln_ln_N"),
        rows,
        (
            f"rounds = {begin:.2f} + {slope:.2f} ln N, R2 = {fit:.3f}",
            "log2 N is ln N times 1.44: the same order, whichever a lecture writes.",
        ),
        (picture,),
    )


def modes(count: int, seed: int) -> Table:
    """Push, pull, push-pull, and push-pull by digests, to equal stores everywhere."""
    rows, curves = [], []
    names = [*((mode.value, mode) for mode in Mode), ("push-pull by digests", None)]
    for name, mode in names:
        rounds, messages, known, spread = anti_entropy(count, mode, seed)
        equal = all(store.entries() == [spread.entry] for store in spread.stores)
        rows.append((name, rounds, messages, spread.carried, equal))
        curves.append(Curve(name, range(len(known)), [count - each or 0.5 for each in known]))
    return Table(
        "modes",
        f"Anti-entropy among {count} nodes, until all states are equal",
        ("mode", "rounds", "messages", "with_the_update", "equal_states"),
        rows,
        ("Of few that are missing, pull and push-pull leave the square in each round, push 1/e.",),
        (Picture("round", "nodes that do not know", curves, y_is_log=True),),
    )


def rumor_run(count: int, k: int, seed: int, **choices: Any) -> tuple[int, int]:
    """Tell a rumor until nobody is interested; return who never heard it, and the messages."""
    spread = Spread(count, seed)
    machines = [
        RumorMonger(store, spread.uniform(node), spread.entropy, k=k, **choices)
        for node, store in enumerate(spread.stores)
    ]
    world = Rounds(machines)
    machines[0].tell(spread.entry)
    while any(machine.is_active for machine in machines):
        world.run_round()
    return count - spread.know, world.sent[Rumor]


def residues(count: int, runs: int, seed: int, last: int = 7) -> Table:
    """The table of the residue for 1/p_stop = 1 to 7: solved, and seen."""
    rows = []
    for k in range(1, last + 1):
        solved = residue(k)
        # A rumor that dies with its first node says nothing about the others: told once more.
        seen = [rumor_run(count, k, seed * 1_000 + run) for run in range(runs)]
        spread = [missed for missed, _ in seen if missed < count * 0.9]
        mean = sum(spread) / max(len(spread), 1)
        sent = sum(messages for _, messages in seen) / runs / count
        rows.append((k, solved, round(solved * count), mean / count, mean, sent))
    ks = [row[0] for row in rows]
    picture = Picture(
        "1 / p_stop",
        "share of nodes that never hear it",
        (
            Curve("s = exp(-(1/p_stop + 1)(1 - s))", ks, [row[1] for row in rows], True),
            Curve(f"seen, mean of {runs} runs", ks, [row[3] for row in rows]),
        ),
        y_is_log=True,
    )
    return Table(
        "residue",
        f"Rumor mongering among {count} nodes: who never hears it",
        ("k", "residue", "nodes", "residue_seen", "nodes_seen", "messages_per_node"),
        rows,
        (f"k is 1/p_stop. Seen: mean of {runs} runs, push with feedback and coin.",),
        (picture,),
    )


def variants(count: int, runs: int, seed: int, k: int = 2) -> Table:
    """Rumors by coin and counter, with feedback and blind, with a larger fan-out."""
    rows = []
    for interest in Interest:
        for with_feedback in (True, False):
            for fan_out in (1, 2):
                seen = [
                    rumor_run(
                        count,
                        k,
                        seed * 1_000 + run,
                        interest=interest,
                        with_feedback=with_feedback,
                        fan_out=fan_out,
                    )
                    for run in range(runs)
                ]
                missed = sum(each for each, _ in seen) / runs / count
                sent = sum(messages for _, messages in seen) / runs / count
                word = "feedback" if with_feedback else "blind"
                rows.append((interest.value, word, fan_out, missed, sent, math.exp(-sent)))
    return Table(
        "variants",
        f"Rumors among {count} nodes, k = {k}: what is left, for how many messages",
        ("interest", "how", "fan_out", "residue", "messages_per_node", "exp_of_minus_that"),
        rows,
        ("Whatever the variant, m messages a node leave a residue of about exp(-m).",),
    )


def complete(count: int, seed: int, k: int = 2) -> Table:
    """A rumor, and anti-entropy beside it, which reaches those that the rumor has missed."""
    rows = []
    for every in (0, 1, 5):
        spread = Spread(count, seed)
        mongers = [
            RumorMonger(store, spread.uniform(node), spread.entropy, k=k)
            for node, store in enumerate(spread.stores)
        ]
        exchanges = [
            Reconciliation(store, spread.uniform(node)) for node, store in enumerate(spread.stores)
        ]
        both = Rounds([Stack(pair) for pair in zip(mongers, exchanges, strict=True)])
        alone = Rounds(mongers)
        mongers[0].tell(spread.entry)
        rounds = 0
        while spread.know < count and (every or any(each.is_active for each in mongers)):
            rounds += 1
            (both if every and rounds % every == 0 else alone).run_round()
        what = f"with anti-entropy every {every} rounds" if every else "the rumor alone"
        rows.append((what, rounds, spread.know, spread.know / count, both.sent[Delta]))
    return Table(
        "complete",
        f"A rumor (k = {k}) among {count} nodes, alone and with anti-entropy",
        ("what", "rounds", "reached", "share", "repairs"),
        rows,
    )


def failures(count: int, seed: int, shares: Sequence[float] = (0.0, 0.1, 0.3, 0.5)) -> Table:
    """Push-pull while some nodes are down and some messages are lost."""
    rows = []
    for down in shares:
        for lost in (0.0, 0.2):
            spread = Spread(count, seed)
            machines = [
                Exchange(store, spread.uniform(node)) for node, store in enumerate(spread.stores)
            ]
            world = Rounds(machines, loses=losing(lost, spread.entropy.random))
            gone = some_of(range(1, count), int(down * count), spread.entropy)
            world.down = dict.fromkeys(gone)
            alive = count - len(gone)
            while spread.know < alive and world.round < ROUNDS_MAX:
                world.run_round()
            each = sum(world.sent.values()) / alive / max(world.round, 1)
            rows.append((down, lost, alive, spread.know / alive, world.round, each))
    return Table(
        "failures",
        f"Push-pull among {count} nodes, some of them down, some messages lost",
        ("down", "lost", "alive", "reached", "rounds", "messages_per_node_and_round"),
        rows,
        ("Nobody coordinates. What a node sends in a round depends on neither N nor failures.",),
    )


def losing(chance: float, random: Random) -> Loses:
    """Return what loses each message with this chance."""
    return lambda sender, peer, message: random.random() < chance


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """Fit y = begin + slope x by least squares; return slope, begin and R squared."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    over = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    under = sum((a - mean_x) ** 2 for a in x)
    slope = over / under if under else 0.0
    begin = mean_y - slope * mean_x
    left = sum((b - begin - slope * a) ** 2 for a, b in zip(x, y, strict=True))
    whole = sum((b - mean_y) ** 2 for b in y)
    return slope, begin, 1 - left / whole if whole else 1.0
