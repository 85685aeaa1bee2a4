"""A lab of the gossip of well-known systems: one update by each one's policy."""

from __future__ import annotations

from entrepot.cluster.gossip.framework import Stack
from entrepot.cluster.gossip.named import POLICIES, machines_of
from entrepot.cluster.gossip.rumor import RumorMonger
from entrepot.cluster.gossip.store import Store
from entrepot.lab.table import Table
from entrepot.lab.world import Rounds, SeededEntropy

ROUNDS_MAX = 200


def named(count: int, seed: int) -> Table:
    rows = []
    for name, policy in POLICIES.items():
        entropy = SeededEntropy(seed)
        stores = [Store(node) for node in range(count)]
        stacks = [
            Stack(machines_of(policy, store, node, [n for n in range(count) if n != node], entropy))
            for node, store in enumerate(stores)
        ]
        entry = stores[0].put("update", b"1")
        for machine in stacks[0].machines:
            if isinstance(machine, RumorMonger):
                machine.tell(entry)
        world = Rounds(stacks)
        reached = 1
        while reached < count and world.round < ROUNDS_MAX:
            world.run_round()
            reached = sum(store.version(0) for store in stores)
        seconds = world.round * policy.period_s
        messages = sum(world.sent.values()) / count / world.round
        mode, whom, sends = policy.mode.value, policy.selection.value, policy.sending.value
        rows.append((name, whom, mode, sends, reached, world.round, seconds, messages))
    return Table(
        "policies",
        f"One update among {count} nodes, gossiped as in well-known systems",
        (
            "system", "peer", "mode", "what_is_sent", "reached", "rounds", "seconds",
            "messages_per_node_and_round",
        ),
        rows,
        ("Each with the period that its system is known for, or a second.",),
    )  # fmt: skip
