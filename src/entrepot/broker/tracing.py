"""Spans: what the broker does with messages whose publishers trace them.

A publisher that traces puts the context of its span into the header `traceparent` (W3C Trace
Context), and the broker hands it on untouched. Where tracing is configured, the broker makes spans
of its own below that one: for publishing a message, for routing it, and for its delivery, from when
it came until it was handed out. It makes none for a message without a context, or with one that is
not sampled: how much is traced is the publishers' choice.

Where it is not configured, nothing looks for contexts: the traced classes (`TracedPublisher`,
`TracedQueue`) are not used at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from entrepot.core import limits
from entrepot.core.message import Envelope, Message, distinct

PARENT, STATE = "traceparent", "tracestate"
_PARENT_BYTES = PARENT.encode()
_LENGTH = 55  # Of a context of version 0, and the least of later ones.
_FLAGS = slice(53, 55)

Attributes = Mapping[str, str | int]
NONE: Attributes = {}


class TraceContext(NamedTuple):
    """The two headers."""

    parent: str
    state: str | None


class Span(Protocol):
    def begin(self, name: str) -> Span:
        """Begin a span below this one."""

    def end(self, failure: str = "", attributes: Attributes = NONE) -> None: ...


class Tracer(Protocol):
    """Implemented outside of the broker, with the library of the field."""

    def begin(
        self,
        name: str,
        context: TraceContext,
        attributes: Attributes = NONE,
        *,
        begun_ms: int | None = None,
    ) -> Span:
        """Begin a span below the publisher's, now or at that time. Must not fail."""


def contexts_of(messages: Sequence[Message]) -> list[tuple[TraceContext, Envelope]]:
    """Return the contexts of the first envelopes that have one which is sampled."""
    if not messages:
        return []
    found = (
        (context, envelope)
        for envelope in distinct(messages)
        if (context := _context_of(envelope)) is not None
    )
    return [*islice(found, limits.SPANS_AT_ONCE_MAX)]


def _context_of(envelope: Envelope) -> TraceContext | None:
    if _PARENT_BYTES not in envelope.head:
        return None
    headers = envelope.properties.headers
    return sampled([(PARENT, headers.get(PARENT)), (STATE, headers.get(STATE))])


def sampled(headers: Iterable[tuple[str, object]]) -> TraceContext | None:
    """Return the context that is in headers, if it is sampled."""
    texts = {name: _text(value) for name, value in headers if name in (PARENT, STATE)}
    parent = texts.get(PARENT)
    if parent is None or len(parent) < _LENGTH:
        return None
    try:
        is_sampled = int(parent[_FLAGS], 16) & 1
    except ValueError:
        return None
    return TraceContext(parent, texts.get(STATE)) if is_sampled else None


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None
