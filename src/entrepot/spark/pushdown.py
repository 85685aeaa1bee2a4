"""Filters that narrow what is read, instead of throwing rows away afterwards.

Topic, partition and offset are known before anything is fetched, so a comparison of them
with constants is done here, exactly, and Spark need not repeat it. A lower bound of the
timestamp says where to begin, as the broker finds the first record that young; later ones
may be older again, so Spark still looks at every row. Everything else is left to Spark.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import eq, ge, gt, le, lt
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from entrepot.client.client import TopicPartition
from entrepot.spark.decoding import Range

_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: eq,
    EqualNullSafe: eq,
    GreaterThan: gt,
    GreaterThanOrEqual: ge,
    LessThan: lt,
    LessThanOrEqual: le,
    In: lambda value, several: value in several,
}
_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What the filters leave. All of them hold."""

    names: tuple[tuple[str, type, Any], ...] = ()  # Comparisons of topic and partition.
    offset_from: int = 0
    offset_until: int = 2**63 - 1
    timestamp_ms: int | None = None  # Nothing before the first record that is so young.

    def has(self, part: TopicPartition) -> bool:
        values = {"topic": part.topic, "partition": part.partition}
        return all(_COMPARE[kind](values[name], constant) for name, kind, constant in self.names)

    def cut(self, each: Range) -> Range:
        return each._replace(
            offset_from=max(each.offset_from, self.offset_from),
            offset_until=min(each.offset_until, self.offset_until),
        )


def narrow(filters: Iterable[Filter]) -> tuple[Narrowed, list[Filter]]:
    """What can be done here, and the filters that Spark has to look at still."""
    found, rest = Narrowed(), []
    for each in filters:
        column = getattr(each, "attribute", None)
        if not isinstance(column, tuple) or len(column) != 1:
            rest.append(each)
            continue
        narrower, is_done = _narrowed(found, each, column[0])
        found = narrower
        if not is_done:
            rest.append(each)
    return found, rest


def _narrowed(found: Narrowed, each: Filter, column: str) -> tuple[Narrowed, bool]:
    if isinstance(each, IsNotNull):
        return found, column in _NEVER_NULL
    kind, constant = type(each), getattr(each, "value", None)
    if kind not in _COMPARE or constant is None:
        return found, False
    if column in ("topic", "partition"):
        return replace(found, names=(*found.names, (column, kind, constant))), True
    if column == "offset" and isinstance(constant, int):
        return _bounded(found, kind, constant), True
    if column == "timestamp" and isinstance(constant, datetime):
        return _later(found, kind, constant), False
    return found, False


def _bounded(found: Narrowed, kind: type, constant: int) -> Narrowed:
    first, until = found.offset_from, found.offset_until
    if kind in (EqualTo, EqualNullSafe, GreaterThanOrEqual):
        first = max(first, constant)
    if kind is GreaterThan:
        first = max(first, constant + 1)
    if kind in (EqualTo, EqualNullSafe, LessThanOrEqual):
        until = min(until, constant + 1)
    if kind is LessThan:
        until = min(until, constant)
    return replace(found, offset_from=first, offset_until=until)


def _later(found: Narrowed, kind: type, constant: datetime) -> Narrowed:
    if kind not in (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual):
        return found
    moment = constant if constant.tzinfo is not None else constant.replace(tzinfo=UTC)
    milliseconds = int((moment - _EPOCH).total_seconds() * 1_000)  # Rounded down, or equal.
    if milliseconds < 0 or (found.timestamp_ms or 0) > milliseconds:
        return found
    return replace(found, timestamp_ms=milliseconds)
