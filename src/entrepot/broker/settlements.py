"""Which messages of a lane are settled, deferred or returned, as records of a compacted topic.

    lane                the offset below which everything is settled
    lane, page          what else is settled among 4,096 offsets
    lane, offset        until when that message is deferred
    lane, page          how often returned messages were delivered: see `attempts`

Whatever has a ledger is a lane: a queue, one of its priorities, or a share group's partition.
Messages are mostly settled in order, which takes one small record a tick. Otherwise a page's
record has everything that is settled in it, so that compaction may drop earlier ones; when
`offset_low` has passed the page, the record is deleted. The records of one tick must be appended
as one batch: only together they are consistent.
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

_LOW_KEY = Struct(">B16sH")  # Kind, queue's id, lane's number.
_NUMBER_KEY = Struct(">B16sHQ")  # And a page's number or an offset.
_LOW, _PAGE, _DEFERRED, _ATTEMPTS = 1, 2, 3, 4  # Kinds of records.
_NUMBER = Struct(">Q")  # An offset, or a time in ms.
_SPAN = Struct(">HH")  # First and last offset, relative to the page's first.
# If more ranges than this are noted they are merged, even if no records are asked for yet.
_NOTED_MAX = 1_000
_END = 2**63  # Above every offset.


class Settlements:
    def __init__(self, lane: PartitionId) -> None:
        self.lane = lane
        self._name = lane.topic.bytes, lane.number
        self._offset_low = 0
        self._offset_recorded = 0
        self._settled = Ranges()  # Settled offsets at or above `_offset_low`.
        # Settled ranges that are not merged into `_settled` yet; of any step, perhaps below
        # `_offset_low`.
        self._noted: list[range] = []
        self._changed: dict[int, None] = {}  # Pages to be recorded.
        self._recorded: dict[int, None] = {}  # Pages of which there is a record.
        # Offset -> until when, in ms, as it was or will be recorded.
        self._deferred: dict[int, int] = {}
        self._deferred_changed: dict[int, None] = {}
        self._attempts = Attempts()

    # --- noting changes

    def note(self, settled: Iterable[range], offset_low: int) -> None:
        """Note offsets that the ledger has settled, and its `offset_low` now."""
        if self._settled.count:
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
            self._merge_noted()

    def _merge_noted(self) -> None:
        """Merge the noted ranges.

        This is done late: each of several consumers settles every other message, and at the end of
        a tick these often are one range.
        """
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
        """Note that a message is deferred; None means: no longer."""
        if until_ms is not None:
            self._deferred[offset] = until_ms
        elif self._deferred.pop(offset, None) is None:
            return
        self._deferred_changed[offset] = None

    def _undefer(self, offsets: range) -> None:
        for offset in among(offsets, self._deferred):
            self.defer(offset, None)

    def note_attempts(self, came_back: Iterable[range], attempts: Callable[[int], int]) -> None:
        """Note returned messages; `attempts` tells how often each was delivered."""
        self._attempts.note(came_back, attempts)

    def rewound(self, offset: int, offset_low: int) -> None:
        """Note a rewind: nothing from `offset` on is settled or deferred. `offset_low` is the
        ledger's now."""
        self._merge_noted()
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
        """Return the offsets below `offset_end` that are not settled, as far as noted."""
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
        """Return the records to append for what was noted since the last call."""
        if self._noted:
            self._merge_noted()
        made = [self._page(page) for page in self._changed if page * PAGE + PAGE > self._offset_low]
        passed = [page for page in self._recorded if page * PAGE + PAGE <= self._offset_low]
        for page in passed:
            del self._recorded[page]
            made.append(Record(self._key(_PAGE, page), None))
        self._changed.clear()
        made += [self._deferral(offset) for offset in self._deferred_changed]
        self._deferred_changed.clear()
        if self._attempts.changed:
            taken = self._attempts.take()
            made += [Record(self._key(_ATTEMPTS, page), value) for page, value in taken]
        if self._offset_recorded != self._offset_low:
            self._offset_recorded = self._offset_low
            key = _LOW_KEY.pack(_LOW, *self._name)
            made.append(Record(key, _NUMBER.pack(self._offset_low)))
        return made

    def take_deletions(self) -> list[Record]:
        """Return the records that delete everything about the lane."""
        pages = [self._key(_PAGE, page) for page in self._recorded]
        # Some were perhaps never recorded; deleting them does no harm.
        offsets = [*self._deferred, *self._deferred_changed]
        deferrals = [self._key(_DEFERRED, each) for each in dict.fromkeys(offsets)]
        attempts = [self._key(_ATTEMPTS, page) for page in self._attempts.recorded]
        self._attempts = Attempts()
        for holder in (self._recorded, self._changed, self._deferred, self._deferred_changed):
            holder.clear()
        self._noted.clear()
        low = _LOW_KEY.pack(_LOW, *self._name)
        return [Record(key, None) for key in (*pages, *deferrals, *attempts, low)]

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

    def _key(self, kind: int, number: int) -> bytes:
        return _NUMBER_KEY.pack(kind, *self._name, number)

    # --- restoring

    @property
    def is_empty(self) -> bool:
        """Return whether there are no records of the lane."""
        kept = self._recorded or self._deferred or self._attempts.recorded
        return not (self._offset_recorded or kept)

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply one of the lane's records. They must come in the order of the log."""
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
        """Return the ledger, once all records are applied; the lane's messages are those in these
        bounds.

        A power failure may have lost messages but not the records about them. Their offsets will be
        given to other messages, so these records are corrected first: `take_records` has the
        corrections.
        """
        self._offset_low = max(offset_start, min(offset_end, self._offset_low))
        self._settled.remove(0, self._offset_low)
        for lost in self._settled.remove(offset_end, 2**64):
            pages = range(lost.start // PAGE, (lost.stop - 1) // PAGE + 1)
            self._changed.update(dict.fromkeys(pages))
        known = range(self._offset_low, offset_end)
        obsolete = [each for each in self._deferred if each not in known or each in self._settled]
        for offset in obsolete:
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
    """Return whether the record is of a settlement, and not of another kind in the same topic."""
    return key[0] in (_LOW, _PAGE, _DEFERRED, _ATTEMPTS)


def lane_of(key: bytes) -> PartitionId:
    """Return the lane that the record is about."""
    _, queue, number = _LOW_KEY.unpack_from(key)
    return PartitionId(UUID(bytes=queue), number)
