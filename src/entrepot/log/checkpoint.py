"""The two checkpoints: what a start takes for true without reading the segments.

`clean.checkpoint` is there only after a clean stop and says everything about every
partition. `recovery.checkpoint` is written every few seconds and says which offsets
of a partition are permanent in its segments: damage there is corruption, whatever
the next crash was, and so is a file that is missing. Retention removes a segment
only after the checkpoint no longer names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from entrepot.core.names import PartitionId
from entrepot.core.ports import Disk
from entrepot.core.steps import Steps
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
    compacted: bool = True  # True also for a checkpoint of an earlier version, which did not say.

    @classmethod
    def of(cls, segment: Segment) -> SegmentState:
        return cls(*(getattr(segment, name) for name in cls.__struct_fields__))

    def segment(self, directory: str) -> Segment:
        """Return the segment as it was; its index is read or rebuilt when it is needed."""
        segment = Segment(directory, self.offset_base, self.opened_ms)
        for name in self.__struct_fields__:
            setattr(segment, name, getattr(self, name))
        segment.index, segment.unchecked_end = None, segment.size
        return segment


class PartitionState(msgspec.Struct, array_like=True):
    topic: bytes
    index: int
    offset_start: int
    segments: list[SegmentState]
    view: bytes
    epochs: list[tuple[int, int]] = msgspec.field(default_factory=list)  # Added later.

    @classmethod
    def of(cls, partition: Partition) -> PartitionState:
        segments = [SegmentState.of(segment) for segment in partition.segments]
        topic, index = partition.id
        view = partition.view_snapshot() if partition.view_snapshot is not None else b""
        partition.epochs.forget_before(partition.offset_start)
        epochs = partition.epochs.starts
        return cls(topic.bytes, index, partition.offset_start, segments, view, epochs)

    @property
    def id(self) -> PartitionId:
        return PartitionId(UUID(bytes=self.topic), self.index)


class RecoveryPoint(NamedTuple):
    """The offsets that the segments of a partition must hold: from offset_base to offset_end."""

    offset_base: int | None  # Where the first segment begins; None means: not known.
    offset_end: int | None  # Everything below it is permanent; None means: not known.


_NOTHING_IS_PERMANENT = RecoveryPoint(0, 0)
_UNKNOWN = -1  # Stands for None in a row.


class RecoveryRow(msgspec.Struct, array_like=True):
    """A row of the recovery checkpoint."""

    topic: bytes
    index: int
    directory: str  # For people and `entrepot log verify`; a start looks partitions up by id.
    offset: int
    offset_base: int = _UNKNOWN  # Missing from rows of earlier versions.

    @property
    def id(self) -> PartitionId:
        return PartitionId(UUID(bytes=self.topic), self.index)

    @property
    def point(self) -> RecoveryPoint:
        return RecoveryPoint(
            self.offset_base if self.offset_base >= 0 else None,
            self.offset if self.offset >= 0 else None,
        )


class RecoveryCheckpoint:
    """The recovery checkpoint as it was found.

    A partition without a row has nothing permanent. Without a checkpoint file nothing is known of
    any partition, and whole batches are kept. With a damaged one any batch may be permanent.
    """

    def __init__(self, rows: list[RecoveryRow] | None = None, *, is_damaged: bool = False) -> None:
        self.rows = rows or []
        self.is_damaged = is_damaged
        self.is_missing = rows is None and not is_damaged
        self._default = _NOTHING_IS_PERMANENT
        if rows is None:
            self._default = RecoveryPoint(None, None if is_damaged else 0)
        self._by_id = {row.id: row.point for row in self.rows}
        self._by_directory = {row.directory: row.point for row in self.rows}

    def point(self, identity: PartitionId) -> RecoveryPoint:
        return self._by_id.get(identity, self._default)

    def point_at(self, directory: str) -> RecoveryPoint:
        """Return the recovery point of the partition in this directory."""
        return self._by_directory.get(directory, self._default)


def read_clean_checkpoint(disk: Disk) -> dict[PartitionId, PartitionState] | None:
    """Return the state of each partition; None when the file is missing or damaged."""
    states: list[PartitionState] | None = _read(disk, layout.CLEAN_CHECKPOINT, list[PartitionState])
    return None if states is None else {state.id: state for state in states}


def clean_checkpoint(partitions: Iterable[Partition]) -> bytes:
    return msgspec.msgpack.encode([PartitionState.of(partition) for partition in partitions])


def read_recovery_checkpoint(disk: Disk) -> RecoveryCheckpoint:
    rows: list[RecoveryRow] | None = _read(disk, layout.RECOVERY_CHECKPOINT, list[RecoveryRow])
    is_damaged = rows is None and disk.exists(layout.RECOVERY_CHECKPOINT)
    return RecoveryCheckpoint(rows, is_damaged=is_damaged)


def _read(disk: Disk, path: str, kind: Any) -> Any:
    """Return the decoded content of a file; None when it is missing or damaged."""
    payload = load(disk, path)
    try:
        return None if payload is None else msgspec.msgpack.decode(payload, type=kind)
    except msgspec.DecodeError:
        return None


def recovery_checkpoint(
    partitions: Iterable[Partition],
    bases: Mapping[PartitionId, int],
    refused: Mapping[PartitionId, RecoveryPoint],
) -> Steps[bytes]:
    """Return the encoded rows of all partitions with something permanent.

    `bases` has the base offset of the new first segment where retention is about to remove
    segments. `refused` has what was known of partitions that could not be opened: they keep it.

    Rows may be of different moments: each is about one partition, and stays true until the next
    checkpoint is written.
    """
    rows = []
    for partition in partitions:
        yield
        point = refused.get(partition.id)
        if point is None:
            base = partition.segments[0].offset_base if partition.segments else 0
            point = RecoveryPoint(bases.get(partition.id, base), partition.offset_synced)
        if point != _NOTHING_IS_PERMANENT:
            base, offset = (_UNKNOWN if each is None else each for each in point)
            topic, index = partition.id
            rows.append(RecoveryRow(topic.bytes, index, partition.directory, offset, base))
    return msgspec.msgpack.encode(rows)
