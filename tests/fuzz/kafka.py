"""Kafka's side: every API that is served, in every version, with values at the edges."""

import re
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from random import Random
from struct import pack
from typing import Any
from uuid import UUID

from crc32c import crc32c

from entrepot.core import batch
from entrepot.core.batch import Codec
from entrepot.core.record import Record
from entrepot.gateway.kafka.apis import SERVED
from entrepot.wire.kafka.api import Api, request_class
from entrepot.wire.kafka.frames import request_header, size_prefix
from entrepot.wire.kafka.layout import encode
from entrepot.wire.kafka.schema import EPOCH, FIXED, Field, fields_of
from tests.fuzz.damage import damaged
from tests.fuzz.session import Damaged, with_echoes
from tests.unit.wire.kafka import oracle

TOPICS = ("orders", "events", "compact", "__consumer_offsets", "queue-of-amqp")
# In the place of a topic's id, which nobody knows beforehand: replaced when it is sent.
TOPIC_IDS = {
    name: bytes((0xF0, place)) + b"fuzz-topic-id-"[:14] for place, name in enumerate(TOPICS)
}

_APIS = [entry.api for entry in SERVED]
_VERSIONS = [(api, v) for api in _APIS for v in range(api.version_first, api.version_last + 1)]
_RECORDS_APIS = (Api.PRODUCE, Api.FETCH, Api.SHARE_FETCH)
_DEPTH_MAX = 6

_NUMBERS = {
    "bool": (0, 1),
    "int8": (-128, -2, -1, 0, 1, 2, 3, 4, 127),
    "int16": (-(2**15), -2, -1, 0, 1, 2, 3, 2**15 - 1),
    "int32": (-(2**31), -2, -1, 0, 1, 2, 3, 100, 20_000, 2**31 - 1),
    "int64": (-(2**63), -5, -2, -1, 0, 1, 2, 100, 10_000, 2**32, 2**63 - 1),
    "uint8": (0, 1, 255),
    "uint16": (0, 1, 9092, 65_535),
    "uint32": (0, 1, 2**32 - 1),
    "uint64": (0, 1, 2**64 - 1),
    "float64": (0.0, -1.0, 1.0, 1e308, float("inf"), float("nan")),
}
_ODD_TEXTS = ("", " ", ".", "..", "a/b", "é", "\0", "x" * 249, "x" * 250, "x" * 3_000, "😀" * 60)

# Texts by what the name of their field ends with; the first that fits.
_TEXTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("topic_name", TOPICS),
    ("topic", TOPICS),
    ("topics", TOPICS),
    ("group_id", ("one", "two", "share")),
    ("groups_names", ("one", "two", "share")),
    ("groups", ("one", "two", "share")),
    ("transactional_id", ("pay", "ship")),
    ("transactional_ids", ("pay", "ship")),
    ("key", ("one", "pay")),
    ("keys", ("one", "pay")),
    ("coordinator_keys", ("one", "pay", "one:AAAAAAAAAAAAAAAAAAAAAA:0")),
    ("member_id", ("", "member-1", "member-2", "AAAAAAAAAAAAAAAAAAAAAQ")),
    ("group_instance_id", ("instance-1",)),
    ("protocol_type", ("consumer", "connect")),
    ("protocol_name", ("range", "roundrobin")),
    ("server_assignor", ("range", "uniform", "none")),
    ("subscribed_topic_regex", ("o.*", "(", "(a*)*b", ".", "[a-z]{1,9}", "")),
    ("principal", ("User:ana", "User:*", "nobody")),
    ("host", ("*", "127.0.0.1")),
    ("mechanism", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    ("config_names", ("retention.ms", "cleanup.policy", "share.auto.offset.reset")),
    ("configuration_keys", ("retention.ms", "cleanup.policy", "none.such")),
    ("entity_type", ("user", "client-id", "ip", "none")),
    ("entity_name", ("ana", "capture")),
    ("resource_name", (*TOPICS, "1", "one", "*")),
    ("value", ("1", "-1", "0", "compact", "delete", "uncompressed", "zstd", "x", "9" * 30)),
    ("state_filters", ("Ongoing", "Empty", "None")),
    ("states_filter", ("Stable", "Empty", "None")),
    ("types_filter", ("classic", "consumer", "share", "None")),
    ("name", (*TOPICS, "retention.ms", "cleanup.policy", "range", "user", "consumer_byte_rate")),
)


