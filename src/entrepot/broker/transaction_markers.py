"""Writes the markers that end transactions: where this node leads, and through others elsewhere.

A marker ends whatever its producer has open in a partition. In a cluster a request to write one
may be late: sent again after its connection was lost, or sent by a node that coordinates no more.
By then the producer may have begun its next transaction, in the same epoch. So each attempt has a
higher coordinator epoch, made of the leader epoch of the transaction's state and the number of the
attempt; a partition refuses lower ones than it has had from the producer. For that to hold the
marker is written even where nothing is open: it is the partition's memory of the attempt, moves
with its leader, and tells who waits for the coordinator's word that the transaction has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from entrepot.broker import transaction
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.store import TOPIC as OFFSETS
from entrepot.broker.ports import TopicStorage
from entrepot.broker.replication import NOBODY, Cluster
from entrepot.broker.served_partition import ServedPartition, committed
from entrepot.broker.transaction import Transaction
from entrepot.broker.turns import Turns, gathered
from entrepot.core.errors import FencedCoordinator, FencedProducer, StorageError, UnknownTopic
from entrepot.core.marker import Marker, build_marker
from entrepot.core.names import PartitionId
from entrepot.core.ports import Clock
from entrepot.core.steps import Steps
from entrepot.log.partition import Partition

_ATTEMPT_BITS = 12  # Of a coordinator epoch, which has 31; the others are the leader epoch's.
_ATTEMPT_LAST = 0xFFF


def coordinator_epoch(leader_epoch: int, attempt: int) -> int:
    return leader_epoch << _ATTEMPT_BITS | min(attempt, _ATTEMPT_LAST)


class MarkerWriter:
    cluster: Cluster | None = None  # None means: this node is alone.

    def __init__(
        self,
        topics: TopicStorage,
        turns: Turns,
        clock: Clock,
        ended: Callable[[int, bool, int | None], None],
        check_loaded: Callable[[int], None],
    ) -> None:
        """Make a writer. `ended` is called with (producer id, committed, partition) when a marker
        is permanent in that partition of `__consumer_offsets`; `check_loaded` raises StillLoading
        while the groups of such a partition are not here."""
        self._topics = topics
        self._turns = turns
        self._clock = clock
        self._ended = ended
        self._check_loaded = check_loaded

    def served_at(self, place: TopicPartition) -> list[ServedPartition]:
        """Return the partition in a list, which is empty when the topic was deleted."""
        try:
            return [self._topics.served_partition(self._topics.topic(place.topic), place.partition)]
        except UnknownTopic:
            return []

    async def write(self, prepared: Transaction) -> None:
        """Write markers where the transaction is still open: an earlier attempt may have written
        some. For a node alone."""
        marker = Marker(*prepared.producer, committed=prepared.is_committed)
        data = build_marker(marker, self._clock.now_ms())
        failures: list[StorageError] = []
        partitions: list[Partition] = []

        def write() -> Steps[None]:
            for served in [s for place in prepared.partitions for s in self.served_at(place)]:
                yield
                try:
                    opened = served.isolation.open.get(marker.producer_id)
                    if opened is not None and transaction.ends_open_batches(prepared, opened.epoch):
                        served.write(data)
                    partitions.append(served.partition)
                except StorageError as error:
                    failures.append(error)

        await self._turns.run(write())
        await gathered(committed(each, each.offset_end) for each in partitions)
        if failures:
            raise failures[0]

    # --- in a cluster

    async def write_everywhere(
        self, marker: Marker, places: Iterable[TopicPartition], done: dict[TopicPartition, None]
    ) -> None:
        """Write a marker to partitions of any leaders, and note in `done` where that succeeded.
        Raises StorageError if it has to be tried again."""
        here: list[TopicPartition] = []
        elsewhere: dict[int, list[TopicPartition]] = {}
        failures: list[StorageError] = []
        for place in places:
            if place in done or not self.served_at(place):
                continue
            (served,) = self.served_at(place)
            if served.leads:
                here.append(place)
            else:
                elsewhere.setdefault(self._leader(served.partition.id), []).append(place)

        async def try_here(place: TopicPartition) -> None:
            try:
                await self.write_here(marker, place)
                done[place] = None
            except (FencedProducer, UnknownTopic):
                done[place] = None  # It has ended there, and the next has begun.
            except (FencedCoordinator, StorageError) as error:
                failures.append(StorageError(str(error)))

        async def try_there(node: int, some: Sequence[TopicPartition]) -> None:
            assert self.cluster is not None
            try:
                failed = await self.cluster.write_markers(node, marker, some)
                done.update((place, None) for place in some if place not in failed)
                failures.extend(StorageError(f"{p}: {why}") for p, why in failed.items())
            except StorageError as error:
                failures.append(error)

        await gathered(
            [*map(try_here, here), *(try_there(node, some) for node, some in elsewhere.items())]
        )
        if failures:
            raise failures[0]

    def _leader(self, identity: PartitionId) -> int:
        holders = None if self.cluster is None else self.cluster.holders(identity)
        return NOBODY if holders is None else holders.leader

    async def write_here(self, marker: Marker, place: TopicPartition) -> None:
        """Write a marker to a partition that this node leads; return when that is permanent.

        Raises FencedCoordinator when a later attempt was here before, FencedProducer when the
        producer has a newer epoch, UnknownTopic, StorageError.
        """
        served = self._topics.served_partition(self._topics.topic(place.topic), place.partition)
        served.check_leads()
        is_of_groups = place.topic == OFFSETS
        if is_of_groups:
            self._check_loaded(place.partition)
        known = served.producers.get(marker.producer_id)
        if known is not None and marker.coordinator_epoch < known.coordinator_epoch:
            raise FencedCoordinator(
                f"{served.partition.directory}: producer {marker.producer_id} had a marker of "
                f"coordinator epoch {known.coordinator_epoch}, not {marker.coordinator_epoch}"
            )
        if known is not None and marker.producer_epoch < known.epoch:
            raise FencedProducer(f"producer {marker.producer_id} has epoch {known.epoch}")
        appended = served.write(build_marker(marker, self._clock.now_ms()))
        await committed(served.partition, appended.offset_end)
        if is_of_groups:
            self._ended(marker.producer_id, marker.committed, place.partition)
