"""Lists as a query asks for them: sorted, filtered by name, some columns, a page.

The parameters are RabbitMQ's: `sort`, `sort_reverse`, `columns`, `page`, `page_size`, `name`
and `use_regex`. Regular expressions are matched in linear time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from entrepot.broker.permissions import search
from entrepot.core.errors import InvalidPermission
from entrepot.gateway.http.management.fields import bad
from entrepot.wire.http import limits as http_limits

Row = dict[str, Any]


def arranged(rows: list[Any], query: Mapping[str, str]) -> object:
    """Return the rows as the query asks for them. Raises HttpError."""
    if not query or not all(isinstance(row, dict) for row in rows):
        return rows
    total = len(rows)
    is_wanted = _filter(query)
    rows = [row for row in rows if is_wanted(str(row.get("name", "")))]
    if "sort" in query:
        rows.sort(key=lambda row: _rank(_cell(row, query["sort"])))
        if query.get("sort_reverse") == "true":
            rows.reverse()
    columns = [name for name in query.get("columns", "").split(",") if name]
    if "page" not in query:
        return [_reduced(row, columns) for row in rows]
    page, size = _number(query, "page", 1), _number(query, "page_size", 100)
    page_count = max(1, -(-len(rows) // size))
    if page > page_count:
        raise bad(f"page_out_of_range, page: {page}, page_size: {size}")
    items = [_reduced(row, columns) for row in rows[(page - 1) * size : page * size]]
    return {
        "total_count": total,
        "filtered_count": len(rows),
        "item_count": len(items),
        "page": page,
        "page_size": size,
        "page_count": page_count,
        "items": items,
    }


def _filter(query: Mapping[str, str]) -> Callable[[str], bool]:
    wanted = query.get("name", "")
    if not wanted:
        return lambda name: True
    if query.get("use_regex") != "true":
        return lambda name: wanted.lower() in name.lower()
    try:
        return search(wanted).is_within
    except InvalidPermission as error:
        raise bad(str(error)) from None


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and int(text) > 0):
        raise bad(f"{name}: not a number above 0")
    return min(int(text), http_limits.PAGE_ROWS_MAX) if name == "page_size" else int(text)


def _cell(row: Row, column: str) -> Any:
    """Return the value of a column; `queue.name` is `name` in the object under `queue`."""
    value: Any = row
    for name in column.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _rank(value: Any) -> tuple[int, Any]:
    """Return a sort key: numbers before strings before all else."""
    if isinstance(value, int | float):
        return 0, value
    return (1, value) if isinstance(value, str) else (2, str(value))


def _reduced(row: Row, columns: list[str]) -> Row:
    if not columns:
        return row
    reduced: Row = {}
    for column in columns:
        value = _cell(row, column)
        if value is None and column not in row:
            continue
        place = reduced
        *tables, name = column.split(".")
        for table in tables:
            place = place.setdefault(table, {})
        place[name] = value
    return reduced
