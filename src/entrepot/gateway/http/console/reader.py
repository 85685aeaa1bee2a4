"""Reads a topic for a person: one page from a place on, with what was searched for.

The place is an offset, a time, the beginning, or the last records. What is looked at for one page
is bounded: a search that finds little says how far it has come, and the next request goes on from
there. Records of open and aborted transactions are left out, as for any consumer of committed
records; those of batches that cannot be read are left out and said so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from entrepot.broker.access import Operation
from entrepot.broker.catalog import Topic
from entrepot.broker.queue.record_batches import stored_batches
from entrepot.broker.queue.stream_reader import offset_at
from entrepot.broker.served_partition import ServedPartition
from entrepot.core.batch import BatchHeader, records
from entrepot.core.errors import InvalidBatch, UnknownTopic
from entrepot.core.record import Record
from entrepot.core.steps import Steps
from entrepot.gateway.http.console.topics import find
from entrepot.gateway.http.console.values import record_row
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.fields import bad
from entrepot.wire.http import limits as http_limits

Row = dict[str, Any]
Matches = Callable[[Record], bool]

_READ_BYTES = 1 * 1_048_576  # At once from the log; more if one batch is larger.
_UNPACKED_BYTES_MAX = 32 * 1_048_576  # Of one batch; a larger one counts as not readable.
_STEP = 200  # Records in a step.
_PARTITIONS_MAX = 64  # Read together for one page.


class _Place(NamedTuple):
    """Where to read one partition, from an offset to an exclusive end."""

    number: int
    offset: int
    end: int


async def read(call: Call) -> Row:
    """Return a page of records: from `offset`, `time` (ms), or `from` first or last."""
    topic, query = find(call, Operation.READ), call.query
    count = min(_number(query.get("count", "50"), "count"), http_limits.READER_RECORDS_MAX)
    matches = _search(query.get("key", ""), query.get("text", ""))
    places = _places(call, topic, count)
    reading = _Reading(call, topic, count, matches)
    return await call.broker.turns.run(reading.run(places))


async def one(call: Call) -> Row:
    """Return one record, with more of its value than a list shows."""
    topic = find(call, Operation.READ)
    index, offset = (_number(call.path[name], name) for name in ("partition", "offset"))
    if index >= topic.partition_count:
        raise UnknownTopic(f"topic {topic.name!r} has no partition {index}")
    reading = _Reading(call, topic, 1, None, http_limits.READER_ONE_BYTES_MAX)
    found = await call.broker.turns.run(reading.run([_Place(index, offset, offset + 1)]))
    if not found["records"]:
        raise bad("there is no such record any more")
    row: Row = found["records"][0]
    return row


def first(call: Call, topic: Topic, matches: Matches) -> Steps[Row]:
    """Look for the first record that matches, as far as a search goes."""
    return newest(call, topic, http_limits.READER_SCANNED_MAX, matches)


def newest(call: Call, topic: Topic, count: int, matches: Matches) -> Steps[Row]:
    """Look for the first record that matches among the newest of each partition."""
    places = []
    for index, served in enumerate(call.broker.served_partitions(topic)):
        end = served.last_stable_offset
        places.append(_Place(index, max(served.partition.offset_start, end - count), end))
    return _Reading(call, topic, 1, matches).run(places)


def _places(call: Call, topic: Topic, count: int) -> list[_Place]:
    """Return where to begin in the partition that is asked for, or in all of them."""
    query, broker = call.query, call.broker
    if "next" in query:  # Where the page before has ended: `0:17,1:4`.
        return [
            _continued(call, topic, each) for each in query["next"].split(",")[:_PARTITIONS_MAX]
        ]
    wanted = query.get("partition", "")
    indexes = range(min(topic.partition_count, _PARTITIONS_MAX))
    if wanted:
        index = _number(wanted, "partition")
        indexes = range(index, index + 1)
    share = -(-count // len(indexes))
    places = []
    for index in indexes:
        served = broker.served_partition(topic, index)
        start, end = served.partition.offset_start, served.last_stable_offset
        if "offset" in query:
            offset = max(start, _number(query["offset"], "offset"))
        elif "time" in query:
            offset = offset_at(served, _number(query["time"], "time"))
        else:
            offset = start if query.get("from", "first") == "first" else max(start, end - share)
        places.append(_Place(index, offset, end))
    return places


def _continued(call: Call, topic: Topic, text: str) -> _Place:
    index, _, offset = text.partition(":")
    served = call.broker.served_partition(topic, _number(index, "next"))
    return _Place(_number(index, "next"), _number(offset, "next"), served.last_stable_offset)


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise bad(f"{name}: not a number")
    return int(text)


def _search(key: str, text: str) -> Matches | None:
    """Return what a record must be like: this key, and this text in key, value or a header."""
    if not key and not text:
        return None
    wanted_key = key.encode(errors="replace")
    # A text with letters beyond ASCII may be written with escapes in JSON.
    forms = {text.lower().encode(errors="replace"), json.dumps(text.lower())[1:-1].encode()}
    forms.discard(b"")
    wanted = sorted(forms)

    def has(data: bytes | None) -> bool:
        return data is not None and any(form in data.lower() for form in wanted)

    def matches(record: Record) -> bool:
        if wanted_key and (record.key is None or wanted_key not in record.key):
            return False
        if not wanted:
            return True
        return has(record.value) or has(record.key) or any(has(v) for _, v in record.headers)

    return matches


class _Reading:
    """One page that is being read."""

    def __init__(
        self,
        call: Call,
        topic: Topic,
        count: int,
        matches: Matches | None,
        bytes_max: int = http_limits.READER_VALUE_BYTES_MAX,
    ) -> None:
        self._call = call
        self._topic = topic
        self._count = count
        self._matches = matches
        self._bytes_max = bytes_max
        self._rows: list[Row] = []
        self._scanned = 0
        self._scanned_bytes = 0
        self._unreadable = 0

    def run(self, places: list[_Place]) -> Steps[Row]:
        left = []
        share = max(1, self._count // max(1, len(places)))
        for number, place in enumerate(places):
            # Each partition gets its share of the page, and what the others have left over.
            limit = min(self._count, share * (number + 1))
            offset = yield from self._read(place, limit)
            if offset < place.end:
                left.append(f"{place.number}:{offset}")
        self._rows.sort(key=lambda row: (row["time"], row["partition"], row["offset"]))
        return {
            "records": self._rows,
            "next": ",".join(left),
            "scanned": self._scanned,
            "unreadable": self._unreadable,
        }

    def _is_over(self) -> bool:
        return (
            self._scanned >= http_limits.READER_SCANNED_MAX
            or self._scanned_bytes >= http_limits.READER_BYTES_MAX
        )

    def _read(self, place: _Place, limit: int) -> Steps[int]:
        """Read one partition until the page has `limit` records. Return the next offset."""
        offset = place.offset
        while offset < place.end and len(self._rows) < limit and not self._is_over():
            served = self._call.broker.served_partition(self._topic, place.number)
            offset = max(offset, served.partition.offset_start)
            before = offset
            found = stored_batches(served.partition, offset, _READ_BYTES, served.last_stable_offset)
            for header, data in found:
                offset = yield from self._read_batch(place, served, header, data, offset, limit)
                if len(self._rows) >= limit or self._is_over() or offset < header.offset_end:
                    break
            if offset == before:  # Compaction has deleted all the rest.
                return place.end
            yield
        return offset

    def _read_batch(
        self,
        place: _Place,
        served: ServedPartition,
        header: BatchHeader,
        data: bytes,
        offset: int,
        limit: int,
    ) -> Steps[int]:
        """Read a batch from an offset on. Return the offset that comes next."""
        self._scanned_bytes += len(data)
        if _is_hidden(served, header):
            return header.offset_end
        try:
            for record in self._records(data, offset):
                if record.offset >= place.end:
                    return place.end
                self._scanned += 1
                if self._matches is None or self._matches(record):
                    self._rows.append(record_row(record, place.number, self._bytes_max))
                offset = record.offset + 1
                if len(self._rows) >= limit or self._is_over():
                    return offset
                if self._scanned % _STEP == 0 or len(record.value or b"") > self._bytes_max:
                    yield
        except InvalidBatch:
            self._unreadable += header.count
        return header.offset_end

    @staticmethod
    def _records(data: bytes, offset: int) -> Iterator[Record]:
        return (
            record
            for record in records(data, bytes_max=_UNPACKED_BYTES_MAX)
            if record.offset >= offset
        )


def _is_hidden(served: ServedPartition, header: BatchHeader) -> bool:
    if header.is_control:
        return True
    is_aborted = served.isolation.is_aborted
    return header.is_transactional and is_aborted(header.producer_id, header.offset_first)
