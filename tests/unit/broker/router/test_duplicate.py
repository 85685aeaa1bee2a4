"""What tells messages apart at a deduplicating exchange, and how long that is remembered."""

import pytest

from entrepot.broker.router.duplicate import Terms, identity, ttl_ms


def of(value: object) -> bytes | None:
    return identity({"x-deduplication-header": value, "other": 1})


def test_ids_are_equal_or_not() -> None:
    values = ["a", "b", "", 5, "5", 5.0, True, {"a": 1}, [1, "a"], "\udcff", "x" * 100_000]
    found = [of(value) for value in values]
    assert len(dict.fromkeys(found)) == len(values)
    assert found == [of(value) for value in values]
    assert of(b"a") == of("a")
    assert [len(each or b"") for each in found] == [16] * len(values)


@pytest.mark.parametrize("headers", [{}, {"other": 1}, {"x-deduplication-header": None}])
def test_a_message_without_an_id(headers: dict[str, object]) -> None:
    assert identity(headers) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [(7, 7), ("7", 7), (0, 60), (-1, 60), ("soon", 60), ("9" * 5_000, 60), (True, 60), (None, 60)],
)
def test_a_messages_own_time(value: object, expected: int) -> None:
    assert ttl_ms({"x-cache-ttl": value}, Terms(5, 60)) == expected
    assert ttl_ms({}, Terms(5, None)) is None
