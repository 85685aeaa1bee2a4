"""Messages of SQS and of the broker: nothing is lost on the way there and back."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.core.properties import Properties
from entrepot.core.steps import finish
from entrepot.gateway.sqs.translation import (
    attributes_of,
    body_text,
    envelope,
    md5_text,
    wanted_names,
)
from entrepot.wire.sqs.attributes import Attribute, is_legal_text

NAMES = st.sampled_from(["a", "content-type", "reply-to", "message-id", "priority", "expiration"])
TEXTS = st.text(min_size=1).filter(is_legal_text)
VALUES = st.one_of(
    st.builds(Attribute, st.sampled_from(["String", "String.x"]), TEXTS),
    st.builds(Attribute, st.sampled_from(["Binary", "Binary.x"]), st.binary(min_size=1)),
    st.builds(
        Attribute,
        st.sampled_from(["Number", "Number.int"]),
        st.one_of(
            st.integers().map(str), st.sampled_from(["1.50", "007", "+1", "1e3", "-0", "9" * 38])
        ),
    ),
)


@given(st.dictionaries(NAMES, VALUES))
def test_attributes_come_back_as_they_were(attributes: dict[str, Attribute]) -> None:
    made = envelope("work", "id", None, attributes, trace="t", group="g")
    assert attributes_of(made.properties) == attributes
    assert made.handling == made.format.handling(made.head)
    assert made.properties.message_id == "id"


def test_what_other_protocols_say() -> None:
    headers = {
        "float": 1.5,
        "infinite": float("inf"),
        "decimal": Decimal("1.50"),
        "no": False,
        "list": [1, 2],
        "none": None,
        "bad name": 1,
        "control": "a\0b",
        "content-type": "hidden by the property",
    }
    properties = Properties(content_type="x", priority=3, ttl_ms=5, user_id="ana", headers=headers)
    assert attributes_of(properties) == {
        "content-type": Attribute("String", "x"),
        "priority": Attribute("Number", "3"),
        "expiration": Attribute("Number", "5"),
        "float": Attribute("Number", "1.5"),
        "infinite": Attribute("String", "inf"),
        "decimal": Attribute("Number", "1.50"),
        "no": Attribute("String", "false"),
        "list": Attribute("String", "[1, 2]"),
        "control": Attribute("Binary", b"a\0b"),
    }


@pytest.mark.parametrize("noted", ["", "nonsense", "[1]", '{"a": 1}'])
def test_a_note_that_is_none_is_ignored(noted: str) -> None:
    properties = Properties(headers={"a": "x"}, others={"attribute_types": noted})
    assert attributes_of(properties) == {"a": Attribute("String", "x")}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", ("", False)),
        ("é".encode(), ("é", False)),
        (b"\0", ("AA==", True)),
        (b"\xff", ("/w==", True)),
    ],
)
def test_bodies(body: bytes, told: tuple[str, bool]) -> None:
    assert finish(body_text((envelope("q", "i", None, {}), body))) == told


def test_long_bodies_are_told_in_steps() -> None:
    body = b"\xff" * 2_000_000
    assert len(list(body_text((envelope("q", "i", None, {}), body)))) >= 10
    assert len(list(md5_text("x" * 2_000_000))) >= 10


def test_names_that_are_asked_for() -> None:
    is_wanted = wanted_names(["a", "b.*"])
    assert [name for name in ("a", "b", "b.c", "c") if is_wanted(name)] == ["a", "b.c"]
    assert wanted_names(["All"])("x")
    assert wanted_names([".*"])("x")
    assert not wanted_names([])("x")
