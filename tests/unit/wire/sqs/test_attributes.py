"""Attributes of messages: what is one, how large they are, and their MD5."""

from hashlib import md5
from typing import Any

import pytest

from entrepot.wire.sqs.attributes import (
    TRACE,
    Attribute,
    is_legal_text,
    md5_of,
    read,
    read_system,
    size_of,
)
from entrepot.wire.sqs.errors import SqsError


def test_the_md5_is_amazons() -> None:
    # As SQS answered to a client that sent this attribute.
    long = Attribute("Number.java.lang.Long", "1493147359900")
    assert md5_of({"timestamp": long}) == "2e2e4876d8e0bd6b8c2c8f556831c349"
    # Lengths of four bytes, the names in order, and what kind of value each has.
    both = {"b": Attribute("Binary", b"\0"), "a": Attribute("String", "é")}
    told = b"\0\0\0\x01a\0\0\0\x06String\x01\0\0\0\x02\xc3\xa9"
    told += b"\0\0\0\x01b\0\0\0\x06Binary\x02\0\0\0\x01\0"
    assert md5_of(both) == md5(told).hexdigest()
    assert md5_of(both) == md5_of(dict(reversed(both.items())))
    assert md5_of(both) != md5_of({**both, "b": Attribute("String", "\0")})


def test_what_is_sent_is_read() -> None:
    given = {
        "text": {"DataType": "String.x", "StringValue": "é"},
        "bytes": {"DataType": "Binary", "BinaryValue": "AP8="},
    }
    found = read(given)
    assert found == {"text": Attribute("String.x", "é"), "bytes": Attribute("Binary", b"\0\xff")}
    assert {name: each.to_json() for name, each in found.items()} == given
    assert size_of(found) == 4 + 8 + 2 + 5 + 6 + 2


@pytest.mark.parametrize("text", ["0", "-1", "+1.5", ".5", "1.", "1e10", "9" * 38])
def test_numbers(text: str) -> None:
    assert read({"n": {"DataType": "Number", "StringValue": text}})["n"].value == text


@pytest.mark.parametrize("text", ["x", "", "1x", "--1", "1e", "9" * 200, "٣", " 1"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(SqsError):
        read({"n": {"DataType": "Number", "StringValue": text}})


@pytest.mark.parametrize(
    "value", [1, None, [], {}, {"DataType": None}, {"DataType": "String", "StringValue": 1}]
)
def test_what_is_no_attribute(value: Any) -> None:
    with pytest.raises(SqsError):
        read({"a": value})


def test_attributes_of_the_system() -> None:
    value = {"DataType": "String", "StringValue": "x"}
    assert read_system({TRACE: value}) == {TRACE: Attribute("String", "x")}
    for given in ({"other": value}, {TRACE: {"DataType": "Number", "StringValue": "1"}}):
        with pytest.raises(SqsError):
            read_system(given)


@pytest.mark.parametrize("text", ["", "é\t\n\r", "\U0001f600", "\ud7ff\ue000\ufffd"])
def test_legal_texts(text: str) -> None:
    assert is_legal_text(text)


@pytest.mark.parametrize("text", ["\0", "\x0b", "\x1f", "\ud800", "\ufffe", "\uffff"])
def test_illegal_texts(text: str) -> None:
    assert not is_legal_text(f"a{text}b")
