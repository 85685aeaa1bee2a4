"""Queries of Spark, as they tell of themselves in a topic (`entrepot.spark.reporting`).

The newest record of each query counts. What is in them was written by clients, so only what has
the right type is shown.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import msgspec

from entrepot.broker.access import Operation
from entrepot.core.errors import UnknownTopic
from entrepot.core.record import Record
from entrepot.core.steps import Steps
from entrepot.gateway.http.console import reader, topics
from entrepot.gateway.http.console.paging import Listing, page
from entrepot.gateway.http.management.call import Call

Row = dict[str, Any]

TOPIC = "spark.progress"
_RECORDS_MAX = 5_000  # Looked at, from the end.
_Text = Annotated[str, msgspec.Meta(max_length=1_000)]


class _Query(msgspec.Struct):
    id: _Text
    time: int
    state: _Text
    name: _Text | None = None
    error: _Text | None = None
    batch: int | None = None
    rows: int | None = None
    rows_per_s: float | None = None
    batch_ms: int | None = None
    topics: Annotated[list[_Text], msgspec.Meta(max_length=1_000)] = msgspec.field(
        default_factory=list
    )
    behind: int | None = None
    sink: _Text | None = None


async def list_queries(call: Call) -> Row:
    """List a page of the queries, those of which was heard last first."""
    found = await call.broker.turns.run(_queries(call))
    listing = Listing[_Query](
        name=_name,
        columns={
            "time": lambda query: query.time,
            "state": lambda query: query.state,
            "behind": lambda query: query.behind or 0,
            "rows_per_s": lambda query: query.rows_per_s or 0,
        },
        describe=msgspec.to_builtins,
    )
    return await call.broker.turns.run(page(found, listing, call.query))


def names(call: Call) -> Steps[list[str]]:
    """Return the names of the queries; none for those who may not read of them."""
    if not topics.may(call, Operation.READ, TOPIC):
        return []
    return [_name(each) for each in (yield from _queries(call))]


def _name(query: _Query) -> str:
    return query.name or query.id


def _queries(call: Call) -> Steps[list[_Query]]:
    """Return the newest of each query. Raises HttpError."""
    newest: dict[str, _Query] = {}

    def note(record: Record) -> bool:
        query = _read(record.value)
        if query is not None:
            newest[query.id] = _merged(newest.get(query.id), query)
        return False

    with suppress(UnknownTopic):
        topic = topics.named(call, TOPIC, Operation.READ)
        yield from reader.newest(call, topic, _RECORDS_MAX, note)
    return list(newest.values())


def _read(value: bytes | None) -> _Query | None:
    try:
        return None if value is None else msgspec.json.decode(value, type=_Query)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _merged(before: _Query | None, now: _Query) -> _Query:
    """Return the newer one; with the last progress, if it has none."""
    if before is None or now.batch is not None:
        return now
    for name in ("name", "batch", "rows", "rows_per_s", "batch_ms", "topics", "behind", "sink"):
        setattr(now, name, getattr(now, name) or getattr(before, name))
    return now