# What has a name of its own, by what its class is called; the last that fits.
_NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Topic", TOPICS),
    ("Config", ("retention.ms", "cleanup.policy", "max.message.bytes", "none.such")),
    ("Protocol", ("range", "roundrobin")),
    ("Scram", ("ana", "ben")),
)


ANSWER = re.compile(rb"echo")  # The id of a request that asks for little.
_ECHO = pack(">ihh4sh", 10, Api.API_VERSIONS, 0, b"echo", -1)


def speak(random: Random) -> list[bytes]:
    """Requests that are well formed, and mostly one that is not."""
    frames: list[bytes] = []
    for _ in range(random.choice((1, 2, 5, 10, 20))):
        frames += _story(random) if random.random() < 0.2 else [request(random)]
    if random.random() < 0.7:
        frames.append(Damaged(_broken(random)))
    if random.random() < 0.2:
        frames.append(request(random))
    return with_echoes(random, frames, _ECHO)


def _framed(message: bytes) -> bytes:
    return size_prefix(len(message)) + message


def _broken(random: Random) -> bytes:
    message = random.choice(_captured()) if random.random() < 0.2 else request(random)[4:]
    if random.random() < 0.8:
        return _framed(damaged(random, message, first=random.choice((0, 4, 8, 8, 8))))
    return damaged(random, _framed(message))  # Its size, too.


@cache
def _captured() -> tuple[bytes, ...]:
    return tuple(data for _, _, data in oracle.vectors())


# Requests that belong together, and what they agree on. On a new broker the first producers
# have the first ids.
_MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
_STORIES: tuple[tuple[dict[str, tuple[Any, ...]], tuple[Api, ...]], ...] = (
    (
        {
            "transactional_id": ("pay",),
            "producer_id": (0,),
            "producer_epoch": (0, 1),
            "group_id": ("one",),
            "generation_id": (-1,),
            "member_id": ("",),
        },
        (
            Api.INIT_PRODUCER_ID,
            Api.ADD_PARTITIONS_TO_TXN,
            Api.PRODUCE,
            Api.ADD_OFFSETS_TO_TXN,
            Api.TXN_OFFSET_COMMIT,
            Api.END_TXN,
            Api.FETCH,
        ),
    ),
    (
        {"group_id": ("two",), "member_id": (_MEMBER,), "epoch": (0, 1, 2, -1)},
        (
            Api.CONSUMER_GROUP_HEARTBEAT,
            Api.OFFSET_COMMIT,
            Api.CONSUMER_GROUP_HEARTBEAT,
            Api.OFFSET_FETCH,
            Api.DELETE_GROUPS,
        ),
    ),
    (
        {"group_id": ("share",), "member_id": (_MEMBER,), "epoch": (0, 1, 2, -1)},
        (
            Api.SHARE_GROUP_HEARTBEAT,
            Api.PRODUCE,
            Api.SHARE_FETCH,
            Api.SHARE_ACKNOWLEDGE,
            Api.SHARE_FETCH,
            Api.ALTER_SHARE_GROUP_OFFSETS,
        ),
    ),
)


def _story(random: Random) -> list[bytes]:
    agreed, apis = random.choice(_STORIES)
    fixed = {name: random.choice(values) for name, values in agreed.items()}
    return [request(random, api, fixed) for api in apis if random.random() < 0.9]


