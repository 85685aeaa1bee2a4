"""How long a message waits, by its header."""

import pytest

from entrepot.broker.router.delay import delay_ms, released


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


def test_who_has_waited_does_not_wait_again() -> None:
    headers = released({"x-delay": "250", "other": 1})
    assert headers == {"x-delay": -250, "other": 1}
    assert delay_ms(headers) == 0
