"""Publishers that wait until their messages are consumed, not only until they are committed.

Each message is watched until it is settled. When all messages of a run are, and the settlements
are committed, its publication is answered; with a refusal if any message was settled otherwise
than by a consumer's acknowledgement. Watches do not survive a restart: nor do the connections.
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
        self.unconsumed = 0  # Messages that were settled, but not by a consumer.


class SettlementWatch:
    """The watched messages of one lane."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.watched: dict[int, _Watched] = {}  # By offset.

    def __len__(self) -> int:
        return len(self.watched)

    def add(self, offsets: range, publication: Publication) -> None:
        self.watched.update(dict.fromkeys(offsets, _Watched(publication, len(offsets))))

    def settled(self, settled: Iterable[range], *, is_consumed: bool) -> None:
        """Note settled messages, and answer the publications that wait for no others.

        The settlements must be recorded in the lane before.
        """
        if not self.watched:
            return
        for offsets in settled:
            for offset in offsets:
                watched = self.watched.pop(offset, None)
                if watched is not None:
                    watched.waiting -= 1
                    watched.unconsumed += not is_consumed
                    if not watched.waiting:
                        self._end(watched)

    def forget(self, offsets: range) -> None:
        """Stop watching these messages: they could not be committed."""
        for offset in offsets:
            self.watched.pop(offset, None)

    def close(self) -> None:
        """Refuse all publications that wait: nothing more will be consumed."""
        watched = dict.fromkeys(self.watched.values())
        self.watched.clear()
        for each in watched:
            each.publication.arrived(Refused("the queue is gone"))

    def _end(self, watched: _Watched) -> None:
        publication = watched.publication
        if watched.unconsumed:
            text = f"{watched.unconsumed} of the messages were not consumed"
            publication.arrived(Refused(text))
        else:
            self._lane.when_settlements_committed(publication.arrived)
