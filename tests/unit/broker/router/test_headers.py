"""Headers exchanges: what is asked of a message, and what counts as the same."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.router.event import Binding, Exchange, ExchangeType
from entrepot.broker.router.headers import HeadersMatcher
from entrepot.broker.router.matching import Routed
from entrepot.core.properties import Properties
from tests.unit.broker.router.model import headers_match
from tests.unit.broker.router.places import Place, wanted

TWO = {"a": 1, "b": 2}


def bound(to: str, arguments: dict[str, object]) -> Binding:
    return wanted("x", to, "", arguments).binding(Exchange("x", ExchangeType.HEADERS))


@pytest.mark.parametrize(
    ("arguments", "headers", "matches"),
    [
        ({}, {}, True),  # Nothing is asked, and all of it holds.
        ({"x-match": "all"}, {"a": 1}, True),
        ({"x-match": "any"}, {"a": 1}, False),  # None of it does.
        (TWO, {"a": 1, "b": 2, "c": 3}, True),
        (TWO, {"a": 1}, False),
        ({**TWO, "x-match": "any"}, {"b": 2}, True),
        ({**TWO, "x-match": "any"}, {"b": 1}, False),
        ({"a": None}, {"a": "whatever"}, True),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {"b": 1}, False),
        ({"a": 1}, {"a": None}, False),
        ({"x-a": 1}, {}, True),
        ({"x-a": 1, "x-match": "any"}, {"x-a": 1}, False),
        ({"x-a": 1, "x-match": "all-with-x"}, {}, False),
        ({"x-a": 1, "x-match": "all-with-x"}, {"x-a": 1}, True),
        ({"x-a": 1, "x-match": "any-with-x"}, {"x-a": 1}, True),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 0}, {"a": False}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": "v"}, {"a": b"v"}, True),
        ({"a": 1.5}, {"a": 1.5}, True),
        ({"a": Decimal("1.5")}, {"a": 1.5}, False),
        ({"a": [1, "v"]}, {"a": [1, "v"]}, True),
        ({"a": [1]}, {"a": [True]}, False),
        ({"a": {"k": 1}}, {"a": {"k": 1}}, True),
        ({"a": {"k": 1}}, {"a": {"k": 2}}, False),
    ],
)
def test_conditions(
    arguments: dict[str, object], headers: dict[str, object], matches: bool
) -> None:
    place = Place("q")
    place.bind("amq.headers", "q", "", arguments)
    assert place.reached("amq.headers", "key", headers) == (("q",) if matches else ())
    place.unbind("amq.headers", "q", "", arguments)
    assert place.reached("amq.headers", "key", headers) == ()


def test_a_binding_is_filed_under_what_is_rare() -> None:
    matcher = HeadersMatcher()
    for number in range(100):
        matcher.add(bound(f"q{number}", {"type": "order", "customer": number}))
    assert max(len(file) for file in matcher._index.values()) <= 2
    message = Routed(("",), Properties(headers={"type": "order", "customer": 7}))
    assert matcher.match(message) == (("q7",), ())


values = st.sampled_from(["v", "w", 1, 1.0, True, None])
tables = st.dictionaries(st.sampled_from(["a", "b", "x-c"]), values)
modes = st.sampled_from(["all", "any", "all-with-x", "any-with-x"])


@given(st.lists(st.tuples(tables, modes), max_size=8), tables, st.data())
def test_the_files_agree_with_the_rule(
    wishes: list[tuple[dict[str, object], str]], headers: dict[str, object], data: st.DataObject
) -> None:
    arguments = [{**table, "x-match": mode} for table, mode in wishes]
    matcher = HeadersMatcher()
    bindings = [bound(f"q{n}", table) for n, table in enumerate(arguments)]
    for one in bindings:
        matcher.add(one)
    gone = [one for one in bindings if data.draw(st.booleans())]
    for one in gone:
        matcher.remove(one)
    found, _ = matcher.match(Routed(("",), Properties(headers=headers)))
    assert set(found) == {
        one.destination.name
        for one, table in zip(bindings, arguments, strict=True)
        if one not in gone and headers_match(table, headers)
    }
