"""What happens in a cluster, as lines: told by the coordinator, in order, with nothing left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from entrepot.cluster.state import (
    CATALOG,
    CONTROLLER,
    HOME,
    NOBODY,
    NODES,
    PARTITIONS,
    Assignment,
    read_assignment,
    read_node,
    read_partition_key,
)

_KINDS = ("topic", "queue")


class Happening(NamedTuple):
    event: str  # As `node-gone`.
    text: str
    facts: dict[str, Any]


class Happenings:
    """Folds what the coordinator has. Topics that are hidden are told by their ids."""

    def __init__(self) -> None:
        self._nodes: dict[int, str] = {}
        self._names: dict[str, str] = {}  # Of topics and queues, by topic id.
        self._catalog: dict[str, str] = {}  # Topic ids, by key.
        self._assignments: dict[str, Assignment] = {}

    def told(self, key: str, value: bytes | None) -> Iterator[Happening]:
        """Take in a change; yield what that means for people."""
        if key.startswith(NODES):
            yield from self._node(int(key.removeprefix(NODES)), value)
        elif key == CONTROLLER and value is not None:
            number = int(value)
            yield Happening("controller", f"node {number} is the controller", {"node": number})
        elif key == HOME and value is not None:
            number = int(value.split()[0])
            text = f"node {number} is the home of queues"
            yield Happening("queues-home", text, {"node": number})
        elif key.startswith(CATALOG):
            yield from self._shared(key, value)
        elif key.startswith(PARTITIONS):
            yield from self._partition(key, value)

    def _node(self, number: int, value: bytes | None) -> Iterator[Happening]:
        if value is None:
            self._nodes.pop(number, None)
            yield Happening("node-gone", f"node {number} is gone", {"node": number})
        elif number not in self._nodes:
            node = read_node(value)
            self._nodes[number] = address = f"{node.host}:{node.port or node.tls_port}"
            facts = {"node": number, "address": address}
            yield Happening("node-there", f"node {number} is there, at {address}", facts)

    def _shared(self, key: str, value: bytes | None) -> Iterator[Happening]:
        kind, _, name = key.removeprefix(CATALOG).partition(":")
        if kind not in _KINDS:
            return
        if value is None:
            if (identity := self._catalog.pop(key, None)) is not None:
                self._names.pop(identity, None)
                yield Happening(f"{kind}-deleted", f"{kind} {name} is deleted", {kind: name})
            return
        identity, before = json.loads(value)["id"], self._catalog.get(key)
        self._catalog[key], self._names[identity] = identity, name
        verb = "changed" if before == identity else "made"
        yield Happening(f"{kind}-{verb}", f"{kind} {name} is {verb}", {kind: name})

    def _partition(self, key: str, value: bytes | None) -> Iterator[Happening]:
        if value is None:
            self._assignments.pop(key, None)
            return
        before, now = self._assignments.get(key), read_assignment(value)
        self._assignments[key] = now
        topic, number = read_partition_key(key)
        name = self._names.get(str(topic), str(topic))
        facts: dict[str, Any] = {"topic": name, "partition": number}
        if before is None or before.leader != now.leader:
            who = "nobody" if now.leader == NOBODY else f"node {now.leader}"
            text = f"{name}:{number} is led by {who}, epoch {now.leader_epoch}"
            facts |= {"leader": now.leader, "epoch": now.leader_epoch}
            yield Happening("leader", text, facts)
        if before is not None and before.in_sync != now.in_sync:
            text = f"{name}:{number}: in sync are {sorted(now.in_sync)} of {sorted(now.replicas)}"
            yield Happening("in-sync", text, {**facts, "in_sync": list(now.in_sync)})
