"""The two checkpoints: what a start may believe without looking.

`clean.checkpoint` is there only after a clean stop and says everything about every
partition. `recovery.checkpoint` is written every few seconds and says below which
offset a partition's segments are permanent: damage there is corruption, whatever
the next crash was.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import msgspec

from entrepot.core.names import PartitionId
from entrepot.core.ports import Disk
from entrepot.log import layout
from entrepot.log.files import load
from entrepot.log.partition import Partition
from entrepot.log.segment import Segment


class SegmentState(msgspec.Struct, array_like=True):
    offset_base: int
    offset_end: int
    size: int
    timestamp_max: int
    timestamp_max_offset: int
    opened_ms: int
    sealed: bool

    @classmethod
    def of(cls, segment: Segment) -> SegmentState:
        return cls(*(getattr(segment, name) for name in cls.__struct_fields__))

    def segment(self, directory: str) -> Segment:
        """As it was; its index is read or rebuilt when it is needed."""
        segment = Segment(directory, self.offset_base, self.opened_ms)
        for name in self.__struct_fields__:
            setattr(segment, name, getattr(self, name))
        segment.index = None
        return segment


class PartitionState(msgspec.Struct, array_like=True):
    topic: bytes
    index: int
    offset_start: int
    segments: list[SegmentState]
    view: bytes

    @classmethod
    def of(cls, partition: Partition) -> PartitionState:
        segments = [SegmentState.of(segment) for segment in partition.segments]
        topic, index = partition.id
        view = partition.view_snapshot() if partition.view_snapshot is not None else b""
        return cls(topic.bytes, index, partition.offset_start, segments, view)

    @property
    def id(self) -> PartitionId:
        return PartitionId(UUID(bytes=self.topic), self.index)


class Permanent(msgspec.Struct, array_like=True):
    """A row of the recovery checkpoint."""

    topic: bytes
    index: int
    directory: str  # For people and `entrepot log verify`; the id is what counts.
    offset: int

    @property
    def id(self) -> PartitionId:
        return PartitionId(UUID(bytes=self.topic), self.index)


def read_clean_checkpoint(disk: Disk) -> dict[PartitionId, PartitionState] | None:
    payload = load(disk, layout.CLEAN_CHECKPOINT)
    if payload is None:
        return None
    states = msgspec.msgpack.decode(payload, type=list[PartitionState])
    return {state.id: state for state in states}


def clean_checkpoint(partitions: Iterable[Partition]) -> bytes:
    return msgspec.msgpack.encode([PartitionState.of(partition) for partition in partitions])


def read_recovery_checkpoint(disk: Disk) -> list[Permanent]:
    payload = load(disk, layout.RECOVERY_CHECKPOINT)
    return msgspec.msgpack.decode(payload, type=list[Permanent]) if payload is not None else []


def recovery_checkpoint(partitions: Iterable[Partition]) -> bytes:
    rows = [
        Permanent(partition.id.topic.bytes, partition.id.number, partition.directory, offset)
        for partition in partitions
        if (offset := partition.offset_synced)
    ]
    return msgspec.msgpack.encode(rows)
