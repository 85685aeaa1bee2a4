"""What of a queue's lane was settled, put off or tried in vain, as records of a compacted topic.

    lane                the offset below which everything is settled
    lane, page          what else is settled among 4,096 offsets
    lane, offset        until when that message is kept back
    lane, page          how often messages were handed out that came back: see `attempts`

Messages are mostly settled in their order, which takes one small record a tick. Out of
order, a page's record says all that is settled in it, so that the newest one counts and
compaction may forget the others; once the low end has passed the page, it is deleted.
The records of one tick must be appended as one batch: together they are true.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from struct import Struct
from uuid import UUID

from entrepot.broker.attempts import PAGE, Attempts
from entrepot.broker.ledger import Ledger, among
from entrepot.core.names import PartitionId
from entrepot.core.ranges import Ranges
from entrepot.core.record import Record

_LOW_KEY = Struct(">B16sH")  # Kind, queue, and which of its lanes.
_NUMBER_KEY = Struct(">B16sHQ")  # And a page or an offset.
_LOW, _PAGE, _DEFERRED, _ATTEMPTS = 1, 2, 3, 4  # Kinds of records.
_NUMBER = Struct(">Q")  # An offset, or a time in ms.
_SPAN = Struct(">HH")  # First and last, from the page's beginning.
_NOTED_MAX = 1_000  # Then they are summed up: the records may be asked for late.
_END = 2**63  # No offset is so high.


class Settlements:
    def __init__(self, lane: PartitionId) -> None:
        self.lane = lane
        self._name = lane.topic.bytes, lane.number
        self._offset_low = 0
        self._offset_recorded = 0
        self._settled = Ranges()  # From the low end on.
        self._noted: list[range] = []  # Of any step, and settled too, if the low end is not past.
        self._changed: dict[int, None] = {}  # Pages to be recorded.
        self._recorded: dict[int, None] = {}  # Pages of which there is a record.
        self._deferred: dict[int, int] = {}  # Until when, in ms; as it was or will be recorded.
        self._deferred_changed: dict[int, None] = {}
        self._attempts = Attempts()

    # --- while it runs

    def note(self, settled: Iterable[range], offset_low: int) -> None:
        """The ledger has settled these; this is its low end now."""
        if self._settled:
            self._settled.remove(self._offset_low, offset_low)
        self._offset_low = offset_low
        for each in settled:
            if self._deferred:
                self._undefer(each)
            if self._attempts.pages:
                self._attempts.settled(each)
            if each.stop > offset_low:
                self._noted.append(each)
        if len(self._noted) > _NOTED_MAX:
            self._sum_up()

    def _sum_up(self) -> None:
        """Several consumers settle every other message, and at the end of the tick it is all."""
        noted, self._noted = self._noted, []
        for each in noted:
            if each.stop <= self._offset_low:
                continue
            if each.step == 1:
                self._add(each.start, each.stop)
            else:
                for offset in each:
                    self._add(offset, offset + 1)

    def _add(self, first: int, end: int) -> None:
        first = max(first, self._offset_low)
        if first < end:
            self._settled.add(first, end)
            self._changed.update(dict.fromkeys(range(first // PAGE, (end - 1) // PAGE + 1)))

    def defer(self, offset: int, until_ms: int | None) -> None:
        """Kept back until then; None: no longer."""
        if until_ms is not None:
            self._deferred[offset] = until_ms
        elif self._deferred.pop(offset, None) is None:
            return
        self._deferred_changed[offset] = None

    def _undefer(self, offsets: range) -> None:
        for offset in among(offsets, self._deferred):
            self.defer(offset, None)

    def note_attempts(self, came_back: Iterable[range], attempts: Callable[[int], int]) -> None:
        """The ledger has these back, and knows of each how often it was handed out."""
        self._attempts.note(came_back, attempts)

    def rewound(self, offset: int, offset_low: int) -> None:
        """Nothing is settled from there on, nor put off; this is the ledger's low end now."""
        self._sum_up()
        self._settled.remove(offset, _END)
        self._settled.remove(0, offset_low)
        self._offset_low = offset_low
        pages = [page for page in self._recorded if page * PAGE + PAGE > offset]
        self._changed.update(dict.fromkeys(pages))
        for each in list(self._deferred):
            if not offset_low <= each < offset:
                self.defer(each, None)
        self._attempts.rewound(range(offset_low, offset))

    def unsettled(self, offset_end: int) -> Ranges:
        """What is not settled below that offset, as far as it was noted."""
        settled = [*self._settled]
        for each in self._noted:
            settled += [each] if each.step == 1 else map(_one, each)
        found, start = Ranges(), self._offset_low
        for each in sorted(settled, key=attrgetter("start")):
            found.add(start, min(each.start, offset_end))
            start = max(start, each.stop)
        found.add(start, offset_end)
        return found

    def take_records(self) -> list[Record]:
        """What to append for all that was noted since the last time."""
        self._sum_up()
        made = [self._page(page) for page in self._changed if page * PAGE + PAGE > self._offset_low]
        passed = [page for page in self._recorded if page * PAGE + PAGE <= self._offset_low]
        for page in passed:
            del self._recorded[page]
            made.append(Record(self._key(_PAGE, page), None))
        self._changed.clear()
        made += [self._deferral(offset) for offset in self._deferred_changed]
        self._deferred_changed.clear()
        made += [Record(self._key(_ATTEMPTS, page), value) for page, value in self._attempts.take()]
        if self._offset_recorded != self._offset_low:
            self._offset_recorded = self._offset_low
            made.append(Record(self._low_key, _NUMBER.pack(self._offset_low)))
        return made

    def take_deletions(self) -> list[Record]:
        """What to append when the lane is no more: nothing of it is left after that."""
        pages = [self._key(_PAGE, page) for page in self._recorded]
        # Some may never have been recorded: there is no harm in that.
        offsets = [*self._deferred, *self._deferred_changed]
        deferrals = [self._key(_DEFERRED, each) for each in dict.fromkeys(offsets)]
        attempts = [self._key(_ATTEMPTS, page) for page in self._attempts.recorded]
        self._attempts = Attempts()
        for holder in (self._recorded, self._changed, self._deferred, self._deferred_changed):
            holder.clear()
        self._noted.clear()
        return [Record(key, None) for key in (*pages, *deferrals, *attempts, self._low_key)]

    def _page(self, page: int) -> Record:
        base = page * PAGE
        spans = self._settled.within(base, base + PAGE)
        if not spans:
            self._recorded.pop(page, None)
            return Record(self._key(_PAGE, page), None)
        self._recorded[page] = None
        value = b"".join(_SPAN.pack(each.start - base, each.stop - 1 - base) for each in spans)
        return Record(self._key(_PAGE, page), value)

    def _deferral(self, offset: int) -> Record:
        until_ms = self._deferred.get(offset)
        value = None if until_ms is None else _NUMBER.pack(until_ms)
        return Record(self._key(_DEFERRED, offset), value)

    @property
    def _low_key(self) -> bytes:
        return _LOW_KEY.pack(_LOW, *self._name)

    def _key(self, kind: int, number: int) -> bytes:
        return _NUMBER_KEY.pack(kind, *self._name, number)

    # --- at a start

    @property
    def is_empty(self) -> bool:
        """Whether no record is left of it."""
        kept = self._recorded or self._deferred or self._attempts.recorded
        return not (self._offset_recorded or kept)

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Fold one of its records, in their order."""
        if key[0] == _LOW:
            self._offset_low = _NUMBER.unpack(value)[0] if value is not None else 0
            self._offset_recorded = self._offset_low
            return
        number = _NUMBER_KEY.unpack(key)[3]
        if key[0] == _DEFERRED:
            self._deferred.pop(number, None)
            if value is not None:
                self._deferred[number] = _NUMBER.unpack(value)[0]
            return
        if key[0] == _ATTEMPTS:
            self._attempts.apply(number, value)
            return
        base = number * PAGE
        self._settled.remove(base, base + PAGE)
        self._recorded.pop(number, None)
        if value is not None:
            self._recorded[number] = None
            for first, last in _SPAN.iter_unpack(value):
                self._settled.add(base + first, base + last + 1)

    def ledger(self, offset_start: int, offset_end: int) -> Ledger:
        """As it was, when all records are folded and the lane's messages are these.

        A loss of power may have taken messages of which it left something that was said. Their
        offsets are given again, so that must be taken back before: `take_records` has it.
        """
        self._offset_low = max(offset_start, min(offset_end, self._offset_low))
        self._settled.remove(0, self._offset_low)
        for lost in self._settled.remove(offset_end, 2**64):
            pages = range(lost.start // PAGE, (lost.stop - 1) // PAGE + 1)
            self._changed.update(dict.fromkeys(pages))
        known = range(self._offset_low, offset_end)
        over = [each for each in self._deferred if each not in known or each in self._settled]
        for offset in over:
            self.defer(offset, None)
        self._attempts.keep(known)
        unsettled = Ranges([known])
        for each in self._settled:
            self._attempts.settled(each)
            unsettled.remove(each.start, each.stop)
        attempts = dict(self._attempts.items())
        ends = [each.stop for each in self._settled] + [each + 1 for each in attempts]
        fresh = max(ends, default=self._offset_low)
        unsettled.remove(fresh, offset_end)
        ledger = Ledger(self._offset_low)
        ledger.restore(fresh, unsettled, self._deferred, attempts)
        return ledger


def _one(offset: int) -> range:
    return range(offset, offset + 1)


def is_settlement(key: bytes) -> bool:
    """Or else it is a record of somebody who keeps others beside these."""
    return key[0] in (_LOW, _PAGE, _DEFERRED, _ATTEMPTS)


def lane_of(key: bytes) -> PartitionId:
    """Whose record it is."""
    _, queue, number = _LOW_KEY.unpack_from(key)
    return PartitionId(UUID(bytes=queue), number)
