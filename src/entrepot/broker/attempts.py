"""How often messages of a lane were handed out and came back, for its records.

Only what came back and is not settled is counted, so there is nothing to do where all is
acknowledged. The counts of a page are one record. It is made when a message of the page comes
back, and not when one is settled: a settlement is the stronger word, and what was counted
before it is passed over at the start. With the last message of a page its record is deleted.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from struct import Struct

from entrepot.broker.ledger import among, rows
from entrepot.core import limits

PAGE = 4_096  # Offsets. Within one, they take 16 bits.

_TRIED = Struct(">HHI")  # First and last, from the page's beginning; how often each was.
_TRIED_MAX = 2**32 - 1


class Attempts:
    def __init__(self) -> None:
        self.pages: dict[int, dict[int, int]] = {}  # By page and offset. No page is empty.
        self._count = 0  # Of offsets in all pages.
        self._changed: dict[int, None] = {}  # Pages to be recorded.
        self.recorded: dict[int, None] = {}  # Pages of which there is a record.

    def items(self) -> Iterator[tuple[int, int]]:
        """Offsets, and how often each was handed out."""
        for page in self.pages.values():
            yield from page.items()

    # --- while it runs

    def note(self, came_back: Iterable[range], attempts: Callable[[int], int]) -> None:
        """The ledger has these back, and knows of each how often it was handed out.

        Those that are too many are not kept, and begin anew after a restart.
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
                self._changed[number] = None

    def settled(self, offsets: range) -> None:
        pages = range(offsets.start // PAGE, (offsets.stop - 1) // PAGE + 1)
        for page in among(pages, self.pages):
            for offset in among(offsets, self.pages[page]):
                self._drop(page, offset)

    def rewound(self, kept: range) -> None:
        """All others are as if they had never been handed out, settled ones too."""
        self.keep(kept)
        pages = [page for page in self.recorded if page * PAGE + PAGE > kept.stop]
        self._changed.update(dict.fromkeys(pages))

    def keep(self, kept: range) -> None:
        """Forget the others; those above may be other messages' soon."""
        for page, counts in [*self.pages.items()]:
            for offset in [each for each in counts if each not in kept]:
                self._drop(page, offset)
                if offset >= kept.stop:
                    self._changed[page] = None

    def _drop(self, page: int, offset: int) -> None:
        del self.pages[page][offset]
        self._count -= 1
        if not self.pages[page]:
            del self.pages[page]
            self._changed[page] = None

    # --- its records

    def take(self) -> Iterator[tuple[int, bytes | None]]:
        """Pages that were changed, and what to record of them. None: nothing any more."""
        changed, self._changed = self._changed, {}
        for page in changed:
            if page in self.pages:
                self.recorded[page] = None
                yield page, _value(page * PAGE, self.pages[page])
            elif page in self.recorded:
                del self.recorded[page]
                yield page, None

    def apply(self, page: int, value: bytes | None) -> None:
        """Fold one of its records."""
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
    """Stretches that were tried equally often."""
    return b"".join(
        _TRIED.pack(row.start - base, row.stop - 1 - base, min(count, _TRIED_MAX))
        for count, alike in groupby(sorted(counts), key=counts.__getitem__)
        for row in rows(alike)
    )
