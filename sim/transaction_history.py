"""What transactions promised and what readers of committed records saw.

A transaction is whole or nothing: what was acknowledged is there, once, in every place it
was written to; what was aborted is never seen; and of what nobody was told the outcome,
all is there or nothing. Within a place, what one writer wrote stands in its order.

A power failure that may take what was answered takes the end of each place, and so a part of
a transaction that was in several. In one place it stays whole or nothing, and what was aborted
stays unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from entrepot.broker.consumer_group.offsets import TopicPartition
from sim.history import Violation


class TransactionOutcome(Enum):
    UNKNOWN = "unknown"  # Still open, or its commit was not answered.
    COMMITTED = "committed"
    NEVER = "never"


@dataclass(slots=True)
class _Written:
    writer: str
    places: list[TopicPartition]
    outcome: TransactionOutcome = TransactionOutcome.UNKNOWN
    seen: bool = False  # By a reader of committed records.
    may_be_lost: bool = False  # Wholly, or in some of its places.


@dataclass(slots=True)
class TransactionHistory:
    """A record's value is the number of its transaction, and which of its records it is."""

    transactions: list[_Written] = field(default_factory=list)
    reads: int = 0
    _known: dict[tuple[TopicPartition, int], str] = field(default_factory=dict)  # Offset -> value.
    _ends: dict[tuple[str, TopicPartition], tuple[int, int]] = field(
        default_factory=dict
    )  # By reader.

    @property
    def committed(self) -> int:
        return sum(each.outcome is TransactionOutcome.COMMITTED for each in self.transactions)

    def begin(self, writer: str, places: Sequence[TopicPartition]) -> list[str]:
        """A value for each place."""
        self.transactions.append(_Written(writer, list(places)))
        number = len(self.transactions) - 1
        return [f"{number}:{leg}" for leg in range(len(places))]

    def decide(self, value: str, outcome: TransactionOutcome) -> None:
        number = int(value.partition(":")[0])
        transaction = self.transactions[number]
        transaction.outcome = outcome
        transaction.may_be_lost = (
            transaction.may_be_lost and outcome is not TransactionOutcome.COMMITTED
        )
        if outcome is TransactionOutcome.NEVER and transaction.seen:
            raise Violation(f"transaction {number} was aborted after it was read")

    def lose(self) -> None:
        """The power failed: whatever was not synced may be lost."""
        self._known.clear()
        self._ends.clear()
        for each in self.transactions:
            each.may_be_lost = True

    def ends(self, reader: str, place: TopicPartition, stable: int, high_watermark: int) -> None:
        """What a reader was told of the log's end, committed and all.

        Neither moves back, but that a start on a failing disk may hide what it cannot sync.
        """
        before = self._ends.get((reader, place), (0, 0))
        is_hidden = high_watermark < before[1]
        if not stable <= high_watermark or (stable < before[0] and not is_hidden):
            raise Violation(f"{place}: the ends were {before} and are {stable}, {high_watermark}")
        self._ends[reader, place] = max(before, (stable, high_watermark))

    def settled_end(self, reader: str, place: TopicPartition) -> int:
        """The end of the log as it was last told, if nothing was open then; else -1."""
        stable, high_watermark = self._ends.get((reader, place), (-1, 0))
        return stable if stable == high_watermark else -1

    def read(self, place: TopicPartition, offset: int, value: str) -> None:
        """A reader of committed records saw it."""
        self.reads += 1
        number, _, leg = value.partition(":")
        transaction = self.transactions[int(number)]
        if transaction.places[int(leg)] != place:
            raise Violation(f"{value} was not written to {place}")
        if transaction.outcome is TransactionOutcome.NEVER:
            raise Violation(f"{value} was read at {place}, but it was aborted")
        transaction.seen = True
        before = self._known.setdefault((place, offset), value)
        if before != value:
            raise Violation(f"{place} offset {offset} was {before} and is now {value}")

    def check_final(self, logs: Mapping[TopicPartition, Sequence[tuple[int, str]]]) -> None:
        """`logs`: what a reader of committed records finds at the end, all of it."""
        found: dict[str, TopicPartition] = {}
        for place, rows in logs.items():
            for offset, value in rows:
                self.read(place, offset, value)
                if value in found:
                    raise Violation(f"{value} is there twice")
                found[value] = place
        final = {(place, offset) for place, rows in logs.items() for offset, _ in rows}
        for known in self._known:
            if known not in final:
                raise Violation(f"what was read at {known} is gone")
        for number, each in enumerate(self.transactions):
            there = [f"{number}:{leg}" in found for leg in range(len(each.places))]
            if each.may_be_lost:
                continue
            if each.outcome is TransactionOutcome.COMMITTED and not all(there):
                raise Violation(f"transaction {number} was committed, but of it is there: {there}")
            if any(there) != all(there):
                raise Violation(f"transaction {number} is torn: {there}")
        self._check_order(logs)

    def _check_order(self, logs: Mapping[TopicPartition, Sequence[tuple[int, str]]]) -> None:
        for place, rows in logs.items():
            last: dict[str, tuple[int, int]] = {}
            for _, value in rows:
                number, leg = map(int, value.split(":"))
                writer = self.transactions[number].writer
                if last.get(writer, (-1, -1)) >= (number, leg):
                    raise Violation(f"{place}: {value} stands after what {writer} wrote later")
                last[writer] = (number, leg)
