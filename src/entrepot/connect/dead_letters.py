"""What becomes of a record that cannot be moved: the end of the run, or another topic.

A dead letter is the record as it was, with headers that say who could not take it, where
it was, and why. A source writes it in the transaction of the records around it; a sink
before it goes on, so that after a crash it may be there twice, but never missing.
"""

import logging

from entrepot.client.client import Client
from entrepot.client.reader import Message
from entrepot.connect.interface import ConnectError, Rejected, SourceRecord
from entrepot.core.batch import build
from entrepot.core.partitioner import partition_of
from entrepot.core.ports import Clock
from entrepot.core.record import Record

log = logging.getLogger("entrepot.connect")


class PoisonRecord(ConnectError):
    """A record that cannot be moved, and nobody said what to do with such."""


def dead_letter(name: str, topic: str | None, found: Rejected) -> SourceRecord:
    if topic is None:
        raise PoisonRecord(f"{found.where}: {found.reason}; errors.dead_letters is not set")
    headers = (*_headers(name, found.reason), ("entrepot-where", found.where.encode()))
    return SourceRecord(found.data, headers=headers, topic=topic)


class DeadLetters:
    """Those of a sink."""

    def __init__(self, name: str, topic: str | None, client: Client, clock: Clock) -> None:
        self.count = 0
        self._name = name
        self._topic = topic
        self._client = client
        self._clock = clock

    async def reject(self, message: Message, reason: str) -> None:
        part, record = message.part, message.record
        if self._topic is None:
            raise PoisonRecord(
                f"topic {part.topic}, partition {part.partition}, offset {record.offset}: "
                f"{reason}; errors.dead_letters is not set"
            )
        place = (
            ("entrepot-topic", part.topic.encode()),
            ("entrepot-partition", str(part.partition).encode()),
            ("entrepot-offset", str(record.offset).encode()),
        )
        headers = (*record.headers, *_headers(self._name, reason), *place)
        letter = Record(record.key, record.value, headers, record.timestamp_ms)
        count = len((await self._client.topic(self._topic, create=True)).partitions)
        partition = part.partition % count
        if record.key is not None:
            partition = partition_of(record.key, count)
        batch = build([letter], now_ms=self._clock.now_ms())
        await self._client.produce(self._topic, partition, batch)
        self.count += 1
        log.warning(
            "dead letter",
            extra={
                "connector": self._name,
                "where": f"{part.topic}/{part.partition}/{record.offset}",
                "reason": reason,
            },
        )


def _headers(name: str, reason: str) -> tuple[tuple[str, bytes], ...]:
    return (("entrepot-connector", name.encode()), ("entrepot-error", reason.encode()))
