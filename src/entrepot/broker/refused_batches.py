"""What was refused of an idempotent producer and will be sent again: later batches wait for it.

A producer sends up to five batches without waiting for answers. When the first is refused because
this node does not lead yet, or too few replicas are in sync, the next ones may come a moment later,
when it does. They leave a gap, and to be told that makes a client begin a new epoch, in which it
sends again, with new numbers, all that it has no answer for; what another partition has of that
already would be there twice. So they are refused as the first one was, and come after it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from entrepot.core.batch import BatchHeader
from entrepot.core.ports import Clock
from entrepot.log.producers import Producers

_PRODUCERS_MAX = 1_000  # Of a partition.
_WAIT_S_MAX = 120.0  # Who has not sent it again by then has given it up.
_SEQUENCES = 2**31


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    until_s: float


class RefusedBatches:
    """Of one partition."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: OrderedDict[int, _Refused] = OrderedDict()  # The first, by producer id.

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(self, header: BatchHeader) -> None:
        """Note that a batch was refused."""
        if header.producer_id < 0 or header.sequence_first < 0:
            return
        now_s, before = self._clock.monotonic(), self._refused.get(header.producer_id)
        if (
            before is not None
            and now_s < before.until_s
            and before.epoch == header.producer_epoch
            and _is_before(before.sequence, header.sequence_first)
        ):
            return
        refused = _Refused(header.producer_epoch, header.sequence_first, now_s + _WAIT_S_MAX)
        self._refused[header.producer_id] = refused
        if len(self._refused) > _PRODUCERS_MAX:
            self._refused.popitem(last=False)

    def is_before(self, header: BatchHeader, producers: Producers) -> bool:
        """Return whether a batch before this one was refused, and is not there by now."""
        refused = self._refused.get(header.producer_id)
        if refused is None:
            return False
        known = producers.get(header.producer_id)
        is_there = (
            known is not None
            and known.epoch == header.producer_epoch
            and bool(known.batches)
            and not _is_before(known.batches[-1].sequence_last, refused.sequence)
        )
        is_old = refused.until_s <= self._clock.monotonic()
        if is_there or is_old or refused.epoch != header.producer_epoch:
            del self._refused[header.producer_id]
            return False
        return _is_before(refused.sequence, header.sequence_first)


def _is_before(sequence: int, other: int) -> bool:
    """Return whether a sequence number comes before another one; they wrap."""
    return 0 < (other - sequence) % _SEQUENCES < _SEQUENCES // 2
