"""Long JSON: as the fast reader reads it, and others have their turn meanwhile."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.core.steps import finish
from entrepot.gateway.http import json_reader
from entrepot.gateway.http.json_reader import NotJson, read, read_in_steps

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@pytest.fixture(autouse=True, scope="module")
def everything_is_long() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_reader, "AT_ONCE_BYTES_MAX", -1)
        patch.setattr(json_reader, "_PIECE_BYTES", 24)
        patch.setattr(json_reader, "_STEP_VALUES", 3)
        yield


def outcome(read_it: Any) -> Any:
    try:
        return repr(read_it())
    except NotJson:
        return "refused"


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_as_the_fast_reader_reads_it(value: Any, is_ascii: bool, indent: int | None) -> None:
    data = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode()
    assert repr(finish(read_in_steps(data))) == repr(read(data))


@given(VALUES, st.data())
def test_what_is_damaged_is_refused_by_both_or_by_none(value: Any, data: st.DataObject) -> None:
    whole = bytearray(json.dumps(value, ensure_ascii=False).encode())
    place = data.draw(st.integers(0, len(whole) - 1))
    inserted = data.draw(st.binary(max_size=2) | st.sampled_from(list(b'"\\{}[],:u0-1te ')))
    whole[place : place + data.draw(st.integers(0, 2))] = (
        bytes((inserted,)) if isinstance(inserted, int) else inserted
    )
    damaged = bytes(whole)
    assert outcome(lambda: finish(read_in_steps(damaged))) == outcome(lambda: read(damaged))


@pytest.mark.parametrize(
    "text",
    [
        "x" * 100,
        "\\" * 100,
        "\\n" * 100,
        "\\u0041" * 100,
        "\\ud83d\\ude00" * 100,
        "é" * 100,
        "😀" * 100,
        'a\\"' * 100,
        "\\ud83d" * 100,  # Half a character.
        "\\ud83d\\u0041" * 100,
        "\\x" * 100,
        "\\u00" * 100,
        "\\",
        "\n" * 100,
    ],
)
def test_a_long_text_is_read_in_pieces(text: str) -> None:
    for shift in range(30):
        data = f'"{"a" * shift}{text}"'.encode()
        assert outcome(lambda: finish(read_in_steps(data))) == outcome(lambda: read(data))  # noqa: B023


def test_others_have_their_turn() -> None:
    assert len(list(read_in_steps(b"[" + b"1," * 30 + b"1]"))) == 10
    assert len(list(read_in_steps(b'"' + b"x" * 240 + b'"'))) == 9


def test_values_have_a_bound() -> None:
    assert finish(read_in_steps(b"[{},{},{},{}]", 5)) == [{}] * 4
    with pytest.raises(NotJson, match="more than 5 values"):
        finish(read_in_steps(b"[{},{},{},{},{}]", 5))


def test_nesting_has_a_bound() -> None:
    assert finish(read_in_steps(b"[" * 40 + b"]" * 40))
    with pytest.raises(NotJson, match="nested more than 40 deep"):
        finish(read_in_steps(b"[" * 1_000_000))


@pytest.mark.parametrize("data", [b"", b" ", b"[1", b"[1}", b"{1:2}", b"1 2", b"9" * 2_000, b"nul"])
def test_no_json(data: bytes) -> None:
    with pytest.raises(NotJson):
        finish(read_in_steps(data))


def test_what_was_read_of_a_document_that_is_refused_is_forgotten_in_steps() -> None:
    reader = json_reader._Reader(b'{"a":[1,2,[{},{}],{"b":[3,4,5,6,x', 100)
    with pytest.raises(NotJson):
        finish(reader.document())
    held = [*reader._open]
    assert held == [{}, [1, 2, [{}, {}]], {}, [3, 4, 5, 6]]
    assert len(list(reader.let_go())) == 3
    assert held == [{}, [], {}, []]
