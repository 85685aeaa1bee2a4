"""Fields of a request: by name and kind, or a reason."""

import pytest

from entrepot.core.steps import finish
from entrepot.gateway.http.management.fields import Fields
from entrepot.wire.http.request import HttpError


def test_kinds() -> None:
    fields = finish(
        Fields.read(b'{"t": "x", "b": "true", "n": "12", "o": {"a": 1}, "l": [{}], "z": null}')
    )
    assert (fields.text("t"), fields.text("nosuch", "d")) == ("x", "d")
    assert (fields.truth("b"), fields.truth("nosuch", default=True)) == (True, True)
    assert (fields.number("n"), fields.number("nosuch", 3)) == (12, 3)
    assert (fields.table("o"), fields.table("nosuch"), fields.rows("l")) == ({"a": 1}, {}, [{}])
    assert ("t" in fields, "z" in fields, "nosuch" in fields) == (True, False, False)


def test_no_body_says_nothing() -> None:
    assert "x" not in finish(Fields.read(b" "))


@pytest.mark.parametrize("body", [b"{", b"[]", b"1", b'"a"', b"\xff", b"{'a': 1}"])
def test_what_is_no_object(body: bytes) -> None:
    with pytest.raises(HttpError):
        finish(Fields.read(body))


def test_other_kinds() -> None:
    fields = Fields({"v": [1], "big": 2**64, "f": 1.5, "b": True, "deep": {"a": [2**64]}})
    for ask in (fields.text, fields.truth, fields.table):
        with pytest.raises(HttpError):
            ask("v")
    for name in ("v", "big", "f", "b"):
        with pytest.raises(HttpError):
            fields.number(name)
    with pytest.raises(HttpError):
        fields.table("deep")
    with pytest.raises(HttpError):
        fields.rows("v")
