"""Filters match, cover each other, and never claim a cover or an exclusion that is none."""

from hypothesis import given
from hypothesis import strategies as st

from entrepot.cluster.routing.matching import Constraint, Filter, Operator, filter_of


def test_the_lectures_filter() -> None:
    telco = filter_of(("company", "=", "Telco"), ("price", "<", 100.0))
    assert telco.matches({"company": "Telco", "price": 90.0})
    assert not telco.matches({"company": "Telco", "price": 120.0})
    assert not telco.matches({"company": "Other", "price": 90.0})
    assert not telco.matches({"price": 90.0})
    assert not telco.matches({"company": "Telco", "price": "90"})


def test_topics_and_types_with_what_is_below() -> None:
    quotes = filter_of(("type", "below", "Quote/Stock"))
    assert quotes.matches({"type": "Quote/Stock"})
    assert quotes.matches({"type": "Quote/Stock/Preferred"})
    assert not quotes.matches({"type": "Quote/Stocks"})
    assert not quotes.matches({"type": "Quote"})
    assert filter_of(("topic", "=", "a"), ("price", "<", 1.0)).topic == "a"
    assert quotes.topic is None


def test_covering() -> None:
    wide, narrow = filter_of(("price", "<", 100.0)), filter_of(("price", "<", 50.0))
    both = filter_of(("price", "<", 50.0), ("company", "=", "Telco"))
    assert wide.covers(narrow)
    assert not narrow.covers(wide)
    assert wide.covers(both)
    assert not both.covers(wide)
    assert filter_of(("type", "below", "Quote")).covers(filter_of(("type", "=", "Quote/Stock")))
    assert not filter_of(("price", "<", 9.0)).overlaps(filter_of(("price", ">", 9.0)))
    assert filter_of(("price", "<", 9.0)).overlaps(filter_of(("price", ">", 8.0)))
    assert not filter_of(("type", "below", "a")).overlaps(filter_of(("type", "below", "b")))


names = st.sampled_from(["a", "b"])
texts = st.sampled_from(["x", "x/y", "x/y/z", "xy", "w"])
numbers = st.integers(-3, 3).map(float)
constraints = st.one_of(
    st.builds(Constraint, names, st.sampled_from([*Operator][:3]), numbers),
    st.builds(Constraint, names, st.sampled_from([Operator.EQUAL, Operator.BELOW]), texts),
)
filters = st.lists(constraints, max_size=3).map(lambda found: Filter(tuple(found)))
events = st.dictionaries(names, st.one_of(numbers, texts))


@given(filters, filters, events)
def test_what_a_filter_covers_it_matches_and_what_does_not_overlap_has_no_event(
    one: Filter, other: Filter, event: dict[str, str | float]
) -> None:
    if one.covers(other) and other.matches(event):
        assert one.matches(event)
    if not one.overlaps(other):
        assert not (one.matches(event) and other.matches(event))
