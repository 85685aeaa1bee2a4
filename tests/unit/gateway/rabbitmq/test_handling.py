"""Headers by which a publisher tells the broker what to do."""

import pytest

from entrepot.core.message import Handling
from entrepot.gateway.rabbitmq.handling import delay_ms, with_headers


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (1, 1),
        (0, 0),
        (-5, 0),
        (2**32 - 1, 2**32 - 1),
        (2**32, 0),
        (1.9, 1),
        (float("inf"), 0),
        (float("nan"), 0),
        ("250", 250),
        (b"250", 250),
        ("soon", 0),
        (True, 0),
        (None, 0),
        ([1], 0),
    ],
)
def test_the_header(value: object, milliseconds: int) -> None:
    assert delay_ms({"x-delay": value}) == milliseconds


def test_without_it() -> None:
    assert delay_ms({"other": 1}) == 0


def identity(value: object) -> bytes | None:
    headers = {"x-deduplication-header": value, "other": 1}
    return with_headers(Handling(), headers).deduplication_id


def test_ids_are_equal_or_not() -> None:
    values = ["a", "b", "", 5, "5", 5.0, True, {"a": 1}, [1, "a"], "\udcff", "x" * 100_000]
    found = [identity(value) for value in values]
    assert len(dict.fromkeys(found)) == len(values)
    assert found == [identity(value) for value in values]
    assert identity(b"a") == identity("a")
    assert [len(each or b"") for each in found] == [16] * len(values)


@pytest.mark.parametrize("headers", [{}, {"other": 1}, {"x-deduplication-header": None}])
def test_a_message_without_an_id(headers: dict[str, object]) -> None:
    assert with_headers(Handling(), headers).deduplication_id is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [(7, 7), ("7", 7), (0, None), (-1, None), ("soon", None), ("9" * 5_000, None), (True, None)],
)
def test_how_long_an_id_counts(value: object, expected: int | None) -> None:
    assert with_headers(Handling(), {"x-cache-ttl": value}).deduplication_ttl_ms == expected


def test_other_headers_leave_the_handling_as_it_is() -> None:
    handling = Handling(is_persistent=True, priority=3)
    assert with_headers(handling, {"other": 1}) is handling
    assert with_headers(handling, {"x-delay": 5}) == handling._replace(delay_ms=5)
