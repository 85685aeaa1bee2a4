"""A lane: messages in one order, and the ledger of what became of them.

A queue has one; a priority queue has one for each priority. What the queue decides it does
to the ledger first, and tells the lane, which keeps the messages and remembers the decision:
in memory only (`memory_lane`), or in the log (`log_lane`).

Between `Ledger.pop` and `Ledger.lease` or `Ledger.settle_popped` a message is in nobody's
hands: nothing else may be asked of the ledger or told to the lane meanwhile.
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
        """Below it, messages are gone: as far as a rewind can go."""

    @property
    def offset_end(self) -> int:
        """Below it, messages are committed and may be handed out."""

    @property
    def offset_recovered(self) -> int:
        """Below it, messages are older than this process."""

    @property
    def bytes_kept(self) -> int:
        """What its messages take, settled ones that are still kept among them."""

    @property
    def fault(self) -> str | None:
        """Why its messages cannot be handed out, nor others taken; None while they can."""

    # --- messages

    async def prepare(self, run: Run) -> None:
        """Do in turns what can be done before a large message is appended. Only that may be
        appended next."""

    def append(self, runs: Sequence[Run]) -> int:
        """Append all of them or none; at least one message.

        Returns the offset end to wait for: the last of them is the one before.
        Raises StorageError.
        """

    def when_committed(self, offset_end: int, waiter: Waiter) -> None:
        """Call back once everything below is committed (perhaps at once), or will not be."""

    def read(self, offsets: range) -> list[Piece]:
        """These messages, in their order. Offsets are in a row.

        What is gone is left out. Raises StorageError when what should be there cannot be
        read, or is not below `offset_end`.
        """

    def offset_for_time(self, time_ms: int) -> int:
        """Of the first message that came at that time or later; the end when there is none."""

    # --- what the ledger was told

    def settled(self, offsets: Iterable[range]) -> None:
        """They are settled; of any step."""

    def attempted(self, offsets: Iterable[range]) -> None:
        """They came back, and that was counted."""

    def deferred(self, offset: int, until_ms: int | None) -> None:
        """Kept back until then; None: no longer."""

    def rewound(self, offset: int) -> None:
        """Nothing is settled from there on; what is below stays as it is."""

    def unsettled(self) -> Ranges | None:
        """What is not settled of what the ledger handed out or passed by, going by what it was
        told. None means: it does not keep that."""

    def when_settlements_committed(self, waiter: Waiter) -> None:
        """Call back once all that was told so far is permanent, or will not be."""

    # --- the end

    def drop(self) -> None:
        """The queue is deleted: nothing of it comes back."""
