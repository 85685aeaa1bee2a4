"""What a stopped broker would say of its topics, read from its data directory.

The source plans with this when there is no broker to ask. Topics come from the catalog,
ends from the segments by the rules of recovery, transactions from the same fold that the
broker makes; nothing is mended on the way. Where a start of the broker would have to mend
more than an unfinished write at the end (a journal that knows more than the segments, a
compaction cut short), the answer is to start it once.

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
from entrepot.core.batch import records, walk
from entrepot.core.errors import Corruption
from entrepot.core.names import PartitionId
from entrepot.log import layout
from entrepot.log.checkpoint import read_clean_checkpoint, read_recovery_checkpoint
from entrepot.log.files import FilePool
from entrepot.log.journal import read_journals
from entrepot.log.partition import Partition
from entrepot.log.recovery import (
    bases_in_use,
    check_end,
    check_first,
    check_permanent,
    gap,
    inspect,
    is_first_missing,
)
from entrepot.log.segment import Segment
from entrepot.spark.decoding import Damaged
from entrepot.spark.options import DATA_DIRECTORY, OptionError
from entrepot.spark.segments import isolation_of, open_data_directory, readable

_Result = TypeVar("_Result")
_NOBODY = -1  # Leads.


class Directory:
    """Answers as a client does, in the two things the planner asks; and is its own cluster."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._disk = open_data_directory(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._disk.close()

    def check(self) -> None:
        """Raise if there is a broker to ask."""
        if self._disk.is_locked(layout.LOCK):
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
        partition = self._settled(identity, part.topic)
        start = catalog.offset_starts.get(identity, 0)
        if partition.offset_start < start <= partition.offset_end:
            partition.offset_start = start
        end = partition.offset_end
        if committed:
            stable = isolation_of(self._disk, partition).last_stable(end)
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
        for batch in self._settled(CATALOG_ID, CATALOG_NAME).batches():
            for record in records(batch):
                catalog.apply(record)
        if not catalog.cluster_id:
            raise Damaged(f"{DATA_DIRECTORY}: {self._path} has no catalog")
        return catalog

    def _settled(self, identity: PartitionId, topic: str) -> Partition:
        """A partition as it will be after the next start."""
        directory = layout.partition_directory(topic, identity.number)
        clean = read_clean_checkpoint(self._disk)
        try:
            if clean is not None:
                state = clean.get(identity)
                segments = [each.segment(directory) for each in state.segments] if state else []
                offset_start = state.offset_start if state else 0
            else:
                segments, offset_start = self._recovered(identity, directory), 0
        except Corruption as error:
            raise Damaged(str(error)) from None
        partition = readable(FilePool(self._disk, len(segments) + 1), directory, segments)
        partition.offset_start = max(partition.offset_start, offset_start)
        return partition

    def _recovered(self, identity: PartitionId, directory: str) -> list[Segment]:
        """The segments as far as recovery will keep them. Raises Corruption where it refuses."""
        disk = self._disk
        if disk.exists(f"{directory}/{layout.SWAP}"):
            raise Damaged(f"{directory}: a compaction was cut short; start the broker once")
        point = read_recovery_checkpoint(disk).point(identity)
        segments: list[Segment] = []
        bases = bases_in_use(disk, directory, point)
        if bases and is_first_missing(bases, point):
            check_first(disk, directory, bases, point)
            bases = []
        for base in bases:
            segment, damage = inspect(disk, directory, base, check_all=False)
            if segments and segments[-1].offset_end != base:
                if base < segments[-1].offset_end and not segment.size and damage is None:
                    continue  # A roll that failed; nothing was ever in it.
                damage = gap(segments[-1], base)
                segment = segments.pop()
            segments.append(segment)
            if damage is not None:
                later = [each for each in bases if each > segment.offset_base]
                check_permanent(disk, segment, damage, point, later)
                break
        check_end(disk, directory, segments[-1] if segments else None, point)
        self._check_journal(identity, directory, segments[-1].offset_end if segments else 0)
        return segments

    def _check_journal(self, identity: PartitionId, directory: str, offset_end: int) -> None:
        for entry in read_journals(self._disk):
            if entry.partition == identity:
                for _, header in walk(entry.payload()):
                    if header.offset_first >= offset_end:
                        raise Damaged(
                            f"{directory} ends at offset {offset_end}, but the journal goes on; "
                            "start the broker once, to recover what was lost"
                        )


def _described(topic: Topic) -> TopicInfo:
    numbers = range(topic.partition_count)
    parts = tuple(PartitionInfo(number, _NOBODY, 0, (), ()) for number in numbers)
    return TopicInfo(topic.name, topic.id, topic.name in INTERNAL_NAMES, parts)
