"""Properties: found where they are, and changed without touching the others."""

import pytest

from entrepot.wire.amqp import properties, table
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.properties import NAMES, NONE, BasicProperties, PropertyView
from entrepot.wire.amqp.table import Int16, UInt32

ALL = BasicProperties(
    content_type="text/plain",
    content_encoding="utf-8",
    headers={"a": Int16(1), "b": "two", "c": [UInt32(3), {"d": None}]},
    delivery_mode=2,
    priority=9,
    correlation_id="corr",
    reply_to="reply",
    expiration="60000",
    message_id="id",
    timestamp=1_700_000_000,
    type="kind",
    user_id="guest",
    app_id="app",
    cluster_id="cluster",
)
RAW = properties.encode(ALL)


def test_all_fourteen() -> None:
    assert len(NAMES) == 14
    assert RAW[:2] == b"\xff\xfc"
    assert properties.decode(RAW) == ALL
    view = PropertyView(RAW)
    for name in NAMES:
        assert name in view
        assert view.get(name) == getattr(ALL, name)


def test_none_of_them() -> None:
    assert properties.decode(NONE) == BasicProperties()
    view = properties.check(NONE)
    assert view.get("priority") is None
    assert view.header("a") is None
    assert "headers" not in view


@pytest.mark.parametrize("name", NAMES)
def test_one_is_taken_out_and_the_rest_stays(name: str) -> None:
    raw = PropertyView(RAW).patch({name: None})
    values = {each: getattr(ALL, each) for each in NAMES if each != name}
    assert raw == properties.encode(BasicProperties(**values))
    assert PropertyView(raw).patch({name: None}) == raw
    assert PropertyView(raw).patch({name: getattr(ALL, name)}) == RAW


def test_several_are_changed_at_once() -> None:
    raw = PropertyView(RAW).patch({"expiration": None, "delivery_mode": 1, "type": "other"})
    decoded = properties.decode(raw)
    assert (decoded.expiration, decoded.delivery_mode, decoded.type) == (None, 1, "other")
    assert decoded.headers == ALL.headers


def test_one_header_is_read_without_the_others() -> None:
    view = PropertyView(RAW)
    assert type(view.header("a")) is Int16
    assert view.header("c") == [3, {"d": None}]
    assert view.header("d") is None


def test_a_header_is_replaced_in_its_place_and_a_new_one_comes_last() -> None:
    raw = PropertyView(RAW).patch_headers({"b": 2, "x-death": [{"count": 1}]})
    headers = PropertyView(raw).get("headers")
    assert list(headers.items()) == [
        ("a", 1),
        ("b", 2),
        ("c", [3, {"d": None}]),
        ("x-death", [{"count": 1}]),
    ]
    assert type(headers["a"]) is Int16
    assert PropertyView(raw).patch({"headers": None}) == PropertyView(RAW).patch({"headers": None})


def test_headers_are_taken_out() -> None:
    raw = PropertyView(RAW).patch_headers({}, removed=("a", "c", "missing"))
    assert PropertyView(raw).get("headers") == {"b": "two"}


def test_the_first_header_makes_the_table() -> None:
    raw = PropertyView(NONE).patch_headers({"x-delivery-count": 1})
    assert properties.decode(raw) == BasicProperties(headers={"x-delivery-count": 1})
    assert PropertyView(NONE).patch_headers({}, removed=("a",)) == NONE


def test_a_patched_table_keeps_bytes_that_would_be_written_otherwise() -> None:
    """A large L, a true that is 7, a name given twice: none of ours, and all intact."""
    odd = b"\x01LL" + bytes(8) + b"\x01tt\x07" + b"\x01nV" + b"\x01nt\x01"
    raw = b"\x20\0" + table.long_string(odd)
    patched = PropertyView(raw).patch_headers({"k": True})
    assert patched == b"\x20\0" + table.long_string(odd + b"\x01kt\x01")
    # A name given twice is replaced once.
    patched = PropertyView(raw).patch_headers({"n": None})
    assert patched.count(b"\x01n") == 1


def test_properties_cut_off_anywhere_are_refused() -> None:
    for size in range(len(RAW)):
        with pytest.raises(AmqpError) as caught:
            properties.check(RAW[:size])
        assert caught.value.code == 502
    with pytest.raises(AmqpError, match="that need"):
        properties.check(RAW + b"\0")


@pytest.mark.parametrize("flags", [b"\0\x01", b"\0\x02", b"\x10\x03"])
def test_flags_of_properties_that_do_not_exist_are_refused(flags: bytes) -> None:
    with pytest.raises(AmqpError, match="not of the basic class"):
        PropertyView(flags + b"\x02")


def test_damaged_headers_are_found_when_they_are_looked_into() -> None:
    raw = b"\x20\0" + table.long_string(b"\x01nZ")
    view = PropertyView(raw)
    for look in (
        lambda: properties.check(raw),
        lambda: view.get("headers"),
        lambda: view.header("n"),
        lambda: view.patch_headers({"n": 1}),
    ):
        with pytest.raises(AmqpError, match="unknown type"):
            look()


def test_text_that_is_not_utf_8_survives() -> None:
    raw = b"\0\x80\x02\xff\xfe"
    assert properties.encode(properties.decode(raw)) == raw
