"""Values of tables as JSON: all that there are, whatever bytes they have."""

from decimal import Decimal

import pytest

from entrepot.gateway.http.management.messages import (
    properties_from_json,
    properties_to_json,
    to_json,
)
from entrepot.wire.amqp.properties import NONE, Properties, encode
from entrepot.wire.amqp.table import Int64, Timestamp


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"),
        ("\udcff", "\ufffd"),
        (b"\xff", "\ufffd"),
        (Int64(5), 5),
        (Timestamp(5), 5),
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
    assert properties_to_json(NONE) == {}
    raw = encode(Properties(content_type="a", delivery_mode=1, headers={"n": Int64(2**40)}))
    shown = {"content_type": "a", "delivery_mode": 1, "headers": {"n": 2**40}}
    assert properties_to_json(raw) == shown
    assert properties_from_json(shown) == raw
