"""The console tools' lines: what Kafka's own read and print for the same properties."""

import click
import pytest

from entrepot.cli.kafka_console_consumer import line_writer
from entrepot.cli.kafka_console_producer import LineReader
from entrepot.client.client import TopicPartition
from entrepot.client.reader import Message
from entrepot.core.record import Record

Parsed = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@pytest.mark.parametrize(
    ("given", "line", "parsed"),
    [
        ({}, b"msg 1", (None, b"msg 1", [])),
        ({}, b"", (None, b"", [])),
        ({}, b"\xff\xfe", (None, b"\xff\xfe", [])),
        (
            {"parse.key": "true", "key.separator": ":"},
            b"university:Tor Vergata",
            (b"university", b"Tor Vergata", []),
        ),
        ({"parse.key": "true"}, b"k\tv\tw", (b"k", b"v\tw", [])),
        ({"parse.key": "false"}, b"k\tv", (None, b"k\tv", [])),
        (
            {"parse.headers": "true", "parse.key": "true", "key.separator": "|"},
            b"h1:v1,h2:v2\tk|v",
            (b"k", b"v", [("h1", b"v1"), ("h2", b"v2")]),
        ),
        (
            {"parse.key": "true", "key.separator": ":", "null.marker": "NULL"},
            b"NULL:NULL",
            (None, None, []),
        ),
        ({"parse.key": "true", "ignore.error": "true"}, b"no tab", (None, b"no tab", [])),
    ],
)
def test_lines_are_read(given: dict[str, str], line: bytes, parsed: Parsed) -> None:
    assert LineReader.configure(given).read(line) == parsed


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"parse.key": "true"}, "No key separator found on line number 2: 'x'"),
        ({"parse.headers": "true"}, "No headers delimiter found on line number 2: 'x'"),
    ],
)
def test_a_line_that_cannot_be_read(given: dict[str, str], problem: str) -> None:
    reader = LineReader.configure(given)
    reader.read(b"a:b\tb")
    with pytest.raises(click.ClickException, match=problem):
        reader.read(b"x")


def test_a_separator_that_is_empty() -> None:
    with pytest.raises(click.UsageError, match="must not be empty"):
        LineReader.configure({"key.separator": ""})


MESSAGE = Message(
    TopicPartition("t", 3), Record(b"k", b"v", (("a", b"1"), ("b", None)), 77, 9), False
)
ALL = ("timestamp", "partition", "offset", "headers", "key")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, b"v\n"),
        ({"print.key": "true"}, b"k\tv\n"),
        ({"print.key": "true", "key.separator": ":"}, b"k:v\n"),
        (
            {f"print.{name}": "true" for name in ALL},
            b"CreateTime:77\tPartition:3\tOffset:9\ta:1,b:null\tk\tv\n",
        ),
        ({"print.value": "false", "print.offset": "true"}, b"Offset:9\n"),
        ({"line.separator": "|"}, b"v|"),
    ],
)
def test_lines_are_printed(given: dict[str, str], line: bytes) -> None:
    assert line_writer(given)(MESSAGE) == line


def test_what_is_not_there_is_printed() -> None:
    message = Message(TopicPartition("t", 0), Record(None, None, (), -1, 0), False)
    given = {"print.key": "true", "print.headers": "true", "print.timestamp": "true"}
    assert line_writer(given)(message) == b"NO_TIMESTAMP\tNO_HEADERS\tnull\tnull\n"
    late = Message(TopicPartition("t", 0), Record(None, b"", (), 5, 0), True)
    assert line_writer({"print.timestamp": "true"})(late) == b"LogAppendTime:5\t\n"
