"""A topic's partition as the gateways use it: appended to in runs, read by offset.

Between the gateway and the log stands what a topic promises about its records:
how large a batch may be, whose clock counts, how it is compressed, and that an
idempotent producer's retry is not written twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from entrepot.broker.producers import Producers, Written
from entrepot.broker.topic_config import TopicConfig
from entrepot.core.batch import BatchHeader, check, recompress, restamp_append_time, walk
from entrepot.core.errors import BatchTooLarge, InvalidBatch, InvalidTimestamp, StorageError
from entrepot.core.ports import Buffer, Clock
from entrepot.log.log import Log, Opened
from entrepot.log.partition import Partition, Waiter

log = logging.getLogger("entrepot.broker")

Batches = Sequence[tuple[BatchHeader, Buffer]]


class Appended(NamedTuple):
    offset_first: int
    offset_end: int  # The answer waits until the watermark is here.
    append_time_ms: int  # -1 when the producer's timestamps count.


class Stream:
    def __init__(self, log: Log, clock: Clock, opened: Opened, config: TopicConfig) -> None:
        self.partition: Partition = opened.partition
        self.config = config
        self._log = log
        self._clock = clock
        self.producers = _fold(opened)
        self.partition.view_snapshot = self.producers.snapshot

    # --- appending

    def append(self, data: Buffer) -> Appended:
        """Check and append what a producer sent: one batch or several.

        Raises a PeerError for what is wrong with it, StorageError when it cannot be kept.
        """
        batches = self._accept(data)
        if any(header.producer_id >= 0 for header, _ in batches):
            return self._append_once(batches)
        return self._append(batches)

    def _accept(self, data: Buffer) -> Batches:
        view = memoryview(data)
        if len(view) == int.from_bytes(view[8:12], "big") + 12 <= self.config.batch_bytes_max:
            return [self._prepare(check(view), view)]  # Nearly always there is just one.
        batches: list[tuple[BatchHeader, Buffer]] = []
        end = 0
        for position, header in walk(view):
            self._check_size(header)
            end = position + header.size
            batch = view[position:end]
            batches.append(self._prepare(check(batch), batch))
        if end != len(view) or not batches:
            raise InvalidBatch(f"{len(view) - end} bytes at the end are not a whole batch")
        return batches

    def _prepare(self, header: BatchHeader, batch: Buffer) -> tuple[BatchHeader, Buffer]:
        config = self.config
        if header.is_control:
            raise InvalidBatch("control batches are the broker's to write")
        changed = False
        if config.codec is not None and header.codec is not config.codec:
            batch, changed = recompress(batch, config.codec), True
        if config.append_time:
            batch, changed = restamp_append_time(batch, self._clock.now_ms()), True
        else:
            if header.is_append_time:
                raise InvalidTimestamp("the topic keeps the producer's timestamps")
            self._check_timestamps(header)
        if changed:
            header = check(batch)
            self._check_size(header)
        return header, batch

    def _check_size(self, header: BatchHeader) -> None:
        size, size_max = header.size, self.config.batch_bytes_max
        if size > size_max:
            raise BatchTooLarge(f"a batch of {size} bytes; the topic takes {size_max}")

    def _check_timestamps(self, header: BatchHeader) -> None:
        now_ms, config = self._clock.now_ms(), self.config
        early, late = header.timestamp_first, header.timestamp_max
        if late - now_ms > config.timestamp_after_ms or (
            early >= 0 and now_ms - early > config.timestamp_before_ms
        ):
            raise InvalidTimestamp("timestamps further from the broker's clock than allowed")

    def _append(self, batches: Batches) -> Appended:
        offset = self._log.append(self.partition, batches)
        time_ms = batches[-1][0].timestamp_max if self.config.append_time else -1
        return Appended(offset, self.partition.offset_end, time_ms)

    def _append_once(self, batches: Batches) -> Appended:
        """As Kafka has it, an idempotent producer sends one batch per partition and request."""
        if len(batches) != 1:
            raise InvalidBatch("an idempotent producer sends one batch at a time")
        header = batches[0][0]
        before = self.producers.check(header)
        if before is not None:
            return self._repeated(header, before)
        appended = self._append(batches)
        self.producers.note(header, appended.offset_first)
        return appended

    def _repeated(self, header: BatchHeader, before: Written) -> Appended:
        offset_end = before.offset_first + header.offset_delta_last + 1
        time_ms = before.timestamp_ms if self.config.append_time else -1
        return Appended(before.offset_first, offset_end, time_ms)

    def when_committed(self, offset_end: int, waiter: Waiter) -> None:
        self.partition.when_committed(offset_end, waiter)


def _fold(opened: Opened) -> Producers:
    """What was saved, and the batches since. After a clean stop there are none."""
    saved = opened.saved
    producers = Producers.restore(saved.state if saved else b"")
    try:
        for header in opened.partition.headers(saved.offset if saved else 0):
            producers.note(header, header.offset_first)
    except (StorageError, OSError) as error:
        log.error("partition refused: %s", error)
        opened.partition.refuse(str(error))
    return producers