def request(
    random: Random, wanted: Api | None = None, fixed: dict[str, Any] | None = None
) -> bytes:
    api, version = random.choice(_VERSIONS)
    if wanted is None and api is Api.DELETE_TOPICS and random.random() < 0.8:
        api, version = Api.DELETE_RECORDS, 2  # Otherwise there would seldom be one.
    elif wanted is not None or random.random() < 0.25:
        api = wanted or random.choice(_RECORDS_APIS)
        version = random.randint(api.version_first, api.version_last)
    layout = request_class(api, version)
    maker = _Maker(random, fixed or {})
    body = encode(maker.entity(layout, 0), layout)
    client = random.choice((None, "", "capture", "x" * 200))
    return _framed(request_header(api, version, random.choice((0, 7, -1)), client) + body)


class _Maker:
    """Makes one request out of its classes."""

    def __init__(self, random: Random, fixed: dict[str, Any]) -> None:
        self._random = random
        self._fixed = fixed  # Values by what the name of their field ends with.
        self._is_odd = random.random() < (
            0.1 if fixed else 0.3
        )  # Otherwise nearly everything is as it should be.
        self._left = 60  # Elements of arrays.

    def entity(self, layout: type[Any], depth: int) -> Any:
        values = {each.name: self._value(each, depth) for each in fields_of(layout)}
        for kind, names in _NAMES:
            if kind in layout.__name__ and isinstance(values.get("name"), str) and not self._is_odd:
                values["name"] = self._random.choice(names)
        return layout(**values)

    def _value(self, field: Field, depth: int) -> Any:
        random = self._random
        for end, value in self._fixed.items():
            if field.name.endswith(end) and not field.is_array and field.kind:
                return value
        if field.tag is not None and random.random() < 0.5:
            return field.default
        if field.is_nullable and random.random() < 0.2:
            return None
        if not field.is_array:
            return self._one(field, depth)
        count = random.choice((0, 1, 1, 1, 2, 5)) if depth < _DEPTH_MAX else 0
        count = min(count, self._left)
        self._left -= count
        return tuple(self._one(field, depth + 1) for _ in range(count))

    def _one(self, field: Field, depth: int) -> Any:
        match field.kind:
            case "":
                return self.entity(field.python, depth)
            case "string":
                return self._text(field.name)
            case "bytes":
                return self._random.choice(
                    (b"", b"\0", b"\0ana\0secret", self._random.randbytes(20))
                )
            case "records":
                return self._records()
        return _FIXED[field.kind](self, field)

    def number(self, field: Field) -> Any:
        name, edges = field.name, _NUMBERS[field.kind]
        if self._is_odd and self._random.random() < 0.3:
            return self._random.choice(edges)
        for end, usual in _USUAL.items():
            if name.endswith(end):
                return self._random.choice(usual)
        return self._random.choice(edges)

    def _text(self, name: str) -> str:
        if self._is_odd and self._random.random() < 0.15:
            return self._random.choice(_ODD_TEXTS)
        for end, texts in _TEXTS:
            if name.endswith(end):
                return self._random.choice(texts)
        return self._random.choice(("a", "b", "orders"))

    def uuid(self) -> UUID:
        known = self._random.choice(list(TOPIC_IDS.values()))
        return UUID(bytes=self._random.choice((known, known, known, bytes(16), b"\1" * 16)))

    def milliseconds(self) -> int:
        """Short, since a connection that waits is of no use; and some that are too long."""
        return self._random.choice((0, 0, 1, 5, 20, 6_000, -1, 2**31 - 1))

    def _records(self) -> bytes:
        random = self._random
        pieces = []
        for _ in range(random.choice((1, 1, 1, 2))):
            records = [_record(random) for _ in range(random.choice((1, 1, 3, 20)))]
            identity: dict[str, Any] = {}
            if random.random() < 0.5:
                identity["producer_id"] = random.choice((0, 1, 2, 1_000))
                identity["producer_epoch"] = random.choice((0, 0, 1))
                identity["sequence_first"] = random.choice((0, 0, 1, 5, 2**31 - 1))
                identity["transactional"] = random.random() < 0.3
            if "producer_id" in self._fixed:
                identity["producer_id"] = self._fixed["producer_id"]
                identity["producer_epoch"] = self._fixed["producer_epoch"]
                identity["sequence_first"] = random.choice((0, 1, 2))
                identity["transactional"] = True
            codec = random.choice(tuple(Codec))
            data = batch.build(records, now_ms=1_700_000_000_000, codec=codec, **identity)
            if random.random() < 0.3:
                data = damaged(random, data, random.choice((0, 8, 21, 57, 61)))
                data = _sealed(data) if random.random() < 0.7 else data
            pieces.append(data)
        return b"".join(pieces)


