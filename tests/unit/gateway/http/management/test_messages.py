"""Values of tables as JSON: all that there are, whatever bytes they have."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from entrepot.core.message import Envelope
from entrepot.core.neutral import NEUTRAL, NO_PROPERTIES
from entrepot.core.properties import Death
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.http.management.messages import (
    head_from_json,
    properties_to_json,
    to_json,
)
from entrepot.wire.amqp.properties import NONE, BasicProperties, encode
from entrepot.wire.amqp.table import Int64, Timestamp
from entrepot.wire.http.request import HttpError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"),
        ("\udcff", "\ufffd"),
        (b"\xff", "\ufffd"),
        (Int64(5), 5),
        (Timestamp(5), 5),
        (datetime.fromtimestamp(5, UTC), 5),
        (Decimal("1.5"), 1.5),
        (True, True),
        (None, None),
        ([{"\udcffa": [1]}], [{"\ufffda": [1]}]),
    ],
)
def test_values(value: object, expected: object) -> None:
    found = to_json(value)
    assert found == expected
    assert type(found) is type(expected)


def test_properties() -> None:
    assert properties_to_json(Envelope("", "k", NONE, AMQP)) == {}
    told = BasicProperties(content_type="a", delivery_mode=1, expiration="5", cluster_id="c")
    raw = encode(replace(told, headers={"n": Int64(2**40)}))
    shown = properties_to_json(Envelope("", "k", raw, AMQP))
    assert shown == {
        "content_type": "a",
        "delivery_mode": 1,
        "expiration": "5",
        "cluster_id": "c",
        "headers": {"n": 2**40},
    }
    neutral = Envelope("", "k", head_from_json(shown), NEUTRAL)
    assert properties_to_json(neutral) == shown
    assert AMQP.head_of(neutral) == raw


def test_deaths_are_shown_whatever_the_format() -> None:
    head = NEUTRAL.with_deaths(NO_PROPERTIES, [Death("q", "expired")], "x", keeps_copies=True)
    found = properties_to_json(Envelope("", "k", head, NEUTRAL))
    assert found["headers"]["x-death"] == [{"count": 1, "reason": "expired", "queue": "q"}]
    assert found["headers"]["x-first-death-queue"] == "q"


@pytest.mark.parametrize(
    "wrong",
    [
        {"unknown": "x"},
        {"expiration": "soon"},
        {"content_type": "\ud800"},
        {"message_id": "x" * 256},
        {"headers": {"n": 2**63}},
        {"headers": {"\ud800": 1}},
        {"headers": {"a": ["\ud800"]}},
        {"headers": {"a": "x" * 50_000}},
        {"headers": 5},
        {"priority": 256},
    ],
)
def test_properties_that_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(HttpError) as error:
        head_from_json(wrong)
    assert error.value.status == 400
