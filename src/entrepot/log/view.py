"""The view of a partition: its producers and transactions, folded from its batches.

It is saved with each new segment and at a clean stop, so that a start reads only the batches
since. The batches are the truth: a saved view in an unknown layout is ignored, and everything
is folded again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from entrepot.core.batch import BatchHeader
from entrepot.core.errors import StorageError
from entrepot.core.marker import read_marker
from entrepot.core.ports import Buffer
from entrepot.log.isolation import Isolation, IsolationState, OpenTransaction
from entrepot.log.log import Opened
from entrepot.log.markers import Markers, MarkersState
from entrepot.log.producers import Producers


class _Saved(msgspec.Struct, array_like=True):
    producers: bytes
    ongoing: Sequence[tuple[int, OpenTransaction]]
    aborted: Sequence[tuple[int, int, int, int]]
    markers: MarkersState


class PartitionView:
    def __init__(self, producers: Producers, isolation: Isolation, markers: Markers) -> None:
        self.producers = producers
        self.isolation = isolation
        self.markers = markers

    def note(self, header: BatchHeader, offset_first: int, data: Buffer) -> None:
        """Fold a batch that is appended now, or was before a restart. `data` is read only if it
        is a control batch."""
        if header.producer_id < 0:
            return
        self.producers.note(header, offset_first)
        if header.is_control:
            self.markers.note(offset_first)
            marker = read_marker(data)
            if marker is not None:
                epoch = marker.coordinator_epoch
                self.producers.note_marker(marker.producer_id, epoch, offset_first)
                self.isolation.end(marker, offset_first)
        elif header.is_transactional:
            self.isolation.begin(header, offset_first)

    def snapshot(self) -> bytes:
        """Return the state to be saved; empty if there is nothing to remember."""
        producers, state = self.producers.snapshot(), self.isolation.state()
        markers = self.markers.state()
        if not producers and not state.ongoing and not state.aborted and not markers.total:
            return b""
        return msgspec.msgpack.encode(_Saved(producers, *state, markers))


def fold(opened: Opened) -> PartitionView:
    """Return the view of an opened partition: what was saved, and the batches since.

    Refuses the partition if it cannot be read.
    """
    offset, view = 0, PartitionView(Producers(), Isolation(), Markers())
    if opened.saved is not None:
        with contextlib.suppress(msgspec.ValidationError):
            offset, view = opened.saved.offset, _restored(opened.saved.state)
    try:
        for header, data in opened.partition.headers(offset):
            view.note(header, header.offset_first, data)
    except (StorageError, OSError) as error:
        opened.partition.refuse(str(error))
    return view


def _restored(state: bytes) -> PartitionView:
    if not state:
        return PartitionView(Producers(), Isolation(), Markers())
    saved = msgspec.msgpack.decode(state, type=_Saved)
    isolation = Isolation(IsolationState(saved.ongoing, saved.aborted))
    return PartitionView(Producers.restore(saved.producers), isolation, Markers(saved.markers))
