"""Requests that ask for much at once, as bytes.

Written by hand in versions before the compact encoding where there is one: a client that
builds objects for a hundred thousand partitions would be slower than the broker.
"""

import gzip
import struct
import time
from collections.abc import Iterable, Sequence

from crc32c import crc32c

from bench.wire import Refused

Topic = tuple[str, int]  # A name, and how many partitions.

CREATE_TIMEOUT_MS = 120_000


def request(api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
    """One request with its size and header."""
    head = struct.pack(">hhih", api_key, version, 0, 4) + b"wide" + (b"\0" if is_flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


def text(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    return struct.pack(">h", len(value)) + value.encode()


def array(elements: Iterable[bytes]) -> bytes:
    found = list(elements)
    return struct.pack(">i", len(found)) + b"".join(found)


def compact(value: str | None) -> bytes:
    return b"\0" if value is None else _uvarint(len(value) + 1) + value.encode()


def compact_array(elements: Iterable[bytes]) -> bytes:
    found = list(elements)
    return _uvarint(len(found) + 1) + b"".join(found)


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def _of_partitions(topics: Sequence[Topic], before: bytes = b"", after: bytes = b"") -> bytes:
    """Topics and their partitions, each index with the same bytes after it."""
    return before + array(
        text(name) + array(struct.pack(">i", index) + after for index in range(count))
        for name, count in topics
    )


def create_topics(topics: Sequence[Topic], settings: Sequence[tuple[str, str]] = ()) -> bytes:
    configs = array(text(name) + text(value) for name, value in settings)
    wanted = (text(name) + struct.pack(">ihi", n, 1, 0) + configs for name, n in topics)
    return request(19, 4, array(wanted) + struct.pack(">i?", CREATE_TIMEOUT_MS, False))


def create_partitions(topics: Sequence[Topic]) -> bytes:
    wanted = (text(name) + struct.pack(">ii", count, -1) for name, count in topics)
    return request(37, 1, array(wanted) + struct.pack(">i?", CREATE_TIMEOUT_MS, False))


def delete_topics(names: Sequence[str]) -> bytes:
    return request(20, 3, array(map(text, names)) + struct.pack(">i", CREATE_TIMEOUT_MS))


def metadata(names: Sequence[str] | None) -> bytes:
    wanted = struct.pack(">i", -1) if names is None else array(map(text, names))
    return request(3, 8, wanted + bytes(3))


def list_offsets(topics: Sequence[Topic]) -> bytes:
    latest = struct.pack(">iq", -1, -1)
    return request(2, 5, _of_partitions(topics, struct.pack(">ib", -1, 0), latest))


def fetch(topics: Sequence[Topic], wait_ms: int, offset: int = 0) -> bytes:
    bounds = struct.pack(">iiiibii", -1, wait_ms, 1 << 30, 1 << 30, 0, 0, -1)
    each = struct.pack(">iqqi", -1, offset, -1, 1 << 20)
    return request(1, 11, _of_partitions(topics, bounds, each) + array(()) + text(""))


def describe_log_dirs() -> bytes:
    return request(35, 1, struct.pack(">i", -1))


def describe_configs(names: Sequence[str]) -> bytes:
    wanted = (b"\x02" + text(name) + struct.pack(">i", -1) for name in names)
    return request(32, 1, array(wanted) + b"\0")


def offset_commit(group: str, topics: Sequence[Topic]) -> bytes:
    who = text(group) + struct.pack(">i", -1) + text("") + text(None)
    return request(8, 7, _of_partitions(topics, who, struct.pack(">qi", 0, -1) + text("")))


def offset_fetch(group: str, topics: Sequence[Topic] | None) -> bytes:
    if topics is None:
        return request(9, 5, text(group) + struct.pack(">i", -1))
    return request(9, 5, _of_partitions(topics, text(group)))


def offset_delete(group: str, topics: Sequence[Topic]) -> bytes:
    return request(47, 0, _of_partitions(topics, text(group)))


def init_producer_id(transactional_id: str) -> bytes:
    return request(22, 1, text(transactional_id) + struct.pack(">i", 60_000))


def add_partitions_to_txn(
    transactional_id: str, producer: tuple[int, int], topics: Sequence[Topic]
) -> bytes:
    who = text(transactional_id) + struct.pack(">qh", *producer)
    return request(24, 2, _of_partitions(topics, who))


def end_txn(transactional_id: str, producer: tuple[int, int]) -> bytes:
    return request(26, 2, text(transactional_id) + struct.pack(">qh?", *producer, True))


def delete_records(topics: Sequence[Topic]) -> bytes:
    wanted = _of_partitions(topics, b"", struct.pack(">q", 0))
    return request(21, 1, wanted + struct.pack(">i", CREATE_TIMEOUT_MS))


def describe_groups(groups: Sequence[str]) -> bytes:
    return request(15, 4, array(map(text, groups)) + b"\0")


def describe_modern(groups: Sequence[str]) -> bytes:
    return request(69, 1, compact_array(map(compact, groups)) + b"\0\0", is_flexible=True)


def delete_groups(groups: Sequence[str]) -> bytes:
    return request(42, 1, array(map(text, groups)))


def find_coordinators(groups: Sequence[str]) -> bytes:
    keys = compact_array(map(compact, groups))
    return request(10, 4, b"\0" + keys + b"\0", is_flexible=True)


def describe_topic_partitions(names: Sequence[str]) -> bytes:
    topics = compact_array(compact(name) + b"\0" for name in names)
    body = topics + struct.pack(">ib", 2_000, -1) + b"\0"
    return request(75, 0, body, is_flexible=True)


def create_acls(names: Sequence[str]) -> bytes:
    entries = (
        b"\x02" + text(name) + b"\x03" + text("User:somebody") + text("*") + b"\x03\x03"
        for name in names
    )
    return request(30, 1, array(entries))


def describe_acls() -> bytes:
    return request(29, 1, b"\x01" + text(None) + b"\x01" + text(None) + text(None) + b"\x01\x01")


def delete_acls(names: Sequence[str]) -> bytes:
    filters = (
        b"\x02" + text(name) + b"\x03" + text(None) + text(None) + b"\x01\x01" for name in names
    )
    return request(31, 1, array(filters))


def alter_share_group_offsets(group: str, topics: Sequence[Topic]) -> bytes:
    wanted = compact_array(
        compact(name)
        + compact_array(struct.pack(">iq", index, 0) + b"\0" for index in range(count))
        + b"\0"
        for name, count in topics
    )
    return request(91, 0, compact(group) + wanted + b"\0", is_flexible=True)


def join_by_regex(group: str, regex: str, member: str = "member") -> bytes:
    """The first heartbeat of a member of a modern group."""
    return _heartbeat(group, member, 0, 60_000, b"\0", compact(regex))


def join_by_names(group: str, names: Sequence[str], member: str = "member") -> bytes:
    wanted = compact_array(map(compact, names))
    return _heartbeat(group, member, 0, 60_000, wanted, compact(None))


def group_heartbeat(group: str, member: str, epoch: int) -> bytes:
    """Of a member that has let go of everything."""
    return _heartbeat(group, member, epoch, -1, b"\0", compact(None))


def _heartbeat(
    group: str, member: str, epoch: int, rebalance_ms: int, names: bytes, regex: bytes
) -> bytes:
    body = compact(group) + compact(member) + struct.pack(">i", epoch)
    body += compact(None) + compact(None) + struct.pack(">i", rebalance_ms)
    body += names + regex + compact(None) + compact_array(()) + b"\0"
    return request(68, 1, body, is_flexible=True)


def epoch_of(answer: bytes) -> int:
    """Of a member, in the answer to its heartbeat; either kind of group."""
    code, position = struct.unpack_from(">h", answer, 9)[0], 11
    for _ in range(2):  # A message, and the member's id.
        position += max(1, answer[position])
    if code:
        raise Refused(f"heartbeat: {code} {answer[11:120]!r}")
    return int(struct.unpack_from(">i", answer, position)[0])


def share_heartbeat(group: str, member: str, names: Sequence[str]) -> bytes:
    body = compact(group) + compact(member) + struct.pack(">i", 0) + compact(None)
    return request(76, 1, body + compact_array(map(compact, names)) + b"\0", is_flexible=True)


Acknowledged = Sequence[tuple[int, int, bytes]]  # First and last offset, and types.
SharedTopic = tuple[bytes, Sequence[tuple[int, Acknowledged]]]  # Its id, its partitions.


def share_fetch(
    group: str, member: str, epoch: int, topics: Iterable[SharedTopic], wait_ms: int = 0
) -> bytes:
    bounds = struct.pack(">iiiiii", epoch, wait_ms, 1, 1 << 26, 10_000, 10_000)
    body = compact(group) + compact(member) + bounds + _shared(topics) + compact_array(())
    return request(78, 1, body + b"\0", is_flexible=True)


def share_acknowledge(group: str, member: str, epoch: int, topics: Iterable[SharedTopic]) -> bytes:
    body = compact(group) + compact(member) + struct.pack(">i", epoch) + _shared(topics)
    return request(79, 1, body + b"\0", is_flexible=True)


def _shared(topics: Iterable[SharedTopic]) -> bytes:
    return compact_array(
        identity
        + compact_array(
            struct.pack(">i", index)
            + compact_array(
                struct.pack(">qq", first, last) + _uvarint(len(types) + 1) + types + b"\0"
                for first, last, types in acknowledged
            )
            + b"\0"
            for index, acknowledged in partitions
        )
        + b"\0"
        for identity, partitions in topics
    )


def produce(batches: Iterable[tuple[str, int, bytes]], acks: int = -1) -> bytes:
    """Each batch with a topic's name of its own."""
    data = array(
        text(name) + array([struct.pack(">ii", index, len(batch)) + batch])
        for name, index, batch in batches
    )
    return request(0, 8, text(None) + struct.pack(">hi", acks, 60_000) + data)


def produce_to_all(topics: Sequence[Topic], batch: bytes, times: int = 1) -> bytes:
    """The same batch to each partition, so many times."""
    each = times * [struct.pack(">i", len(batch)) + batch]
    data = array(
        text(name)
        + array(struct.pack(">i", index) + data for index in range(count) for data in each)
        for name, count in topics
    )
    return request(0, 8, text(None) + struct.pack(">hi", -1, 60_000) + data)


def record_batch(body: bytes, count: int, timestamp_ms: int, *, is_gzip: bool = False) -> bytes:
    """A batch of records that are already encoded."""
    if is_gzip:
        body = gzip.compress(body, 6)
    rest = struct.pack(
        ">hiqqqhii", int(is_gzip), count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count
    )
    checked = rest + body
    head = struct.pack(">qiib", 0, 9 + len(checked), -1, 2)
    return head + struct.pack(">I", crc32c(checked)) + checked


def small_batch() -> bytes:
    return record_batch(large_record(10), 1, int(time.time() * 1_000))


def keyed_records(count: int) -> bytes:
    """Records as short as they can be with a key and an offset."""
    records: list[bytes] = []
    for index in range(count):
        inner = b"\0\0" + _uvarint(2 * index) + b"\x02k\x02v\0"
        records += (_uvarint(2 * len(inner)), inner)
    return b"".join(records)


def distinct_records(count: int) -> bytes:
    """Records with a key of their own and no more than that."""
    records: list[bytes] = []
    for index in range(count):
        inner = b"\0\0" + _uvarint(2 * index) + b"\x08" + struct.pack(">I", index) + b"\x02v\0"
        records += (_uvarint(2 * len(inner)), inner)
    return b"".join(records)


def large_record(size: int) -> bytes:
    """One record of zeros without a key."""
    inner = b"\0\0\0\x01" + _uvarint(2 * size) + bytes(size) + b"\0"
    return _uvarint(2 * len(inner)) + inner
