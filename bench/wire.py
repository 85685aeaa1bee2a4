"""Kafka requests as bytes over one plain socket, for the raw load and for setting things up.

The messages are kio's, not ours: the bench must not share a mistake with the broker it
measures. Versions are the last ones before compact encoding (Produce 8, Fetch 11), whose
answers have their fields at fixed places, so that reading them costs the generator nothing;
what has no such version is flexible from its first.
"""

import io
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from kio.index import load_response_from_request
from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_new_batch
from kio.schema.create_topics.v4.request import CreatableTopic, CreateTopicsRequest
from kio.schema.delete_topics.v3.request import DeleteTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v2.request import FindCoordinatorRequest
from kio.schema.heartbeat.v3.request import HeartbeatRequest
from kio.schema.list_offsets.v5.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.metadata.v8.request import MetadataRequest
from kio.schema.produce.v8.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.types import BrokerId, GroupId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records, TZAwareMicros, i8, i16, i32, i32Timedelta, i64

TIMEOUT_S = 60
TIMEOUT = i32Timedelta.parse(timedelta(seconds=TIMEOUT_S))


class Refused(Exception):
    """The broker answered with an error code: the run is worth nothing."""


class Connection:
    """One blocking connection: a request out, its answer in."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def call(self, request: Any) -> Any:
        self.socket.sendall(frame(request))
        return decode(request, self.answer())

    def answer(self) -> bytes:
        """The next answer, without its size."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        fill(self.socket, memoryview(data))
        return bytes(data)


def fill(source: socket.socket, target: memoryview) -> None:
    """Read until `target` is full."""
    while target:
        count = source.recv_into(target, len(target), socket.MSG_WAITALL)
        if count == 0:
            raise Refused("the broker closed the connection")
        target = target[count:]


def frame(request: Any) -> bytes:
    """The request with its size and header, ready to send."""
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(0),
        client_id="bench",
    )
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)
    entity_writer(type(request))(buffer, request)
    body = buffer.getvalue()
    return struct.pack(">i", len(body)) + body


def decode(request: Any, answer: bytes) -> Any:
    """The answer to this request. Before it are the correlation id and, if flexible, no tags."""
    header = 5 if request.__flexible__ else 4
    response, _ = entity_reader(load_response_from_request(request))(answer, header)
    return response


def batch(values: Sequence[bytes]) -> bytes:
    """An uncompressed record batch of these values."""
    now = TZAwareMicros.parse(datetime.now(UTC).replace(microsecond=0))
    records = tuple(
        Record(attributes=i8(0), timestamp=now, offset=i64(i), key=None, value=value, headers=())
        for i, value in enumerate(values)
    )
    new = NewRecordBatch(
        producer_id=i64(-1),
        producer_epoch=i16(-1),
        base_sequence=i32(-1),
        records=records,
        attributes=i16(0),
    )
    buffer = io.BytesIO()
    write_new_batch(buffer, new)
    return buffer.getvalue()


def produce_request(topic: str, batches: Iterable[tuple[int, bytes]], acks: int) -> ProduceRequest:
    """One batch for each of these partitions."""
    data = tuple(PartitionProduceData(index=i32(i), records=Records(data)) for i, data in batches)
    return ProduceRequest(
        acks=i16(acks),
        timeout=TIMEOUT,
        topic_data=(TopicProduceData(name=TopicName(topic), partition_data=data),),
    )


def check_produced(response: Any) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            _check(partition.error_code, f"produce to {topic.name}-{partition.index}")


def create_topics(connection: Connection, names: Sequence[str], partitions: int) -> None:
    """Return when they can be written to."""
    topics = tuple(
        CreatableTopic(
            name=TopicName(name),
            num_partitions=i32(partitions),
            replication_factor=i16(1),
            assignments=(),
            configs=(),
        )
        for name in names
    )
    response = connection.call(CreateTopicsRequest(topics=topics, timeout=TIMEOUT))
    for topic in response.topics:
        _check(topic.error_code, f"create {topic.name}")
    await_partitions(connection, names, partitions)


def delete_topics(connection: Connection, names: Sequence[str]) -> None:
    topic_names = tuple(TopicName(name) for name in names)
    response = connection.call(DeleteTopicsRequest(topic_names=topic_names, timeout=TIMEOUT))
    for topic in response.responses:
        _check(topic.error_code, f"delete {topic.name}")


def await_partitions(connection: Connection, names: Sequence[str], partitions: int) -> None:
    """Wait until every partition answers. A new leader may be announced before it serves."""
    topics = tuple(
        ListOffsetsTopic(
            name=TopicName(name),
            partitions=tuple(
                ListOffsetsPartition(partition_index=i32(i), timestamp=i64(-1))
                for i in range(partitions)
            ),
        )
        for name in names
    )
    request = ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=topics)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        response = connection.call(request)
        answers = [partition for topic in response.topics for partition in topic.partitions]
        if all(answer.error_code == ErrorCode.none for answer in answers):
            return
        if time.monotonic() > deadline:
            raise Refused(f"topics created, but not served after {TIMEOUT_S} s")
        time.sleep(0.01)


def await_groups(connection: Connection, names: Sequence[str]) -> None:
    """Wait until groups can be joined. Where there never was one, a broker has to prepare."""
    deadline = time.monotonic() + TIMEOUT_S
    for name in names:
        while not _is_coordinated(connection, name):
            if time.monotonic() > deadline:
                raise Refused(f"no coordinator for groups after {TIMEOUT_S} s")
            time.sleep(0.05)


def _is_coordinated(connection: Connection, name: str) -> bool:
    """Whether a stranger's heartbeat is answered with what is wrong with it."""
    connection.call(FindCoordinatorRequest(key=name, key_type=i8(0)))
    stranger = HeartbeatRequest(group_id=GroupId(name), generation_id=i32(0), member_id="nobody")
    return bool(connection.call(stranger).error_code == ErrorCode.unknown_member_id)


def count_brokers(connection: Connection) -> int:
    request = MetadataRequest(
        topics=(),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return len(connection.call(request).brokers)


def _check(code: ErrorCode, what: str) -> None:
    if code != ErrorCode.none:
        raise Refused(f"{what}: {code.name}")
