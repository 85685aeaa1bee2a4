"""A queue that makes spans of its deliveries: see `entrepot.broker.tracing`.

The span of a delivery begins when the message came and ends when it is handed out: it shows how
long the message waited.
"""

from __future__ import annotations

from collections.abc import Iterable

from entrepot.broker.ledger import Lease
from entrepot.broker.queue.consumer import Seat
from entrepot.broker.queue.front import Popped
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.tracing import Tracer, contexts_of


class TracedQueue(Queue):
    tracer: Tracer  # Set before the first message. (mypyc has no `super().__init__(*parts)`.)

    def _deliver(self, number: int, popped: Popped, deliveries: list[tuple[Seat, Taken]]) -> None:
        super()._deliver(number, popped, deliveries)
        self._note(taken for _, taken in deliveries)

    def _leased(self, number: int, popped: Popped, lease: Lease | None) -> list[tuple[int, Taken]]:
        found = super()._leased(number, popped, lease)
        self._note(taken for _, taken in found)
        return found

    def _note(self, deliveries: Iterable[Taken]) -> None:
        for taken in deliveries:
            for context, envelope in contexts_of(taken.run.messages):
                attributes = {
                    "messaging.system": "entrepot",
                    "messaging.operation.name": "deliver",
                    "messaging.destination.name": self.name,
                    "entrepot.virtual_host": self.vhost,
                    "entrepot.subject": envelope.subject,
                }
                name, begun_ms = f"deliver {self.name}", taken.run.time_ms
                self.tracer.begin(name, context, attributes, begun_ms=begun_ms).end()
