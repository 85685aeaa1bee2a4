"""How a record is printed."""

import json

import click
import pytest
from click.testing import CliRunner

from entrepot.cli.consume import as_json_line, consume, formatter
from entrepot.client.client import TopicPartition
from entrepot.client.reader import Message
from entrepot.core.record import Record

MESSAGE = Message(
    TopicPartition("t", 3), Record(b"k", b"v", (("a", b"1"), ("b", None)), 77, 9), False
)


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("%k=%v", b"k=v\n"),
        ("%t/%p/%o@%T", b"t/3/9@77\n"),
        (r"%h\t100%%\\n", b"a=1,b=\t100%\\n\n"),
        ("", b"\n"),
    ],
)
def test_format(template: str, line: bytes) -> None:
    assert formatter(template)(MESSAGE) == line


def test_a_field_that_does_not_exist() -> None:
    with pytest.raises(click.UsageError, match="%q is not one of %k"):
        formatter("%q")


def test_json() -> None:
    assert json.loads(as_json_line(MESSAGE)) == {
        "topic": "t",
        "partition": 3,
        "offset": 9,
        "timestamp": 77,
        "key": "k",
        "value": "v",
        "headers": [["a", "1"], ["b", None]],
    }


def test_json_of_what_is_no_text() -> None:
    message = MESSAGE._replace(record=Record(None, b"\xff\x00"))
    document = json.loads(as_json_line(message))
    assert (document["key"], document["value"]) == (None, {"base64": "/wA="})


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from-end", "--offset", "3"],
        ["--from-time", "yesterday"],
        ["--format", "%v", "--json"],
        ["--offset", "-1"],
        ["--max-messages", "0"],
    ],
)
def test_usage(arguments: list[str]) -> None:
    assert CliRunner().invoke(consume, ["t", *arguments]).exit_code == 2