def _sealed(data: bytes) -> bytes:
    """With the right size and checksum, so that it is looked into."""
    if len(data) < batch.HEADER_BYTES:
        return data
    checked = data[21:]
    return (
        data[:8] + pack(">i", len(data) - 12) + data[12:17] + pack(">I", crc32c(checked)) + checked
    )


def _record(random: Random) -> Record:
    headers = random.choice(((), (("h", b"1"),), (("", b""), ("x" * 300, b"v"))))
    return Record(
        random.choice((None, b"", b"k", b"k2")),
        random.choice((None, b"", b"v", b"\xff" * 200, bytes(5_000))),
        headers,
        random.choice((-1, 0, 1_700_000_000_000, 2**62)),
    )


_USUAL: dict[str, tuple[int, ...]] = {
    "partition": (0, 0, 0, 1),
    "partition_index": (0, 0, 0, 1),
    "partition_indexes": (0, 0, 0, 1),
    "partitions": (0, 0, 1),
    "index": (0, 0, 1),
    "partition_id": (0, 0, 1),
    "num_partitions": (1, 2, -1),
    "count": (1, 2, 3),
    "replication_factor": (-1, 1),
    "broker_ids": (1, 1, 0),
    "producer_id": (0, 1, 2, -1),
    "producer_epoch": (0, 0, 1, -1),
    "generation_id": (-1, 0, 1),
    "member_epoch": (0, 0, 1, -1, -2),
    "session_id": (0, 0, 1),
    "session_epoch": (-1, 0, 0, 1),
    "share_session_epoch": (0, 0, 1, -1),
    "current_leader_epoch": (-1, 0),
    "leader_epoch": (-1, 0),
    "acks": (-1, -1, -1, -1, 1, 1, 1, 0),
    "max_bytes": (0, 1, 100_000, 1_000_000),
    "min_bytes": (0, 1, 1),
    "max_wait_ms": (0, 0, 5),
    "timeout_ms": (0, 5, 6_000),
    "key_type": (0, 1, 2),
    "resource_type": (2, 2, 4, 32, 3, 5),
    "pattern_type": (3, 4, 1),
    "operation": (2, 3, 4, 8),
    "permission_type": (3, 2),
    "fetch_offset": (0, 0, 1, 5),
    "timestamp": (-1, -2, -3, -4, -5, 0),
    "config_operation": (0, 1, 2, 3),
    "mechanism": (1, 2),
    "iterations": (4_096,),
    "acknowledge_types": (0, 1, 2, 3, 4),
    "acknowledge_type": (0, 1, 2, 3, 4),
}

_FIXED: dict[str, Callable[[_Maker, Field], Any]] = {
    **dict.fromkeys(_NUMBERS, _Maker.number),
    "error_code": lambda maker, field: field.python(0),
    "uuid": lambda maker, field: maker.uuid(),
    "timedelta_i32": lambda maker, field: timedelta(milliseconds=maker.milliseconds()),
    "timedelta_i64": lambda maker, field: timedelta(milliseconds=maker.milliseconds()),
    "datetime_i64": lambda maker, field: EPOCH + timedelta(milliseconds=maker.milliseconds()),
}
assert _FIXED.keys() == FIXED.keys()
