"""Dividing messages among consumers like cards: one each in turn, until somebody is full.

Who deals single messages touches every one. Dealt in rounds, each of m consumers gets every
m-th message of a stretch, which is one slice however many there are; a stretch ends where
the first of them has no more room. The order is exactly that of dealing one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

S = TypeVar("S")


class Deal(Generic[S]):
    def __init__(self, players: Sequence[tuple[S, int]]) -> None:
        """Players and how much room they have; the first one is the next to be served."""
        self._players = [player for player, _ in players]
        self._rooms = [room for _, room in players]
        self.last: S | None = None  # Who was served last.

    def hands(self, count: int) -> Iterator[tuple[S, slice]]:
        """Who gets which of the next so many messages. There must be room for all of them.

        In the order of each one's first message, except that later stretches follow.
        """
        if len(self._players) == 1:  # Nearly always.
            self.last = self._players[0]
            self._rooms[0] -= count
            yield self.last, slice(0, count, 1)
            return
        start = 0
        while start < count:
            players, rooms = self._players, self._rooms
            width, rounds = len(players), min(rooms)
            stop = min(count, start + rounds * width)
            for place, player in enumerate(players[: stop - start]):
                yield player, slice(start + place, stop, width)
            self._pass_on(stop - start)
            start = stop

    def _pass_on(self, dealt: int) -> None:
        """So many were dealt: rooms shrink, and the next in turn comes to the front."""
        players = self._players
        width = len(players)
        whole, extra = divmod(dealt, width)
        self.last = players[(dealt - 1) % width]
        rooms = [
            room - whole - (1 if place < extra else 0) for place, room in enumerate(self._rooms)
        ]
        order = [*range(extra, width), *range(extra)]
        self._players = [players[place] for place in order if rooms[place] > 0]
        self._rooms = [rooms[place] for place in order if rooms[place] > 0]
