"""A lane: messages in one order, and the ledger with the state of each.

A queue has one lane; a priority queue has one for each priority. The queue changes the ledger
first and then calls the lane, which stores the messages and records the change: in memory only
(`memory_lane`), or in the log (`log_lane`).

Between `Ledger.pop` and `Ledger.lease` or `Ledger.settle_popped` a message is in no state:
neither the ledger nor the lane may be used otherwise meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from entrepot.broker.ledger import Ledger
from entrepot.broker.queue.message import Run
from entrepot.core.errors import StorageError
from entrepot.core.ranges import Ranges

Waiter = Callable[[StorageError | None], None]
Piece = tuple[range, Run]  # Offsets in a row, and as many messages.


class Lane(Protocol):
    @property
    def ledger(self) -> Ledger: ...

    @property
    def offset_start(self) -> int:
        """Return the first offset that is not deleted. A rewind can go back to it."""

    @property
    def offset_end(self) -> int:
        """Return the offset below which messages are committed and can be delivered."""

    @property
    def offset_recovered(self) -> int:
        """Return the offset below which messages are older than this process."""

    @property
    def is_in_memory(self) -> bool:
        """Return whether messages are committed as soon as they are appended, in memory."""

    @property
    def bytes_kept(self) -> int:
        """Return the bytes of all messages that are kept, including settled ones."""

    @property
    def loaded(self) -> int:
        """Return how many runs `read` has read from the disk so far."""

    @property
    def fault(self) -> str | None:
        """Return why messages can be neither delivered nor appended. None means: they can."""

    # --- messages

    async def prepare(self, run: Run) -> None:
        """Write a large message in several turns, before it is appended.

        The next call of `append` must be for this run.
        """

    def append(self, runs: Sequence[Run]) -> int:
        """Append all runs or none. They must have at least one message.

        Returns the offset after the last message, for `when_committed`. Raises StorageError.
        """

    def when_committed(self, offset_end: int, waiter: Waiter) -> None:
        """Call `waiter`, perhaps at once, when all messages below `offset_end` are committed, or
        cannot be."""

    def read(self, offsets: range, bytes_max: int | None = None) -> list[Piece]:
        """Return these messages, in their order. The range must have the step 1.

        With `bytes_max`, return only the first ones, about so many bytes, at least one piece.
        Deleted messages are left out. Raises StorageError if messages that should be there
        cannot be read, or are not below `offset_end`.
        """

    def offset_for_time(self, time_ms: int) -> int:
        """Return the offset of the first message that was published at that time or later, or the
        end if there is none."""

    # --- recording changes of the ledger

    def settled(self, offsets: Iterable[range]) -> None:
        """Record that these messages are settled. Ranges may have any step."""

    def hurry(self) -> None:
        """Write what was settled when this turn of the loop ends: after a crash of the process,
        whoever got it and acknowledges nothing shall not get it again."""

    def attempted(self, offsets: Iterable[range]) -> None:
        """Record the attempts of these messages, which were returned after a delivery."""

    def deferred(self, offset: int, until_ms: int | None) -> None:
        """Record until when a message is deferred. None means: it is not deferred any more."""

    def rewound(self, offset: int) -> None:
        """Record that no message from that offset on is settled."""

    def unsettled(self) -> Ranges | None:
        """Return the offsets below `Ledger.offset_fresh` that are not recorded as settled.

        None means: this lane keeps no such record.
        """

    def when_settlements_committed(self, waiter: Waiter) -> None:
        """Call `waiter` once all changes recorded so far are committed, or have failed."""

    # --- deleting

    def drop(self) -> None:
        """Delete the messages and the records: the queue is deleted."""
