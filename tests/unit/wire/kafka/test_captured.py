"""What real clients send, read and written again byte for byte."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.metadata.v13.request import MetadataRequest

from entrepot.core.batch import check
from entrepot.wire.kafka import fetch, produce
from entrepot.wire.kafka.api import Api, request_class, versions
from entrepot.wire.kafka.frames import read_request_header, request_header
from entrepot.wire.kafka.layout import decode, encode
from tests.unit.wire.kafka import oracle

CAPTURED = oracle.vectors()
TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")


def frames_of(api: Api) -> list[tuple[str, memoryview]]:
    return [
        (client, memoryview(frame))
        for client, name, frame in CAPTURED
        if name.split()[0] == api.name
    ]


@pytest.mark.parametrize(
    ("name", "frame"), [(f"{client} {name}", frame) for client, name, frame in CAPTURED]
)
def test_every_request_is_read_and_written_again(name: str, frame: bytes) -> None:
    header, position = read_request_header(memoryview(frame))
    api = Api(header.api_key)
    assert name.endswith(f" {api.name} {header.version}")
    assert header.client_id == "capture"
    again = request_header(api, header.version, header.correlation_id, header.client_id)
    assert again == frame[:position]
    layout = request_class(api, header.version)
    assert encode(decode(layout, layout, memoryview(frame), position), layout) == frame[position:]


def newest(model: type[Any], frame: memoryview) -> Any:
    header, position = read_request_header(frame)
    api = Api(header.api_key)
    assert model is request_class(api, versions(api)[1])
    return decode(model, request_class(api, header.version), frame, position)


def test_clients_say_what_they_are() -> None:
    names = {
        client: newest(ApiVersionsRequest, frame).client_software_name
        for client, frame in reversed(frames_of(Api.API_VERSIONS))
    }
    assert names == {
        "aiokafka": "",  # v0 says nothing.
        "kafka_python": "kafka-python",
        "librdkafka": "confluent-kafka-python",
    }


def test_the_topics_asked_for() -> None:
    topics = {
        client: newest(MetadataRequest, frame).topics for client, frame in frames_of(Api.METADATA)
    }
    assert topics["aiokafka"] == topics["kafka_python"] == ()
    assert [topic.name for topic in topics["librdkafka"]] == ["orders"]


def test_produced_records_are_found_in_the_frame() -> None:
    versions_seen = []
    for _, frame in frames_of(Api.PRODUCE):
        header, position = read_request_header(frame)
        request = produce.decode_request(header.version, frame, position)
        assert request.transactional_id is None
        (partition,) = request.partitions
        assert partition[:3] == ("orders", None, 0)
        assert partition.records is not None
        assert check(partition.records).count == 1
        assert produce.encode_request(header.version, request) == frame[position:]
        versions_seen.append((header.version, request.acks))
    assert versions_seen == [(7, 1), (9, -1), (10, -1)]


def test_fetches_ask_for_the_topic_by_name_or_id() -> None:
    topics_seen = []
    for _, frame in frames_of(Api.FETCH):
        header, position = read_request_header(frame)
        request = fetch.decode_request(header.version, frame, position)
        (topic,) = request.topics
        (partition,) = topic.partitions
        assert (partition.partition_index, partition.fetch_offset) == (0, 0)
        assert (request.replica_id, request.min_bytes) == (-1, 1)
        assert fetch.encode_request(header.version, request) == frame[position:]
        topics_seen.append((header.version, topic.name, topic.id))
    assert topics_seen == [(11, "orders", None), (12, "orders", None), (16, None, TOPIC_ID)]
