"""One event, one line, whatever a peer puts into it."""

import json
import logging
import sys

from entrepot.cli.logs import JsonFormatter, TextFormatter


def record(message: str, **facts: object) -> logging.LogRecord:
    made = logging.LogRecord("entrepot.net", logging.WARNING, "", 0, message, (), None)
    made.created = 0.25
    made.__dict__.update(facts)
    return made


def test_text() -> None:
    line = TextFormatter().format(record("refused", peer="1.2.3.4:5", reason="a b", empty=""))
    assert line == (
        '1970-01-01T00:00:00.250Z WARNING net: refused peer=1.2.3.4:5 reason="a b" empty=""'
    )


def test_a_line_is_one_line() -> None:
    line = TextFormatter().format(record("two\nlines", name_of="x\ny"))
    assert "\n" not in line
    assert "two\\nlines" in line


def test_json() -> None:
    event = json.loads(JsonFormatter().format(record("refused", peer="x", count=3, odd=b"\x00")))
    assert event == {
        "time": "1970-01-01T00:00:00.250+00:00",
        "level": "warning",
        "part": "net",
        "message": "refused",
        "peer": "x",
        "count": 3,
        "odd": "b'\\x00'",
    }


def test_an_exception_keeps_its_traceback() -> None:
    made = record("failed")
    try:
        raise ValueError("why")
    except ValueError:
        made.exc_info = sys.exc_info()
    assert "ValueError: why" in TextFormatter().format(made)
    assert "ValueError: why" in json.loads(JsonFormatter().format(made))["exception"]
