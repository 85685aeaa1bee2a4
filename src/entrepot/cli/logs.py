"""What the broker says to stderr: one event, one line, with its fields.

A part of the house logs a sentence and names its facts: `logger.warning("connection
refused", extra={"peer": peer, "reason": reason})`. Here they become `key=value` for
people or a JSON object for machines.
"""

import json
import logging
import re
from datetime import UTC, datetime
from functools import partial

_OWN_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_PREFIX = "entrepot."
_BARE = re.compile(r"[^\s=\"]+")


def configure(level: str, form: str, node: int | None = None) -> None:
    """Log to stderr. Each line says which node of a cluster this is, if `node` does."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    if node is not None:
        handler.addFilter(partial(_name_node, node))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _name_node(node: int, record: logging.LogRecord) -> bool:
    record.node = node
    return True


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in record.__dict__.items() if key not in _OWN_FIELDS}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat("T", "milliseconds")


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix(_PREFIX)
        message = record.getMessage().replace("\n", "\\n")
        line = f"{_time(record)[:-6]}Z {record.levelname:<7} {name}: {message}"
        for key, value in _facts(record).items():
            text = str(value)
            line += f" {key}={text if _BARE.fullmatch(text) else json.dumps(text)}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "part": record.name.removeprefix(_PREFIX),
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str)
