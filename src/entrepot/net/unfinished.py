"""Limits unfinished input: bytes that were received from all connections and are not processed.

A frame may be large and arrive slowly, and a request may have to wait for the one before it, so a
connection may hold input for a while. All connections together may hold a limited number of
bytes. When they hold more, connections that hold more than the average are closed, those with the
oldest input first. A connection that sends little, or sends its frames quickly, is not affected.

A connection is also closed when it has sent a part of a frame and then nothing for some time.

Links report every change. A connection is never closed from within a call by its own receiver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from entrepot.core import limits
from entrepot.core.ports import NOTHING_UNFINISHED, ServingReceiver, Unfinished

EVICTIONS_PER_TURN_MAX = 100  # Of connections that are late. Then other work has a turn.
LOOKS_PER_TIME = 4  # How often late connections are looked for in that time.

_SLACK = 64  # 1/64 of the limit more is freed than needed, so that it happens seldom.


class UnfinishedInput:
    """The limit of all connections together."""

    def __init__(
        self,
        bytes_max: int = limits.UNFINISHED_BYTES_MAX,
        ms_max: int = limits.UNFINISHED_MS_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._seconds_max = ms_max / 1_000
        self._holdings: dict[Holding, None] = {}  # Those with input, the oldest first.
        self._timer: asyncio.TimerHandle | None = None  # None while no connection has input.
        self.bytes_held = 0

    def changed(self, holding: Holding, now: Unfinished) -> None:
        """Note what a connection holds now."""
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
        """Close connections that hold much, if all together hold too much."""
        if self.bytes_held <= self._bytes_max:
            return
        target = self._bytes_max - self._bytes_max // _SLACK
        while self.bytes_held > target:
            average = self.bytes_held / len(self._holdings)
            for holding in list(self._holdings):
                holding.changed()  # It may have been processed meanwhile.
                if holding.held.size >= average:
                    holding.evict(f"while all connections hold more than {self._bytes_max}")
                if self.bytes_held <= target:
                    break

    def _watch(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        """Close connections whose unfinished frame gets no more bytes."""
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
    """The unfinished input of one connection."""

    __slots__ = ("_all", "_close", "_receiver", "begun_s", "held", "moved_s")

    def __init__(
        self,
        of_all: UnfinishedInput,
        receiver: ServingReceiver,
        close: Callable[[ServingReceiver, str], None],
    ) -> None:
        self._all = of_all
        self._receiver: ServingReceiver | None = receiver  # None means: the connection has ended.
        self._close = close
        self.held = NOTHING_UNFINISHED
        self.begun_s = 0.0  # When its oldest byte was received.
        self.moved_s = 0.0  # When it last changed.

    def received(self) -> None:
        """Count received bytes. To be called from the loop only: it may close connections."""
        receiver = self._receiver
        if receiver is None:
            return
        now = receiver.unfinished()
        if now.size or self.held.size:
            self._all.changed(self, now)
            self._all.make_room()

    def changed(self) -> None:
        """Count again: input was processed, or the link was paused or resumed."""
        if self._receiver is not None:
            now = self._receiver.unfinished()
            if now.size or self.held.size:
                self._all.changed(self, now)

    def end(self) -> None:
        """Stop counting: the receiver releases its input."""
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
