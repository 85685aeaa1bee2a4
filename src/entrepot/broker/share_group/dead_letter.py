"""Dead letters: copies of records that a share group could not process (KIP-1191).

A dead letter is the record with additional headers: its topic, partition and offset, the group,
the delivery count and the cause, under Kafka's names. It goes to the partition of the
dead-letter topic with the number of its own partition, modulo their count. The caller settles
the original when the copy is permanent and not before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from entrepot.broker.queue.record_batches import stored_batches
from entrepot.broker.served_partition import ServedPartition, committed
from entrepot.broker.share_group.ports import ShareTopics
from entrepot.broker.share_group.settings import ShareSettings
from entrepot.broker.share_group.store import ShareName
from entrepot.core import batch
from entrepot.core.errors import InvalidBatch, InvalidRecord, UnknownTopic
from entrepot.core.ports import Clock
from entrepot.core.record import Record

_PREFIX = "__dlq.errors."


class ShareDeadLetterCause(Enum):
    """Why a record becomes a dead letter. Values are the header's texts, in Kafka's words."""

    REJECTED = "Offset rejected by client."
    DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


class Dead(NamedTuple):
    offsets: range
    delivery_count: int
    cause: ShareDeadLetterCause


class ShareDeadLetters:
    def __init__(self, topics: ShareTopics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock

    async def copy(
        self,
        name: ShareName,
        served: ServedPartition,
        dead: Sequence[Dead],
        settings: ShareSettings,
    ) -> None:
        """Copy records; return when the copies are permanent. Raises PeerError, StorageError,
        OSError."""
        target = await self._target(name, settings.dead_letter_topic)
        letters = [
            letter for each in dead for letter in self._letters(name, served, each, settings)
        ]
        size_max, size, batched = target.config.batch_bytes_max, batch.HEADER_BYTES, list[Record]()
        for letter in letters:
            if batched and size + _size(letter) > size_max:
                self._write(target, batched)
                size, batched = batch.HEADER_BYTES, []
            batched.append(letter)
            size += _size(letter)
        if batched:
            self._write(target, batched)
        await committed(target.partition, target.partition.offset_end)

    def _write(self, target: ServedPartition, letters: Sequence[Record]) -> None:
        target.write(batch.build(letters, now_ms=self._clock.now_ms()))

    async def _target(self, name: ShareName, topic_name: str) -> ServedPartition:
        """Return the partition for the dead letters; create the topic if that is allowed.

        Raises PeerError.
        """
        topics = self._topics
        topics.check_foreign(topic_name)
        topic = topics.topics.get(topic_name)
        if topic is None:
            if not topics.defaults.auto_create_topics:
                raise UnknownTopic(f"there is no topic {topic_name!r} for dead letters")
            topic = await topics.create_topic(topic_name)
        target = topics.served_partition(topic, name.partition % topic.partition_count)
        if target.config.policy.compacts:
            raise InvalidRecord(f"the topic {topic_name!r} is compacted and would lose letters")
        return target

    def _letters(
        self, name: ShareName, served: ServedPartition, dead: Dead, settings: ShareSettings
    ) -> Iterator[Record]:
        topic = self._topics.topic_by_id(name.topic).name
        facts = (
            ("topic", topic),
            ("partition", str(name.partition)),
            ("group", name.group),
            ("delivery.count", str(dead.delivery_count)),
            ("message", dead.cause.value),
        )
        headers = tuple((_PREFIX + key, text.encode()) for key, text in facts)
        for record in _originals(served, dead.offsets):
            own = (*headers, (_PREFIX + "offset", str(record.offset).encode()))
            if not settings.copies_dead_letters:
                yield Record(None, None, own)
                continue
            kept = tuple(each for each in record.headers if not each[0].startswith(_PREFIX))
            yield Record(record.key, record.value, kept + own)


def _originals(served: ServedPartition, offsets: range) -> Iterator[Record]:
    """Yield the records that still exist. One that cannot be decoded is yielded with its offset
    only.

    Raises StorageError.
    """
    offset = max(offsets.start, served.partition.offset_start)  # Retention may have deleted some.
    while offset < offsets.stop:
        found = next(stored_batches(served.partition, offset, 1), None)
        if found is None:
            return
        header, data = found
        wanted = range(max(offset, header.offset_first), min(offsets.stop, header.offset_end))
        try:
            yield from [each for each in batch.records(data) if each.offset in wanted]
        except InvalidBatch:
            yield from (Record(None, None, (), -1, each) for each in wanted)
        offset = header.offset_end


def _size(record: Record) -> int:
    """Return at most how many bytes the record takes in a batch."""
    headers = sum(len(name) * 4 + len(value or b"") + 10 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + 40
