from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.selector import Selector
from entrepot.core import limits
from entrepot.core.errors import InvalidSelector
from entrepot.core.message import Envelope
from entrepot.core.neutral import NEUTRAL, Head
from entrepot.core.properties import Properties

ORDER = Properties(
    message_id="ID:7",
    correlation_id="c",
    type="order",
    user_id="ana",
    timestamp=1_700_000_000,
    priority=7,
    is_persistent=True,
    headers={
        "price": 15,
        "weight": 2.5,
        "region": "eu-west",
        "share": "50%",
        "urgent": True,
        "late": False,
        "digits": "5",
        "raw": b"bytes",
        "table": {"a": 1},
        "nothing": None,
        "a.b": 1,
        "$x_1": "dollar",
    },
    others={"group-id": "g"},
)
NOTHING = Properties()


def selects(text: str, properties: Properties = ORDER) -> bool:
    envelope = Envelope("x", "key", NEUTRAL.write(Head(properties)), NEUTRAL)
    return Selector(text)(envelope)


@pytest.mark.parametrize(
    "text",
    [
        "price = 15",
        "price=15.0",
        "price <> 14 AND price < 16 AND price <= 15 AND price > 14 AND price >= 15",
        "price BETWEEN 10 AND 20",
        "price NOT BETWEEN 16 AND 20",
        "price BETWEEN 14 + 1 AND 30 / 2",
        "weight = 2.5 AND weight < 3",
        "region = 'eu-west' and Not region = 'us'",
        "region IN ('us', 'eu-west')",
        "region NOT IN ('us', 'it''s')",
        "region LIKE 'eu-%'",
        "region LIKE 'eu_west'",
        "region NOT LIKE 'eu'",
        "share LIKE '%!%' ESCAPE '!'",
        "share NOT LIKE '!%%' ESCAPE '!'",
        "urgent",
        "urgent = TRUE AND late = false AND NOT late",
        "missing IS NULL AND nothing IS NULL AND price IS NOT NULL",
        "missing = 1 OR price = 15",
        "NOT (missing = 1 AND price = 14)",
        "price + 2 * 3 = 21 AND (price + 2) * 3 = 51",
        "-price = -15 AND - - price = 15 AND +price = 15",
        "price / 2 = 7.5",
        "10 - 4 - 3 = 3",
        "0x0F = price AND 15L = price AND 1.5E1 = price AND .5 < 1 AND 2.5f = weight",
        "'it''s' = 'it''s'",
        "raw = 'bytes'",
        "a.b = 1 AND $x_1 = 'dollar'",
        "JMSMessageID = 'ID:7' AND JMSCorrelationID = 'c' AND JMSType = 'order'",
        "JMSPriority = 7 AND JMSTimestamp = 1700000000000 AND JMSDeliveryMode = 'PERSISTENT'",
        "JMSXUserID = 'ana' AND JMSXGroupID = 'g'",
        "convert_string_expressions:digits > 4 AND digits = 5",
    ],
)
def test_selected(text: str) -> None:
    assert selects(text)


@pytest.mark.parametrize(
    "text",
    [
        "price = 14",
        "missing = 1",
        "NOT missing = 1",
        "missing <> 1",
        "missing IN ('a')",
        "missing NOT LIKE 'a'",
        "missing BETWEEN 1 AND 2",
        "NOT (missing = 1 AND price = 15)",
        "missing",
        "price",
        "NOT price",
        "table IS NOT NULL",
        "digits > 4",  # A text is not a number,
        "digits <> 4",  # nor is it compared with one.
        "urgent = 1",
        "urgent > late",
        "region > 'a'",  # Only numbers have an order.
        "price IN ('15')",
        "price LIKE '15'",
        "price / 0 = 1",
        "region + 1 = 2",
        "urgent + 1 = 2",
        "NULL = NULL",
    ],
)
def test_not_selected(text: str) -> None:
    assert not selects(text)


