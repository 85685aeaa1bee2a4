"""Lists sorted, reduced and cut into pages."""

from typing import Any

import pytest

from entrepot.broker.permissions import search
from entrepot.broker.regex import Regex
from entrepot.gateway.http.management import listing
from entrepot.gateway.http.management.listing import arranged
from entrepot.wire.http.request import HttpError

ROWS: list[dict[str, Any]] = [
    {"name": "b", "messages": 2, "queue": {"name": "x", "vhost": "/"}},
    {"name": "a", "messages": 10, "queue": {"name": "z", "vhost": "/"}},
    {"name": "C", "queue": {"name": "y", "vhost": "/"}},
]


def names(query: dict[str, str]) -> list[str]:
    found = arranged(list(ROWS), query)
    assert isinstance(found, list)
    return [row["name"] for row in found]


def test_as_it_is() -> None:
    assert arranged(ROWS, {}) is ROWS
    assert arranged(["a", "b"], {"sort": "name"}) == ["a", "b"]


def test_sorted() -> None:
    assert names({"sort": "name"}) == ["C", "a", "b"]
    assert names({"sort": "messages"}) == ["b", "a", "C"]
    assert names({"sort": "messages", "sort_reverse": "true"}) == ["C", "a", "b"]
    assert names({"sort": "queue.name"}) == ["b", "C", "a"]


def test_columns() -> None:
    assert arranged(ROWS[:1], {"columns": "name,queue.vhost,nosuch,queue.nosuch"}) == [
        {"name": "b", "queue": {"vhost": "/"}}
    ]


def test_names() -> None:
    assert names({"name": "c"}) == ["C"]
    assert names({"name": "^[ab]$", "use_regex": "true"}) == ["b", "a"]
    with pytest.raises(HttpError):
        names({"name": "(", "use_regex": "true"})


def test_pages() -> None:
    page = arranged(ROWS, {"page": "2", "page_size": "2", "sort": "name", "columns": "name"})
    assert page == {
        "total_count": 3,
        "filtered_count": 3,
        "item_count": 1,
        "page": 2,
        "page_size": 2,
        "page_count": 2,
        "items": [{"name": "b"}],
    }
    for wrong in ({"page": "3", "page_size": "2"}, {"page": "0"}, {"page": "x"}):
        with pytest.raises(HttpError):
            arranged(ROWS, wrong)
    empty = arranged([], {"page": "1"})
    assert isinstance(empty, dict)
    assert empty["items"] == []


def test_a_regular_expression_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def counting(pattern: str) -> Regex:
        nonlocal read
        read += 1
        return search(pattern)

    monkeypatch.setattr(listing, "search", counting)
    found = arranged(list(ROWS), {"name": ".", "use_regex": "true"})
    assert isinstance(found, list)
    assert len(found) == len(ROWS)
    assert read == 1
