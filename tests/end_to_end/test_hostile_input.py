"""Bytes from strangers, over a real socket.

Whatever comes, the answer is the protocol's error code or a closed connection with one
line in the log; the broker lives, its memory is bounded, and another connection, open all
the time, notices nothing.
"""

from collections.abc import Iterator
from dataclasses import replace
from struct import pack, pack_into

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from entrepot.core import batch, limits
from entrepot.core.batch import Codec
from entrepot.gateway.kafka import apis
from entrepot.testing import Broker, broker
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.fetch import FetchPartition, FetchTopic
from tests.end_to_end.bare import (
    BareClient,
    batch_of,
    fetch_frame,
    fetch_request,
    framed,
)
from tests.end_to_end.bystander import Bystander, Growth, lines_about

MIB = limits.MIB


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started


@pytest.fixture(scope="module")
def bystander(server: Broker) -> Bystander:
    return Bystander(server)


@pytest.fixture(autouse=True)
def _unharmed(bystander: Bystander) -> Iterator[None]:
    yield
    bystander.is_unharmed()


@pytest.fixture
def stranger(server: Broker) -> Iterator[BareClient]:
    with BareClient(server) as connected:
        yield connected


# --- frames


def header(api: int, version: int, client_id: bytes = b"\xff\xff", rest: bytes = b"") -> bytes:
    return framed(pack(">hhi", api, version, 1) + client_id + rest)


HOSTILE_FRAMES = {
    "a size of -1": pack(">i", -1),
    "the smallest size": pack(">i", -(2**31)),
    "the largest size": pack(">i", 2**31 - 1),
    "a size just over the limit": pack(">i", limits.FRAME_BYTES_MAX + 1) + b"\0\0",
    "a large request without records": pack(">ih", limits.REQUEST_BYTES_MAX + 1, Api.METADATA),
    "an empty frame": framed(b""),
    "half a header": framed(b"\0\x12\0"),
    "a client id of -2 bytes": header(Api.METADATA, 1, pack(">h", -2)),
    "a client id longer than the frame": header(Api.METADATA, 1, pack(">h", 30_000)),
    "a client id that is no text": header(Api.METADATA, 1, b"\0\2\xff\xfe", b"\0\0\0\0"),
    "an unknown API": header(4_711, 0),
    "an API below 0": header(-1, 0),
    "an API that is not served": header(Api.SHARE_FETCH, 1, rest=b"\0" * 50),
    "a version too new": header(Api.METADATA, 99, rest=b"\0"),
    "a version below 0": header(Api.METADATA, -1),
    "a version announced for librdkafka only": header(Api.PRODUCE, 2, rest=b"\0" * 30),
    "no message": header(Api.METADATA, 9),
    "an array of -2": header(Api.METADATA, 1, rest=pack(">i", -2)),
    "an array of two thousand million": header(Api.METADATA, 1, rest=pack(">i", 2**31 - 1)),
    "a compact array of the same": header(Api.METADATA, 9, rest=b"\0\xff\xff\xff\xff\x07"),
    "a varint without an end": header(Api.METADATA, 9, rest=b"\0" + b"\xff" * 20),
    "a string of two thousand million": header(Api.METADATA, 9, rest=b"\0\2\xff\xff\xff\xff\x07"),
    "tagged fields of the same": header(Api.METADATA, 9, rest=b"\0\1\1\1\1\xff\xff\xff\xff\x07"),
    "a browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("160301020001000001fc0303") + b"\x5a" * 500,
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
}


@pytest.mark.parametrize("name", HOSTILE_FRAMES)
def test_a_frame_that_is_none(server: Broker, stranger: BareClient, name: str) -> None:
    stranger.send(HOSTILE_FRAMES[name])
    assert stranger.is_closed()
    (line,) = lines_about(server, stranger.address)
    assert "WARNING" in line
    assert "closed: " in line


def test_an_unknown_version_of_api_versions_is_answered(stranger: BareClient) -> None:
    """In the oldest layout, with all there is to know; then the client asks again."""
    stranger.send(header(Api.API_VERSIONS, 99, rest=b"\0" + b"\xff" * 50))
    answer = stranger.answer(Api.API_VERSIONS, 0)
    assert answer.error_code is ErrorCode.unsupported_version
    served = {int(entry.api) for entry in apis.SERVED}
    assert {each.api_key for each in answer.api_keys} == served
    stranger.send(header(Api.API_VERSIONS, 0))
    assert stranger.answer(Api.API_VERSIONS, 0).error_code is ErrorCode.none


def test_a_million_elements(server: Broker, stranger: BareClient) -> None:
    growth = Growth(server)
    body = b"\0" + b"\xc1\x84\x3d" + (b"\0" * 16 + b"\2a\0") * 1_000_000 + b"\0\0\0"
    frame = pack(">hhih", Api.METADATA, 12, 1, -1) + body
    stranger.send(framed(frame)[: limits.REQUEST_BYTES_MAX])
    assert stranger.is_closed()
    (line,) = lines_about(server, stranger.address)
    assert "carries no records" in line
    with BareClient(server) as another:
        names = (b"\0" * 16 + b"\2a\0") * (limits.REQUEST_ELEMENTS_MAX + 1)
        another.send(header(Api.METADATA, 12, rest=b"\0" + b"\xc2\x9a\x0c" + names + b"\0\0\0"))
        assert another.is_closed()
        (line,) = lines_about(server, another.address)
        assert "more than 200000 elements" in line
    assert growth.peak() < 100


