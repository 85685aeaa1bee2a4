"""How settings are written on the command line of Kafka's tool."""

import click
import pytest

from entrepot.cli.kafka_configs import parse_added


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("a=[1,2],b=3", {"a": "1,2", "b": "3"}),
        ("a=", {"a": ""}),
        ("a=x=y", {"a": "x=y"}),
        (
            "SCRAM-SHA-256=[iterations=8192,password=p,w]",
            {"SCRAM-SHA-256": "iterations=8192,password=p,w"},
        ),
    ],
)
def test_settings(text: str, found: dict[str, str]) -> None:
    assert parse_added(text) == found


@pytest.mark.parametrize("text", ["a", "=1", "a=1,b", "[a,b]"])
def test_settings_that_are_none(text: str) -> None:
    with pytest.raises(click.UsageError, match="key=value"):
        parse_added(text)
