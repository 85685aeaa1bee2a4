"""Packets: what is sealed and read back, and what is refused, each for its reason."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import (
    Ack,
    Delta,
    Digest,
    Entries,
    Entry,
    Join,
    MemberUpdate,
    Message,
    Ping,
    Pull,
    Push,
    Rumor,
    Share,
)
from entrepot.wire.gossip.packet import ANYBODY, Codec, Reason, Refused

SECRET = b"sixteen bytes or more"
NOW = 1_750_000_000_000
MEMBER = MemberUpdate(7, "127.0.0.1", 7946, 3, 1)
ENTRY = Entry(1, 2, "key", b"value")
MESSAGES = (
    Pull(),
    Push(Entries((ENTRY,))),
    Push(Share(1, 2, 3.5, 0.25, -1.0, 9.0)),
    Digest(((1, 2), (3, 4))),
    Delta((ENTRY,), ((1, 2),)),
    Rumor(ENTRY),
    Ping(5, (MEMBER,)),
    Ack(5, 7, ()),
    Join(MEMBER),
)


def codec(me: int, secret: bytes | None = SECRET, cluster: str = "c") -> Codec:
    return Codec(cluster, me, secret)


def packed(one: Codec, *messages: Message, to: int = 2, now: int = NOW) -> bytes:
    return one.pack(to, [one.body(message) for message in messages], now)


def reason(other: Codec, data: bytes, now: int = NOW) -> Reason:
    with pytest.raises(Refused) as refused:
        other.unpack(data, now)
    return refused.value.reason


@pytest.mark.parametrize("secret", [None, SECRET])
def test_what_is_sent_is_read(secret: bytes | None) -> None:
    data = packed(codec(1, secret), *MESSAGES)
    found = codec(2, secret).unpack(data, NOW)
    assert found.messages == MESSAGES
    assert (found.sender, found.is_for_anybody) == (1, False)
    assert len(data) == 36 + 3 + sum(len(codec(1).body(m)) for m in MESSAGES) + (
        16 if secret else 0
    )


def test_the_bytes_of_version_1() -> None:
    """docs/formats/gossip.md; they never change."""
    data = packed(codec(1), Ping(5, (MEMBER,)))
    assert data.hex() == (
        "6567" "01" "01" "2e7d2c03a9507ae2" "0000000000000001" "0000000000000002"
        "0006379da05b6000" "dc0001" "93280591" "9507a93132372e302e302e31cd1f0a0301"
        "c288f1a8c5044b3468d494a0ccf90f1f"
    )  # fmt: skip


def test_forged() -> None:
    data = packed(codec(1), Pull())
    assert reason(codec(2, b"another secret, as long"), data) is Reason.FORGED
    assert reason(codec(2, None), data) is Reason.FORGED
    assert reason(codec(2), packed(codec(1, None), Pull())) is Reason.FORGED
    for index in range(len(data)):
        changed = bytearray(data)
        changed[index] ^= 1
        assert reason(codec(2), bytes(changed)) in (
            Reason.FORGED, Reason.MALFORMED, Reason.VERSION, Reason.CLUSTER
        ), index  # fmt: skip


def test_replayed() -> None:
    one, other = codec(1), codec(2)
    data = [packed(one, Pull(), now=NOW + n // 3) for n in range(3_000)]
    for each in reversed(data[:500]):  # In any order.
        other.unpack(each, NOW)
    assert {reason(other, each) for each in data[:500]} == {Reason.REPLAYED}
    for each in data[500:]:
        other.unpack(each, NOW)
    assert {reason(other, each) for each in data} == {Reason.REPLAYED}


def test_at_another_time_or_node() -> None:
    one = codec(1)
    data = packed(one, Pull())
    assert reason(codec(3), data) is Reason.MISDIRECTED
    assert reason(codec(1), packed(codec(1), Pull())) is Reason.MISDIRECTED
    late = NOW + limits.CLOCK_MS_MAX + 1
    assert reason(codec(2), data, late) is Reason.STALE
    assert reason(codec(2), data, NOW - limits.CLOCK_MS_MAX - 1) is Reason.STALE
    assert codec(9).unpack(packed(one, Join(MEMBER), to=ANYBODY), NOW).is_for_anybody


def test_a_restarted_node_goes_on_above_its_numbers() -> None:
    other = codec(2)
    other.unpack(packed(codec(1), Pull(), now=NOW), NOW)
    other.unpack(packed(codec(1), Pull(), now=NOW + 1), NOW)


def test_another_cluster_or_version() -> None:
    data = packed(codec(1, cluster="d"), Pull())
    assert reason(codec(2), data) is Reason.CLUSTER
    data = packed(codec(1), Pull())
    assert reason(codec(2), data[:2] + b"\x02" + data[3:]) is Reason.VERSION


def test_oversize_and_malformed() -> None:
    other = codec(2, None)
    assert reason(other, b"x" * (limits.DATAGRAM_BYTES_MAX + 1)) is Reason.OVERSIZE
    header = packed(codec(1, None), Pull())[: limits.HEADER_BYTES]
    for body in (
        b"",
        b"\xc1",
        b"\x91\x91\x63",  # A message that there is not.
        b"\x90\x00",  # Something behind the end.
        b"\xdd\xff\xff\xff\xff",  # Four billion messages.
        b"\x91" * 1_000,
        b"\x91" + msgspec.msgpack.encode([20, [1, 0, "key", b""]]),  # Versions begin with 1.
        b"\x91" + msgspec.msgpack.encode([20, [1, 1, "k" * 129, b""]]),
        b"\x91" + msgspec.msgpack.encode([20, [1, 1, "k", b"v" * 513]]),
        b"\x91" + msgspec.msgpack.encode([43, [1, "h", 70_000, 0, 0]]),
        b"\x91" + msgspec.msgpack.encode([43, [1, "h", 7, 0, 4]]),
        msgspec.msgpack.encode([[11]] * (limits.MESSAGES_PER_PACKET_MAX + 1)),
    ):
        assert reason(other, header + body) is Reason.MALFORMED, body
    assert reason(other, header[:-1]) is Reason.MALFORMED


@given(st.binary(max_size=1_500))
def test_nothing_else_comes_of_nonsense(data: bytes) -> None:
    header = packed(codec(1, None), Pull())[: limits.HEADER_BYTES]
    for each in (data, header + data):
        with contextlib.suppress(Refused):
            codec(2, None).unpack(each, NOW)


def test_who_is_remembered_is_bounded() -> None:
    other = codec(2)
    for sender in range(3, limits.SENDERS_MAX + 10):
        other.unpack(packed(codec(sender), Pull()), NOW)
    assert len(other._senders) <= limits.SENDERS_MAX


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        codec(1, b"short")
