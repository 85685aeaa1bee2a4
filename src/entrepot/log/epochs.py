"""Which leader epoch begins at which offset of a partition: how two replicas find where they part.

Each leader has an epoch, and stamps it on its batches. Two replicas have the same batches up to
where the last epoch that both have ends in one of them; what follows there is cut off.

The batches are the truth, but compaction removes batches, and reading all of them takes long. So
the index is in a file of its own, which is permanent before a segment in which an epoch begins is
sealed; what began in segments without a seal is found when recovery walks them. A partition that
has never had another epoch than 0, as one without a cluster, has no file.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from entrepot.core import limits
from entrepot.core.errors import Corruption
from entrepot.core.ports import Disk
from entrepot.log import layout
from entrepot.log.files import load, replace

EpochStart = tuple[int, int]  # An epoch, and the offset of its first batch.
NO_EPOCH = -1


class EpochEnd(NamedTuple):
    """Where an epoch ends: at the first offset of the next one, or at the end of the log."""

    epoch: int  # NO_EPOCH means: not known.
    offset_end: int


UNKNOWN_END = EpochEnd(NO_EPOCH, -1)


class EpochIndex:
    def __init__(self, starts: Sequence[EpochStart] = ()) -> None:
        self._epochs = [epoch for epoch, _ in starts]  # Ascending,
        self._firsts = [offset for _, offset in starts]  # and so are these.
        self.last = self._epochs[-1] if starts else NO_EPOCH  # The epoch of the newest batch.
        self.is_saved = True  # The file says the same, or none is needed.

    @property
    def starts(self) -> list[EpochStart]:
        return list(zip(self._epochs, self._firsts, strict=True))

    def note(self, epoch: int, offset: int) -> None:
        """Note that a batch of this epoch is at this offset; an epoch begins if it is a later
        one."""
        if epoch <= self.last:
            return
        self.is_saved = self.is_saved and not epoch and not self._epochs
        self._epochs.append(epoch)
        self._firsts.append(offset)
        self.last = epoch
        if len(self._epochs) > limits.EPOCHS_PER_PARTITION_MAX:
            del self._epochs[0], self._firsts[0]

    def end_of(self, epoch: int, leader_epoch: int, offset_end: int) -> EpochEnd:
        """Return where this epoch ends, or the last one before it that has batches.

        The present epoch ends at the end of the log; a later one is not known. One before the
        first that is remembered ends where that begins.
        """
        if not 0 <= epoch <= leader_epoch:
            return UNKNOWN_END
        if epoch == leader_epoch:
            return EpochEnd(epoch, offset_end)
        after = bisect_right(self._epochs, epoch)
        end = self._firsts[after] if after < len(self._firsts) else offset_end
        return EpochEnd(self._epochs[after - 1] if after else epoch, end)

    def cut_for(self, answer: EpochEnd, offset_end: int) -> tuple[int, bool]:
        """Return where to cut this log, which ends at `offset_end`, and whether that is all.

        `answer` is what the leader says of the last epoch here. If this log does not have the
        epoch that it names, the leader has to be asked again about the last one that is left.
        """
        assert answer.epoch != NO_EPOCH, "asked of a leader with an older epoch than ours"
        after = bisect_right(self._epochs, answer.epoch)
        end = self._firsts[after] if after < len(self._firsts) else offset_end
        if after and self._epochs[after - 1] < answer.epoch:
            return end, False
        return min(end, answer.offset_end), True

    def cut(self, offset_end: int) -> None:
        """Forget the epochs that begin at or after this offset: the log ends there."""
        left = bisect_left(self._firsts, offset_end)
        if left < len(self._firsts):
            del self._epochs[left:], self._firsts[left:]
            self.last = self._epochs[-1] if left else NO_EPOCH
            self.is_saved = False

    def forget_before(self, offset_start: int) -> None:
        """Forget the epochs that have ended before this offset: the log begins there."""
        gone = bisect_right(self._firsts, offset_start) - 1
        if gone > 0:
            del self._epochs[:gone], self._firsts[:gone]
            self.is_saved = False


def read_epochs(disk: Disk, directory: str) -> EpochIndex:
    """Return the index in the file; an empty one without a file. Raises Corruption."""
    path = f"{directory}/{layout.EPOCHS}"
    payload = load(disk, path)
    if payload is None:
        if disk.exists(path):
            raise Corruption(f"{path} is damaged")
        return EpochIndex()
    try:
        return EpochIndex(msgspec.msgpack.decode(payload, type=list[tuple[int, int]]))
    except msgspec.DecodeError as error:
        raise Corruption(f"{path}: {error}") from None


async def save_epochs(disk: Disk, directory: str, index: EpochIndex) -> None:
    """Make the index permanent. Raises OSError."""
    starts = index.starts
    await replace(disk, directory, layout.EPOCHS, msgspec.msgpack.encode(starts))
    index.is_saved = index.starts == starts
