"""What an exchange's type and arguments mean, and what RabbitMQ says that is wrong with them."""

from typing import Any

import pytest

from entrepot.broker.router.event import ExchangeSettings, ExchangeType
from entrepot.core.errors import ExchangeMismatch, ExchangeRefused, InvalidExchange
from entrepot.core.value import freeze_table
from entrepot.gateway.rabbitmq.exchange_arguments import (
    PREDECLARED,
    ExchangeDeclaration,
    check_deletable,
    exchange_type,
    type_name,
)


def declared(
    kind: str, arguments: dict[str, object] | None = None, **facts: Any
) -> ExchangeDeclaration:
    return ExchangeDeclaration(
        "/", "x", exchange_type(kind), freeze_table(arguments or {}), **facts
    )


def test_types() -> None:
    assert [type_name(kind) for kind in ExchangeType] == [
        "direct",
        "fanout",
        "topic",
        "headers",
        "x-consistent-hash",
        "x-delayed-message",
        "x-message-deduplication",
        "x-selector",
    ]
    for kind in ExchangeType:
        assert exchange_type(type_name(kind)) is kind


@pytest.mark.parametrize("name", ["odd", "", "consistent-hash", "x-direct"])
def test_types_that_there_are_not(name: str) -> None:
    with pytest.raises(InvalidExchange, match=f"^unknown exchange type '{name}'$"):
        exchange_type(name)


@pytest.mark.parametrize(
    ("kind", "arguments", "settings"),
    [
        ("topic", {}, ExchangeSettings()),
        ("topic", {"alternate-exchange": "a", "hash-header": "h", "x-cache-size": 5},
         ExchangeSettings(alternate="a")),
        ("x-delayed-message", {"x-delayed-type": "topic", "alternate-exchange": ""},
         ExchangeSettings(alternate="", matches_as=ExchangeType.TOPIC)),
        ("x-delayed-message", {"x-delayed-type": "x-consistent-hash", "hash-header": "h"},
         ExchangeSettings(matches_as=ExchangeType.CONSISTENT_HASH, hash_header="h")),
        ("x-consistent-hash", {"hash-property": "message_id"},
         ExchangeSettings(hash_property="message_id")),
        ("x-message-deduplication", {"x-cache-size": 5}, ExchangeSettings(ids_max=5)),
        ("x-message-deduplication", {"x-cache-size": "5", "x-cache-persistence": "memory"},
         ExchangeSettings(ids_max=5)),
        ("x-message-deduplication", {"x-cache-size": 1_000_000, "x-cache-ttl": "60"},
         ExchangeSettings(ids_max=1_000_000, ids_ttl_ms=60)),
        ("x-message-deduplication",
         {"x-cache-size": 1, "x-cache-ttl": 60, "x-cache-persistence": "disk"},
         ExchangeSettings(ids_max=1, ids_ttl_ms=60)),
    ],
)  # fmt: skip
def test_what_they_mean(
    kind: str, arguments: dict[str, object], settings: ExchangeSettings
) -> None:
    exchange = declared(kind, arguments, auto_delete=True).exchange()
    assert exchange.settings == settings
    assert exchange.arguments == freeze_table(arguments)
    assert (exchange.durable, exchange.auto_delete, exchange.internal) == (True, True, False)


def test_names_that_are_reserved() -> None:
    with pytest.raises(ExchangeRefused) as error:
        ExchangeDeclaration("/", "amq.mine", ExchangeType.DIRECT).exchange()
    assert str(error.value) == "exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    with pytest.raises(ExchangeRefused) as error:
        check_deletable("/", "amq.none")
    assert str(error.value) == "deletion of system exchange 'amq.none' in vhost '/' not allowed"
    check_deletable("/", "mine")
    assert [each.name for each in PREDECLARED if not each.name.startswith("amq.")] == []


def test_an_alternate_of_too_many_bytes() -> None:
    with pytest.raises(InvalidExchange) as error:
        declared("direct", {"alternate-exchange": "a" * 256}).exchange()
    where = "exchange 'x' in vhost '/'"
    assert str(error.value) == f"invalid arg 'alternate-exchange' in {where}: more than 255 bytes"


def test_the_same() -> None:
    current = declared("topic", {"alternate-exchange": "a"}).exchange()
    same = declared("topic", {"alternate-exchange": "a", "x-other": 1})  # RabbitMQ looks no closer.
    same.check_same(current)


