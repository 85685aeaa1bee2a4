"""Lists are filtered, sorted and cut in steps, and only one page of them is described."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.core.steps import finish
from entrepot.gateway.http.console.paging import Listing, page
from entrepot.wire.http.request import HttpError

Thing = tuple[str, int]


def listing(described: list[Thing] | None = None) -> Listing[Thing]:
    def describe(thing: Thing) -> dict[str, Any] | None:
        if described is not None:
            described.append(thing)
        return {"name": thing[0], "size": thing[1]}

    return Listing(lambda thing: thing[0], {"size": lambda thing: thing[1]}, describe)


@given(
    st.lists(
        st.tuples(st.text("abC", max_size=3), st.integers(0, 3)),
        max_size=30,
        unique_by=lambda thing: thing[0],
    ),
    st.sampled_from(["name", "size"]),
    st.booleans(),
    st.text("abc", max_size=1),
    st.integers(1, 7),
)
def test_the_pages_are_the_list(
    things: list[Thing], sort: str, is_reverse: bool, wanted: str, size: int
) -> None:
    query = {"sort": sort, "name": wanted, "page_size": str(size)}
    if is_reverse:
        query["sort_reverse"] = "true"
    found: list[dict[str, Any]] = []
    number = 1
    while True:
        told = finish(page(things, listing(), query | {"page": str(number)}))
        found += told["items"]
        number += 1
        if number > told["page_count"]:
            break
    kept = [thing for thing in things if wanted in thing[0].lower()]
    key = (lambda thing: thing[0]) if sort == "name" else (lambda thing: (thing[1], thing[0]))
    assert [(row["name"], row["size"]) for row in found] == sorted(
        kept, key=key, reverse=is_reverse
    )
    assert (told["filtered_count"], told["total_count"]) == (len(kept), len(things))


def test_only_one_page_of_many_is_described() -> None:
    described: list[Thing] = []
    things = [(f"n{number:05}", number) for number in range(10_000)]
    steps = page(things, listing(described), {"sort": "size", "sort_reverse": "true", "page": "3"})
    count = 0
    try:
        while True:
            next(steps)
            count += 1
    except StopIteration as done:
        told = done.value
    assert told["items"][0] == {"name": "n09899", "size": 9_899}
    assert len(described) == told["page_size"] == 50
    assert count > 100


def test_what_is_gone_by_now_is_left_out_and_a_page_too_far_is_the_last() -> None:
    gone = Listing[Thing](lambda thing: thing[0], {}, lambda thing: None)
    assert finish(page([("a", 1)], gone, {}))["items"] == []
    told = finish(page([("a", 1)], listing(), {"page": "9"}))
    assert (told["page"], len(told["items"])) == (1, 1)


@pytest.mark.parametrize("query", [{"sort": "x"}, {"page": "0"}, {"page_size": "-1"}])
def test_a_query_that_makes_no_sense(query: dict[str, str]) -> None:
    with pytest.raises(HttpError):
        finish(page([], listing(), query))
