"""The index gives what asking every selector would give, whatever came and went."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.facts import Fact
from entrepot.broker.selector import Selector
from entrepot.broker.selector_index import SelectorIndex
from entrepot.core.properties import Properties

NAMES = st.sampled_from(["a", "b", "c", "JMSPriority"])
NUMBERS = st.one_of(
    st.integers(-5, 5),
    st.floats(-1e6, 1e6, allow_nan=False).map(lambda number: round(number, 3)),
    st.sampled_from([0, 2**40, 10**30, 1e-9, 1e300]),
)
TEXTS = st.sampled_from(["x", "y", "5", "true", "it's", "-2.5"])


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


VALUES = st.one_of(NUMBERS, TEXTS, st.booleans())
COMPARISONS = st.builds(
    lambda name, sign, value, turned: (
        f"{literal(value)} {sign} {name}" if turned else f"{name} {sign} {literal(value)}"
    ),
    NAMES,
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    VALUES,
    st.booleans(),
)
OTHERS = st.one_of(
    st.builds(lambda name, low, high: f"{name} BETWEEN {low!r} AND {high!r}", NAMES, NUMBERS,
              NUMBERS),
    st.builds(lambda name, texts: f"{name} IN ({', '.join(map(literal, texts))})", NAMES,
              st.lists(TEXTS, min_size=1, max_size=3)),
    st.builds(lambda name: f"{name} IS NULL", NAMES),
    st.builds(lambda one: f"NOT ({one})", COMPARISONS),
)  # fmt: skip
CONDITIONS = st.recursive(
    st.one_of(COMPARISONS, OTHERS),
    lambda inner: st.builds(
        lambda parts, word: f"({f' {word} '.join(parts)})",
        st.lists(inner, min_size=2, max_size=3),
        st.sampled_from(["AND", "OR"]),
    ),
    max_leaves=6,
)
SELECTORS = st.builds(
    lambda text, converts: ("convert_string_expressions:" if converts else "") + text,
    CONDITIONS,
    st.booleans(),
)
MESSAGES = st.builds(
    lambda headers, priority: Properties(headers=headers, priority=priority),
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.one_of(VALUES, st.none())),
    st.one_of(st.none(), st.integers(0, 9)),
)


@given(
    st.lists(SELECTORS, max_size=12, unique=True),
    st.sets(st.integers(0, 11)),
    st.lists(MESSAGES, min_size=1, max_size=5),
)
def test_it_finds_what_asking_all_would_find(
    texts: list[str], removed: set[int], messages: list[Properties]
) -> None:
    index = SelectorIndex[str]()
    for text in texts:
        index.get_or_add(Selector(text), lambda text=text: text)  # type: ignore[misc]
    for place in sorted(removed):
        if place < len(texts):
            index.remove(texts[place])
    left = [text for place, text in enumerate(texts) if place not in removed]
    for message in messages:
        wanted = [text for text in left if Selector(text).selects(message)]
        assert sorted(index.match(message)) == sorted(wanted)


def test_what_is_removed_leaves_nothing() -> None:
    index = SelectorIndex[int]()
    texts = ["a = 1", "a > 1", "a < 1", "a BETWEEN 1 AND 2", "JMSPriority = 4", "NOT b = 1"]
    for number, text in enumerate(texts):
        index.get_or_add(Selector(text), lambda number=number: number)  # type: ignore[misc]
    assert index.match(Properties(headers={"a": 1})) == [0, 3, 4]
    for text in texts:
        index.remove(text)
    assert len(index) == 0
    assert not index._attributes
    assert not index._special
    assert not index._others


def test_facts() -> None:
    assert Selector("company = 'Telco' AND price < 100").facts == (
        Fact("company", ("Telco",)),
        Fact("price", high=100),
    )
    assert Selector("3 < x AND x <= 7").facts == (Fact("x", low=3, high=7),)
    assert Selector("a = 1 OR a IN ('x', 'y')").facts == (Fact("a", (1, "x", "y")),)
    for without in ("a = 1 OR b = 2", "NOT a = 1", "a + 1 = 2", "a <> 1", "a = b"):
        assert Selector(without).facts == ()


def test_few_of_very_many_are_asked() -> None:
    index = SelectorIndex[int]()
    for number in range(2_000):
        text = f"company = 'c{number}' AND price < {number} AND volume > 10"
        index.get_or_add(Selector(text), lambda number=number: number)  # type: ignore[misc]
    attribute = index._attributes["company"]
    assert len(list(attribute.candidates("c7"))) == 1
    assert list(index._attributes) == ["company"]
    message = Properties(headers={"company": "c7", "price": 5, "volume": 11})
    assert index.match(message) == [7]
