"""ShareFetch's answer in every version, against kio's reader."""

from random import Random
from uuid import UUID

import pytest

from entrepot.core.ports import FileRange
from entrepot.core.steps import finish
from entrepot.wire.kafka.api import Api, response_class, versions
from entrepot.wire.kafka.share_fetch import (
    AcquiredRecords,
    ShareFetchedPartition,
    ShareFetchedTopic,
    encode_response,
)
from sim.disk import SimDisk
from tests.unit.gateway.kafka.serving import joined
from tests.unit.wire.kafka import oracle

FIRST, LAST = versions(Api.SHARE_FETCH)
A, B = UUID(int=1), UUID(int=2**127)


@pytest.fixture
def file_range() -> FileRange:
    file = SimDisk(Random(0)).open("f", create=True)
    file.write(0, [b"0123456789"])
    return FileRange(file, 2, 6)


@pytest.mark.parametrize("version", range(FIRST, LAST + 1))
def test_what_is_written_is_what_kio_reads(version: int, file_range: FileRange) -> None:
    topics = [
        ShareFetchedTopic(
            A,
            [
                ShareFetchedPartition(
                    3,
                    leader_id=7,
                    leader_epoch=1,
                    records=[file_range, file_range],
                    acquired=[AcquiredRecords(5, 9, 1), AcquiredRecords(2**40, 2**40, 4)],
                ),
                ShareFetchedPartition(4, 6, "not here", 121, "not yours"),
            ],
        ),
        ShareFetchedTopic(B, [ShareFetchedPartition(0)]),
    ]
    chunks, size = finish(encode_response(topics, throttle_ms=5, lock_ms=30_000))
    assert all(chunks)
    assert chunks[1] is chunks[2] is file_range  # Never copied.
    data = joined(chunks)
    assert len(data) == size
    read = oracle.kio_read(response_class(Api.SHARE_FETCH, version), data)
    assert (read.error_code.value, read.error_message) == (0, None)
    assert read.acquisition_lock_timeout.total_seconds() == 30
    assert [topic.topic_id for topic in read.responses] == [A, B]
    first, second = read.responses[0].partitions
    assert (first.partition_index, first.records) == (3, b"234567" * 2)
    assert (first.current_leader.leader_id, first.current_leader.leader_epoch) == (7, 1)
    acquired = [(e.first_offset, e.last_offset, e.delivery_count) for e in first.acquired_records]
    assert acquired == [(5, 9, 1), (2**40, 2**40, 4)]
    assert (second.error_code.value, second.error_message) == (6, "not here")
    assert second.acknowledge_error_code == 121
    assert second.acknowledge_error_message == "not yours"
    assert read.responses[1].partitions[0].records == b""


def test_an_error() -> None:
    chunks, _ = finish(encode_response([], error_code=122, error_message="no session"))
    read = oracle.kio_read(response_class(Api.SHARE_FETCH, LAST), joined(chunks))
    assert (read.error_code.value, read.error_message) == (122, "no session")
    assert (read.responses, read.node_endpoints) == ((), ())
