"""A sink's run: gather, write, commit, over and over.

One process reads all partitions; nobody divides them, so nobody has to stop for a
rebalance. What the target knows of offsets counts, then the group's, and what neither
knows begins where the settings say. Offsets are committed to the group after the sink has
written, for sinks that keep none themselves and for people who look at the lag.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping

from kio.schema.errors import ErrorCode

from entrepot.client.client import EARLIEST, LATEST, Client, TopicPartition
from entrepot.client.errors import ClientError, Refused
from entrepot.client.offsets import commit_offsets, committed_offsets
from entrepot.client.reader import Message, Reader
from entrepot.connect.dead_letters import DeadLetters
from entrepot.connect.interface import ConnectError, Sink
from entrepot.connect.retrying import Patience, Stopped
from entrepot.connect.settings import Settings

POLL_WAIT_MS = 500
PARTITIONS_REFRESH_S = 5.0


class _PartitionsChanged(Exception):
    """The topics have other partitions now."""


class SinkRunner:
    def __init__(
        self,
        settings: Settings,
        make: Callable[[], Sink],
        client: Client,
        patience: Patience,
        letters: DeadLetters,
    ) -> None:
        self._taken = 0  # Records that were written, or rejected.
        self._letters = letters
        self._settings = settings
        self._group = settings.group or f"connect-{settings.name}"
        self._make = make
        self._client = client
        self._patience = patience
        self._ends: dict[TopicPartition, int] | None = None  # Where a run with an end ends.

    @property
    def count(self) -> int:
        """Records that were written."""
        return self._taken - self._letters.count

    @property
    def dead_count(self) -> int:
        return self._letters.count

    async def run(self, stop: asyncio.Event, *, once: bool) -> None:
        with contextlib.suppress(Stopped):  # Also out of a pause after an error.
            await self._run(stop, once=once)

    async def _run(self, stop: asyncio.Event, *, once: bool) -> None:
        while not stop.is_set():
            try:
                if once and self._ends is None:
                    self._ends = await self._offsets_at(await self._partitions(), LATEST)
                await self._session(stop)
                return
            except _PartitionsChanged:
                continue
            except (ClientError, ConnectError) as error:
                if isinstance(error, Refused) and error.code is ErrorCode.offset_out_of_range:
                    raise ConnectError(
                        f"{error.about}: records were deleted before they were read; "
                        'on_data_loss = "skip" goes on after them'
                    ) from None
                await self._patience.endure(error)

    async def _session(self, stop: asyncio.Event) -> None:
        parts = await self._partitions()
        sink = self._make()
        try:
            kept = await sink.open(parts)
            skip = self._settings.on_data_loss == "skip"
            reader = Reader(
                self._client,
                await self._start(parts, kept),
                reset=EARLIEST if skip else None,
                committed=True,
            )
            await self._pump(sink, Intake(reader, self._settings, sink, self._ends, stop), stop)
        finally:
            await sink.close()

    async def _pump(self, sink: Sink, intake: "Intake", stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        looked_s, said = loop.time(), dict(intake.positions)
        while not stop.is_set() and not intake.is_done():
            messages = await intake.gather()
            if messages:
                await sink.write(messages)
                self._taken += len(messages)
            if intake.positions != said:
                said = dict(intake.positions)
                await commit_offsets(self._client.cluster, self._group, said)
            self._patience.succeeded()
            if self._ends is None and loop.time() - looked_s >= PARTITIONS_REFRESH_S:
                looked_s = loop.time()
                if set(await self._partitions()) != set(said):
                    raise _PartitionsChanged

    async def _partitions(self) -> list[TopicPartition]:
        parts = []
        for topic in self._settings.all_topics:
            found = (await self._client.cluster.describe([topic], create=True))[0]
            if isinstance(found, Refused):
                raise found
            parts += [TopicPartition(topic, index) for index in range(len(found.partitions))]
        return parts

    async def _start(
        self, parts: list[TopicPartition], kept: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        known = await committed_offsets(self._client.cluster, self._group, parts) | dict(kept)
        new = [part for part in parts if part not in known]
        place = LATEST if self._settings.start == "latest" else EARLIEST
        known |= await self._offsets_at(new, place)
        return {part: known[part] for part in parts}

    async def _offsets_at(
        self, parts: list[TopicPartition], place: int
    ) -> dict[TopicPartition, int]:
        found = await self._client.list_offsets(dict.fromkeys(parts, place), committed=True)
        return {part: at.offset for part, at in found.items()}


class Intake:
    """Records in handfuls: full ones while there is plenty, and small ones without delay."""

    def __init__(
        self,
        reader: Reader,
        settings: Settings,
        sink: Sink,
        ends: Mapping[TopicPartition, int] | None,
        stop: asyncio.Event,
    ) -> None:
        self._stop = stop
        self._reader = reader
        self._ends = ends
        self._count_max = settings.batch.records or sink.batch_records
        self._bytes_max = settings.batch.bytes
        wait_ms = settings.batch.wait_ms
        self._wait_s = (sink.batch_wait_ms if wait_ms is None else wait_ms) / 1000
        self._fetched: Iterator[Message] = iter(())  # Positions move as it is taken from.

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._reader.positions

    def is_done(self) -> bool:
        ends = self._ends
        return ends is not None and all(
            position >= ends.get(part, 0) for part, position in self.positions.items()
        )

    async def gather(self) -> list[Message]:
        """What came first waits for company, but no longer than it may."""
        loop = asyncio.get_running_loop()
        taken: list[Message] = []
        size, deadline_s = 0, loop.time() + POLL_WAIT_MS / 1000
        while True:
            for message in self._fetched:
                if not taken:
                    deadline_s = loop.time() + self._wait_s
                taken.append(message)
                size += len(message.record.key or b"") + len(message.record.value or b"")
                if len(taken) >= self._count_max or size >= self._bytes_max:
                    return taken
            left_ms = int((deadline_s - loop.time()) * 1000)
            if left_ms <= 0 or self.is_done() or self._stop.is_set():
                return taken
            self._fetched = await self._reader.poll(min(left_ms, POLL_WAIT_MS))
