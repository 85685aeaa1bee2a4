"""`python -m tests.cluster.harness`: break a real cluster, over and over, and check its promises.

Processes of `entrepot serve` and a real etcd on loopback; clients of Kafka, AMQP and MQTT under
load. In each round one thing goes wrong, or two at once: a node is killed (-9), stopped (SIGSTOP),
cut off from the others or from etcd, one way or both; etcd is stopped or killed. Then all of it
goes on, until every replica is in sync again. In the end the log is read and compared with what
the clients were promised and shown: see `history`. The exit code is 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka.admin import NewTopic

from tests.cluster.history import Found, History, tally
from tests.cluster.load import (
    PARTITIONS,
    PLAIN,
    QUEUE,
    TRANSACTIONAL,
    Client,
    Publisher,
    Reader,
    Settled,
    Settler,
    Transactor,
    Writer,
    drain,
    read_all,
)
from tests.cluster.mqtt_load import MqttPublisher, MqttSubscriber
from tests.cluster.world import HEAL_S_MAX, Node, World

SETTINGS = {
    "cluster.session_timeout_ms": 2_000,
    "cluster.replica_lag_time_max_ms": 2_000,
    "cluster.min_insync_replicas": 2,
    "cluster.queues": True,
}
_ALONE = ("kill", "stop")
_OF_A_NODE = ("kill", "kill", "stop", "stop", "cut", "cut", "one way", "etcd cut")
_OF_ETCD = ("etcd stop", "etcd kill")
_TWO_AT_ONCE = 0.2  # How often.
_ETCD_TOO = 0.1

Fault = Callable[[World, Node, Random], object]

FAULTS: dict[str, Fault] = {
    "kill": lambda world, node, chance: world.kill(node),
    "stop": lambda world, node, chance: world.stop(node),
    "cut": lambda world, node, chance: world.proxies.isolate(node.name, world.names),
    "one way": lambda world, node, chance: world.proxies.cut(
        *chance.sample([each.name for each in world.nodes], 2)
    ),
    "etcd cut": lambda world, node, chance: world.cut_off_from_etcd(node),
    "etcd stop": lambda world, node, chance: world.stop_etcd(),
    "etcd kill": lambda world, node, chance: world.kill_etcd(),
}


@dataclass
class Outcome:
    rounds: Counter[str] = field(default_factory=Counter)
    history: History = field(default_factory=History)
    confirmed: int = 0
    mqtt_confirmed: int = 0
    settled: Settled = field(default_factory=Settled)
    found: list[Found] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)  # What did not heal, clients that failed.

    @property
    def is_good(self) -> bool:
        return not self.found and not self.troubles

    def text(self) -> str:
        history = self.history
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.rounds.items()))
        counts = ", ".join(f"{kind} {count}" for kind, count in tally(self.found).items())
        lines = [
            f"faults: {faults}",
            f"records sent {len(history.sent)}, acknowledged {len(history.acknowledged)}, "
            f"transactions committed {len(history.committed)}, "
            f"records aborted {len(history.aborted)}, seen {len(history.seen)}, "
            f"AMQP confirms {self.confirmed}, deliveries {self.settled.seen_count}, "
            f"settled {len(self.settled.settled)}, MQTT confirms {self.mqtt_confirmed}",
            counts,
            *(f"  {each.kind}: {each.what}" for each in self.found[:50]),
            *(f"  {trouble}" for trouble in self.troubles),
            "as promised" if self.is_good else "NOT as promised",
        ]
        return "\n".join(lines)


def run(
    directory: Path,
    *,
    rounds: int,
    nodes: int = 3,
    seed: int = 0,
    fault_s: float = 3.0,
    with_queues: bool = True,
    with_transactions: bool = True,
    faults: Sequence[str] = (),
    say: Callable[[str], object] = lambda line: None,
) -> Outcome:
    """Run so many rounds. Return what came of it."""
    outcome, chance = Outcome(), Random(seed)
    with World(directory, nodes, SETTINGS if nodes > 1 else {}) as world:
        topics = [PLAIN, TRANSACTIONAL]
        _create(world, nodes)
        outcome.troubles += filter(None, [world.wait_healed(topics)])
        clients = _clients(
            world,
            outcome.history,
            outcome.settled,
            with_queues=with_queues,
            with_transactions=with_transactions,
        )
        subscriber = _mqtt(world, outcome.history, clients) if with_queues else None
        for client in clients:
            client.start()
        outcome.troubles += filter(None, [_wait_progress(outcome.history, clients)])
        for number in range(1, rounds + 1):
            begun = time.monotonic()
            names = _break(world, chance, faults)
            outcome.rounds.update(names)
            time.sleep(chance.uniform(0.3, fault_s))
            world.heal()
            wrong = world.wait_healed(topics) or _wait_progress(outcome.history, clients)
            took = time.monotonic() - begun
            say(f"round {number}: {', '.join(names)}, {took:.1f} s {wrong}")
            if wrong:
                outcome.troubles.append(f"round {number} ({', '.join(names)}): {wrong}")
                break
        for client in clients:
            client.ending.set()
        for client in clients:
            client.join(150)
            if client.is_alive() or client.failure is not None:
                outcome.troubles.append(f"{client.name}: {client.failure or 'does not end'}")
        outcome.found = outcome.history.check(read_all(world.bootstrap))
        if with_queues:
            _check_queue(world, clients, outcome)
        if subscriber is not None:
            _check_mqtt(subscriber, clients, outcome)
    return outcome


def _wait_progress(history: History, clients: Sequence[Client]) -> str:
    """Wait until every kind of client has got on; return which have not when that takes long."""

    def counts() -> dict[str, int]:
        found = {"acknowledged": len(history.acknowledged), "seen": len(history.seen)}
        if any(isinstance(client, Transactor) for client in clients):
            found["committed"] = len(history.committed)
        for client in clients:
            if isinstance(client, Publisher | MqttPublisher):
                found[client.name] = len(client.confirmed)
        return found

    before, deadline = counts(), time.monotonic() + HEAL_S_MAX
    while stuck := [name for name, count in counts().items() if count <= before[name]]:
        if time.monotonic() > deadline:
            return f"no progress of {', '.join(stuck)}"
        time.sleep(0.1)
    return ""


def _create(world: World, nodes: int) -> None:
    copies = min(nodes, 3)
    settings = {"min.insync.replicas": "2"} if copies > 2 else {}
    admin = world.admin()
    made = admin.create_topics(
        [NewTopic(name, PARTITIONS, copies, config=settings) for name in (PLAIN, TRANSACTIONAL)]
    )
    for future in made.values():
        future.result(30)


def _clients(
    world: World,
    history: History,
    settled: Settled,
    *,
    with_queues: bool,
    with_transactions: bool,
) -> list[Client]:
    clients: list[Client] = [
        *(Writer(world.bootstrap, history, f"writer{n}") for n in range(2)),
        Reader(world.bootstrap, history, "reader"),
    ]
    if with_transactions:
        clients += [Transactor(world.bootstrap, history, f"transactor{n}") for n in range(2)]
    if with_queues:
        for node in world.nodes:
            url = _amqp_url(node)
            clients.append(Publisher(url, history, f"publisher{node.number}"))
            clients.append(Settler(url, history, f"settler{node.number}", settled))
    return clients


def _amqp_url(node: Node) -> Callable[[], str]:
    return lambda: node.broker.amqp_url


def _break(world: World, chance: Random, only: Sequence[str]) -> list[str]:
    """Let something go wrong. Return what."""
    of_a_node = _ALONE if len(world.nodes) == 1 else _OF_A_NODE
    kinds = [kind for kind in of_a_node if not only or kind in only]
    nodes = chance.sample(world.nodes, 2 if _is_double(world, chance) else 1)
    names = [chance.choice(kinds) for _ in nodes] if kinds else []
    for name, node in zip(names, nodes, strict=False):
        FAULTS[name](world, node, chance)
    of_etcd = [kind for kind in _OF_ETCD if not only or kind in only]
    if len(world.nodes) > 1 and of_etcd and (not kinds or chance.random() < _ETCD_TOO):
        names.append(chance.choice(of_etcd))
        FAULTS[names[-1]](world, world.nodes[0], chance)
    return names


def _is_double(world: World, chance: Random) -> bool:
    return len(world.nodes) > 1 and chance.random() < _TWO_AT_ONCE


def _mqtt(world: World, history: History, clients: list[Client]) -> MqttSubscriber:
    """Add publishers of MQTT, on all nodes, to the clients; return a subscriber, which is there."""

    def address(node: Node) -> Callable[[], tuple[str, int]]:
        return lambda: node.broker.endpoints["mqtt"]

    subscriber = MqttSubscriber(address(world.nodes[-1]), history, "subscriber")
    subscriber.begin()
    for node in world.nodes:
        clients.append(MqttPublisher(address(node), history, f"mqtt{node.number}"))
    return subscriber


def _check_mqtt(subscriber: MqttSubscriber, clients: Sequence[Client], outcome: Outcome) -> None:
    """Compare what was answered at QoS 2 with what came to the session."""
    for client in clients:
        if isinstance(client, MqttPublisher):
            subscriber.expected |= client.confirmed
    outcome.mqtt_confirmed = len(subscriber.expected)
    subscriber.ending.set()
    subscriber.join(150)
    if subscriber.failure is not None:
        outcome.troubles.append(f"{subscriber.name}: {subscriber.failure}")
    outcome.found += subscriber.found()


def _check_queue(world: World, clients: Sequence[Client], outcome: Outcome) -> None:
    """Compare what was confirmed with what is in the queue."""
    confirmed = [
        body for client in clients if isinstance(client, Publisher) for body in client.confirmed
    ]
    outcome.confirmed = len(confirmed)
    there = drain(world.nodes[0].broker.amqp_url)
    settled = outcome.settled
    lost = [body for body in confirmed if body not in there and body not in settled.asked]
    outcome.found += [Found("lost", f"{body!r}, confirmed, of queue {QUEUE}") for body in lost]
    outcome.found += settled.contradictions
    again = [body for body in settled.settled if body in there]
    outcome.found += [Found("dirty", f"{body!r}, settled, is in queue {QUEUE}") for body in again]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=3, help="1: a broker alone")
    parser.add_argument("--seed", type=int, default=0, help="of what goes wrong, and when")
    parser.add_argument("--fault-seconds", type=float, default=3.0, help="at most, for one")
    parser.add_argument("--queues", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--transactions", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--only", nargs="*", default=[], choices=FAULTS, help="these faults")
    parser.add_argument("--directory", type=Path, help="kept; else a temporary one")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="entrepot-cluster-") as temporary:
        outcome = run(
            chosen.directory or Path(temporary),
            rounds=chosen.rounds,
            nodes=chosen.nodes,
            seed=chosen.seed,
            fault_s=chosen.fault_seconds,
            with_queues=chosen.queues,
            with_transactions=chosen.transactions,
            faults=chosen.only,
            say=lambda line: print(line, flush=True),
        )
    print(outcome.text())
    sys.exit(not outcome.is_good)


if __name__ == "__main__":
    main()
