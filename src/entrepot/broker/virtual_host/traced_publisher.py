"""A publisher that makes spans of what it publishes and routes: see `entrepot.broker.tracing`."""

from __future__ import annotations

from collections.abc import Sequence

from entrepot.broker.queue.message import Failure, Publication
from entrepot.broker.tracing import Span, Tracer, contexts_of
from entrepot.broker.virtual_host.deduplication import Memory
from entrepot.broker.virtual_host.publisher import Check, Publisher
from entrepot.core.message import Message


class TracedPublisher(Publisher):
    tracer: Tracer  # Set before the first message. (mypyc has no `super().__init__(*parts)`.)

    def publish(
        self,
        start: str,
        messages: Sequence[Message],
        publication: Publication | None,
        *,
        inside: bool = False,
        avoided: Sequence[str] = (),
        check: Check | None = None,
        to_topics: bool = True,
        sender: object | None = None,
        memory: Memory | None = None,
        encoded: dict[object, bytes] | None = None,
    ) -> Sequence[Message]:
        spans = self._begin(start, messages)
        own = publication if publication is None or not spans else _watched(publication, spans)
        routing = [span.begin("route") for span in spans]
        nowhere: Sequence[Message] = messages
        try:
            nowhere = super().publish(
                start,
                messages,
                own,
                inside=inside,
                avoided=avoided,
                check=check,
                to_topics=to_topics,
                sender=sender,
                memory=memory,
                encoded=encoded,
            )
            return nowhere
        finally:
            for span in routing:
                span.end(attributes={"entrepot.unroutable": len(nowhere)} if nowhere else {})
            if own is None:
                for span in spans:
                    span.end()
            elif own is not publication:
                own.arrived()

    def publish_alone(
        self,
        messages: Sequence[Message],
        publication: Publication | None,
        sender: object | None,
    ) -> Sequence[Message] | None:
        if contexts_of(messages):
            return None
        return super().publish_alone(messages, publication, sender)

    def _begin(self, start: str, messages: Sequence[Message]) -> list[Span]:
        return [
            self.tracer.begin(
                f"publish {envelope.subject or start}",
                context,
                {
                    "messaging.system": "entrepot",
                    "messaging.operation.name": "publish",
                    "messaging.destination.name": start or envelope.subject,
                    "entrepot.subject": envelope.subject,
                    "entrepot.format": envelope.format.name,
                },
            )
            for context, envelope in contexts_of(messages)
        ]


def _watched(publication: Publication, spans: Sequence[Span]) -> Publication:
    """Return a publication that ends the spans, and that the other one waits for."""
    publication.expect()

    def done(failure: Failure | None) -> None:
        for span in spans:
            span.end("" if failure is None else str(failure))
        publication.arrived(failure)

    return Publication(done)
