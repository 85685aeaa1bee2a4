"""What SQS promised to its clients, and what they saw: the checker.

Every message has a name that is sent once, or, in a FIFO queue, again with the same deduplication
id until that is answered. What is checked:

- What was sent and never deleted is there at the end, once.
- While a message is hidden, nobody else gets it, in whatever queue it is.
- What was deleted in time does not come again.
- A receipt handle that somebody else's newer one has replaced deletes nothing, and the newest one
  is not refused before its time.
- In a FIFO queue a message does not come before an earlier one of its group is deleted, and a
  duplicate is no second message.

A crash ends the hiding of all messages, and may leave a message in its queue that is a dead letter
already: so the two are checked apart. Answers of the broker are judged by when they came and
what they answer by when it was asked for, so no delay on the way is a violation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.history import Violation

Place = tuple[str, str]  # A queue, and the name of a message.


@dataclass(slots=True, eq=False)
class Hold:
    """One delivery of one message, as its receiver knows it."""

    queue: str
    name: str
    handle: str
    asked_s: float  # When the receive was asked for,
    came_s: float  # and answered.
    until_s: float  # Until then it is hidden, at least.
    life: int  # How many crashes there had been.

    @property
    def place(self) -> Place:
        return self.queue, self.name


@dataclass(slots=True)
class SqsHistory:
    sent: dict[str, None] = field(default_factory=dict)  # Answered with 200.
    deleting: dict[Place, None] = field(default_factory=dict)  # A delete may have had an effect.
    deleted: dict[Place, float] = field(default_factory=dict)  # A delete had: when it was answered.
    sequences: dict[str, str] = field(default_factory=dict)  # Of a FIFO queue, by name.
    deliveries: int = 0
    _last: dict[Place, Hold] = field(default_factory=dict)

    def receive(self, holds: list[Hold]) -> None:
        """Note the messages of one answer. Raises Violation."""
        for hold in holds:
            self.deliveries += 1
            ended_s = self.deleted.get(hold.place)
            if ended_s is not None and ended_s <= hold.asked_s:
                raise Violation(f"{hold.name} was deleted, and came again")
            last = self._last.get(hold.place)
            if last is not None and last.life == hold.life and hold.came_s < last.until_s:
                raise Violation(f"{hold.name} was hidden, and came again")
            self._last[hold.place] = hold

    def check_order(self, holds: list[Hold], earlier: dict[str, list[str]]) -> None:
        """Raise Violation if any came before an earlier one of its group. `earlier` are the names
        before each one, in order."""
        seen: dict[str, None] = {}
        for hold in holds:
            for name in earlier[hold.name]:
                is_there = name in self.sent and (hold.queue, name) not in self.deleting
                if is_there and name not in seen:
                    raise Violation(f"{hold.name} came before {name}")
            seen[hold.name] = None

    def check_sequence(self, name: str, sequence: str) -> None:
        known = self.sequences.setdefault(name, sequence)
        if known != sequence:
            raise Violation(f"{name} is there twice: {known} and {sequence}")

    def change(self, hold: Hold, until_s: float) -> None:
        """Note that it is asked to hide a message longer, or shorter. The answer may be late, so
        it is hidden until the earlier of the two times, until `changed`."""
        hold.until_s = min(hold.until_s, until_s)

    def changed(self, hold: Hold, until_s: float) -> None:
        hold.until_s = until_s

    def refused(self, hold: Hold, until_s: float, now_s: float, life: int) -> None:
        """Note that a receipt handle was refused; until then the message was to be hidden. Raises
        Violation."""
        if self._last[hold.place] is hold and life == hold.life and now_s < until_s:
            raise Violation(f"{hold.name} is hidden, and its handle is refused")

    def begin_delete(self, hold: Hold) -> None:
        if self._last[hold.place] is hold:  # Otherwise its handle is stale, and does nothing.
            self.deleting[hold.place] = None

    def end_delete(self, hold: Hold, now_s: float, life: int) -> None:
        """Note that a delete was answered with 200. It has had an effect if it was in time."""
        is_last = self._last[hold.place] is hold
        if is_last and now_s < hold.until_s and life == hold.life:
            self.deleted[hold.place] = now_s

    def check_end(self, left: dict[Place, int]) -> None:
        """Check what was found at the end, and how often."""
        twice = [name for name, count in left.items() if count > 1]
        if twice:
            raise Violation(f"more than once at the end: {twice[:5]}")
        known = dict.fromkeys(name for _, name in (*left, *self.deleting))
        lost = [name for name in self.sent if name not in known]
        if lost:
            raise Violation(f"sent, never deleted, and gone: {lost[:5]}")
        back = [name for name in left if name in self.deleted]
        if back:
            raise Violation(f"deleted, and there at the end: {back[:5]}")
