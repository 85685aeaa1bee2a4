"""A source's run: poll, write, commit, over and over.

Records, dead letters and the position after them go out in one transaction. Before the
first, the transactional id is taken, which aborts what a predecessor left open and fences
it if it still runs; only then is the position read. So whatever dies when, a reader of
committed records sees each record once.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from kio.schema.errors import ErrorCode

from entrepot.client.admin import Admin
from entrepot.client.client import Client, TopicPartition
from entrepot.client.errors import ClientError, Refused
from entrepot.client.retention import RetentionWatch
from entrepot.client.transaction_writer import TransactionWriter
from entrepot.client.transactions import Transactions
from entrepot.connect import offsets
from entrepot.connect.dead_letters import dead_letter
from entrepot.connect.interface import ConnectError, Polled, Rejected, Source, SourceRecord
from entrepot.connect.retrying import Patience, Stopped
from entrepot.connect.settings import Settings
from entrepot.core.batch import Codec
from entrepot.core.partitioner import partition_of
from entrepot.core.ports import Clock
from entrepot.core.record import Record

TRANSACTION_MS_MAX = 60_000  # A killed source holds readers back for so long at the most.
_FENCED = (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch)

log = logging.getLogger("entrepot.connect")


class SourceRunner:
    def __init__(
        self,
        settings: Settings,
        make: Callable[[], Source],
        client: Client,
        clock: Clock,
        patience: Patience,
    ) -> None:
        self.count = 0  # Records committed.
        self.dead_count = 0
        self._settings = settings
        self._make = make
        self._client = client
        self._clock = clock
        self._patience = patience
        self._retention = RetentionWatch(client, clock)
        self._counts: dict[str, int] = {}  # Partitions of each topic.
        self._turn = 0  # Where records without a key go; the next batch goes elsewhere.

    async def run(self, stop: asyncio.Event, *, once: bool) -> None:
        with contextlib.suppress(Stopped):  # Also out of a pause after an error.
            await self._run(stop, once=once)

    async def _run(self, stop: asyncio.Event, *, once: bool) -> None:
        while not stop.is_set():
            try:
                await self._session(stop, once=once)
                return
            except (ClientError, ConnectError) as error:
                if isinstance(error, Refused) and error.code in _FENCED:
                    raise ConnectError(
                        f"connector {self._settings.name} runs in another process too, or a "
                        f"transaction took longer than {TRANSACTION_MS_MAX // 1000} s"
                    ) from None
                await self._patience.endure(error)

    async def _session(self, stop: asyncio.Event, *, once: bool) -> None:
        await Admin(self._client).ensure_topic(offsets.NEW_TOPIC)
        taken = await Transactions(self._client).take(
            f"connect-{self._settings.name}", timeout_ms=TRANSACTION_MS_MAX
        )
        position = await offsets.latest(self._client, self._settings.name)
        writer = TransactionWriter(
            self._client, self._clock, taken, codec=Codec[self._settings.compression.upper()]
        )
        source = self._make()
        try:
            await source.open(position)
            await self._pump(source, writer, stop, once=once)
        finally:
            await source.close()

    async def _pump(
        self, source: Source, writer: TransactionWriter, stop: asyncio.Event, *, once: bool
    ) -> None:
        poll_ms = self._settings.poll_ms or source.poll_ms
        count_max = self._settings.batch.records or source.batch_records
        while not stop.is_set():
            polled = await source.poll(count_max)
            if polled is None:
                self._patience.succeeded()
                if once or await self._patience.pause(poll_ms / 1000):
                    return
                continue
            await self._move(writer, polled)
            self._patience.succeeded()
            await source.committed(polled.position)

    async def _move(self, writer: TransactionWriter, polled: Polled) -> None:
        lanes = await self._lanes(polled)
        try:
            await writer.write(lanes)
            await writer.commit()
        except asyncio.CancelledError:
            with contextlib.suppress(ClientError):
                await writer.abort()  # Else readers would wait until it times out.
            raise
        dead = sum(isinstance(each, Rejected) for each in polled.records)
        self.count += len(polled.records) - dead
        self.dead_count += dead

    async def _lanes(self, polled: Polled) -> dict[TopicPartition, list[Record]]:
        lanes: dict[TopicPartition, list[Record]] = {}
        self._turn += 1
        for each in polled.records:
            if isinstance(each, Rejected):
                log.warning(
                    "dead letter",
                    extra={
                        "connector": self._settings.name,
                        "where": each.where,
                        "reason": each.reason,
                    },
                )
                each = dead_letter(self._settings.name, self._settings.errors.dead_letters, each)
            record = Record(each.key, each.value, each.headers, each.timestamp_ms)
            place = await self._place(each)
            if each.timestamp_ms >= 0:
                said = await self._retention.warning(place.topic, each.timestamp_ms)
                if said is not None:
                    log.warning(said, extra={"connector": self._settings.name})
            lanes.setdefault(place, []).append(record)
        lanes[offsets.PART] = [offsets.record_of(self._settings.name, polled.position)]
        return lanes

    async def _place(self, record: SourceRecord) -> TopicPartition:
        topic = record.topic or self._settings.topic
        count = self._counts.get(topic)
        if count is None:
            count = len((await self._client.topic(topic, create=True)).partitions)
            self._counts[topic] = count
        if record.partition is not None:
            if not 0 <= record.partition < count:
                raise ConnectError(
                    f"topic {topic} has partitions 0 to {count - 1}, not {record.partition}"
                )
            return TopicPartition(topic, record.partition)
        if record.key is None:
            return TopicPartition(topic, self._turn % count)
        return TopicPartition(topic, partition_of(record.key, count))
