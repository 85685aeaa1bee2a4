"""Cells as RabbitMQ's tool prints them, and its columns."""

import pytest

from entrepot.cli.rabbitmqctl import WrongUsage, _chosen, _text


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("work", "work"),
        ("two\nlines", "two\\nlines"),
        (3, "3"),
        (True, "true"),
        (None, ""),
        ({}, "[]"),
        ({"k": "v", "n": 1, "l": [True, "ü"]}, '[{"k","v"},{"n",1},{"l",[true,"ü"]}]'),
    ],
)
def test_cells(value: object, printed: str) -> None:
    assert _text(value) == printed


def test_columns() -> None:
    assert _chosen("queues", (), "name messages") == ["name", "messages"]
    assert _chosen("queues", ("messages", "name"), "") == ["messages", "name"]
    with pytest.raises(WrongUsage, match="Info key\\(s\\) x, y are not supported"):
        _chosen("queues", ("name", "x", "y"), "")
