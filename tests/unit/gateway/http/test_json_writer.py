"""JSON that is written in steps reads as if it had been written at once."""

import json

from entrepot.core.steps import finish
from entrepot.gateway.http.json_writer import encoded


def test_long_lists_are_written_in_steps() -> None:
    rows = [{"name": str(number), "of": [1, None]} for number in range(1_000)]
    for value in (rows, {"a": rows, "b": {"c": []}, "d": 1.5}, [], {}):
        assert json.loads(finish(encoded(value))) == value
        assert len(list(encoded(value))) >= (10 if value else 0)


def test_long_texts_are_written_in_steps() -> None:
    text = 'a"\\\n\u20ac\U0001f600' * 200_000
    for value in ([{"payload": text, "n": 1}, {}], {"a": {"payload": text}}):
        assert json.loads(finish(encoded(value))) == value
        assert len(list(encoded(value))) >= 5
