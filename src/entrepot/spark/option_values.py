"""Values of options, from text: each function returns the value, or raises ValueError saying what
is allowed.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from entrepot.client.client import TopicPartition
from entrepot.client.cluster import parse_bootstrap
from entrepot.core.names import check_topic_name
from entrepot.core.store_address import parse_store_address

# --- single values


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number above 0")
    return int(text)


def up_to(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = positive(text)
        if number > most:
            raise ValueError(f"{text} is more than {most}")
        return number

    return parse


_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}


def duration(text: str) -> float:
    """Return seconds, from a time as Spark writes it: 15m, 500ms; without a unit, milliseconds."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if found is None or (found[2] or "ms") not in _UNITS_S:
        raise ValueError(f"{text!r} is not a time such as 15m or 30s")
    return int(found[1]) * _UNITS_S[found[2] or "ms"]


def choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"{text!r} is not one of {', '.join(allowed)}")
        return text.lower()

    return parse


def milliseconds(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a time in milliseconds since 1970")
    return int(text)


def servers(text: str) -> str:
    parse_bootstrap(text)
    return text


def server(text: str) -> str:
    if len(parse_bootstrap(text)) > 1:
        raise ValueError(f"{text!r} is more than one address")
    return text


def store(text: str) -> str:
    try:
        parse_store_address(text)
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from None
    return text


def directory(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError(
            f"{text!r} is not a whole path; executors work in directories of their own"
        )
    return text


def topic(text: str) -> str:
    return check_topic_name(text.strip())


def short(text: str) -> str:
    if not 0 < len(text.encode()) < 256:
        raise ValueError(f"{text!r} is not a name of 1 to 255 bytes")
    return text


def topics(text: str) -> tuple[str, ...]:
    return tuple(sorted({topic(name) for name in text.split(",")}))


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


# --- JSON


def _json(text: str, form: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{text!r} is not JSON of the form {form}")
    return found


def assigned(text: str) -> tuple[TopicPartition, ...]:
    form = '{"topic": [0, 1]}'
    found = []
    for topic, partitions in _json(text, form).items():
        if not isinstance(partitions, list) or not all(_is_count(p) for p in partitions):
            raise ValueError(f"topic {topic} has no list of partitions; the form is {form}")
        found += [TopicPartition(check_topic_name(topic), partition) for partition in partitions]
    if not found:
        raise ValueError("no partition is named")
    return tuple(sorted(set(found)))


def per_partition(text: str, least: int) -> tuple[tuple[TopicPartition, int], ...]:
    form = '{"topic": {"0": 23}}'
    found = []
    for topic, partitions in _json(text, form).items():
        if not isinstance(partitions, dict):
            raise ValueError(f"topic {topic} has no partitions; the form is {form}")
        for partition, number in partitions.items():
            if not partition.isdecimal() or not _is_count(number, least):
                raise ValueError(
                    f"{topic}: {json.dumps({partition: number})} is not a partition and a number "
                    f"from {least}; the form is {form}"
                )
            found.append((TopicPartition(topic, int(partition)), number))
    return tuple(sorted(found))


def _is_count(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
