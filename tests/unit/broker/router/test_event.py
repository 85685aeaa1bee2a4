"""Events as text: nothing is lost, and of one thing the name is one."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.router.event import (
    Binding,
    Bound,
    Event,
    Exchange,
    ExchangeDeclared,
    ExchangeDeleted,
    ExchangeSettings,
    ExchangeType,
    Match,
    QueueAdded,
    QueueRemoved,
    Unbound,
    decode,
    encode,
)
from entrepot.core.value import freeze, freeze_table, lookup, thaw_table
from entrepot.gateway.rabbitmq.erlang import describe
from tests.unit.broker.router.places import exchange, queue

TABLE = {
    "text": "grün",
    "not text": b"\xff\xfe",
    "numbers": [1, -(2**63), 1.0, True, None, Decimal("1.50")],
    "table": {"deep": {"deeper": []}},
    "nothing": None,
}
BINDING = Binding("x", queue("q"), "a.*", freeze_table(TABLE))
CONDITIONAL = replace(BINDING, conditions=freeze_table(TABLE), match=Match.ANY)
SETTINGS = ExchangeSettings("\udcff", ExchangeType.TOPIC, "h", "p", 5, 60)
EVENTS: list[Event] = [
    QueueAdded("q", durable=False),
    QueueRemoved("q"),
    ExchangeDeclared(
        Exchange("x", ExchangeType.DELAYED, False, True, True, SETTINGS, freeze_table(TABLE)),
    ),
    ExchangeDeleted("x"),
    Bound(CONDITIONAL),
    Bound(Binding("x", exchange("y"), "\udcff")),
    Unbound(BINDING),
]


@pytest.mark.parametrize("event", EVENTS)
def test_there_and_back(event: Event) -> None:
    name, value = encode(event)
    again = decode(name, value)
    assert again == event
    if isinstance(event, Bound) and isinstance(again, Bound):
        assert again.binding.conditions == event.binding.conditions
        assert again.binding.match is event.binding.match
    assert name.isascii()
    assert value is None or value.isascii()


def test_the_name_says_what_it_is_about() -> None:
    assert encode(EVENTS[0])[0] == encode(EVENTS[1])[0]
    assert encode(EVENTS[2])[0] == encode(EVENTS[3])[0]
    assert encode(Bound(BINDING))[0] == encode(Unbound(BINDING))[0]
    assert encode(Unbound(BINDING))[1] is None


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
)
tables = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


@given(tables)
def test_arguments_survive(table: dict[str, object]) -> None:
    frozen = freeze_table(table)
    hash(frozen)
    event = Bound(Binding("x", queue("q"), "", frozen))
    assert decode(*encode(event)) == event
    assert freeze_table(thaw_table(frozen)) == frozen


def test_what_python_calls_equal_is_not() -> None:
    forms = [freeze(value) for value in (1, 1.0, True, "1", Decimal(1), [1], {"1": 1})]
    assert len({json.dumps(form) for form in forms}) == len(set(forms)) == 7
    assert freeze(b"a") == freeze("a") == freeze(memoryview(b"a"))


def test_a_width_is_no_difference() -> None:
    class Int64(int):
        pass

    assert freeze(Int64(5)) == 5
    assert type(freeze(Int64(5))) is int


def test_looking_up() -> None:
    table = freeze_table({"a": 1, "b": None})
    assert (lookup(table, "a"), lookup(table, "b"), lookup(table, "c")) == (1, None, None)


def test_rabbitmq_has_its_own_names() -> None:
    values = (None, "a", 1, 2**40, True, 1.5, Decimal("1.5"), [1, "a"], {"k": False})
    values += ("", 'a"b\\', "ä")
    assert [describe(freeze(value)) for value in values] == [
        ("void", "undefined"),
        ("longstr", '<<"a">>'),
        ("signedint", "1"),
        ("long", "1099511627776"),
        ("bool", "true"),
        ("double", "1.5"),
        ("decimal", "1.5"),
        ("array", '[{signedint,1},{longstr,<<"a">>}]'),
        ("table", '[{<<"k">>,bool,false}]'),
        ("longstr", "<<>>"),
        ("longstr", r'<<"a\"b\\">>'),
        ("longstr", '<<"ä"/utf8>>'),
    ]
