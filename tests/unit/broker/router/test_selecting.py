"""Selector exchanges: who gets what, and what is refused when it is bound."""

import pytest

from entrepot.broker.router.event import Binding, Exchange, ExchangeType, decode, encode
from entrepot.broker.router.event import Bound as BoundEvent
from entrepot.broker.router.matching import Routed
from entrepot.broker.router.selecting import SelectorMatcher
from entrepot.core.errors import InvalidBinding
from entrepot.core.properties import Properties
from tests.unit.broker.router.places import wanted


def bound(to: str, arguments: dict[str, object]) -> Binding:
    return wanted("x", to, "", arguments).binding(Exchange("x", ExchangeType.SELECTOR))


def telco(price: int) -> Routed:
    return Routed(("any",), Properties(headers={"company": "Telco", "price": price}))


def test_each_gets_what_it_selects() -> None:
    matcher = SelectorMatcher()
    triples = '{(company,=,"Telco"),(price,<,100)}'
    cheap = bound("cheap", {"x-selector": triples})
    also = bound("also", {"x-selector": triples})
    for each in (cheap, also, bound("dear", {"x-selector": "price > 100"}), bound("all", {})):
        matcher.add(each)
    assert sorted(matcher.match(telco(90))[0]) == ["all", "also", "cheap"]
    assert sorted(matcher.match(telco(120))[0]) == ["all", "dear"]
    matcher.remove(cheap)
    assert sorted(matcher.match(telco(90))[0]) == ["all", "also"]
    matcher.remove(also)
    assert matcher.match(telco(90))[0] == ("all",)


def test_a_binding_is_the_same_when_it_is_read_again() -> None:
    event = BoundEvent(bound("q", {"x-selector": "a = 1"}))
    again = decode(*encode(event))
    assert again == event
    assert isinstance(again, BoundEvent)
    assert again.binding.conditions == (("", "a = 1"),)


def test_what_another_release_wrote_stops_nothing() -> None:
    matcher = SelectorMatcher()
    strange = Binding("x", bound("q", {}).destination, conditions=(("", "a ~ 1"),))
    matcher.add(strange)
    assert matcher.match(telco(1)) == ((), ())
    matcher.remove(strange)


@pytest.mark.parametrize(
    ("selector", "said"),
    [("price <", "at character 8"), (5, "field type"), ("{(price,<)}", "at character 10")],
)
def test_what_does_not_parse_is_refused(selector: object, said: str) -> None:
    with pytest.raises(InvalidBinding, match=said):
        bound("q", {"x-selector": selector})
