"""What queues are made of, shared by all virtual hosts: lanes of memory, or of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrepot.broker.catalog import Topic
from entrepot.broker.ledger_store import LedgerStore
from entrepot.broker.queue.lane import Lane
from entrepot.broker.queue.log_lane import LogLane
from entrepot.broker.queue.memory_lane import MemoryLane
from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.queue.message import PropertyReader
from entrepot.broker.queue.message_cache import MessageCache
from entrepot.broker.queue.settings import QueueSettings
from entrepot.core.ports import Clock

if TYPE_CHECKING:
    from entrepot.broker.broker import Broker

LEDGERS = "__queue_ledgers"


class QueueMaker:
    def __init__(self, broker: Broker, clock: Clock, reader: PropertyReader) -> None:
        self.clock = clock
        self.reader = reader
        self.memory_use = MemoryUse()
        self.ledgers = LedgerStore(broker, clock, LEDGERS, "queues")
        self._broker = broker
        self._cache = MessageCache()

    def memory_lanes(self, settings: QueueSettings) -> Sequence[Lane]:
        return [MemoryLane(self.memory_use) for _ in range(settings.lane_count)]

    def log_lanes(self, topic: Topic) -> Sequence[Lane]:
        """Its streams are open, and so is the store of ledgers."""
        streams = [self._broker.stream(topic, index) for index in range(topic.partition_count)]
        return [LogLane(stream, self.ledgers, self.reader, self._cache) for stream in streams]
