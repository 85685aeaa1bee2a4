"""Filter policies: what each condition matches, and which policies are none."""

import json
from typing import Any

import pytest

from entrepot.gateway.sqs.sns.filter_policy import FilterPolicy
from entrepot.wire.sqs.attributes import Attribute
from entrepot.wire.sqs.errors import SqsError

ATTRIBUTES = {
    "store": Attribute("String", "example_corp"),
    "price": Attribute("Number", "210.75"),
    "count": Attribute("Number", "3"),
    "interests": Attribute("String.Array", '["soccer", "rugby", null, 5, true]'),
    "ip": Attribute("String", "10.0.0.7"),
    "blob": Attribute("Binary", b"\0"),
}
BODY = {
    "store": "example_corp",
    "price": 210.75,
    "customer": {"name": "Ana", "tags": ["a", "b"], "address": {"city": "Genoa"}},
    "items": [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}],
    "gone": None,
    "paid": True,
}


@pytest.mark.parametrize(
    ("policy", "wants"),
    [
        ({"store": ["example_corp"]}, True),
        ({"store": ["other"]}, False),
        ({"store": ["other", "example_corp"]}, True),
        ({"store": ["example_corp"], "price": [1]}, False),
        ({"store": [{"prefix": "exam"}]}, True),
        ({"store": [{"suffix": "corp"}]}, True),
        ({"store": [{"suffix": "exam"}]}, False),
        ({"store": [{"equals-ignore-case": "EXAMPLE_corp"}]}, True),
        ({"store": [{"anything-but": "other"}]}, True),
        ({"store": [{"anything-but": ["other", "example_corp"]}]}, False),
        ({"store": [{"anything-but": {"prefix": "exam"}}]}, False),
        ({"none": [{"anything-but": ["x"]}]}, False),
        ({"price": [210.75]}, True),
        ({"count": [3]}, True),
        ({"count": ["3"]}, False),
        ({"price": [{"numeric": ["=", 210.75]}]}, True),
        ({"price": [{"numeric": [">", 0, "<=", 210.75]}]}, True),
        ({"price": [{"numeric": ["<", 210.75]}]}, False),
        ({"store": [{"numeric": ["<", 1]}]}, False),
        ({"interests": ["rugby"]}, True),
        ({"interests": ["tennis"]}, False),
        ({"interests": [{"anything-but": ["rugby"]}]}, False),
        ({"interests": [5]}, True),
        ({"interests": [None]}, True),
        ({"interests": [True]}, True),
        ({"interests": [1]}, False),
        ({"store": [{"exists": True}]}, True),
        ({"store": [{"exists": False}]}, False),
        ({"none": [{"exists": False}]}, True),
        ({"blob": [{"exists": True}]}, True),
        ({"blob": ["\0"]}, False),
        ({"ip": [{"cidr": "10.0.0.0/24"}]}, True),
        ({"ip": [{"cidr": "10.1.0.0/24"}]}, False),
        ({"store": [{"cidr": "10.1.0.0/24"}]}, False),
        ({"$or": [{"store": ["x"]}, {"count": [3]}]}, True),
        ({"$or": [{"store": ["x"]}, {"count": [4]}]}, False),
    ],
)
def test_what_attributes_match(policy: dict[str, Any], wants: bool) -> None:
    assert FilterPolicy(json.dumps(policy), is_nested=False).wants_attributes(ATTRIBUTES) is wants


@pytest.mark.parametrize(
    ("policy", "wants"),
    [
        ({"customer": {"name": ["Ana"]}}, True),
        ({"customer": {"name": ["Ben"]}}, False),
        ({"customer": {"address": {"city": [{"prefix": "Gen"}]}}}, True),
        ({"customer": {"tags": ["b"]}}, True),
        ({"items": {"id": [2]}}, True),
        ({"items": {"id": [3]}}, False),
        ({"store": {"name": ["x"]}}, False),
        ({"gone": [None]}, True),
        ({"paid": [True]}, True),
        ({"paid": [1]}, False),
        ({"customer": {"$or": [{"name": ["Ben"]}, {"tags": ["a"]}]}}, True),
    ],
)
def test_what_a_body_matches(policy: dict[str, Any], wants: bool) -> None:
    read = FilterPolicy(json.dumps(policy), is_nested=True)
    assert read.wants_body(BODY) is wants
    for nothing in ((), [BODY], "x", None):
        assert not read.wants_body(nothing)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "{}",
        '{"a": "b"}',
        '{"a": []}',
        '{"a": {"b": ["c"]}}',
        '{"a": [["b"]]}',
        '{"a": [{}]}',
        '{"a": [{"prefix": 1}]}',
        '{"a": [{"prefix": "x", "suffix": "y"}]}',
        '{"a": [{"no-such": "x"}]}',
        '{"a": [{"numeric": ["="]}]}',
        '{"a": [{"numeric": ["~", 1]}]}',
        '{"a": [{"numeric": ["=", "1"]}]}',
        '{"a": [{"cidr": "x"}]}',
        '{"a": [{"exists": 1}]}',
        '{"a": [{"anything-but": {"numeric": 1}}]}',
        '{"a": [{"anything-but": []}]}',
        '{"$or": {"a": ["b"]}}',
        "[" * 100_000,
    ],
)
def test_what_is_no_policy(text: str) -> None:
    with pytest.raises(SqsError) as caught:
        FilterPolicy(text, is_nested=False)
    assert caught.value.code == "InvalidParameter"


def test_a_policy_has_bounds() -> None:
    with pytest.raises(SqsError) as caught:
        FilterPolicy(json.dumps({"a": [*range(200)]}), is_nested=False)
    assert caught.value.code == "FilterPolicyLimitExceeded"
    deep: Any = ["x"]
    for _ in range(20):
        deep = {"a": deep}
    with pytest.raises(SqsError, match="deep"):
        FilterPolicy(json.dumps(deep), is_nested=True)
