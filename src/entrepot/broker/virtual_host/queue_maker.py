"""Makes the lanes of queues, in memory or in the log, and has what all queues share."""

from __future__ import annotations

from collections.abc import Sequence

from entrepot.broker.catalog import Topic
from entrepot.broker.ledger_store import LedgerStore
from entrepot.broker.ports import TopicStorage
from entrepot.broker.queue.lane import Lane
from entrepot.broker.queue.log_lane import LogLane
from entrepot.broker.queue.memory_lane import MemoryLane
from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.queue.message_cache import MessageCache
from entrepot.broker.queue.settings import QueueSettings
from entrepot.broker.record_store import RecordStore
from entrepot.broker.router.event import Dialect
from entrepot.core.neutral import Formats
from entrepot.core.ports import Clock

LEDGERS = "__queue_ledgers"
SESSIONS = "__sessions"
RETAINED = "__retained"


class QueueMaker:
    def __init__(
        self, topics: TopicStorage, clock: Clock, formats: Formats, dialect: Dialect
    ) -> None:
        self.clock = clock
        self.formats = formats
        self.dialect = dialect
        self.memory_use = MemoryUse()
        self.ledgers = LedgerStore(topics, clock, LEDGERS, "queues")
        self.sessions = RecordStore(topics, clock, SESSIONS)
        self.retained = RecordStore(topics, clock, RETAINED)
        self._topics = topics
        self._cache = MessageCache()

    def memory_lanes(self, settings: QueueSettings) -> Sequence[Lane]:
        return [MemoryLane(self.memory_use) for _ in range(settings.lane_count)]

    def log_lanes(self, topic: Topic) -> Sequence[Lane]:
        """Return one lane for each partition. The partitions and `ledgers` must be open."""
        served_partitions = self._topics.served_partitions(topic)
        return [
            LogLane(served, self.ledgers, self.formats, self._cache) for served in served_partitions
        ]
