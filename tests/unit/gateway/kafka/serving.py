"""Produce and Fetch called as the adapter calls them, and what they answer."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from entrepot.core import batch
from entrepot.core.ports import Chunk, FileRange
from entrepot.core.record import Record
from entrepot.gateway.kafka import fetch as fetch_api
from entrepot.gateway.kafka import produce as produce_api
from entrepot.gateway.pump import Cancellable
from entrepot.wire.kafka import fetch, produce
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from entrepot.wire.kafka.frames import RequestHeader
from entrepot.wire.kafka.produce import ProducePartition, ProduceRequest, ProduceResult
from tests.unit.gateway.kafka.node import Node

PRODUCE_VERSION = 9
FETCH_VERSION = 12


class Answer:
    """Where a handler leaves its answer."""

    def __init__(self) -> None:
        self.body: bytes | None = None
        self.is_omitted = False
        self.refused: str | None = None
        self.held: Cancellable | None = None  # What the next request waits for.
        self.sent = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self.body is not None or self.is_omitted or self.refused is not None

    def send(self, chunks: Sequence[Chunk], size: int) -> None:
        assert not self.is_over
        self.body = joined(chunks)
        assert len(self.body) == size
        self.sent.set()

    def omit(self) -> None:
        assert not self.is_over
        self.is_omitted = True

    def refuse(self, reason: str) -> None:
        assert not self.is_over
        self.refused = reason

    def hold(self, work: Cancellable) -> None:
        self.held = work

    def go_on(self) -> None:
        self.held = None

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        call(*arguments)


def joined(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(
        each.file.read(each.position, each.size) if isinstance(each, FileRange) else each
        for each in chunks
    )


def batch_of(*values: bytes, **options: Any) -> bytes:
    return batch.build([Record(b"key", value) for value in values], now_ms=1_000, **options)


class Produced:
    """A produce request on its way."""

    def __init__(
        self,
        node: Node,
        partitions: Sequence[ProducePartition],
        *,
        acks: int = -1,
        version: int = PRODUCE_VERSION,
        transactional_id: str | None = None,
    ) -> None:
        self.answer = Answer()
        self._version = version
        request = ProduceRequest(transactional_id, acks, 1_000, list(partitions))
        body = produce.encode_request(version, request)
        header = RequestHeader(Api.PRODUCE, version, 1, None)
        frame = memoryview(bytearray(body))
        self.pending = produce_api.serve(node.context, header, frame, 0, self.answer)  # type: ignore[arg-type]

    def results(self) -> list[ProduceResult]:
        assert self.answer.body is not None, "not answered"
        view = memoryview(self.answer.body)
        topics, _ = produce.decode_response(self._version, view, 0)
        return [result for topic in topics for result in topic.results]

    async def done(self) -> list[ProduceResult]:
        if self.pending is not None:
            await self.pending
        await self.answer.sent.wait()
        return self.results()


def to(topic: str, data: bytes | None, index: int = 0) -> ProducePartition:
    return ProducePartition(topic, None, index, data)


def wanted(offset: int = 0, index: int = 0, bytes_max: int = 1 << 20) -> FetchPartition:
    return FetchPartition(index, -1, offset, -1, -1, bytes_max)


class Fetching:
    """A fetch request on its way. Without a wait it is answered at once."""

    def __init__(self, node: Node, request: FetchRequest, *, version: int = FETCH_VERSION) -> None:
        self.answer = Answer()
        self._version = version
        header = RequestHeader(Api.FETCH, version, 1, None)
        frame = memoryview(bytearray(fetch.encode_request(version, request)))
        self.pending = fetch_api.serve(node.context, header, frame, 0, self.answer)  # type: ignore[arg-type]

    def response(self) -> FetchResponse:
        assert self.answer.body is not None, "not answered"
        return fetch.decode_response(self._version, memoryview(self.answer.body), 0)

    async def done(self) -> FetchResponse:
        if self.pending is not None:
            await self.pending
        await self.answer.sent.wait()
        assert self.answer.held is None
        return self.response()


def fetch_request(
    topics: Sequence[FetchTopic] | str, *partitions: FetchPartition, **bounds: Any
) -> FetchRequest:
    """Of one topic by name, or of several; without a wait unless `bounds` say so."""
    if isinstance(topics, str):
        topics = [FetchTopic(topics, None, partitions or (wanted(),))]
    settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 25, **bounds}
    return FetchRequest(topics=list(topics), **settings)


def values_in(records: Any) -> list[bytes | None]:
    """Of every whole batch."""
    view = memoryview(records)
    return [
        record.value
        for position, header in batch.walk(view)
        for record in batch.records(view[position : position + header.size])
    ]
