"""Returns the leader of a partition, and the nodes that clients are told of.

A node without a cluster leads every partition that it can read. A partition that recovery refused
has no leader, so clients retry. A partition that stopped, because a write failed, keeps its
leader: its committed records can still be read. In a cluster everybody answers what the
coordinator has, as far as this node knows.
"""

from typing import NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from entrepot.broker.replication import Cluster, Peer
from entrepot.broker.served_partition import ServedPartition
from entrepot.gateway.kafka.context import Context

_NOBODY = BrokerId(-1)


class Leadership(NamedTuple):
    error_code: ErrorCode
    leader_id: BrokerId
    leader_epoch: i32
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]


def leadership_of(context: Context, served: ServedPartition) -> Leadership:
    if context.broker.cluster is not None:
        return _in_cluster(context.broker.cluster, served)
    epoch = i32(served.partition.leader_epoch)
    us = BrokerId(context.node_id)
    if served.partition.refused:
        error = ErrorCode.leader_not_available
        return Leadership(error, _NOBODY, epoch, (us,), (us,), (us,))
    return Leadership(ErrorCode.none, us, epoch, (us,), (us,), ())


def _in_cluster(cluster: Cluster, served: ServedPartition) -> Leadership:
    holders = cluster.holders(served.partition.id)
    if holders is None:
        error = ErrorCode.leader_not_available
        return Leadership(error, _NOBODY, i32(-1), (), (), ())
    leader, epoch, replicas, in_sync = holders[:4]
    alive = {peer.id: None for peer in cluster.peers()}
    is_led = leader in alive
    return Leadership(
        ErrorCode.none if is_led else ErrorCode.leader_not_available,
        BrokerId(leader) if is_led else _NOBODY,
        i32(epoch),
        tuple(map(BrokerId, replicas)),
        tuple(map(BrokerId, in_sync)),
        tuple(BrokerId(node) for node in replicas if node not in alive),
    )


def nodes_of(context: Context) -> list[Peer]:
    """Return the nodes that clients may connect to, with the ports that are as the client's: with
    TLS, or without."""
    if context.broker.cluster is None:
        return [Peer(context.node_id, context.host, context.port, "")]
    return [as_reached(context, peer) for peer in context.broker.cluster.peers()]


def as_reached(context: Context, peer: Peer) -> Peer:
    return peer._replace(port=peer.tls_port) if context.is_tls else peer


def controller_of(context: Context) -> BrokerId:
    """Return the node that clients ask to change topics. In a cluster any of them does it."""
    cluster = context.broker.cluster
    if cluster is None or any(peer.id == context.node_id for peer in cluster.peers()):
        return BrokerId(context.node_id)
    return BrokerId(cluster.controller)
