"""Which offsets a query reads: found out on the driver, and divided among tasks.

Spark keeps a stream's offsets as JSON and compares them as text, so they are always
written in the same order: `{"topic": {"0": 23, "1": 5}}`.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import pairwise
from math import ceil, floor
from typing import Protocol, Self, TypeVar

from kio.schema.errors import ErrorCode

from entrepot.client.client import EARLIEST, LATEST, OffsetAt, TopicPartition
from entrepot.client.cluster import TopicInfo
from entrepot.client.errors import Refused
from entrepot.spark.decoding import Range, lost
from entrepot.spark.options import OptionError, ReadBound, SourceOptions, Which

Offsets = dict[TopicPartition, int]
Json = dict[str, dict[str, int]]


_Answer = TypeVar("_Answer")


class Cluster(Protocol):
    async def retry(self, attempt: Callable[[], Awaitable[_Answer]]) -> _Answer: ...

    async def describe(self, topics: Iterable[str] | None) -> list[TopicInfo | Refused]: ...


class Asked(Protocol):
    """Who knows the topics: a client of the broker, or the broker's directory."""

    @property
    def cluster(self) -> Cluster: ...

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]: ...


class Asking(Protocol):
    """A connection to somebody who can be asked, for as long as a query is planned."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None: ...

    def check(self) -> None:
        """Raise if there is nobody to ask."""

    def run(self, work: Callable[[Asked], Awaitable[_Answer]]) -> _Answer: ...


class MissingTopic(Exception):
    """A topic or partition that was asked for by name is not there."""


def to_json(offsets: Mapping[TopicPartition, int]) -> Json:
    found: Json = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(document: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
    }


# --- asking the broker


async def partitions_of(client: Asked, which: Which) -> list[TopicPartition]:
    """Return the partitions that are meant and there now, in order. Raises MissingTopic."""
    names = sorted({part.topic for part in which.assigned}) or list(which.topics)
    described = await client.cluster.retry(
        lambda: client.cluster.describe(None if which.pattern is not None else names)
    )
    if which.pattern is not None:
        # As Java's `matches`: the whole name.
        pattern = re.compile(which.pattern)
        described = [
            topic
            for topic in described
            if isinstance(topic, TopicInfo)
            and not topic.is_internal
            and pattern.fullmatch(topic.name)
        ]
    there: dict[TopicPartition, None] = {}
    for topic in described:
        if isinstance(topic, Refused):
            if topic.code is ErrorCode.unknown_topic_or_partition:
                raise MissingTopic(f"{topic.about} does not exist")
            raise topic
        there |= {TopicPartition(topic.name, part.index): None for part in topic.partitions}
    for part in which.assigned:
        if part not in there:
            raise MissingTopic(f"assign: {part} does not exist")
    return sorted(which.assigned or there)


async def ends(
    client: Asked, parts: Iterable[TopicPartition], place: int, *, committed: bool
) -> Offsets:
    """Return the offset of each partition's beginning or end: `place` is EARLIEST or LATEST."""
    wanted = dict.fromkeys(parts, place)
    found = await client.list_offsets(wanted, committed=committed) if wanted else {}
    return {part: at.offset for part, at in found.items()}


async def resolve(
    client: Asked, options: SourceOptions, place: ReadBound, parts: list[TopicPartition]
) -> Offsets:
    """Return the offsets that an option such as `startingOffsets` means now."""
    committed = options.committed
    if place.everywhere is not None and not place.is_time:
        return await ends(client, parts, place.everywhere, committed=committed)
    said = dict(place.each)
    if place.everywhere is not None:
        said = dict.fromkeys(parts, place.everywhere)
    _check_complete(place.option, said, parts)
    first = await ends(client, parts, EARLIEST, committed=committed)
    end = await ends(client, parts, LATEST, committed=committed)
    if place.is_time:
        return await _at_times(client, options, place, said, end)
    found = {}
    for part, offset in said.items():
        if offset in (EARLIEST, LATEST):
            offset = first[part] if offset == EARLIEST else end[part]
        elif not first[part] <= offset <= end[part]:
            nearest = min(max(offset, first[part]), end[part])
            there = f"its offsets are {first[part]} to {end[part]}"
            what = f"{place.option} says {offset}, but {there}: those between are gone"
            lost(part, what, fail=options.fail_on_data_loss)
            offset = nearest
        found[part] = offset
    return found


async def _at_times(
    client: Asked, options: SourceOptions, place: ReadBound, times: Offsets, end: Offsets
) -> Offsets:
    answers = await client.list_offsets(times, committed=options.committed) if times else {}
    found = {}
    for part, at in answers.items():
        is_begin = place.option.startswith("starting")
        if at.offset < 0 and is_begin and not options.late_begin_is_latest:
            raise OptionError(
                f"{place.option}: {part} has no record as young as {times[part]}; "
                "startingOffsetsByTimestampStrategy=latest would begin at its end"
            )
        found[part] = at.offset if 0 <= at.offset <= end[part] else end[part]
    return found


def _check_complete(option: str, said: Offsets, parts: list[TopicPartition]) -> None:
    for part in parts:
        if part not in said:
            raise OptionError(f"{option} says nothing of {part}, which is read")
    for part in said:
        if part not in parts:
            raise OptionError(f"{option} names {part}, which is not read or does not exist")


# --- dividing


def limited(start: Mapping[TopicPartition, int], end: Offsets, rows_max: int) -> Offsets:
    """Return where to end for at most about so many rows, from each partition its share.

    Every partition that has some gets one at least, so that none waits for ever.
    """
    sizes = {part: max(0, offset - start[part]) for part, offset in end.items()}
    total = sum(sizes.values())
    if total <= rows_max:
        return end
    found = {}
    for part, size in sizes.items():
        share = rows_max * size / total
        rows = ceil(share) if share < 1 else floor(share)
        found[part] = min(end[part], start[part] + rows) if size else end[part]
    return found


def split(ranges: Iterable[Range], partitions_min: int | None, rows_max: int | None) -> list[Range]:
    """Divide large ranges into pieces of equal size, and leave out empty ones."""
    wanted = [each for each in ranges if each.offset_until > each.offset_from]
    total = sum(each.offset_until - each.offset_from for each in wanted)
    pieces: list[Range] = []
    for each in wanted:
        size = each.offset_until - each.offset_from
        count = 1
        if partitions_min is not None and partitions_min > len(wanted):
            count = ceil(partitions_min * size / total)
        if rows_max is not None:
            count = max(count, ceil(size / rows_max))
        count = min(count, size)
        bounds = [each.offset_from + size * number // count for number in range(count + 1)]
        pieces += [
            each._replace(offset_from=first, offset_until=end) for first, end in pairwise(bounds)
        ]
    return pieces
