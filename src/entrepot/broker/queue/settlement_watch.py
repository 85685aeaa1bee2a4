"""Publishers who wait until their messages are consumed, not only until they are kept.

Each message is watched until it is settled. When a run's last one is, and that is permanent,
its publication ends; with a refusal when one of them ended otherwise than by a consumer's
acknowledgement. A restart forgets who waits: their connections are gone, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from entrepot.broker.queue.lane import Lane
from entrepot.broker.queue.message import Publication, Refused


class _Watched:
    __slots__ = ("publication", "unconsumed", "waiting")

    def __init__(self, publication: Publication, waiting: int) -> None:
        self.publication = publication
        self.waiting = waiting  # Messages that are not settled.
        self.unconsumed = 0  # Of the settled ones: those no consumer wanted.


class SettlementWatch:
    """Of one lane."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._watched: dict[int, _Watched] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def add(self, offsets: range, publication: Publication) -> None:
        self._watched.update(dict.fromkeys(offsets, _Watched(publication, len(offsets))))

    def settled(self, settled: Iterable[range], *, is_consumed: bool) -> None:
        """The lane has been told."""
        if not self._watched:
            return
        for offsets in settled:
            for offset in offsets:
                watched = self._watched.pop(offset, None)
                if watched is not None:
                    watched.waiting -= 1
                    watched.unconsumed += not is_consumed
                    if not watched.waiting:
                        self._end(watched)

    def forget(self, offsets: range) -> None:
        """They were never committed."""
        for offset in offsets:
            self._watched.pop(offset, None)

    def close(self) -> None:
        """Nothing more will be consumed."""
        watched = dict.fromkeys(self._watched.values())
        self._watched.clear()
        for each in watched:
            each.publication.arrived(Refused("the queue is gone"))

    def _end(self, watched: _Watched) -> None:
        publication = watched.publication
        if watched.unconsumed:
            text = f"{watched.unconsumed} of the messages were not consumed"
            publication.arrived(Refused(text))
        else:
            self._lane.when_settlements_committed(publication.arrived)
