"""The records of `__consumer_offsets`, held against those that Kafka writes."""

from pathlib import Path
from uuid import UUID

import pytest
from kio.schema.consumer_protocol_subscription.v3.data import ConsumerProtocolSubscription

from entrepot.broker.consumer_group.records import (
    CommittedOffset,
    Current,
    GroupEpoch,
    GroupRecordKind,
    Key,
    Row,
    StoredGroup,
    StoredMember,
    Subscription,
    decode,
    encode,
    subscribed_topics,
)
from entrepot.core.errors import Corruption
from entrepot.core.record import Record
from tests.unit.wire.kafka.oracle import kio_bytes

VECTORS = Path(__file__).parents[3] / "vectors" / "consumer_offsets_kafka.txt"
T = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
U = UUID("11121314-1516-1718-191a-1b1c1d1e1f20")
MEMBERS = (
    StoredMember("m-1", None, "c", "/127.0.0.1", 300_000, 45_000, b"\x01\x02", b"\x03"),
    StoredMember("m-2", "i", "", "/::1", 1, 2, b"", b""),
)
MEMBER = ("g", "m")

ROWS: dict[str, Row] = {
    "offset": (
        Key(GroupRecordKind.OFFSET, "grün", "orders", 3),
        CommittedOffset(1234567890123, 5, "here", 1_750_000_000_000),
    ),
    "offset forgotten": (Key(GroupRecordKind.OFFSET, "g", "t", 0), None),
    "classic group": (
        Key(GroupRecordKind.CLASSIC_GROUP, "g"),
        StoredGroup("consumer", 7, "range", "m-1", 1_750_000_000_001, MEMBERS),
    ),
    "classic group, empty": (
        Key(GroupRecordKind.CLASSIC_GROUP, "g"),
        StoredGroup("consumer", 8, None, None, 1_750_000_000_002, ()),
    ),
    "group epoch": (Key(GroupRecordKind.GROUP_EPOCH, "g"), GroupEpoch(9, -123_456_789)),
    "subscription": (
        Key(GroupRecordKind.SUBSCRIPTION, *MEMBER),
        Subscription("i", "r", "c", "/h", ("a", "b"), "x.*", 60_000, "uniform"),
    ),
    "subscription, little": (
        Key(GroupRecordKind.SUBSCRIPTION, *MEMBER),
        Subscription(None, None, "", "", (), None, -1, None),
    ),
    "target epoch": (Key(GroupRecordKind.TARGET_EPOCH, "g"), 11),
    "target": (Key(GroupRecordKind.TARGET, *MEMBER), {T: (0, 1, 2), U: (200,)}),
    "current": (Key(GroupRecordKind.CURRENT, *MEMBER), Current(12, 11, 1, {T: (0,)}, {U: (1, 2)})),
    "current, nothing": (Key(GroupRecordKind.CURRENT, *MEMBER), Current(-2, 0, 0, {}, {})),
}


def vectors() -> dict[str, Record]:
    lines = [line for line in VECTORS.read_text().splitlines() if line and line[0] != "#"]
    return {
        lines[at].strip("[]"): Record(
            bytes.fromhex(lines[at + 1]),
            None if lines[at + 2] == "null" else bytes.fromhex(lines[at + 2]),
        )
        for at in range(0, len(lines), 3)
    }


@pytest.mark.parametrize("name", ROWS)
def test_written_and_read_as_kafka_does(name: str) -> None:
    record = vectors()[name]
    assert encode(ROWS[name]) == record
    assert decode(record) == ROWS[name]


def test_every_vector_is_used() -> None:
    assert list(vectors()) == list(ROWS)


def test_other_kinds_of_records_are_passed_over() -> None:
    for number in (0, 4, 9, 16, 30_000):
        assert decode(Record(number.to_bytes(2, "big") + b"\0\1g", b"\0\0")) is None


@pytest.mark.parametrize("name", ROWS)
def test_damage_is_damage(name: str) -> None:
    """A record that ends too early is refused wherever that is."""
    record = vectors()[name]
    assert record.key is not None
    for size in range(len(record.key)):
        with pytest.raises(Corruption):
            decode(record._replace(key=record.key[:size]))
    for size in range(len(record.value or b"") - 1):
        with pytest.raises(Corruption):
            decode(record._replace(value=(record.value or b"")[:size]))


def test_another_version_is_not_guessed_at() -> None:
    record = vectors()["offset"]
    with pytest.raises(Corruption, match="another version"):
        decode(record._replace(value=b"\0\1" + (record.value or b"")[2:]))


def test_the_topics_a_classic_consumer_wants() -> None:
    said = ConsumerProtocolSubscription(topics=("a", "bc"), user_data=b"x", owned_partitions=())
    assert subscribed_topics(b"\0\3" + kio_bytes(said)) == ("a", "bc")
    for other in (
        b"",
        b"\0\3",
        b"\0\3\xff\xff\xff\xff",
        b"\0\3\x7f\xff\xff\xff",
        b"\0\3\0\0\0\1\0\x05a",
    ):
        assert subscribed_topics(other) in (None, ())