def test_what_a_message_does_not_say() -> None:
    assert selects("JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT'", NOTHING)
    assert selects("JMSMessageID IS NULL AND JMSTimestamp IS NULL AND JMSType IS NULL", NOTHING)
    assert selects("JMSType = 'news'", Properties(others={"subject": "news"}))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("price =", r"at character 8 \(the end\): expected a name, a text"),
        ("price = 15 15", r"at character 12 \(15\): expected AND, OR or the end"),
        ("(price = 1", r"at character 11 \(the end\): expected \)"),
        ("price NOT 5", "at character 11 .5.: expected BETWEEN, IN or LIKE"),
        ("price IS 5", "expected NULL"),
        ("a LIKE 5", "expected a text in single quotes"),
        ("a LIKE 'x' ESCAPE 'xy'", "expected one character to escape with"),
        ("a IN ()", "expected a text"),
        ("a IN ('b'", r"expected \)"),
        ("a BETWEEN 1 OR 2", "expected AND"),
        ("price ^ 2", r"at character 7 \(\^ 2\): no part of a selector"),
        ("'open", "no part of a selector"),
        ("", "expected a name"),
        ("(" * 60 + "a" + ")" * 60, "too many parentheses"),
        ("- " * 60 + "1 = 1", "too many parentheses and signs"),
        ("NOT " * 60 + "a", "too many parentheses"),
        ("9" * 50 + " = 1", "too many digits"),
        ("a LIKE '" + "x" * 2_000 + "'", "too long"),
        ("a = 1 OR " * 1_000 + "b", "9001 characters"),
    ],
)
def test_mistakes_have_a_place(text: str, reason: str) -> None:
    with pytest.raises(InvalidSelector, match=reason):
        Selector(text)


def test_numbers_that_grow_are_null() -> None:
    assert not selects("*".join(["price"] * 1_000) + " > 0")
    assert not selects("1e300 * 1e300 * price > 0 AND FALSE")


def test_a_long_text_is_not_compared_with_a_pattern() -> None:
    long = Properties(headers={"text": "x" * (limits.SELECTOR_LIKE_CHARACTERS_MAX + 1)})
    assert not selects("text LIKE '%'", long)
    assert not selects("text NOT LIKE 'y'", long)


TOKENS = [
    *("price", "missing", "urgent", "'a'", "15", "2.5", "TRUE", "NULL", "(", ")", ","),
    *("=", "<>", "<", "+", "-", "*", "/", "AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "IS"),
]


@given(st.one_of(st.text(max_size=50), st.lists(st.sampled_from(TOKENS)).map(" ".join)))
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    try:
        selector = Selector(text)
    except InvalidSelector:
        return
    for properties in (ORDER, NOTHING):
        envelope = Envelope("x", "key", NEUTRAL.write(Head(properties)), NEUTRAL)
        assert selector(envelope) in (True, False)


NUMBER = st.one_of(st.integers(-20, 20), st.sampled_from(["price", "weight"]))


@given(st.lists(st.tuples(NUMBER, st.sampled_from("+-*")), max_size=6), NUMBER, NUMBER)
def test_numbers_are_computed_as_python_does(
    chain: list[tuple[Any, str]], last: Any, other: Any
) -> None:
    text = " ".join(f"{_written(each)} {sign}" for each, sign in chain) + f" {_written(last)}"
    expected = eval(text, {}, dict(ORDER.headers))
    right = eval(_written(other), {}, dict(ORDER.headers))
    assert selects(f"{text} > {_written(other)}") == (expected > right)
    assert selects(f"{text} = {_written(other)}") == (expected == right)


def _written(value: Any) -> str:
    return f"({value})"


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ('{(region, =, "eu-west"), (price, <, 100)}', True),
        ("{(region,=,'eu-west'),(price,<,10)}", False),
        ("{(digits,>,4)}", True),  # A text that is a number is compared as one.
        ("{(price,!=,15)}", False),
        ("{(price,>,-1)}", True),
        ("{(urgent,=,TRUE)}", True),
        ("{}", True),
    ],
)
def test_triples(text: str, selected: bool) -> None:
    assert selects(text) is selected


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{(company,=,"Telco"),(price,<,)}', 31),
        ("{(company,=,Telco)}", 13),
        ('{(company,"Telco")}', 11),
        ('{(company,=,"Telco")', 21),
        ('{(company,=,"Telco")} AND x', 23),
        ("{(1,=,1)}", 3),
    ],
)
def test_a_mistake_in_triples_is_shown(text: str, place: int) -> None:
    with pytest.raises(InvalidSelector, match=f"at character {place} "):
        Selector(text)
