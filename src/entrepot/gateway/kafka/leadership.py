"""Who leads a partition.

Alone, this node leads every partition it can read. One that recovery refused has
no leader, and clients ask again until it has; one that merely stopped taking
appends is still led, so that what is committed in it can be read.
"""

from typing import NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from entrepot.broker.stream import Stream
from entrepot.gateway.kafka.context import Context

_NOBODY = BrokerId(-1)


class Leadership(NamedTuple):
    error_code: ErrorCode
    leader_id: BrokerId
    leader_epoch: i32
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]


def leadership_of(context: Context, stream: Stream) -> Leadership:
    epoch = i32(stream.partition.leader_epoch)
    us = BrokerId(context.node_id)
    if stream.partition.refused:
        error = ErrorCode.leader_not_available
        return Leadership(error, _NOBODY, epoch, (us,), (us,), (us,))
    return Leadership(ErrorCode.none, us, epoch, (us,), (us,), ())
