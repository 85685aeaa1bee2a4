"""Records in, batches out.

Each partition has a lane: records wait there until a batch is full or has lingered,
and one batch at a time is on its way, so a repeated one never overtakes the next.
The first batch that cannot be delivered stops the producer: records sent after a
lost one would close the gap and hide it. `flush` and `send` raise what stopped it.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence

from entrepot.client.client import ACKS_ALL, Client
from entrepot.client.cluster import TopicInfo
from entrepot.client.errors import ClientError
from entrepot.core.batch import Codec, build
from entrepot.core.limits import KIB, MIB
from entrepot.core.partitioner import partition_of
from entrepot.core.ports import Clock
from entrepot.core.record import Record

RECORD_OVERHEAD_BYTES = 100  # What a waiting record costs beside its key and value, about.


class _Lane:
    """What waits for one partition."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.records: deque[tuple[Record, int]] = deque()  # With their sizes.
        self.size = 0  # The sum of them.
        self.is_full = asyncio.Event()
        self.carrier: asyncio.Task[None] | None = None  # Runs while there are records.


class Producer:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        acks: int = ACKS_ALL,
        codec: Codec = Codec.NONE,
        linger_ms: int = 5,
        batch_bytes: int = 256 * KIB,
        waiting_bytes_max: int = 16 * MIB,
    ) -> None:
        self._client = client
        self._clock = clock
        self._acks = acks
        self._codec = codec
        self._linger_s = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting_bytes = 0  # Of all lanes.
        self._has_room = asyncio.Event()
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._keyless: dict[str, int] = {}  # Per topic, where records without a key go now.
        self._stopped: ClientError | None = None

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int = -1,
        partition: int | None = None,
    ) -> None:
        """Queue one record; waits while too much is queued already."""
        while self._waiting_bytes >= self._waiting_bytes_max and self._stopped is None:
            self._has_room.clear()
            await self._has_room.wait()
        info = await self._client.topic(topic, create=True)
        if partition is None:
            partition = self._choose(info, key)
        if self._stopped is not None:
            raise self._stopped
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane(topic, partition)
        size = len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES
        lane.records.append((Record(key, value, tuple(headers), timestamp_ms), size))
        lane.size += size
        self._waiting_bytes += size
        if lane.size >= self._batch_bytes:
            lane.is_full.set()
        if lane.carrier is None:
            lane.carrier = asyncio.create_task(self._carry(lane))

    async def flush(self) -> None:
        """Return when everything sent so far is acknowledged."""
        carriers = []
        for lane in self._lanes.values():
            if lane.carrier is not None:
                lane.is_full.set()  # Nobody lingers in a flush.
                carriers.append(lane.carrier)
        await asyncio.gather(*carriers)
        if self._stopped is not None:
            raise self._stopped

    def _choose(self, topic: TopicInfo, key: bytes | None) -> int:
        count = len(topic.partitions)
        if key is not None:
            return partition_of(key, count)
        chosen = self._keyless[topic.name] = self._keyless.get(topic.name, 0) % count
        return chosen

    async def _carry(self, lane: _Lane) -> None:
        while lane.records and self._stopped is None:
            if not lane.is_full.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._linger_s):
                        await lane.is_full.wait()
            await self._carry_batch(lane)
        lane.carrier = None

    async def _carry_batch(self, lane: _Lane) -> None:
        records, size = self._take_batch(lane)
        batch = build(records, now_ms=self._clock.now_ms(), codec=self._codec)
        try:
            await self._client.produce(lane.topic, lane.partition, batch, acks=self._acks)
        except ClientError as error:
            self._stopped = error
        self._waiting_bytes -= size
        self._has_room.set()

    def _take_batch(self, lane: _Lane) -> tuple[list[Record], int]:
        taken: list[Record] = []
        size = 0
        while lane.records and size < self._batch_bytes:
            record, record_size = lane.records.popleft()
            taken.append(record)
            size += record_size
        lane.size -= size
        if lane.size < self._batch_bytes:
            lane.is_full.clear()
        if self._keyless.get(lane.topic) == lane.partition:
            self._keyless[lane.topic] += 1
        return taken, size
