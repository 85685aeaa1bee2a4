"""Messages of the neutral format, and records that others wrote."""

from hypothesis import given
from hypothesis import strategies as st

from entrepot.core.body import decode_headers
from entrepot.core.message import Envelope, Handling
from entrepot.core.neutral import (
    NEUTRAL,
    NO_PROPERTIES,
    Formats,
    Head,
    foreign_envelope,
    record_section,
)
from entrepot.core.properties import Death, Properties
from entrepot.core.record import Record

TEXTS = st.text(max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
NUMBERS = st.none() | st.integers(0, 2**63)
DEATHS = st.builds(
    Death,
    TEXTS,
    TEXTS,
    st.integers(1, 9),
    NUMBERS,
    st.none() | TEXTS,
    st.lists(TEXTS, max_size=2).map(tuple),
    NUMBERS,
)
HEADS = st.builds(
    Head,
    st.builds(
        Properties,
        content_type=st.none() | TEXTS,
        priority=st.none() | st.integers(0, 255),
        ttl_ms=st.none() | st.integers(0, 10**9),
        is_persistent=st.none() | st.booleans(),
        headers=st.dictionaries(TEXTS, VALUES, max_size=4),
    ),
    delay_ms=st.integers(0, 10**6),
    copies=st.lists(TEXTS, max_size=2).map(tuple),
    deduplication_id=st.none() | st.binary(max_size=16),
    deaths=st.lists(DEATHS, max_size=2).map(tuple),
)


def recorded(envelope: Envelope) -> Record:
    return Record(None, b"", decode_headers(record_section(envelope)))


@given(HEADS, st.sampled_from(["", "ex", "\udcff"]), TEXTS)
def test_there_and_back(head: Head, exchange: str, subject: str) -> None:
    assert NEUTRAL.read(NEUTRAL.write(head)) == head
    envelope = Envelope(exchange, subject, NEUTRAL.write(head), NEUTRAL)
    assert Formats().envelope(recorded(envelope)) == envelope


def test_what_the_broker_heeds() -> None:
    head = Head(
        Properties(priority=5, ttl_ms=70, is_persistent=True), 9, True, ("a",), ("b",), b"id", 3
    )
    expected = Handling(True, 5, 70, 9, True, ("a",), ("b",), b"id", 3)
    assert NEUTRAL.handling(NEUTRAL.write(head)) == expected
    assert NEUTRAL.handling(NO_PROPERTIES) == Handling()


def test_what_the_broker_notes() -> None:
    head = NEUTRAL.write(Head(Properties(ttl_ms=5), 9, copies=("a",), blind_copies=("b",)))
    seen = NEUTRAL.without_blind_copies(head)
    assert NEUTRAL.handling(seen) == Handling(False, 0, 5, 9, copies=("a",))
    exchange, after = NEUTRAL.after_delay(NEUTRAL.delayed_at(seen, "late"))
    assert (exchange, NEUTRAL.handling(after).delay_ms) == ("late", 0)
    deaths = [Death("q\udcff", "expired", 2, 1_000)]
    dead = NEUTRAL.with_deaths(after, deaths, "x", keeps_copies=False)
    assert NEUTRAL.handling(dead) == Handling()
    [death] = NEUTRAL.deaths(dead)
    assert (death.reason, death.times) == ("expired", 2)


def test_bytes_that_are_no_head() -> None:
    for forged in (b"", b"\xff", b"\x81", b"\x93\x01\x02\x03", b"\x91" * 2_000):
        assert NEUTRAL.read(forged) == Head()
        assert NEUTRAL.unpack(b"\0\0" + forged) is None
    for forged in (b"", b"\x05", b"\0", b"\0\x05ab"):
        assert NEUTRAL.unpack(forged) is None


def test_a_record_of_others() -> None:
    headers = (("type", b"one"), ("type", b"two"), ("expiration", b"-5"), ("x", b"\xff"))
    envelope = foreign_envelope(Record(b"key", b"", headers, 1_500))
    assert (envelope.exchange, envelope.subject) == ("", "key")
    expected = {"type": "two", "expiration": "-5", "x": b"\xff"}
    assert envelope.properties == Properties(type="one", timestamp=1, headers=expected)
    assert foreign_envelope(Record(None, b"")).head == NO_PROPERTIES
