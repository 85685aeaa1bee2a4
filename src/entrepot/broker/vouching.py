"""In a cluster: may a batch be part of a transaction? Its coordinator says, which may be elsewhere.

It is asked before the first batch of a transaction in a partition, and adds the partition if the
batch joins by itself (transaction version 2). From then on the transaction is open here until its
marker comes, and nobody is asked. While the answer is on its way the transaction may end: then its
marker was written here, and the answer is worth nothing. Otherwise the batch would stay open for
ever.
"""

from __future__ import annotations

from typing import NamedTuple

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.served_partition import ServedPartition
from entrepot.broker.transaction import ProducerIdentity
from entrepot.broker.transaction_coordinator import TransactionCoordinator
from entrepot.core.errors import NotEnoughReplicas
from entrepot.core.names import PartitionId


class Vouched(NamedTuple):
    """What a coordinator said, and the last marker of the producer when it was asked."""

    partition: PartitionId
    producer: ProducerIdentity
    marker_offset: int


def is_open(served: ServedPartition, producer: ProducerIdentity) -> bool:
    """Return whether this producer has a transaction open in the partition."""
    opened = served.isolation.open.get(producer.id)
    return opened is not None and opened.epoch == producer.epoch


async def vouch(
    transactions: TransactionCoordinator,
    served: ServedPartition,
    place: TopicPartition,
    transactional_id: str,
    producer: ProducerIdentity,
    *,
    joins: bool,
) -> Vouched:
    """Ask the coordinator. Raises what it answers: PeerError, or NotEnoughReplicas to ask again."""
    vouched = Vouched(served.partition.id, producer, served.producers.marker_offset(producer.id))
    await transactions.ask(transactional_id, producer, place, joins=joins)
    return vouched


def check(served: ServedPartition, producer: ProducerIdentity, vouched: Vouched | None) -> None:
    """Raise NotEnoughReplicas, which clients take for: again, unless the transaction is open here
    or the coordinator has vouched for it, and it has not ended since."""
    if is_open(served, producer):
        return
    now = Vouched(served.partition.id, producer, served.producers.marker_offset(producer.id))
    if vouched != now:
        raise NotEnoughReplicas("its coordinator has to be asked about the transaction again")
