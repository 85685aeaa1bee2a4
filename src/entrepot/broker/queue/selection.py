"""Selections: consumers that want only some of a queue's messages.

Such a consumer looks at each ready message once, in the order of the queue, and takes those that it
wants; others stay for other consumers. What it has looked at is everything below an offset, in
each lane, but for messages that are ready again since. Whoever else takes a message meanwhile has
it: consumers with and without a selection compete.

A consumer may be the only one that its queue is for. Then the others are dropped: nobody would
ever take them. Or it only browses: it gets copies, and the messages stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from entrepot.broker.ledger import Ledger
from entrepot.core import limits
from entrepot.core.message import Envelope, Message
from entrepot.core.ranges import Ranges


class Wants(Protocol):
    @property
    def cost(self) -> int:
        """Return how long a call takes, in about tenths of a microsecond."""

    def __call__(self, envelope: Envelope) -> bool: ...


class Everything:
    """Implements `Wants` for a consumer that wants all messages."""

    cost = 0

    def __call__(self, envelope: Envelope) -> bool:
        return True


class Progress:
    """What a selecting consumer has not looked at in one lane."""

    __slots__ = ("_again", "_next")

    def __init__(self, offset: int) -> None:
        self._next = offset  # Nothing from here on was looked at,
        self._again = Ranges()  # and these were, and have come back.

    def came_back(self, ready: Iterable[range]) -> None:
        """Note that messages are ready again."""
        for each in ready:
            self._again.add(each.start, min(each.stop, self._next))

    def rewound(self, offset: int) -> None:
        """Note that all messages from this offset on may be ready again."""
        self._again.remove(offset, max(offset, self._next))
        self._next = min(self._next, offset)

    def is_behind(self, offset_end: int) -> bool:
        return self._next < offset_end or bool(self._again)

    def take(self, ledger: Ledger, offset_end: int, count: int) -> list[range]:
        """Return the next ready messages, at most `count`. They count as looked at."""
        while self._again:
            found = [
                ready
                for each in self._again.pop(count)
                for ready in ledger.ready_within(each.start, each.stop)
            ]
            if found:
                return found
        while self._next < offset_end:
            stop = min(offset_end, self._next + limits.SELECTION_WINDOW)
            ready = ledger.ready_within(self._next, stop)
            found = first(ready, count)
            self._next = found[-1].stop if len(found) < len(ready) or found != ready else stop
            if found:
                return found
        return []

    def put_back(self, offsets: range) -> None:
        """Look at messages again that were returned by `take`."""
        self.came_back((offsets,))


class Selection:
    """Which messages a consumer wants, and what it has not looked at."""

    def __init__(
        self,
        wants: Wants,
        *,
        drops_others: bool = False,
        browses: bool = False,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """`on_end` is called whenever nothing is left to look at."""
        self._wants = wants
        self.drops_others = drops_others
        self.browses = browses
        self.on_end = on_end
        self.lanes: Sequence[Progress] = ()  # Set when its consumer is added to a queue.
        self.cost = 1 + wants.cost // 10  # Of a look at one message, in plain deliveries.
        self._envelope: Envelope | None = None  # That was looked at last,
        self._is_wanted = False  # and the answer.

    def wants(self, message: Message) -> bool:
        envelope = message[0]
        if envelope is not self._envelope:
            self._envelope, self._is_wanted = envelope, self._wants(envelope)
        return self._is_wanted


def first(ready: Sequence[range], count: int) -> list[range]:
    """Return the first offsets, at most `count`."""
    found: list[range] = []
    for each in ready:
        if count <= 0:
            break
        found.append(each[:count])
        count -= len(found[-1])
    return found
