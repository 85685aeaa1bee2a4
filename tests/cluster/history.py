"""What clients were promised and shown, and whether the log agrees: in the way of Jepsen.

While faults happen, producers note what they sent and what they were answered, and readers what
they saw. Afterwards all of the log is read once more, and that is the truth:

- lost: acknowledged, and not there, or not at the offset that the answer said;
- duplicated: there twice, although the producer was idempotent;
- reordered: one producer's records of a partition in another order than they were sent in;
- dirty: a reader saw at an offset what is not there in the end, or saw less than was below it;
- torn: a part of a committed transaction is there, and another is not;
- undone: a record of an aborted transaction, seen by a reader of what is committed;
- invented: a record that nobody sent.

A record without an answer, or with an answer that says "perhaps", may be there or not.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

KINDS = ("lost", "duplicated", "reordered", "dirty", "torn", "undone", "invented")


class Record(NamedTuple):
    """What a producer sent: the how-manieth of whom, to be told from every other."""

    producer: str
    number: int

    def encoded(self) -> bytes:
        return f"{self.producer}:{self.number}".encode()

    @classmethod
    def decoded(cls, value: bytes) -> Record:
        producer, _, number = value.decode().rpartition(":")
        return cls(producer, int(number))


class At(NamedTuple):
    topic: str
    partition: int
    offset: int


class Found(NamedTuple):
    kind: str
    what: str


Final = Mapping[tuple[str, int], Sequence[tuple[int, Record]]]  # By offset, ascending.


@dataclass
class History:
    """Notes of several threads."""

    sent: dict[Record, None] = field(default_factory=dict)
    acknowledged: dict[Record, At] = field(default_factory=dict)
    seen: dict[At, Record] = field(default_factory=dict)
    contradictions: list[Found] = field(default_factory=list)  # Between two readers.
    committed: list[tuple[Record, ...]] = field(default_factory=list)  # Transactions.
    aborted: dict[Record, None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note_sent(self, record: Record) -> None:
        with self._lock:
            self.sent[record] = None

    def note_acknowledged(self, record: Record, at: At) -> None:
        with self._lock:
            self.acknowledged[record] = at

    def note_seen(self, at: At, record: Record) -> None:
        with self._lock:
            before = self.seen.setdefault(at, record)
            if before != record:
                self.contradictions.append(Found("dirty", f"{at}: first {before}, then {record}"))

    def note_committed(self, records: Iterable[Record]) -> None:
        with self._lock:
            self.committed.append(tuple(records))

    def note_aborted(self, records: Iterable[Record]) -> None:
        with self._lock:
            self.aborted.update(dict.fromkeys(records))

    def check(self, final: Final) -> list[Found]:
        """Return everything that is wrong with the log as it was read in the end."""
        places: dict[Record, list[At]] = defaultdict(list)
        there: dict[At, Record] = {}
        for (topic, partition), rows in final.items():
            for offset, record in rows:
                at = At(topic, partition, offset)
                places[record].append(at)
                there[at] = record
        return [
            *self.contradictions,
            *self._lost(places),
            *(Found("duplicated", f"{r}: {ats}") for r, ats in places.items() if len(ats) > 1),
            *_reordered(final),
            *self._dirty(final, there),
            *self._torn(places),
            *(Found("undone", f"{r} at {places[r]}") for r in self.aborted if r in places),
            *(Found("invented", f"{r} at {places[r]}") for r in places if r not in self.sent),
        ]

    def _lost(self, places: Mapping[Record, list[At]]) -> Iterable[Found]:
        for record, at in self.acknowledged.items():
            found = places.get(record, [])
            # A repeated batch is acknowledged without its offset.
            if at not in found and not (at.offset < 0 and found):
                yield Found("lost", f"{record}, acknowledged at {at}, is at {places.get(record)}")

    def _dirty(self, final: Final, there: Mapping[At, Record]) -> Iterable[Found]:
        for at, record in self.seen.items():
            if (at.topic, at.partition) in final and there.get(at) != record:
                yield Found("dirty", f"{at}: {record} was read, and {there.get(at)} is there")

    def _torn(self, places: Mapping[Record, list[At]]) -> Iterable[Found]:
        for records in self.committed:
            missing = [record for record in records if record not in places]
            if missing:
                yield Found("torn", f"{missing} of a committed transaction are not there")


def _reordered(final: Final) -> Iterable[Found]:
    for part, rows in final.items():
        last: dict[str, int] = {}
        for offset, record in rows:
            before = last.get(record.producer, -1)
            if record.number < before:
                yield Found("reordered", f"{part} at {offset}: {record} after number {before}")
            last[record.producer] = record.number


def tally(found: Iterable[Found]) -> dict[str, int]:
    counts = Counter(each.kind for each in found)
    return {kind: counts[kind] for kind in KINDS}
