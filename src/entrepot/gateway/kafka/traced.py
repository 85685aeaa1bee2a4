"""Spans of requests to produce, from the request to its answer: see `entrepot.broker.tracing`.

A batch is stored unread, and read here only if it has a context somewhere: its first records, and
none if they are compressed. Fetches make no spans: they are ranges of files, and nobody looks at
the records in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from entrepot.broker.tracing import PARENT, Span, Tracer, sampled
from entrepot.core import limits
from entrepot.core.batch import Codec, read_header, records
from entrepot.core.errors import InvalidBatch
from entrepot.core.ports import Buffer, Chunk
from entrepot.gateway.kafka.ports import Answer
from entrepot.gateway.pump import Cancellable
from entrepot.wire.kafka.produce import ProduceRequest

_PARENT_BYTES = PARENT.encode()


def traced(tracer: Tracer, request: ProduceRequest, answer: Answer) -> Answer:
    """Return an answer that ends the spans of the request; the same one if it has none."""
    spans: list[Span] = []
    for wanted in request.partitions:
        left = limits.SPANS_AT_ONCE_MAX - len(spans)
        if left <= 0:
            break
        if wanted.records is not None and _PARENT_BYTES in bytes(wanted.records):
            topic = wanted.topic_name or str(wanted.topic_id)
            spans += _begin(tracer, topic, wanted.partition_index, wanted.records, left)
    return _TracedAnswer(answer, spans) if spans else answer


def _begin(tracer: Tracer, topic: str, index: int, batch: Buffer, count_max: int) -> list[Span]:
    found = []
    try:
        if read_header(batch).codec is not Codec.NONE:
            return []
        for record in islice(records(batch), count_max):
            context = sampled(record.headers)
            if context is not None:
                attributes: dict[str, str | int] = {
                    "messaging.system": "entrepot",
                    "messaging.operation.name": "publish",
                    "messaging.destination.name": topic,
                    "messaging.destination.partition.id": str(index),
                }
                found.append(tracer.begin(f"publish {topic}", context, attributes))
    except InvalidBatch:
        pass  # The answer will say so.
    return found


class _TracedAnswer:
    def __init__(self, inner: Answer, spans: Sequence[Span]) -> None:
        self._inner = inner
        self._spans = spans

    @property
    def guard(self) -> Callable[..., None]:
        return self._inner.guard

    def send(self, body: Sequence[Chunk], size: int) -> None:
        self._end()
        self._inner.send(body, size)

    def hold(self, work: Cancellable) -> None:
        self._inner.hold(work)

    def go_on(self) -> None:
        self._inner.go_on()

    def omit(self) -> None:
        self._end()
        self._inner.omit()

    def refuse(self, reason: str) -> None:
        self._end(reason)
        self._inner.refuse(reason)

    def _end(self, failure: str = "") -> None:
        for span in self._spans:
            span.end(failure)
