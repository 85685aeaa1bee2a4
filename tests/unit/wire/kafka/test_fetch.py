"""Fetch in every version, both directions, against kio's bytes."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from entrepot.core.errors import MalformedFrame
from entrepot.core.ports import Chunk, FileRange
from entrepot.core.steps import finish
from entrepot.wire.kafka import fetch
from entrepot.wire.kafka.api import Api, request_class, response_class, versions
from entrepot.wire.kafka.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from tests.unit.wire.kafka import oracle

FIRST, LAST = versions(Api.FETCH)
VERSIONS = range(FIRST, LAST + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)


def request_of(entity: Any) -> FetchRequest:
    """What kio's request says, as ours."""
    replica = getattr(entity, "replica_state", entity)
    return FetchRequest(
        replica_id=replica.replica_id,
        replica_epoch=getattr(replica, "replica_epoch", -1),
        max_wait_ms=round(entity.max_wait.total_seconds() * 1000),
        min_bytes=entity.min_bytes,
        max_bytes=entity.max_bytes,
        isolation_level=entity.isolation_level,
        session_id=getattr(entity, "session_id", 0),
        session_epoch=getattr(entity, "session_epoch", -1),
        topics=[
            FetchTopic(*key(topic), [partition_of(each) for each in topic.partitions])
            for topic in entity.topics
        ],
        forgotten=[
            ForgottenTopic(*key(topic), list(topic.partitions))
            for topic in getattr(entity, "forgotten_topics_data", ())
        ],
        rack_id=getattr(entity, "rack_id", ""),
    )


def key(topic: Any) -> tuple[Any, Any]:
    return getattr(topic, "topic", None), getattr(topic, "topic_id", None)


def partition_of(entity: Any) -> FetchPartition:
    return FetchPartition(
        partition_index=entity.partition,
        current_leader_epoch=getattr(entity, "current_leader_epoch", -1),
        fetch_offset=entity.fetch_offset,
        last_fetched_epoch=getattr(entity, "last_fetched_epoch", -1),
        log_start_offset=getattr(entity, "log_start_offset", -1),
        partition_max_bytes=entity.partition_max_bytes,
    )


def topics_of(entity: Any) -> list[FetchedTopic]:
    """What kio's response says, as ours."""
    return [
        FetchedTopic(*key(topic), [fetched_of(each) for each in topic.partitions])
        for topic in entity.responses
    ]


def fetched_of(entity: Any) -> FetchedPartition:
    aborted = entity.aborted_transactions
    return FetchedPartition(
        partition_index=entity.partition_index,
        error_code=entity.error_code,
        high_watermark=entity.high_watermark,
        last_stable_offset=entity.last_stable_offset,
        log_start_offset=getattr(entity, "log_start_offset", -1),
        aborted=None
        if aborted is None
        else [(each.producer_id, each.first_offset) for each in aborted],
        preferred_read_replica=getattr(entity, "preferred_read_replica", -1),
        records=entity.records,
    )


def joined(chunks: list[Chunk]) -> bytes:
    assert all(isinstance(chunk, (bytes, bytearray, memoryview)) and chunk for chunk in chunks)
    return b"".join(chunks)  # type: ignore[arg-type]


@every_version
def test_requests_are_read(version: int) -> None:
    for seed in range(6):
        entity = oracle.make(request_class(Api.FETCH, version), Random(seed))
        body = b"head" + oracle.kio_bytes(entity)
        assert fetch.decode_request(version, memoryview(body), 4) == request_of(entity)


@every_version
def test_requests_are_written(version: int) -> None:
    for seed in range(6):
        entity = oracle.make(request_class(Api.FETCH, version), Random(seed))
        plain = oracle.without_tags(entity, keep=("replica_state",))
        assert fetch.encode_request(version, request_of(entity)) == oracle.kio_bytes(plain)


@every_version
def test_a_consumer_is_no_replica(version: int) -> None:
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1000, topics=[])
    body = fetch.encode_request(version, request)
    assert fetch.decode_request(version, memoryview(body), 0) == request
    assert request.replica_id == -1


