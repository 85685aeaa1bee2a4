"""What a binding's arguments mean, and what RabbitMQ says that is wrong with them."""

import pytest

from entrepot.broker.router.event import (
    Binding,
    Destination,
    DestinationKind,
    Exchange,
    ExchangeSettings,
    ExchangeType,
    Match,
)
from entrepot.core.errors import InvalidBinding
from entrepot.core.value import freeze_table
from entrepot.gateway.rabbitmq.binding_arguments import BindingDeclaration

HEADERS = Exchange("match", ExchangeType.HEADERS)
RING = Exchange("ring", ExchangeType.CONSISTENT_HASH)
LATE_RING = Exchange("late", ExchangeType.DELAYED, settings=ExchangeSettings(matches_as=RING.type))


def made(source: Exchange, key: str, arguments: dict[str, object]) -> Binding:
    destination = Destination(DestinationKind.QUEUE, "q")
    wanted = BindingDeclaration(source.name, destination, key, freeze_table(arguments))
    binding = wanted.binding(source)
    assert binding == Binding(source.name, destination, key, freeze_table(arguments))
    return binding


@pytest.mark.parametrize(
    ("arguments", "conditions", "match"),
    [
        ({}, {}, Match.ALL),
        ({"a": 1, "b": None, "x-a": 1}, {"a": 1, "b": None}, Match.ALL),
        ({"x-match": "all", "a": True}, {"a": True}, Match.ALL),
        ({"x-match": "any", "a": 1, "x-a": 1}, {"a": 1}, Match.ANY),
        ({"x-match": "all-with-x", "x-a": 1}, {"x-a": 1}, Match.ALL),
        ({"x-match": "any-with-x", "x-a": 1, "a": 1}, {"x-a": 1, "a": 1}, Match.ANY),
    ],
)
def test_what_they_mean(
    arguments: dict[str, object], conditions: dict[str, object], match: Match
) -> None:
    binding = made(HEADERS, "k", arguments)
    assert (binding.conditions, binding.match) == (freeze_table(conditions), match)


def test_elsewhere_they_mean_nothing() -> None:
    binding = made(Exchange("t", ExchangeType.TOPIC), "k", {"x-match": 3, "a": 1})
    assert (binding.conditions, binding.match) == ((), Match.ALL)


@pytest.mark.parametrize("key", ["1", "+7", "10000"])
def test_weights(key: str) -> None:
    assert made(RING, key, {}).key == key


@pytest.mark.parametrize(
    ("source", "key", "arguments", "text"),
    [
        (HEADERS, "", {"x-match": "some"}, 'Invalid x-match field value <<"some">>; '
         "expected all, any, all-with-x, or any-with-x"),
        (HEADERS, "", {"x-match": 3}, "Invalid x-match field type signedint (value 3); "
         "expected longstr"),
        (HEADERS, "", {"x-match": None}, "Invalid x-match field type void (value undefined); "
         "expected longstr"),
        (RING, "", {}, 'The binding key must be an integer: <<>>'),
        (RING, "1.5", {}, 'The binding key must be an integer: <<"1.5">>'),
        (RING, "0", {}, "The binding key must be greater than 0"),
        (RING, "-3", {}, "The binding key must be greater than 0"),
        (RING, "10001", {}, "The binding key must not exceed 10000"),
        (LATE_RING, "x", {}, 'The binding key must be an integer: <<"x">>'),
    ],
)  # fmt: skip
def test_bindings_that_are_refused(
    source: Exchange, key: str, arguments: dict[str, object], text: str
) -> None:
    with pytest.raises(InvalidBinding) as error:
        made(source, key, arguments)
    assert str(error.value) == text
