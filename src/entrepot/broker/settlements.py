"""What of a queue was settled, as records of a compacted topic.

    queue               the offset below which everything is settled
    queue, page         what else is settled among 4,096 offsets

Messages are mostly settled in their order, which takes one small record a tick. Out of
order, a page's record says all that is settled in it, so that the newest one counts and
compaction may forget the others; once the low end has passed the page, it is deleted.
The records of one tick must be appended as one batch: together they are true.
"""

from collections.abc import Iterable
from struct import Struct
from uuid import UUID

from entrepot.broker.ledger import Ledger
from entrepot.core.ranges import Ranges
from entrepot.core.record import Record

PAGE = 4_096  # Offsets. Within one, they take 16 bits.

_LOW_KEY = Struct(">B16s")
_PAGE_KEY = Struct(">B16sQ")
_LOW, _PAGE = 1, 2  # Kinds of records.
_OFFSET = Struct(">Q")
_SPAN = Struct(">HH")  # First and last, from the page's beginning.


class Settlements:
    def __init__(self, queue: UUID, offset_low: int = 0) -> None:
        self._queue = queue.bytes
        self._offset_low = offset_low
        self._offset_recorded = offset_low
        self._settled = Ranges()  # From the low end on.
        self._changed: dict[int, None] = {}  # Pages to be recorded.
        self._recorded: dict[int, None] = {}  # Pages of which there is a record.

    # --- while it runs

    def note(self, settled: Iterable[range], offset_low: int) -> None:
        """The ledger has settled these; this is its low end now."""
        self._settled.remove(self._offset_low, offset_low)
        self._offset_low = offset_low
        for each in settled:
            first, end = max(each.start, offset_low), each.stop
            if first < end:
                self._settled.add(first, end)
                self._changed.update(dict.fromkeys(range(first // PAGE, (end - 1) // PAGE + 1)))

    def rewound(self, offset: int) -> None:
        """Nothing is settled from there on."""
        self._settled = Ranges()
        self._offset_low = offset
        self._changed = dict(self._recorded)

    def take_records(self) -> list[Record]:
        """What to append for all that was noted since the last time."""
        made = [self._page(page) for page in self._changed if page * PAGE + PAGE > self._offset_low]
        passed = [page for page in self._recorded if page * PAGE + PAGE <= self._offset_low]
        for page in passed:
            del self._recorded[page]
            made.append(Record(self._page_key(page), None))
        self._changed.clear()
        if self._offset_recorded != self._offset_low:
            self._offset_recorded = self._offset_low
            key = _LOW_KEY.pack(_LOW, self._queue)
            made.append(Record(key, _OFFSET.pack(self._offset_low)))
        return made

    def _page(self, page: int) -> Record:
        base = page * PAGE
        spans = self._settled.within(base, base + PAGE)
        if not spans:
            self._recorded.pop(page, None)
            return Record(self._page_key(page), None)
        self._recorded[page] = None
        value = b"".join(_SPAN.pack(each.start - base, each.stop - 1 - base) for each in spans)
        return Record(self._page_key(page), value)

    def _page_key(self, page: int) -> bytes:
        return _PAGE_KEY.pack(_PAGE, self._queue, page)

    # --- at a start

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Fold one of its records, in their order."""
        if key[0] == _LOW:
            self._offset_low = self._offset_recorded = _OFFSET.unpack(value or b"")[0]
            return
        page = _PAGE_KEY.unpack(key)[2]
        base = page * PAGE
        self._settled.remove(base, base + PAGE)
        self._recorded.pop(page, None)
        if value is not None:
            self._recorded[page] = None
            for first, last in _SPAN.iter_unpack(value):
                self._settled.add(base + first, base + last + 1)

    def ledger(self) -> Ledger:
        """As it was, when all records are folded."""
        self._settled.remove(0, self._offset_low)
        ledger = Ledger(self._offset_low)
        for each in self._settled:
            ledger.note_settled(each)
        return ledger


def queue_of(key: bytes) -> UUID:
    """Whose record it is."""
    return UUID(bytes=_LOW_KEY.unpack_from(key)[1])
