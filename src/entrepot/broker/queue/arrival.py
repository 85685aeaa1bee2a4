"""What was published to a queue and is not appended yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from entrepot.broker.queue.message import Failure, PropertyReader, Publication, Run, is_large
from entrepot.core.envelope import Message


class Arrival(NamedTuple):
    run: Run
    publication: Publication | None
    until_settled: bool  # The publisher waits until its messages are consumed.
    due_ms: int | None  # Not to be handed out before.

    @property
    def is_simple(self) -> bool:
        """Nobody waits for anything but the commit."""
        return self.due_ms is None and not self.until_settled

    @property
    def is_large(self) -> bool:
        """Whether it is to be prepared before it is appended."""
        return is_large(self.run)

    def arrived(self, failure: Failure | None = None) -> None:
        if self.publication is not None:
            self.publication.arrived(failure)

    def part(self, messages: Sequence[Message]) -> Arrival:
        """Some of its messages; the publication must expect an answer for them."""
        return self._replace(run=Run(self.run.time_ms, messages))


def by_priority(
    arrivals: Sequence[Arrival], priority_max: int, reader: PropertyReader
) -> dict[int, list[Arrival]]:
    """Which lane gets what. A run with several priorities comes apart."""
    if not priority_max:
        return {0: list(arrivals)}
    lanes: dict[int, list[Arrival]] = {}
    for arrival in arrivals:
        parts: dict[int, list[Message]] = {}
        for message in arrival.run.messages:
            priority = min(priority_max, reader.facts(message[0].properties).priority)
            parts.setdefault(priority, []).append(message)
        if arrival.publication is not None:
            for _ in range(len(parts) - 1):
                arrival.publication.expect()
        for priority, messages in parts.items():
            lanes.setdefault(priority, []).append(arrival.part(messages))
    return lanes