@pytest.mark.slow
def test_as_many_elements_as_there_may_be(server: Broker, stranger: BareClient) -> None:
    """A legal request of the largest kind: the same partition, again and again."""
    growth = Growth(server)
    count = limits.REQUEST_ELEMENTS_MAX - 1
    wanted = [FetchPartition(0, -1, 0, -1, -1, 1 << 20)] * count
    request = replace(fetch_request("nosuch"), topics=[FetchTopic("nosuch", None, wanted)])
    stranger.send(fetch_frame(request))
    frame = stranger.frame()
    assert frame is not None
    assert growth.peak() < 300


# --- batches


def damaged(position: int, layout: str, *values: int, whole: bool = True) -> bytes:
    """A good batch with other bytes in one place, and a checksum that covers them."""
    data = bytearray(batch_of(b"value", b"value"))
    pack_into(layout, data, position, *values)
    if whole:
        pack_into(">I", data, 17, batch.crc32c(bytes(data[21:])))
    return bytes(data)


GOOD = batch_of(b"value", b"value")
CORRUPT = ErrorCode.corrupt_message
HOSTILE_BATCHES = {
    "null": (None, CORRUPT),
    "nothing": (b"", CORRUPT),
    "garbage": (b"\xa5" * 1_000, CORRUPT),
    "a flipped bit": (damaged(70, ">b", 0x55, whole=False), CORRUPT),
    "a header only": (GOOD[:61], CORRUPT),
    "cut off": (GOOD[:-1], CORRUPT),
    "bytes after it": (GOOD + b"\0", CORRUPT),
    "a length of -1": (damaged(8, ">i", -1), CORRUPT),
    "a length too large": (damaged(8, ">i", 2**31 - 1), CORRUPT),
    "magic 0": (damaged(16, ">b", 0), CORRUPT),
    "magic 1": (damaged(16, ">b", 1), CORRUPT),
    "magic 3": (damaged(16, ">b", 3), CORRUPT),
    "codec 7": (damaged(21, ">h", 7), CORRUPT),
    "a control batch": (damaged(21, ">h", 0x20), CORRUPT),
    "a transaction without a producer": (damaged(21, ">h", 0x10), CORRUPT),
    "no records": (damaged(57, ">i", 0), CORRUPT),
    "-1 records": (damaged(57, ">i", -1), CORRUPT),
    "a count that does not fit": (damaged(57, ">i", 3), CORRUPT),
    "a thousand million records": (damaged(57, ">i", 10**9), CORRUPT),
    "offsets that do not fit": (damaged(23, ">i", 7), CORRUPT),
    "a producer without a sequence": (damaged(43, ">qhi", 7, 0, -1), CORRUPT),
    "a producer below 0": (damaged(43, ">qhi", -7, 0, 0), CORRUPT),
    "the broker's own time": (damaged(21, ">h", 0x08), ErrorCode.invalid_timestamp),
    "too large": (batch_of(b"x" * 2 * MIB), ErrorCode.message_too_large),
    "two numbered ones": (
        batch_of(b"a", producer_id=7, producer_epoch=0, sequence_first=0)
        + batch_of(b"b", producer_id=7, producer_epoch=0, sequence_first=1),
        CORRUPT,
    ),
}


@pytest.fixture(scope="module")
def hostile_topic(server: Broker) -> str:
    with BareClient(server) as client:
        client.create("hostile")
    return "hostile"


@pytest.mark.parametrize("name", HOSTILE_BATCHES)
def test_a_batch_that_is_none(stranger: BareClient, hostile_topic: str, name: str) -> None:
    """Refused with its code; nothing is written, and the connection goes on."""
    data, code = HOSTILE_BATCHES[name]
    result = stranger.produce(hostile_topic, data)
    assert (result.error_code, result.offset_first) == (code, -1)
    assert result.error_message
    assert stranger.read(hostile_topic) == []


def test_records_that_are_none(stranger: BareClient) -> None:
    """Bodies are not opened when they come in, so the one who asks by time is told."""
    stranger.create("liar")
    for codec in Codec:
        lie = damaged(21, ">h", codec)[:61] + b"\xff" * 40
        data = bytearray(lie)
        pack_into(">i", data, 8, len(data) - 12)
        pack_into(">I", data, 17, batch.crc32c(bytes(data[21:])))
        assert stranger.produce("liar", bytes(data)).error_code == 0
    for timestamp in (0, -3):
        wanted = ListOffsetsPartition(partition_index=i32(0), timestamp=i64(timestamp))
        request = ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(0),
            topics=(ListOffsetsTopic(name=TopicName("liar"), partitions=(wanted,)),),
        )
        (answer,) = stranger.ask(request).topics[0].partitions
        assert answer.error_code is CORRUPT
