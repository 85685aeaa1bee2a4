"""What a client says of very many messages at once, done some at a time.

A hundred thousand messages are settled or handed back with one word, or because their consumer
is gone. Others must not wait for that, so it is done in turns, and what is said later of other
messages comes after it. Until it is done, nobody has these messages but their old owner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from entrepot.broker.turns import Turns
from entrepot.core import limits
from entrepot.core.steps import Steps

Call = Callable[[Sequence[int]], None]


class Slices:
    """One for each queue."""

    def __init__(self, turns: Turns, guard: Callable[..., None], done: Callable[[], None]) -> None:
        self._turns = turns
        self._guard = guard  # Calls what runs later on the queue's behalf.
        self._done = done  # Called when nothing is left.
        self._left: deque[tuple[Call, Sequence[int]]] = deque()

    def __bool__(self) -> bool:
        """Whether something is left to be done."""
        return bool(self._left)

    def do(self, call: Call, offsets: Sequence[int]) -> None:
        """Call with all of these: at once if they are few, or with some of them at a time."""
        if not self._left and len(offsets) <= limits.QUEUE_TURN_MESSAGES_MAX:
            call(offsets)
            return
        self._left.append((call, offsets))
        if len(self._left) == 1:
            self._turns.start(self._steps())

    def close(self) -> None:
        """What is left is not done."""
        if self._left:
            self._left.clear()
            self._done()

    def _steps(self) -> Steps[None]:
        size = limits.QUEUE_TURN_MESSAGES_MAX
        while self._left:  # Until it is all done, or the queue is closed.
            call, offsets = self._left[0]
            self._left[0] = call, offsets[size:]
            self._guard(call, offsets[:size])
            if self._left and not self._left[0][1]:
                self._left.popleft()
                if not self._left:
                    self._guard(self._done)
            yield