@pytest.mark.parametrize(
    ("kind", "arguments", "facts", "difference"),
    [
        ("topic", {}, {}, "'type' for X: received 'topic' but current is 'direct'"),
        (
            "x-consistent-hash",
            {},
            {},
            "'type' for X: received ''x-consistent-hash'' but current is 'direct'",
        ),
        (
            "direct",
            {},
            {"durable": False},
            "'durable' for X: received 'false' but current is 'true'",
        ),
        (
            "direct",
            {},
            {"auto_delete": True},
            "'auto_delete' for X: received 'true' but current is 'false'",
        ),
        (
            "direct",
            {},
            {"internal": True},
            "'internal' for X: received 'true' but current is 'false'",
        ),
        (
            "direct",
            {},
            {},
            "'alternate-exchange' for X: received none "
            "but current is the value 'other' of type 'longstr'",
        ),
        (
            "direct",
            {"alternate-exchange": "new"},
            {},
            "'alternate-exchange' for X: received 'new' but current is 'other'",
        ),
        (
            "direct",
            {"alternate-exchange": 7},
            {},
            "'alternate-exchange' for X: received '7' but current is 'other'",
        ),
    ],
)
def test_declaring_otherwise(
    kind: str, arguments: dict[str, object], facts: dict[str, bool], difference: str
) -> None:
    current = declared("direct", {"alternate-exchange": "other"}).exchange()
    with pytest.raises(ExchangeMismatch) as error:
        declared(kind, arguments, **facts).check_same(current)
    assert str(error.value) == "inequivalent arg " + difference.replace(
        "X", "exchange 'x' in vhost '/'"
    )


def test_declaring_with_an_alternate_where_there_was_none() -> None:
    current = declared("direct").exchange()
    with pytest.raises(ExchangeMismatch) as error:
        declared("direct", {"alternate-exchange": "a"}).check_same(current)
    assert str(error.value).endswith("received the value 'a' of type 'longstr' but current is none")


NO_SIZE = "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0"


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        ("direct", {"alternate-exchange": 7}, "invalid type 'signedint' for arg "
         "'alternate-exchange' in exchange 'x' in vhost '/'"),
        ("x-delayed-message", {}, "Invalid argument, 'x-delayed-type' must be an existing "
         "exchange type"),
        ("x-delayed-message", {"x-delayed-type": "x-delayed-message"}, "Invalid argument, "
         "'x-delayed-message' can't be used for 'x-delayed-type'"),
        ("x-delayed-message", {"x-delayed-type": "odd"}, "unknown exchange type 'odd'"),
        ("x-delayed-message", {"x-delayed-type": "x-message-deduplication"}, "Invalid "
         "argument, 'x-message-deduplication' can't be used for 'x-delayed-type'"),
        ("x-message-deduplication", {}, NO_SIZE),
        ("x-message-deduplication", {"x-cache-size": 0}, NO_SIZE),
        ("x-message-deduplication", {"x-cache-size": True}, NO_SIZE),
        ("x-message-deduplication", {"x-cache-size": "many"}, NO_SIZE),
        ("x-message-deduplication", {"x-cache-size": "9" * 5_000}, NO_SIZE),
        ("x-message-deduplication", {"x-cache-size": 1_000_001},
         "Invalid argument, 'x-cache-size' must not exceed 1000000"),
        ("x-message-deduplication", {"x-cache-size": 5, "x-cache-ttl": -1},
         "Invalid argument, 'x-cache-ttl' must be an integer greater than 0"),
        ("x-message-deduplication", {"x-cache-size": 5, "x-cache-persistence": "tape"},
         "Invalid argument, 'x-cache-persistence' must be either 'disk' or 'memory'"),
        ("x-consistent-hash", {"hash-header": "a", "hash-property": "message_id"},
         "hash-header and hash-property are mutually exclusive"),
        ("x-consistent-hash", {"hash-property": "user_id"}, "Unsupported property: user_id"),
        ("x-consistent-hash", {"hash-property": 7}, "Unsupported property: 7"),
        ("x-consistent-hash", {"hash-header": 7},
         "invalid type 'signedint' for arg 'hash-header'"),
    ],
)  # fmt: skip
def test_arguments_that_are_refused(kind: str, arguments: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidExchange) as error:
        declared(kind, arguments).exchange()
    assert str(error.value) == text
