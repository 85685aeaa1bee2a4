"""Idempotent producers of one partition: the last batches that each of them wrote.

A producer numbers its records; a batch that repeats numbers we have is a retry
and gets the answer of the first time, a batch that leaves a gap is refused. The
last five batches are remembered, because a client has at most five requests in
flight. This is a view: folded from batch headers, saved with each new segment.

A batch without sequence numbers, a transaction's marker or the broker's own, says only
which epoch its producer has: an older one is fenced from then on.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from entrepot.core import limits
from entrepot.core.batch import BatchHeader
from entrepot.core.errors import DuplicateSequence, FencedProducer, OutOfOrderSequence

_SEQUENCES = 2**31  # Sequence numbers wrap to 0 after 2**31 - 1.


class WrittenBatch(NamedTuple):
    """An appended batch, as it is remembered of its producer."""

    sequence_first: int
    sequence_last: int
    offset_first: int
    timestamp_ms: int


class Producer(msgspec.Struct, array_like=True):
    epoch: int
    batches: list[WrittenBatch]  # Oldest first; at most PRODUCER_BATCHES_REMEMBERED.
    coordinator_epoch: int = -1  # Of its last marker; -1 means: there was none.
    marker_offset: int = -1


class Producers:
    def __init__(self) -> None:
        # By producer id. The one that wrote longest ago comes first and is forgotten first.
        self._producers: OrderedDict[int, Producer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """Return None when the batch is the next one; for a repeated batch, the one written before.

        Raises FencedProducer, OutOfOrderSequence and DuplicateSequence.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # Unknown or forgotten: it may start with any sequence number, as in Kafka.
            return None
        if header.producer_epoch < producer.epoch:
            raise FencedProducer(
                f"producer {header.producer_id} has epoch {producer.epoch}, "
                f"not {header.producer_epoch}"
            )
        if header.producer_epoch > producer.epoch:
            if header.sequence_first != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id}: a new epoch starts at sequence 0, "
                    f"not {header.sequence_first}"
                )
            return None
        return self._check_sequence(header, producer)

    def _check_sequence(self, header: BatchHeader, producer: Producer) -> WrittenBatch | None:
        last = producer.batches[-1].sequence_last if producer.batches else -1
        if header.sequence_first == (last + 1) % _SEQUENCES:
            return None
        sequences = (header.sequence_first, header.sequence_last)
        for written in producer.batches:
            if written[:2] == sequences:
                return written
        # A client takes DuplicateSequence for success: raise it only for what was surely written.
        known = producer.batches[0].sequence_first if producer.batches else 0
        first = (header.sequence_first - known) % _SEQUENCES
        end = (last + 1 - known) % _SEQUENCES
        if first <= (header.sequence_last - known) % _SEQUENCES < end:
            raise DuplicateSequence(
                f"producer {header.producer_id}: sequence {header.sequence_first} "
                "was written in other batches"
            )
        raise OutOfOrderSequence(
            f"producer {header.producer_id}: sequence {header.sequence_first} "
            f"does not follow {last}"
        )

    def note(self, header: BatchHeader, offset_first: int) -> None:
        """Note an appended batch, now or when a partition is opened."""
        if header.producer_id < 0:
            return
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = Producer(header.producer_epoch, [])
        elif producer.epoch != header.producer_epoch:
            producer.epoch, producer.batches = header.producer_epoch, []
        if header.sequence_first >= 0:
            written = WrittenBatch(
                header.sequence_first, header.sequence_last, offset_first, header.timestamp_max
            )
            producer.batches.append(written)
            del producer.batches[: -limits.PRODUCER_BATCHES_REMEMBERED]
        self._producers.move_to_end(header.producer_id)
        if len(self._producers) > limits.PRODUCERS_PER_PARTITION_MAX:
            self._producers.popitem(last=False)

    def note_marker(self, producer_id: int, coordinator_epoch: int, offset: int) -> None:
        """Note a marker, after its batch."""
        producer = self._producers[producer_id]
        producer.coordinator_epoch, producer.marker_offset = coordinator_epoch, offset

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def marker_offset(self, producer_id: int) -> int:
        """Return where the producer's last marker is; -1 if none is known."""
        producer = self._producers.get(producer_id)
        return -1 if producer is None else producer.marker_offset

    def items(self) -> list[tuple[int, Producer]]:
        """Return (producer id, producer), the one that wrote longest ago first."""
        return list(self._producers.items())

    def snapshot(self) -> bytes:
        if not self._producers:
            return b""
        return msgspec.msgpack.encode(self.items())

    @classmethod
    def restore(cls, state: bytes) -> Producers:
        restored = cls()
        if state:
            rows = msgspec.msgpack.decode(state, type=list[tuple[int, Producer]])
            restored._producers.update(rows)
        return restored
