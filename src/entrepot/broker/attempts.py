"""How often messages of a lane were delivered and returned, as it is stored.

Only messages that were returned and are not settled are counted, so there is nothing to do
where all are acknowledged. The counts of a page are one record. It is written when a message of
the page is returned, and not when one is settled: a start ignores the counts of settled
messages. When the last counted message of a page is settled, its record is deleted.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from struct import Struct

from entrepot.broker.ledger import among, rows
from entrepot.core import limits

PAGE = 4_096  # Offsets in a page. Relative to it, an offset takes 16 bits.

# First and last offset relative to the page, and how often each was delivered.
_TRIED = Struct(">HHI")
_TRIED_MAX = 2**32 - 1


class Attempts:
    def __init__(self) -> None:
        self.pages: dict[int, dict[int, int]] = {}  # Page -> offset -> count. No page is empty.
        self._count = 0  # Offsets in all pages.
        self.changed: dict[int, None] = {}  # Pages to be recorded.
        self.recorded: dict[int, None] = {}  # Pages of which there is a record.

    def items(self) -> Iterator[tuple[int, int]]:
        """Yield each offset and how often it was delivered."""
        for page in self.pages.values():
            yield from page.items()

    # --- noting changes

    def note(self, came_back: Iterable[range], attempts: Callable[[int], int]) -> None:
        """Note returned messages; `attempts` tells how often each was delivered.

        With more than LANE_ATTEMPTS_MAX, others are not stored and count from 0 after a restart.
        """
        for each in came_back:
            for offset in each:
                number = offset // PAGE
                page = self.pages.get(number)
                if page is None or offset not in page:
                    if self._count >= limits.LANE_ATTEMPTS_MAX:
                        continue
                    self._count += 1
                    page = self.pages.setdefault(number, {})
                page[offset] = attempts(offset)
                self.changed[number] = None

    def settled(self, offsets: range) -> None:
        """Forget the counts of settled messages."""
        pages = range(offsets.start // PAGE, (offsets.stop - 1) // PAGE + 1)
        for page in among(pages, self.pages):
            for offset in among(offsets, self.pages[page]):
                self._drop(page, offset)

    def rewound(self, kept: range) -> None:
        """Forget all counts outside the range, after a rewind; also those of settled messages on
        disk."""
        self.keep(kept)
        pages = [page for page in self.recorded if page * PAGE + PAGE > kept.stop]
        self.changed.update(dict.fromkeys(pages))

    def keep(self, kept: range) -> None:
        """Forget the counts outside the range. Offsets above it may be given to other messages."""
        for page, counts in [*self.pages.items()]:
            for offset in [each for each in counts if each not in kept]:
                self._drop(page, offset)
                if offset >= kept.stop:
                    self.changed[page] = None

    def _drop(self, page: int, offset: int) -> None:
        del self.pages[page][offset]
        self._count -= 1
        if not self.pages[page]:
            del self.pages[page]
            self.changed[page] = None

    # --- records

    def take(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield each changed page and the value of its record; None means: delete the record."""
        changed, self.changed = self.changed, {}
        for page in changed:
            if page in self.pages:
                self.recorded[page] = None
                yield page, _value(page * PAGE, self.pages[page])
            elif page in self.recorded:
                del self.recorded[page]
                yield page, None

    def apply(self, page: int, value: bytes | None) -> None:
        """Apply one of the records."""
        self._count -= len(self.pages.pop(page, ()))
        self.recorded.pop(page, None)
        if value is not None:
            self.recorded[page] = None
            base = page * PAGE
            self.pages[page] = {
                base + place: count
                for first, last, count in _TRIED.iter_unpack(value)
                for place in range(first, last + 1)
            }
            self._count += len(self.pages[page])


def _value(base: int, counts: dict[int, int]) -> bytes:
    """Encode ranges of offsets with equal counts."""
    return b"".join(
        _TRIED.pack(row.start - base, row.stop - 1 - base, min(count, _TRIED_MAX))
        for count, alike in groupby(sorted(counts), key=counts.__getitem__)
        for row in rows(alike)
    )
