"""Names and filters: two spellings, and what is allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.subject.filter import (
    Wildcard,
    check_path_filter,
    of_path_filter,
    of_pattern,
    shared_filter,
    to_pattern,
)
from entrepot.broker.subject.name import (
    check_path,
    is_short,
    landing_names,
    levels_of,
    to_path,
    to_subject,
)
from entrepot.core.errors import InvalidName


@given(st.text(alphabet="ab./", min_size=1))
def test_a_name_comes_back_as_it_was_and_keeps_its_levels(path: str) -> None:
    assert to_path(to_subject(path)) == path
    assert [*map(to_path, levels_of(to_subject(path)))] == path.split("/")


def test_spellings() -> None:
    assert to_subject("sensors/7/heat") == "sensors.7.heat"
    assert to_subject("v1.2/heat") == "v1/2.heat"
    assert to_subject("/a//b/") == ".a..b."


def test_wildcards_of_one_notation_are_levels_of_the_other() -> None:
    assert of_path_filter("a/+/*/#") == ("a", Wildcard.ONE, "*", Wildcard.MANY)
    assert of_pattern("a.*.+.#.b") == ("a", Wildcard.ONE, "+", Wildcard.MANY, "b")
    assert of_path_filter("a.b/c") == ("a/b", "c")
    assert of_pattern("") == ()


@pytest.mark.parametrize("path", ["", "a/+", "#", "a\0", "x" * 65_536, "ä" * 40_000, "/" * 256])
def test_names_that_are_refused(path: str) -> None:
    with pytest.raises(InvalidName):
        check_path(path)


@pytest.mark.parametrize("path", ["a", "/", "a b", "$SYS/x", "x" * 65_535, "/" * 255])
def test_names(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize(
    "text",
    [
        *("", "sport+", "sport/tennis#", "sport/tennis/#/ranking", "a/#b", "+a/b", "\0"),
        *("$share/g", "$share//a", "$share/g/", "$share/+/a", "$share/g/a#", "$queue/"),
    ],
)
def test_filters_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        check_path_filter(text)


@pytest.mark.parametrize("text", ["#", "+", "+/+", "/+", "a/#", "$share/g/a/#", "$queue/a b"])
def test_filters(text: str) -> None:
    check_path_filter(text)


def test_a_path_filter_as_a_pattern() -> None:
    assert to_pattern("sensors/+/v1.2/#") == "sensors.*.v1/2.#"
    assert of_pattern(to_pattern("+/a/#")) == of_path_filter("+/a/#")
    for text in ("a/*", "a#"):
        with pytest.raises(InvalidName):
            to_pattern(text)


def test_groups() -> None:
    assert shared_filter("$share/g/a/+") == ("g", "a/+")


def test_where_a_subject_lands() -> None:
    assert [*landing_names("orders")] == ["orders"]
    assert [*landing_names("a.b")] == ["a.b", "a/b", "a.b"]
    assert [*landing_names(to_subject("orders.eu"))] == ["orders/eu", "orders.eu", "orders.eu"]
    assert [*landing_names(to_subject("v1.2/heat"))] == ["v1/2.heat", "v1.2/heat", "v1.2.heat"]


def test_names_that_every_protocol_can_tell() -> None:
    assert is_short("x" * 255)
    assert not is_short("x" * 256)
    assert not is_short("ä" * 128)
