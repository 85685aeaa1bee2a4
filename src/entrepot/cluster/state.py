"""What a cluster keeps in its coordinator: nodes, the controller, and who holds each partition.

    nodes/<id>                      a node that is alive; held by its lease
    controller                      the id of the node that decides; held by its lease
    partitions/<topic id>/<number>  replicas, in-sync set, leader and its epoch
    catalog/<kind>:<name>           what all nodes share: topics, queues, users, rules, settings;
                                    the value is that of the record in each node's own catalogue
    queues                          the id of the node that is the home of all queues

The values are JSON, for people with etcd's own tools.
"""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

import msgspec

from entrepot.core.errors import Corruption
from entrepot.core.names import PartitionId

T = TypeVar("T")

NODES = "nodes/"
CONTROLLER = "controller"
PARTITIONS = "partitions/"
CATALOG = "catalog/"
HOME = "queues"
NOBODY = -1


class Node(msgspec.Struct, frozen=True):
    id: int
    host: str
    port: int
    rack: str = ""  # Empty means: none of the others fails with it.
    tls_port: int = 0  # 0 means: there is none; and so for `port`, and the next.
    amqp_port: int = 0
    disk_bytes: int = 0  # How large its disk is; 0 means: that is not known.


class Assignment(msgspec.Struct, frozen=True):
    """Who holds a partition."""

    replicas: tuple[int, ...]  # The preferred leader first.
    in_sync: tuple[int, ...]  # Never empty: those that have all that was committed.
    leader: int  # NOBODY, if none of those in sync is alive.
    leader_epoch: int  # Higher with each change of leader.
    # While it moves: the nodes that will hold it, and those that did. `replicas` has all of them.
    target: tuple[int, ...] = ()
    origin: tuple[int, ...] = ()
    # The key of a partition whose leader should lead this one, too; its own means: whoever leads
    # goes on. Empty means: the first replica should lead.
    led_with: str = ""


def node_key(node: int) -> str:
    return f"{NODES}{node}"


def partition_key(partition: PartitionId) -> str:
    return f"{PARTITIONS}{partition.topic}/{partition.number}"


def read_partition_key(key: str) -> PartitionId:
    """Return the partition of a key. Raises Corruption."""
    topic, _, number = key.removeprefix(PARTITIONS).partition("/")
    try:
        return PartitionId(UUID(topic), int(number))
    except ValueError:
        raise Corruption(f"the coordinator has a key {key!r}") from None


def encode(value: Node | Assignment) -> bytes:
    return msgspec.json.encode(value)


def read_node(value: bytes) -> Node:
    return _read(value, Node)


def read_assignment(value: bytes) -> Assignment:
    return _read(value, Assignment)


def _read(value: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.DecodeError as error:
        raise Corruption(f"the coordinator has {value[:100]!r}: {error}") from None
