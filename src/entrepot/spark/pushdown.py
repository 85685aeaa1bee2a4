"""Filters that narrow what is read, instead of throwing rows away afterwards.

Topic, partition and offset are known before anything is fetched, so a comparison of them with
constants decides what is. A lower bound of the timestamp says where to begin, as the broker finds
the first record that young, and which batches need not be unpacked. Nothing says where to end for
an upper one: a batch notes its latest time, and not its earliest, so any record may be an old one.
Only of a batch whose records all have the same time is it known that it need not be unpacked.

What only the records say, key, value and timestamp, is compared where they are decoded, column by
column, and rows that do not match are never handed to Spark.

A filter that is done here is not done again by Spark. Everything else is left to it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
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
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from entrepot.client.client import TopicPartition
from entrepot.spark.decoding import TIMESTAMP_MS_MAX, Condition, Range, RowFilter

_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: eq,
    EqualNullSafe: eq,
    GreaterThan: gt,
    GreaterThanOrEqual: ge,
    LessThan: lt,
    LessThanOrEqual: le,
    In: lambda value, several: value in several,
}
# The same of whole columns, in Arrow's names. Both compare bytes as numbers without a sign.
_COLUMN_FUNCTIONS: dict[type, str] = {
    EqualTo: "equal",
    EqualNullSafe: "equal",
    GreaterThan: "greater",
    GreaterThanOrEqual: "greater_equal",
    LessThan: "less",
    LessThanOrEqual: "less_equal",
}
_BYTES = ("key", "value")
_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What the filters leave. All of them hold."""

    names: tuple[tuple[str, type, Any], ...] = ()  # Comparisons of topic and partition.
    offset_from: int = 0
    offset_until: int = 2**63 - 1
    timestamp_ms: int | None = None  # Nothing before the first record that is so young.
    timestamp_ms_max: int = TIMESTAMP_MS_MAX  # Nothing that is younger.
    rows: tuple[Condition, ...] = ()  # What the records themselves must be like.

    @property
    def row_filter(self) -> RowFilter | None:
        if not self.rows:
            return None
        oldest_ms = -1 if self.timestamp_ms is None else self.timestamp_ms
        return RowFilter(self.rows, oldest_ms, self.timestamp_ms_max)

    def has(self, part: TopicPartition) -> bool:
        values = {"topic": part.topic, "partition": part.partition}
        return all(_COMPARE[kind](values[name], constant) for name, kind, constant in self.names)

    def cut(self, each: Range) -> Range:
        return each._replace(
            offset_from=max(each.offset_from, self.offset_from),
            offset_until=min(each.offset_until, self.offset_until),
        )


def narrow(filters: Iterable[Filter]) -> tuple[Narrowed, list[Filter]]:
    """Return what can be done here, and the filters that Spark has to look at still."""
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
    """Add a filter; return what is left, and whether that is all there is to do for it."""
    if isinstance(each, IsNull | IsNotNull):
        if column in _BYTES:
            function = "is_null" if isinstance(each, IsNull) else "is_valid"
            return _with_row(found, Condition(column, function)), True
        return found, isinstance(each, IsNotNull) and column in _NEVER_NULL
    kind, constant = type(each), getattr(each, "value", None)
    if kind not in _COMPARE or constant is None:
        return found, False
    if column in ("topic", "partition"):
        return replace(found, names=(*found.names, (column, kind, constant))), True
    if column == "offset" and isinstance(constant, int):
        return _bounded(found, kind, constant), True
    if column in _BYTES:
        return _matching(found, kind, column, constant)
    if column == "timestamp" and isinstance(constant, datetime) and kind in _COLUMN_FUNCTIONS:
        moment = constant if constant.tzinfo is not None else constant.replace(tzinfo=UTC)
        condition = Condition(column, _COLUMN_FUNCTIONS[kind], moment)
        return _with_row(_timed(found, kind, moment), condition), True
    return found, False


def _with_row(found: Narrowed, condition: Condition) -> Narrowed:
    return replace(found, rows=(*found.rows, condition))


def _matching(found: Narrowed, kind: type, column: str, constant: Any) -> tuple[Narrowed, bool]:
    if kind is In and all(one is None or isinstance(one, bytes) for one in constant):
        several = tuple(one for one in constant if one is not None)  # Null equals nothing.
        return _with_row(found, Condition(column, "is_in", several)), True
    if kind in _COLUMN_FUNCTIONS and isinstance(constant, bytes):
        return _with_row(found, Condition(column, _COLUMN_FUNCTIONS[kind], constant)), True
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


def _timed(found: Narrowed, kind: type, moment: datetime) -> Narrowed:
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)  # Rounded down.
    if kind not in (LessThan, LessThanOrEqual) and milliseconds >= (found.timestamp_ms or 0):
        found = replace(found, timestamp_ms=milliseconds)
    if kind not in (GreaterThan, GreaterThanOrEqual):
        found = replace(found, timestamp_ms_max=min(found.timestamp_ms_max, milliseconds))
    return found
