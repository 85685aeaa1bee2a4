"""The answer to ShareFetch (key 78), v1 and v2, assembled by hand: it carries the log.

As in Fetch, records are never copied: the answer is a list of chunks, and those with records may
still be in a file. A partition's records may come from several ranges of the log; on the wire
they follow one another. Both versions have the same layout.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from entrepot.core.ports import Chunk, FileRange
from entrepot.core.steps import Steps
from entrepot.wire.kafka.encoding import CompactWriter

_INDEX_ERROR = Struct(">ih")
_ERROR = Struct(">h")
_LEADER = Struct(">iib")  # Id, epoch, no tags.
_ACQUIRED = Struct(">qqhb")  # First and last offset, delivery count, no tags.
_THROTTLE_ERROR = Struct(">ih")
_MS = Struct(">i")


class AcquiredRecords(NamedTuple):
    offset_first: int
    offset_last: int
    delivery_count: int


class ShareFetchedPartition(NamedTuple):
    """What an answer says of one partition, with its records."""

    partition_index: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    leader_id: int = -1
    leader_epoch: int = -1
    records: Sequence[FileRange] = ()
    acquired: Sequence[AcquiredRecords] = ()


class ShareFetchedTopic(NamedTuple):
    id: UUID
    partitions: Sequence[ShareFetchedPartition]


def encode_response(
    topics: Sequence[ShareFetchedTopic],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    error_message: str | None = None,
    lock_ms: int = 0,
) -> Steps[tuple[list[Chunk], int]]:
    """Return the chunks of the message, none of them empty, and their size together."""
    write = CompactWriter
    chunks: list[Chunk] = []
    size = 0
    pending = [  # What is not in a chunk yet.
        _THROTTLE_ERROR.pack(throttle_ms, error_code),
        write.nullable_string(error_message),
        _MS.pack(lock_ms),
        write.length(len(topics)),
    ]
    for topic in topics:
        pending += (topic.id.bytes, write.length(len(topic.partitions)))
        for partition in topic.partitions:
            pending.append(_head(partition))
            records_bytes = sum(each.size for each in partition.records)
            pending.append(write.length(records_bytes))
            if records_bytes:
                head = b"".join(pending)
                pending.clear()
                chunks += (head, *partition.records)
                size += len(head) + records_bytes
            pending.append(write.length(len(partition.acquired)))
            pending += (_ACQUIRED.pack(*each, 0) for each in partition.acquired)
            pending.append(write.NO_TAGS)
            yield
        pending.append(write.NO_TAGS)
    pending += (write.length(0), write.NO_TAGS)  # No endpoints of other nodes.
    tail = b"".join(pending)
    chunks.append(tail)
    return chunks, size + len(tail)


def _head(partition: ShareFetchedPartition) -> bytes:
    """Write what stands before a partition's records."""
    write = CompactWriter
    return b"".join(
        (
            _INDEX_ERROR.pack(partition.partition_index, partition.error_code),
            write.nullable_string(partition.error_message),
            _ERROR.pack(partition.acknowledge_error_code),
            write.nullable_string(partition.acknowledge_error_message),
            _LEADER.pack(partition.leader_id, partition.leader_epoch, 0),
        )
    )
