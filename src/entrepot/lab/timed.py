"""Labs in which time passes: bimodal multicast, and failure detection in the way of SWIM."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from entrepot.cluster.gossip.bimodal import DIGEST_PERIOD_S, Bimodal
from entrepot.cluster.gossip.framework import Peer
from entrepot.cluster.gossip.peers import Others, Uniform, some_of
from entrepot.cluster.gossip.swim import Member, MemberState, Settings, Swim
from entrepot.lab.spreading import losing
from entrepot.lab.table import Curve, Picture, Table
from entrepot.lab.world import SeededEntropy, Timeline
from entrepot.wire.gossip.messages import Event, MemberUpdate

DELAY_S = 0.001  # A message takes once to three times as long.
TENTHS = 10


def bimodal(
    count: int,
    events: int,
    seed: int,
    *,
    loss: float = 0.1,
    crash: float = 0.3,
    rounds: int = 5,
) -> Table:
    """How many deliver an event whose sender may fail in the middle, and when they do."""
    shares: Counter[int] = Counter()
    waits: list[float] = []
    entropy = SeededEntropy(seed)
    for _ in range(events):
        found = _one_event(count, entropy, loss, crash, rounds)
        shares[math.ceil(len(found) * TENTHS / count)] += 1
        waits += found
    slots = Counter(round(wait / (DIGEST_PERIOD_S / 2)) for wait in waits)
    at_once = sum(1 for wait in waits if wait <= 5 * DELAY_S)
    rows = [
        (f"{10 * (tenth - 1)} to {10 * tenth} %", shares[tenth], shares[tenth] / events)
        for tenth in range(1, TENTHS + 1)
    ]
    tenths = range(1, TENTHS + 1)
    return Table(
        "bimodal",
        f"Bimodal multicast to {count} nodes: {events} events, {loss:.0%} of all messages lost, "
        f"{crash:.0%} of the senders fail in the middle",
        ("nodes_that_deliver", "events", "share"),
        rows,
        (
            "Almost all or almost none: the lectures expect two modes and nothing between.",
            f"Latency: {at_once / len(waits):.0%} of the deliveries by the multicast, within "
            f"{5 * DELAY_S * 1000:.0f} ms; the others by repair, in rounds of "
            f"{DIGEST_PERIOD_S * 1000:.0f} ms.",
        ),
        (
            Picture(
                "share of nodes that deliver, in tenths",
                "events",
                (Curve("seen", tenths, [shares[tenth] for tenth in tenths]),),
                are_bars=True,
            ),
            Picture(
                "time until delivery, s",
                "deliveries",
                (
                    Curve(
                        "seen",
                        [slot * DIGEST_PERIOD_S / 2 for slot in sorted(slots)],
                        [slots[slot] for slot in sorted(slots)],
                    ),
                ),
                y_is_log=True,
                are_bars=True,
            ),
        ),
    )


def _one_event(
    count: int, entropy: SeededEntropy, loss: float, crash: float, rounds: int
) -> list[float]:
    """Return when each node delivered the event, after it was sent."""
    random = entropy.random
    world = Timeline(random, lambda *_: DELAY_S * (1 + 2 * random.random()), losing(loss, random))
    times: dict[Peer, float] = {}
    machines = [
        Bimodal(
            node,
            Uniform(Others(count, node), entropy),
            _at(times, node),
            rounds=rounds,
        )
        for node in range(count)
    ]
    for node, machine in enumerate(machines):
        world.add(node, machine)
    receivers = some_of(range(1, count), count - 1, entropy)
    sends = list(machines[0].multicast(b"event", receivers, 0.0))
    if random.random() < crash:  # It got so far, and is gone.
        world.down[0] = None
        sends = sends[: entropy.below(10)]
    world.send(0, sends)
    world.run_until(DIGEST_PERIOD_S * rounds * 4)
    return list(times.values())


def _at(times: dict[Peer, float], node: Peer) -> Callable[[Event, float], None]:
    def deliver(event: Event, now: float) -> None:
        times[node] = now

    return deliver


class Cluster:
    """Members that know each other, and when whom they believed to be what."""

    def __init__(self, count: int, seed: int, settings: Settings, loss: float = 0.0) -> None:
        entropy = SeededEntropy(seed)
        random = entropy.random
        self.settings = settings
        self.believed: list[tuple[float, Peer, Peer, MemberState]] = []
        self.world = Timeline(
            random, lambda *_: DELAY_S * (1 + 4 * random.random()), losing(loss, random)
        )
        everybody = [MemberUpdate(node, f"node-{node}", 1, 0, 0) for node in range(count)]
        self.machines = [
            Swim(
                me,
                entropy,
                settings,
                known=[other for other in everybody if other is not me],
                changed=self._told(me.node),
            )
            for me in everybody
        ]
        for node, machine in enumerate(self.machines):
            self.world.add(node, machine)

    def _told(self, observer: Peer) -> Callable[[Member], None]:
        def told(member: Member) -> None:
            self.believed.append((self.world.now, observer, member.node, member.state))

        return told

    def times(self, node: Peer, state: MemberState) -> list[float]:
        """Return when the others came to believe this of a node."""
        return [time for time, _, about, what in self.believed if about == node and what == state]


def detection(counts: Sequence[int], runs: int, seed: int) -> Table:
    """How long until a member that was killed is suspected, dead, and known to be dead."""
    expected = 1 / (1 - math.exp(-1))
    rows = []
    for count in counts:
        found = [_one_death(count, seed * 1_000 + run) for run in range(runs)]
        rows.append((count, expected, *(sum(each) / runs for each in zip(*found, strict=True))))
    ns = [row[0] for row in rows]
    picture = Picture(
        "members",
        "periods",
        (
            Curve("until the first probe that fails: e/(e - 1)", ns, [expected] * len(ns), True),
            Curve("the same, seen", ns, [row[2] for row in rows]),
            Curve("until suspected", ns, [row[3] for row in rows]),
            Curve("until dead", ns, [row[4] for row in rows]),
        ),
        x_is_log=True,
    )
    return Table(
        "swim",
        f"A member is killed: periods until the others know, mean of {runs} runs",
        (
            "members",
            "first_probe_expected",
            "first_probe_seen",
            "suspected",
            "dead",
            "then_all_know_after",
            "messages_per_member_and_period",
        ),
        rows,
        (
            "A period is 1 s. The first probe that fails is expected in period e/(e - 1) = 1.58,",
            "whatever the number of members; so is the load. The time to refute grows with log N.",
        ),
        (picture,),
    )


def _one_death(count: int, seed: int) -> tuple[float, float, float, float, float]:
    """Kill a member. Return the period of the first probe that fails, the periods until it is
    suspected and dead, until all know, and the messages of each member in a period before."""
    cluster = Cluster(count, seed, Settings())
    world = cluster.world
    killed_at = 3 + world.random.random()
    world.run_until(killed_at)
    load = sum(world.sent.values()) / count / killed_at
    world.down[0] = None
    world.run_until(killed_at + 8 + 2 * cluster.machines[1].suspicion_s)
    suspected = min(cluster.times(0, MemberState.SUSPECT)) - killed_at
    deaths = cluster.times(0, MemberState.DEAD)
    first = math.ceil(suspected - cluster.settings.period_s)
    return first, suspected, min(deaths) - killed_at, max(deaths) - min(deaths), load


def mistakes(count: int, seed: int, seconds: float = 60.0) -> Table:
    """Who is suspected although alive, when messages get lost, and whether it refutes in time."""
    rows = []
    for loss in (0.0, 0.05, 0.1, 0.2, 0.3):
        cluster = Cluster(count, seed, Settings(), loss)
        cluster.world.run_until(seconds)
        nodes = len({n for _, _, n, what in cluster.believed if what == MemberState.SUSPECT})
        dead = len({n for _, _, n, what in cluster.believed if what == MemberState.DEAD})
        alive = sum(
            member.state == MemberState.ALIVE
            for machine in cluster.machines
            for member in machine.members()
        )
        rows.append((loss, nodes, dead, alive / count**2))
    return Table(
        "mistakes",
        f"{count} members, all alive for {seconds:.0f} periods, some messages lost",
        ("lost", "ever_suspected", "ever_declared_dead", "believed_alive_at_the_end"),
        rows,
        ("Indirect probes find most of them, refutation the others.",),
    )
