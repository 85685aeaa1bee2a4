"""Returns the leader of a partition.

A node without a cluster leads every partition that it can read. A partition that recovery refused
has no leader, so clients retry. A partition that stopped, because a write failed, keeps its
leader: its committed records can still be read.
"""

from typing import NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i32

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
    epoch = i32(served.partition.leader_epoch)
    us = BrokerId(context.node_id)
    if served.partition.refused:
        error = ErrorCode.leader_not_available
        return Leadership(error, _NOBODY, epoch, (us,), (us,), (us,))
    return Leadership(ErrorCode.none, us, epoch, (us,), (us,), ())