@every_version
def test_responses(version: int) -> None:
    for seed in range(6):
        full = oracle.make(response_class(Api.FETCH, version), Random(seed))
        entity = oracle.without_tags(full)
        body = oracle.kio_bytes(entity)
        topics = topics_of(entity)
        chunks, size = fetch.encode_response(
            version,
            topics,
            throttle_ms=round(entity.throttle_time.total_seconds() * 1000),
            error_code=getattr(entity, "error_code", 0),
            session_id=getattr(entity, "session_id", 0),
        )
        assert joined(chunks) == body
        assert size == len(body)
        response = fetch.decode_response(version, memoryview(body), 0)
        assert response == (
            round(entity.throttle_time.total_seconds() * 1000),
            getattr(entity, "error_code", 0),
            getattr(entity, "session_id", 0),
            topics,
        )


def test_tags_for_replicas_are_passed_over() -> None:
    for version in range(12, LAST + 1):
        entity = oracle.make(response_class(Api.FETCH, version), Random(version))
        response = fetch.decode_response(version, memoryview(oracle.kio_bytes(entity)), 0)
        assert response.topics == topics_of(entity)


class NoFile:
    """A file nobody may touch: only the size of a range in it is needed."""


@every_version
def test_records_are_never_copied(version: int) -> None:
    in_memory = memoryview(bytes(5000))
    in_file = FileRange(NoFile(), 7, 1 << 30)  # type: ignore[arg-type]
    empty = FileRange(NoFile(), 7, 0)  # type: ignore[arg-type]
    records: list[Chunk | None] = [in_memory, b"", None, in_file, empty]
    partitions = [FetchedPartition(i, records=each) for i, each in enumerate(records)]
    chunks, size = fetch.encode_response(version, [FetchedTopic("a", None, partitions)])
    assert [chunk for chunk in chunks if not isinstance(chunk, bytes)] == [in_memory, in_file]
    assert next(chunk for chunk in chunks if not isinstance(chunk, bytes)) is in_memory
    assert size == sum(c.size if isinstance(c, FileRange) else len(c) for c in chunks)


def test_received_records_are_views_of_the_frame() -> None:
    topic = FetchedTopic("a", None, [FetchedPartition(0, records=b"records")])
    chunks, _ = fetch.encode_response(12, [topic])
    frame = bytearray(joined(chunks))
    view = fetch.decode_response(12, memoryview(frame), 0).topics[0].partitions[0].records
    assert isinstance(view, memoryview)
    assert view.obj is frame


@every_version
def test_what_is_cut_short_is_refused(version: int) -> None:
    for load, decode in (
        (request_class, fetch.decode_request),
        (response_class, fetch.decode_response),
    ):
        data = oracle.kio_bytes(oracle.make(load(Api.FETCH, version), Random(4)))
        for size in range(0, len(data), 1 + len(data) // 100):
            with pytest.raises(MalformedFrame):
                decode(version, memoryview(data)[:size], 0)
        decode(version, memoryview(data + b"\0"), 0)  # Kafka passes over the rest.


# --- one partition, which has functions of its own


def with_one_partition(layout: type[Any], name: str) -> list[Any]:
    """Some messages of this class, each with one topic and one partition of it."""
    made = (oracle.make(layout, Random(seed)) for seed in range(100))
    found = []
    for message in made:
        topics = [each for each in getattr(message, name) if each.partitions][:1]
        one = tuple(replace(each, partitions=each.partitions[:1]) for each in topics)
        found += [replace(message, **{name: one})] if one else []
    assert len(found) > 20
    return found


@every_version
def test_a_request_for_one_partition_is_read_like_any_other(version: int) -> None:
    for entity in with_one_partition(request_class(Api.FETCH, version), "topics"):
        plain = oracle.without_tags(entity)
        if version >= fetch.VERSION_RACK:
            plain = replace(plain, rack_id="", forgotten_topics_data=())
            assert fetch.decode_one(version, memoryview(oracle.kio_bytes(plain)), 0) or (
                version == fetch.VERSION_FLEXIBLE
            )
        for each in (entity, plain):
            body = b"head" + oracle.kio_bytes(each)
            assert fetch.decode_request(version, memoryview(body), 4) == request_of(each)


@every_version
def test_an_answer_of_one_partition_is_written_like_any_other(version: int) -> None:
    for entity in with_one_partition(response_class(Api.FETCH, version), "responses"):
        (topic,) = topics_of(entity)
        (partition,) = topic.partitions
        for aborted in (partition.aborted, None, []):
            told = [topic._replace(partitions=[partition._replace(aborted=aborted)])]
            expected, size = finish(fetch.encode_response_steps(version, told, session_id=7))
            chunks, same_size = fetch.encode_response(version, told, session_id=7)
            assert (joined(chunks), same_size) == (joined(expected), size)
