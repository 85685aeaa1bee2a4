"""Produce in every version, both directions, against kio's bytes."""

from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest

from entrepot.core.errors import MalformedFrame
from entrepot.wire.kafka import produce
from entrepot.wire.kafka.api import Api, request_class, response_class, versions
from entrepot.wire.kafka.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
)
from tests.unit.wire.kafka import oracle

FIRST, LAST = versions(Api.PRODUCE)
VERSIONS = range(FIRST, LAST + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)


def request_of(entity: Any) -> ProduceRequest:
    """What kio's request says, as ours."""
    return ProduceRequest(
        transactional_id=entity.transactional_id,
        acks=entity.acks,
        timeout_ms=round(entity.timeout.total_seconds() * 1000),
        partitions=[
            ProducePartition(
                getattr(topic, "name", None),
                getattr(topic, "topic_id", None),
                partition.index,
                partition.records,
            )
            for topic in entity.topic_data
            for partition in topic.partition_data
        ],
    )


def topics_of(entity: Any) -> list[ProduceTopic]:
    """What kio's response says, as ours."""
    return [
        ProduceTopic(
            getattr(topic, "name", None),
            getattr(topic, "topic_id", None),
            [result_of(each) for each in topic.partition_responses],
        )
        for topic in entity.responses
    ]


def result_of(entity: Any) -> ProduceResult:
    time = entity.log_append_time
    errors = getattr(entity, "record_errors", None)
    return ProduceResult(
        partition_index=entity.index,
        error_code=entity.error_code,
        offset_first=entity.base_offset,
        append_time_ms=-1 if time is None else round(time.timestamp() * 1000),
        log_start=getattr(entity, "log_start_offset", -1),
        record_errors=()
        if errors is None
        else [(each.batch_index, each.batch_index_error_message) for each in errors],
        error_message=getattr(entity, "error_message", None),
    )


@every_version
def test_requests(version: int) -> None:
    for seed in range(6):
        entity = oracle.make(request_class(Api.PRODUCE, version), Random(seed))
        # A topic without partitions is nothing to us; it has no place in the flat list.
        topics = tuple(topic for topic in entity.topic_data if topic.partition_data)
        entity = replace(entity, topic_data=topics)
        expected = request_of(entity)
        body = b"head" + oracle.kio_bytes(entity)
        assert produce.decode_request(version, memoryview(body), 4) == expected
        if len({topic_key(each) for each in expected.partitions}) == len(topics):
            assert produce.encode_request(version, expected) == body[4:]


def topic_key(partition: ProducePartition) -> tuple[Any, Any]:
    return partition.topic_name, partition.topic_id


def test_a_topic_without_partitions_is_read_as_nothing() -> None:
    body = bytes.fromhex("ffff 0001 00000000 00000001 0001 61 00000000")
    assert produce.decode_request(3, memoryview(body), 0).partitions == []


def test_records_are_views_of_the_frame() -> None:
    request = ProduceRequest(None, 1, 0, [ProducePartition("a", None, 0, b"records")])
    for version in VERSIONS[:-1]:
        frame = bytearray(produce.encode_request(version, request))
        (partition,) = produce.decode_request(version, memoryview(frame), 0).partitions
        assert isinstance(partition.records, memoryview)
        partition.records[:] = b"RECORDS"
        assert b"RECORDS" in frame


@every_version
def test_responses(version: int) -> None:
    for seed in range(6):
        full = oracle.make(response_class(Api.PRODUCE, version), Random(seed))
        entity = oracle.without_tags(full)  # The tags are hints about leaders: not written.
        throttle_ms = round(entity.throttle_time.total_seconds() * 1000)
        body = oracle.kio_bytes(entity)
        topics = topics_of(entity)
        assert produce.encode_response(version, topics, throttle_ms) == body
        assert produce.decode_response(version, memoryview(body), 0) == (topics, throttle_ms)


def test_leader_hints_are_passed_over() -> None:
    for version in range(10, LAST + 1):
        entity = oracle.make(response_class(Api.PRODUCE, version), Random(version))
        topics, _ = produce.decode_response(version, memoryview(oracle.kio_bytes(entity)), 0)
        assert topics == topics_of(entity)


@every_version
def test_what_is_cut_short_is_refused(version: int) -> None:
    for load, decode in (
        (request_class, produce.decode_request),
        (response_class, produce.decode_response),
    ):
        data = oracle.kio_bytes(oracle.make(load(Api.PRODUCE, version), Random(4)))
        for size in range(0, len(data), 1 + len(data) // 100):
            with pytest.raises(MalformedFrame):
                decode(version, memoryview(data)[:size], 0)
        decode(version, memoryview(data + b"\0"), 0)  # Kafka passes over the rest.


@every_version
def test_a_request_for_one_partition_is_read_like_any_other(version: int) -> None:
    layout, one = request_class(Api.PRODUCE, version), 0
    for seed in range(100):
        entity = oracle.make(layout, Random(seed))
        topics = [each for each in entity.topic_data if each.partition_data][:1]
        partition = [replace(each, partition_data=each.partition_data[:1]) for each in topics]
        entity = replace(entity, topic_data=tuple(partition))
        body = b"head" + oracle.kio_bytes(entity)
        read = produce.decode_one(version, memoryview(body), 4)
        assert read in (None, produce.decode_request(version, memoryview(body), 4))
        one += read is not None
        for size in range(4, len(body), 1 + len(body) // 100):
            assert produce.decode_one(version, memoryview(body)[:size], 4) is None
    assert one > 10


@every_version
def test_a_result_of_one_partition_is_written_like_any_other(version: int) -> None:
    for index in range(3):
        result = ProduceResult(index, index, 1 << 40, -1, 7)
        topic = ProduceTopic("a" * (1 + 100 * index), UUID(int=index), [result])
        one = produce.encode_response(version, [topic], 9)
        two = produce.encode_response(version, [topic, topic], 9)
        topics, throttle_ms = produce.decode_response(version, memoryview(two), 0)
        assert produce.decode_response(version, memoryview(one), 0) == (topics[:1], throttle_ms)
        assert len(one) < len(two)
