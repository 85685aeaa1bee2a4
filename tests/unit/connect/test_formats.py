"""Entries, cut out of any bytes; rows that come back as they went."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.connect.formats import (
    Decoder,
    Encoder,
    Misfit,
    TextFormat,
    cut,
    json_line,
    read_cells,
    to_json,
)
from entrepot.connect.interface import Rejected, SourceRecord

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.binary(), st.sampled_from(["lines", "json", "csv"]))
def test_entries_are_the_bytes_and_nothing_is_cut_before_its_end(data: bytes, form: str) -> None:
    whole = list(cut(form, data, is_final=False))
    assert data.startswith(b"".join(whole))
    assert all(entry.endswith(b"\n") for entry in whole)
    assert b"".join(cut(form, data, is_final=True)) == data


@given(st.lists(st.lists(TEXT, min_size=2, max_size=2), max_size=5))
def test_csv_comes_back_as_it_went(rows: list[list[str]]) -> None:
    encoder = Encoder("csv", columns=["a", "b"])
    data = encoder.head
    for first, second in rows:
        data += encoder.encode(to_json({"a": first, "b": second}))
    head, *entries = cut("csv", data, is_final=False)
    assert read_cells(head.rstrip(b"\n")) == ["a", "b"]
    decoder = Decoder("csv", columns=["a", "b"])
    found = [decoder.decode(entry, "") for entry in entries]
    expected = [{"a": first, "b": second} for first, second in rows]
    assert [cast(SourceRecord, record).value for record in found] == list(map(to_json, expected))


@pytest.mark.parametrize(
    ("form", "entry", "reason"),
    [
        ("json", b"{\n", "JSON is malformed"),
        ("json", b"[1]\n", "no field id"),
        ("json", b'{"n": 1}\n', "no field id"),
        ("csv", b"1\n", "1 fields, but there are 2 columns"),
        ("csv", b'1,"a"b\n', "not CSV"),
        ("csv", b"1,\xff\n", "not CSV"),
    ],
)
def test_what_cannot_be_a_record_is_rejected(form: TextFormat, entry: bytes, reason: str) -> None:
    found = Decoder(form, key="id", columns=["id", "name"]).decode(entry, "here")
    assert isinstance(found, Rejected)
    assert found.where == "here"
    assert reason in found.reason or "truncated" in found.reason


@pytest.mark.parametrize(
    ("key", "expected"), [("ä", "ä".encode()), (7, b"7"), (None, None), ({"a": 1}, b'{"a":1}')]
)
def test_the_key_is_a_field(key: Any, expected: bytes | None) -> None:
    found = Decoder("json", key="id").decode(to_json({"id": key}) + b"\r\n", "")
    assert found == SourceRecord(to_json({"id": key}), key=expected)


def test_json_becomes_one_line_and_stays_as_exact() -> None:
    assert json_line(b'{"a": 1.10,\n "b": 12345678901234567890}') == (
        b'{"a":1.10,"b":12345678901234567890}\n'
    )
    assert json_line(None) == b"null\n"
    with pytest.raises(Misfit):
        json_line(b"\xff")


@pytest.mark.parametrize(
    ("form", "value", "reason"),
    [
        ("lines", b"a\nb", "line end"),
        ("csv", b"[]", "not a JSON object"),
        ("csv", b'{"other": 1}', "no column other"),
    ],
)
def test_what_a_format_cannot_say(form: TextFormat, value: bytes, reason: str) -> None:
    with pytest.raises(Misfit, match=reason):
        Encoder(form, columns=["a"]).encode(value)


DEEP = b"[" * 100_000


def test_what_is_nested_too_deep_is_a_misfit() -> None:
    """Python would say so with an error that nobody expects of a value."""
    found = Decoder("json").decode(DEEP, "a place")
    assert isinstance(found, Rejected)
    assert "nested too deep" in found.reason
    for form, columns in (("json", ()), ("csv", ("a",))):
        with pytest.raises(Misfit, match="nested too deep"):
            Encoder(cast(TextFormat, form), columns=columns).encode(DEEP)
    document: Any = 1
    for _ in range(100_000):
        document = [document]
    with pytest.raises(Misfit, match="nested too deep"):
        to_json(document)


@pytest.mark.timeout(20)
def test_a_quote_that_is_never_closed_is_passed_quickly() -> None:
    """All the lines after it are one entry, and each is looked at once."""
    lines = 300_000
    (entry,) = cut("csv", b'a,"b\n' + b"1,2\n" * lines, is_final=True)
    assert entry.count(b"\n") == lines + 1
