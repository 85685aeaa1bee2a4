"""What members tell each other, byte by byte as Kafka's, and how a leader divides."""

import pytest

from entrepot.client.assignment import (
    Subscriber,
    decode_assignment,
    decode_subscription,
    divide_by_range,
    encode_assignment,
    encode_subscription,
)
from entrepot.client.client import TopicPartition
from entrepot.client.errors import BadAnswer

PARTS = [TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)]
# ConsumerProtocolSubscription and ConsumerProtocolAssignment of Kafka's message
# definitions: a version, the array, and user data, which is null.
SUBSCRIPTION = bytes.fromhex("0000 00000002 000161 000162 ffffffff")
ASSIGNMENT = bytes.fromhex(
    "0000 00000002 000161 00000002 00000000 00000002 000162 00000001 00000001 ffffffff"
)


def test_subscriptions() -> None:
    assert encode_subscription(["a", "b"]) == SUBSCRIPTION
    assert decode_subscription(SUBSCRIPTION) == ("a", "b")


def test_assignments() -> None:
    assert encode_assignment(PARTS) == ASSIGNMENT
    assert decode_assignment(ASSIGNMENT) == PARTS


def test_a_newer_version_only_says_more() -> None:
    owned, generation, rack = "00000000", "00000007", "ffff"
    newest = b"\x00\x03" + SUBSCRIPTION[2:] + bytes.fromhex(owned + generation + rack)
    assert decode_subscription(newest) == ("a", "b")


def test_who_is_left_out_has_nothing() -> None:
    assert decode_assignment(b"") == []


@pytest.mark.parametrize("size", range(1, len(ASSIGNMENT)))
def test_bytes_that_are_none_of_it(size: int) -> None:
    with pytest.raises(BadAnswer, match="another member's bytes"):
        decode_assignment(ASSIGNMENT[:size])


def member(name: str, *topics: str, instance: str | None = None) -> Subscriber:
    return Subscriber(name, instance, topics)


def indexes(divided: dict[str, list[TopicPartition]]) -> dict[str, str]:
    return {name: " ".join(f"{t}{p}" for t, p in parts) for name, parts in divided.items()}


@pytest.mark.parametrize(
    ("members", "counts", "divided"),
    [
        ([], {"t": 3}, {}),
        ([member("m", "t")], {}, {"m": ""}),
        ([member("m", "t")], {"t": 3}, {"m": "t0 t1 t2"}),
        ([member("n", "t"), member("m", "t")], {"t": 3}, {"m": "t0 t1", "n": "t2"}),
        (
            [member("a", "t"), member("b", "t"), member("c", "t"), member("d", "t")],
            {"t": 3},
            {"a": "t0", "b": "t1", "c": "t2", "d": ""},
        ),
        (
            [member("a", "t", "u"), member("b", "t"), member("c", "u")],
            {"t": 3, "u": 2},
            {"a": "t0 t1 u0", "b": "t2", "c": "u1"},
        ),
        (
            [member("a", "t"), member("b", "t", instance="z"), member("c", "t", instance="y")],
            {"t": 3},
            {"c": "t0", "b": "t1", "a": "t2"},
        ),
    ],
    ids=["nobody", "no topic", "one", "two", "too many", "different topics", "named ones first"],
)
def test_ranges(members: list[Subscriber], counts: dict[str, int], divided: dict[str, str]) -> None:
    assert indexes(divide_by_range(members, counts)) == divided
