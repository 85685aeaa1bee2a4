"""A topic's archive, before what the broker has: the option `tier`.

The broker copies full segments to the archive before retention removes them (`log.copier`). So
the two overlap, or meet, and are read as one log: what the broker does not have any more comes
from the archive, the rest from the broker. With no broker to ask, the archive is a topic by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Self, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from entrepot.client.client import EARLIEST, LATEST, OffsetAt, TopicPartition
from entrepot.client.cluster import PartitionInfo, TopicInfo
from entrepot.client.errors import Refused
from entrepot.core.errors import Corruption, StoreUnavailable
from entrepot.log.read_only import Archive, ArchivedPartition, open_archive
from entrepot.spark.decoding import Damaged, Piece, Range, RangeDecoder
from entrepot.spark.offsets import Asked, Asking, Cluster
from entrepot.spark.options import TIER, OptionError

_Result = TypeVar("_Result")
_NOBODY = -1  # Leads.


class Archived:
    """Finds partitions in the archive at an address. Raises Damaged, and OptionError if the
    address is wrong or its store is away."""

    def __init__(self, address: str) -> None:
        self._address = address

    def archive(self) -> Archive:
        try:
            return open_archive(self._address)
        except StoreUnavailable as error:
            raise OptionError(f"{TIER}: {error}") from None

    def partition(self, part: TopicPartition, identity: UUID) -> ArchivedPartition | None:
        try:
            return self.archive().partition(part.topic, identity, part.partition)
        except Corruption as error:
            raise Damaged(f"{TIER}: {error}") from None
        except StoreUnavailable as error:
            raise OptionError(f"{TIER}: {error}") from None

    def find(self, part: TopicPartition, identity: UUID, timestamp: int) -> OffsetAt | None:
        """Return what a client would answer of this part of the log; None if there is none."""
        archived = self.partition(part, identity)
        if archived is None:
            return None
        if timestamp in (EARLIEST, LATEST):
            is_first = timestamp == EARLIEST
            return OffsetAt(archived.offset_start if is_first else archived.offset_end, -1)
        try:
            found = archived.offset_for_time(timestamp)
        except Corruption as error:
            raise Damaged(f"{part}: {error}") from None
        return OffsetAt(*found) if found is not None else None


# --- with a broker, or its directory


class WithTier:
    """Who is asked about topics, and the archive of these."""

    def __init__(self, asked: Asking, address: str) -> None:
        self._asked = asked
        self._archived = Archived(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._asked.close()

    def check(self) -> None:
        self._archived.archive()
        self._asked.check()

    def run(self, work: Callable[[Asked], Awaitable[_Result]]) -> _Result:
        return self._asked.run(lambda client: work(Tiered(client, self._archived)))


class Tiered:
    """Answers as a client does; but a topic begins where its archive does."""

    def __init__(self, client: Asked, archived: Archived) -> None:
        self._client = client
        self._archived = archived
        self._ids: dict[str, UUID] = {}  # Of topics that were described.

    @property
    def cluster(self) -> Cluster:
        return self

    async def retry(self, attempt: Callable[[], Awaitable[_Result]]) -> _Result:
        return await self._client.cluster.retry(attempt)

    async def describe(self, topics: Iterable[str] | None) -> list[TopicInfo | Refused]:
        found = await self._client.cluster.describe(topics)
        for topic in found:
            if isinstance(topic, TopicInfo) and topic.id is not None:
                self._ids[topic.name] = topic.id
        return found

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]:
        await self._identify(part.topic for part in timestamps)
        found = await self._client.list_offsets(timestamps, committed=committed)
        for part, timestamp in timestamps.items():
            if timestamp != LATEST and part.topic in self._ids:
                older = self._archived.find(part, self._ids[part.topic], timestamp)
                if older is not None and not 0 <= found[part].offset <= older.offset:
                    found[part] = older
        return found

    async def id_of(self, topic: str) -> UUID | None:
        await self._identify([topic])
        return self._ids.get(topic)

    async def _identify(self, topics: Iterable[str]) -> None:
        """Find out the ids of topics that were not described yet."""
        names = sorted({name for name in topics if name not in self._ids})
        if names:
            await self.retry(lambda: self.describe(names))


# --- without a broker


class ArchiveAlone:
    """Answers as a client does, in the two things the planner asks; and is its own cluster."""

    def __init__(self, address: str) -> None:
        self._archived = Archived(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def check(self) -> None:
        self._archived.archive()

    def run(self, work: Callable[[Asked], Awaitable[_Result]]) -> _Result:
        async def finish() -> _Result:
            return await work(self)

        return asyncio.run(finish())

    @property
    def cluster(self) -> Cluster:
        return self

    async def retry(self, attempt: Callable[[], Awaitable[_Result]]) -> _Result:
        return await attempt()

    async def describe(self, topics: Iterable[str] | None) -> list[TopicInfo | Refused]:
        archive = self._archived.archive()
        try:
            names = archive.topics() if topics is None else topics
            return [self._described(archive, name) for name in names]
        except StoreUnavailable as error:
            raise OptionError(f"{TIER}: {error}") from None

    def _described(self, archive: Archive, topic: str) -> TopicInfo | Refused:
        identity = self._id_of(archive, topic)
        if identity is None:
            return Refused(ErrorCode.unknown_topic_or_partition, f"topic {topic}")
        numbers = archive.numbers(topic, identity)
        parts = tuple(PartitionInfo(number, _NOBODY, 0, (), ()) for number in numbers)
        return TopicInfo(topic, identity, False, parts)

    def _id_of(self, archive: Archive, topic: str) -> UUID | None:
        found = archive.ids(topic)
        if len(found) > 1:
            ids = ", ".join(map(str, found))
            raise OptionError(
                f"{TIER}: there were several topics named {topic}, with the ids {ids}; a broker "
                "in kafka.bootstrap.servers says which of them it is now"
            )
        return found[0] if found else None

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]:
        archive, found = self._archived.archive(), {}
        for part, timestamp in timestamps.items():
            identity = self._id_of(archive, part.topic)
            at = None if identity is None else self._archived.find(part, identity, timestamp)
            found[part] = at or OffsetAt(-1, -1)
        return found

    async def id_of(self, topic: str) -> UUID | None:
        return self._id_of(self._archived.archive(), topic)


async def identified(client: Asked, ranges: list[Range]) -> list[Range]:
    """Say whose archive has what of the ranges is too old for the broker."""
    assert isinstance(client, Tiered | ArchiveAlone), client
    ids = {name: await client.id_of(name) for name in sorted({each.topic for each in ranges})}
    return [each._replace(topic_id=str(ids[each.topic] or "")) for each in ranges]


# --- in a task


def archived_partition(address: str, wanted: Range) -> ArchivedPartition | None:
    """Open the archive of a range's partition."""
    if not wanted.topic_id:
        return None
    return Archived(address).partition(wanted.part, UUID(wanted.topic_id))


class ArchiveReader(RangeDecoder):
    """One range of one partition, out of its archive alone."""

    def _pieces(self) -> Iterator[Piece]:
        return self._older(self._wanted.offset_until)
