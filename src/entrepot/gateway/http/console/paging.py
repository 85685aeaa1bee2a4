"""Lists of any length: filtered, sorted and cut here, so that only one page of them is described.

The query has `name` (a part of it, in any case), `sort`, `sort_reverse`, `page` and `page_size`.
Of every element only its name and the value to sort by are looked at; the rows of the page are
made last. All of it is done in steps, the sorting too: in parts, which are merged.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from entrepot.core.steps import Steps, parts
from entrepot.gateway.http.management.fields import bad
from entrepot.wire.http import limits as http_limits

T = TypeVar("T")
Row = dict[str, Any]
_Entry = tuple[Any, int, T]  # What it is sorted by, and a number that makes it different.

_SORTED_AT_ONCE = 2_000
_FILTERED_AT_ONCE = 100


@dataclass(frozen=True)  # With slots, Python 3.11 fails to make a generic one.
class Listing(Generic[T]):
    """How the elements of a list are named, sorted and described."""

    name: Callable[[T], str]
    columns: Mapping[str, Callable[[T], Any]]  # What can be sorted by, besides the name.
    describe: Callable[[T], Row | None]  # None means: it is gone by now.


def page(elements: Iterable[T], listing: Listing[T], query: Mapping[str, str]) -> Steps[Row]:
    """Return one page of a list, as the query asks for it. Raises HttpError."""
    number, size = _number(query, "page", 1), _number(query, "page_size", 50)
    size = min(size, http_limits.PAGE_ROWS_MAX)
    column, is_reverse = query.get("sort", "name"), query.get("sort_reverse") == "true"
    if column != "name" and column not in listing.columns:
        raise bad(f"sort: one of {', '.join(('name', *listing.columns))}")
    entries, total = yield from _entries(elements, listing, column, query.get("name", ""))
    page_count = max(1, -(-len(entries) // size))
    number = min(number, page_count)  # The last one, if there are fewer by now.
    ordered = yield from _sorted(entries, number * size, is_reverse)
    rows = []
    for _, _, element in ordered[(number - 1) * size :]:
        row = listing.describe(element)
        if row is not None:
            rows.append(row)
        yield
    return {
        "items": rows,
        "page": number,
        "page_size": size,
        "page_count": page_count,
        "filtered_count": len(entries),
        "total_count": total,
    }


def _entries(
    elements: Iterable[T], listing: Listing[T], column: str, wanted: str
) -> Steps[tuple[list[_Entry[T]], int]]:
    """Return the elements whose names have the wanted part, and how many there are in all."""
    name_of, value_of = listing.name, listing.columns.get(column)
    wanted = wanted.lower()
    entries: list[_Entry[T]] = []
    total = 0
    for element in elements:
        total += 1
        name = name_of(element)
        if wanted in name.lower():
            key = name if value_of is None else (value_of(element), name)
            entries.append((key, total, element))
        if total % _FILTERED_AT_ONCE == 0 or value_of is not None:  # A value may take long.
            yield
    return entries, total


def _sorted(entries: list[_Entry[T]], count: int, is_reverse: bool) -> Steps[list[_Entry[T]]]:
    """Return the first entries in the order, at most `count`."""
    runs = []
    for some in parts(entries, _SORTED_AT_ONCE):
        runs.append(sorted(some, key=_key, reverse=is_reverse))
        yield
    merged = heapq.merge(*runs, key=_key, reverse=is_reverse)
    found: list[_Entry[T]] = []
    while len(found) < count and (some := list(islice(merged, min(500, count - len(found))))):
        found += some
        yield
    return found


def _key(entry: _Entry[Any]) -> tuple[Any, int]:
    return entry[0], entry[1]


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and int(text) > 0):
        raise bad(f"{name}: not a number above 0")
    return int(text)
