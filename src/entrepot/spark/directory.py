"""What a stopped broker would say of its topics, read from its data directory.

The source plans with this when there is no broker to ask. Topics come from the catalog,
and partitions as the next start of the broker will find them (`log.read_only`).

A broker that runs is asked itself: what it has not committed yet is in its files, too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Self, TypeVar

from kio.schema.errors import ErrorCode

from entrepot.broker.catalog import CATALOG_ID, CATALOG_NAME, INTERNAL_NAMES, Catalog, Topic
from entrepot.client.client import EARLIEST, LATEST, OffsetAt, TopicPartition
from entrepot.client.cluster import PartitionInfo, TopicInfo
from entrepot.client.errors import Refused
from entrepot.core.batch import records
from entrepot.core.errors import Corruption
from entrepot.core.names import PartitionId
from entrepot.log.read_only import ReadOnlyPartition
from entrepot.spark.decoding import Damaged
from entrepot.spark.options import DATA_DIRECTORY, OptionError
from entrepot.spark.segments import isolation_of, open_data_directory

_Result = TypeVar("_Result")
_NOBODY = -1  # Leads.


class Directory:
    """Answers as a client does, in the two things the planner asks; and is its own cluster."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._data = open_data_directory(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._data.close()

    def check(self) -> None:
        """Raise if there is a broker to ask."""
        if self._data.is_in_use():
            raise OptionError(
                f"{DATA_DIRECTORY}: a broker runs on {self._path}; with its address in "
                "kafka.bootstrap.servers, what it has committed is read"
            )

    def run(self, work: Callable[["Directory"], Awaitable[_Result]]) -> _Result:
        async def finish() -> _Result:
            return await work(self)

        self.check()
        return asyncio.run(finish())

    # --- as a client

    @property
    def cluster(self) -> "Directory":
        return self

    async def retry(self, attempt: Callable[[], Awaitable[_Result]]) -> _Result:
        return await attempt()

    async def describe(self, topics: Iterable[str] | None) -> list[TopicInfo | Refused]:
        known = self._catalog().topics
        found: list[TopicInfo | Refused] = []
        for name in known if topics is None else topics:
            topic = known.get(name)
            if topic is None:
                found.append(Refused(ErrorCode.unknown_topic_or_partition, f"topic {name}"))
            else:
                found.append(_described(topic))
        return found

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]:
        catalog = self._catalog()
        return {
            part: self._find(catalog, part, timestamp, committed)
            for part, timestamp in timestamps.items()
        }

    def _find(
        self, catalog: Catalog, part: TopicPartition, timestamp: int, committed: bool
    ) -> OffsetAt:
        identity = PartitionId(catalog.topics[part.topic].id, part.partition)
        partition = self._recovered(identity, part.topic)
        start = catalog.offset_starts.get(identity, 0)
        if partition.offset_start < start <= partition.offset_end:
            partition.offset_start = start
        end = partition.offset_end
        if committed:
            stable = isolation_of(partition).last_stable(end)
            end = max(partition.offset_start, stable)
        if timestamp == LATEST:
            return OffsetAt(end, -1)
        if timestamp == EARLIEST:
            return OffsetAt(partition.offset_start, -1)
        found = partition.offset_for_time(timestamp)
        return OffsetAt(*found) if found is not None and found[0] < end else OffsetAt(-1, -1)

    # --- the files

    def _catalog(self) -> Catalog:
        catalog = Catalog()
        for batch in self._recovered(CATALOG_ID, CATALOG_NAME).batches():
            for record in records(batch):
                catalog.apply(record)
        if not catalog.cluster_id:
            raise Damaged(f"{DATA_DIRECTORY}: {self._path} has no catalog")
        return catalog

    def _recovered(self, identity: PartitionId, topic: str) -> ReadOnlyPartition:
        try:
            return self._data.partition_recovered(identity, topic)
        except Corruption as error:
            raise Damaged(str(error)) from None


def _described(topic: Topic) -> TopicInfo:
    numbers = range(topic.partition_count)
    parts = tuple(PartitionInfo(number, _NOBODY, 0, (), ()) for number in numbers)
    return TopicInfo(topic.name, topic.id, topic.name in INTERNAL_NAMES, parts)
