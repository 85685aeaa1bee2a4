"""Unfinished input: what came from all connections together and is not dealt with yet.

A frame may be large and come slowly, and a request may have to wait for the one before it.
So a connection may hold input for a while, but all of them together only so much. When it is
more, connections are closed that hold more than the average one does, those with the oldest
input first. Who sends little, or sends it quickly, has nothing to fear from those who do not.

Input that waits for its rest, and does not get it for a while, ends its connection as well.

A link tells of every change; nobody is evicted in the middle of a call of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from entrepot.core import limits
from entrepot.core.ports import NOTHING_UNFINISHED, ServingReceiver, Unfinished

EVICTIONS_PER_TURN_MAX = 100  # Of those that are late; then the others have their turn.
LOOKS_PER_TIME = 4  # How often, while the time passes, it is looked who is late.

_SLACK = 64  # Room is made for this fraction of the budget, so that it is made seldom.


class UnfinishedInput:
    """The budget of all connections."""

    def __init__(
        self,
        bytes_max: int = limits.UNFINISHED_BYTES_MAX,
        ms_max: int = limits.UNFINISHED_MS_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._seconds_max = ms_max / 1_000
        self._holdings: dict[Holding, None] = {}  # That are not empty; the oldest input first.
        self._timer: asyncio.TimerHandle | None = None  # While there are any.
        self.bytes_held = 0

    def changed(self, holding: Holding, now: Unfinished) -> None:
        """Count what a connection holds from now on."""
        before, holding.held = holding.held, now
        self.bytes_held += now.size - before.size
        is_other = now.number != before.number or not before.size
        if is_other or not now.size:
            self._holdings.pop(holding, None)
        loop = asyncio.get_running_loop()
        if now != before:
            holding.moved_s = loop.time()
        if is_other and now.size:
            self._holdings[holding] = None
            holding.begun_s = holding.moved_s
            if self._timer is None:
                self._watch(self._seconds_max / LOOKS_PER_TIME)

    def make_room(self) -> None:
        """Evict who is in the way, if too much is held."""
        if self.bytes_held <= self._bytes_max:
            return
        target = self._bytes_max - self._bytes_max // _SLACK
        while self.bytes_held > target:
            average = self.bytes_held / len(self._holdings)
            for holding in list(self._holdings):
                holding.changed()  # Perhaps it was dealt with meanwhile.
                if holding.held.size >= average:
                    holding.evict(f"while all connections hold more than {self._bytes_max}")
                if self.bytes_held <= target:
                    break

    def _watch(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        """Evict who does not go on."""
        latest_s = asyncio.get_running_loop().time() - self._seconds_max
        late = [each for each in self._holdings if each.moved_s <= latest_s]
        for holding in late[:EVICTIONS_PER_TURN_MAX]:
            holding.changed()
            if holding.held.awaits_rest and holding.moved_s <= latest_s:
                holding.evict(f"and no more for {self._seconds_max:g} s")
        self._timer = None
        if len(late) > EVICTIONS_PER_TURN_MAX:
            self._watch(0)
        elif self._holdings:
            self._watch(self._seconds_max / LOOKS_PER_TIME)


class Holding:
    """What one connection holds."""

    __slots__ = ("_all", "_close", "_receiver", "begun_s", "held", "moved_s")

    def __init__(
        self,
        of_all: UnfinishedInput,
        receiver: ServingReceiver,
        close: Callable[[ServingReceiver, str], None],
    ) -> None:
        self._all = of_all
        self._receiver: ServingReceiver | None = receiver  # None: it is over.
        self._close = close
        self.held = NOTHING_UNFINISHED
        self.begun_s = 0.0  # When the oldest of it came,
        self.moved_s = 0.0  # and when something last changed.

    def received(self) -> None:
        """Some more has come. Only from the loop, for somebody may be evicted."""
        self.changed()
        self._all.make_room()

    def changed(self) -> None:
        """Something was dealt with, or the link is paused or goes on."""
        if self._receiver is not None:
            now = self._receiver.unfinished()
            if now.size or self.held.size:
                self._all.changed(self, now)

    def end(self) -> None:
        """The receiver is told of the end, and lets go of everything."""
        if self._receiver is not None:
            self._receiver = None
            self._all.changed(self, NOTHING_UNFINISHED)

    def evict(self, why: str) -> None:
        receiver = self._receiver
        assert receiver is not None
        age_s = asyncio.get_running_loop().time() - self.begun_s
        reason = f"{self.held.size} bytes of unfinished input since {age_s:.0f} s, {why}"
        self.end()
        self._close(receiver, reason)
