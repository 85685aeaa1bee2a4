"""Peers that speak the protocol and still mean no good, or are just broken.

Bombs, bytes one at a time, questions without interest in the answers, connections that
end in the middle. The same is asked as of hostile bytes: bounded memory, a closed
connection or an error code, and a bystander who notices nothing.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from entrepot.broker.catalog import Topic
from entrepot.core import batch, limits
from entrepot.core.batch import Codec
from entrepot.core.compression import compress
from entrepot.core.record import Record
from entrepot.gateway.kafka import apis
from entrepot.testing import Broker, broker
from entrepot.wire.kafka.api import Api, request_class
from entrepot.wire.kafka.frames import request_header
from entrepot.wire.kafka.layout import encode
from tests.end_to_end.bare import (
    WAIT_S,
    BareClient,
    batch_of,
    fetch_frame,
    fetch_request,
    framed,
    now_ms,
    produce_frame,
    request_frame,
)
from tests.end_to_end.bystander import Bystander, Growth, lines_about
from tests.unit.gateway.kafka.test_apis import aimed
from tests.unit.wire.kafka.oracle import make

MIB = limits.MIB
CODECS = [codec for codec in Codec if codec is not Codec.NONE]


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


# --- bombs


def bomb(codec: Codec, size: int) -> bytes:
    """One record of so many zeros, in a batch that is much smaller."""
    head = batch.build([Record(None, b"")], now_ms=now_ms(), codec=codec)[:61]
    data = bytearray(head + compress(codec, bytes(size)))
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, batch.crc32c(bytes(data[21:])))
    return bytes(data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_for_a_topic_that_recompresses(
    server: Broker, stranger: BareClient, codec: Codec
) -> None:
    topic = f"bombed-{codec.name}"
    other = Codec.ZSTD if codec is not Codec.ZSTD else Codec.LZ4
    setting = {"compression.type": other.name.lower(), "max.message.bytes": str(16 * MIB)}
    stranger.create(topic, settings=setting)
    data = bomb(codec, limits.DECOMPRESSED_BYTES_MAX + 1)
    growth = Growth(server)
    result = stranger.produce(topic, data)
    assert result.error_code == ErrorCode.corrupt_message
    assert "unpack to more than" in (result.error_message or "")
    assert growth.peak() < 3 * limits.DECOMPRESSED_BYTES_MAX // MIB


def test_what_unpacks_to_more_than_the_topic_takes(stranger: BareClient) -> None:
    stranger.create("unpacked", settings={"compression.type": "uncompressed"})
    result = stranger.produce("unpacked", bomb(Codec.GZIP, 20 * MIB))
    assert result.error_code == ErrorCode.message_too_large


def test_a_bomb_in_the_log_hurts_only_who_looks_inside(
    server: Broker, stranger: BareClient
) -> None:
    stranger.create("mined", settings={"max.message.bytes": str(16 * MIB)})
    data = bomb(Codec.ZSTD, limits.DECOMPRESSED_BYTES_MAX + 1)
    assert stranger.produce("mined", data).error_code == 0
    growth = Growth(server)
    wanted = ListOffsetsPartition(partition_index=i32(0), timestamp=i64(0))
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(0),
        topics=(ListOffsetsTopic(name=TopicName("mined"), partitions=(wanted,)),),
    )
    (answer,) = stranger.ask(request).topics[0].partitions
    assert answer.error_code is ErrorCode.corrupt_message
    assert growth.peak() < 3 * limits.DECOMPRESSED_BYTES_MAX // MIB


# --- slow, silent, gone


def test_bytes_one_at_a_time(server: Broker, bystander: Bystander) -> None:
    frame = request_frame(MetadataRequest(topics=(), include_topic_authorized_operations=False))
    with ExitStack() as stack:
        slow = [stack.enter_context(BareClient(server)) for _ in range(50)]
        for position in range(len(frame)):
            for client in slow:
                client.send(frame[position : position + 1])
        bystander.is_unharmed()
        assert all(client.frame() is not None for client in slow)


def test_large_frames_that_are_only_announced(server: Broker, bystander: Bystander) -> None:
    """A hundred promises of a hundred megabytes cost what has come of them."""
    growth = Growth(server)
    with ExitStack() as stack:
        for _ in range(100):
            client = stack.enter_context(BareClient(server))
            client.send(struct.pack(">ih", limits.FRAME_BYTES_MAX, Api.PRODUCE) + b"\0" * 20_000)
        bystander.is_unharmed()
        assert growth.peak() < 100


def test_connections_that_end_in_the_middle(server: Broker, bystander: Bystander) -> None:
    whole = produce_frame("bystander", b"\0" * 1_000)
    long_fetch = fetch_frame(fetch_request("bystander", max_wait_ms=30_000, min_bytes=1 << 30))
    for data in (whole[:3], whole[:500], long_fetch, long_fetch + whole):
        for end in (BareClient.close, BareClient.vanish, BareClient.half_close):
            client = BareClient(server)
            client.send(data)
            end(client)
            client.close()
    bystander.is_unharmed()
    assert "internal error" not in server.log_path.read_text()


# --- questions without interest in the answers


def metadata(count: int) -> bytes:
    request = MetadataRequest(topics=None, include_topic_authorized_operations=False)
    return request_frame(request) * count


def log_directories(count: int) -> bytes:
    return request_frame(DescribeLogDirsRequest(topics=None)) * count


def fetches(count: int) -> bytes:
    return fetch_frame(fetch_request("large", partition_bytes=16 * MIB)) * count


def produces(count: int) -> bytes:
    return produce_frame("large", batch_of(b"x" * 100_000)) * (count // 100)


@pytest.fixture(scope="module")
def plenty(server: Broker) -> None:
    """Much to tell of, and much to fetch."""
    with BareClient(server) as client:
        client.create("wide", limits.PARTITIONS_PER_TOPIC_MAX)
        client.create("large")
        for _ in range(16):
            client.produce("large", batch_of(b"x" * 900_000))


@pytest.mark.usefixtures("plenty")
@pytest.mark.parametrize(
    "ask", [metadata, pytest.param(log_directories, marks=pytest.mark.slow), fetches, produces]
)
def test_a_client_that_never_reads(
    server: Broker, stranger: BareClient, bystander: Bystander, ask: Callable[[int], bytes]
) -> None:
    """Answers pile up to a point, then it is not heard any more, until it reads."""
    growth = Growth(server)
    # After a large request the broker reads much at once: thousands of questions.
    stranger.send(produce_frame("nosuch", b"\0" * 100_000))
    questions = ask(2_000)
    sent = 0
    while sent < 200 * MIB:
        size = stranger.send_what_fits(questions)
        sent += size
        if size < len(questions):
            break
    assert sent < 200 * MIB, "it was heard all the time"
    bystander.is_unharmed()
    assert growth.peak() < 100
    for _ in range(10):
        assert stranger.frame() is not None


def test_a_bad_request_behind_a_slow_one(server: Broker, stranger: BareClient) -> None:
    """The slow one is answered, then the connection ends."""
    slow = fetch_frame(fetch_request("bystander", max_wait_ms=300, min_bytes=1 << 30))
    stranger.send(slow + framed(struct.pack(">hhih", 4_711, 0, 1, -1)) + slow)
    assert stranger.fetched().topics[0].partitions[0].error_code == 0
    assert stranger.frame() is None
    (line,) = lines_about(server, stranger.address)
    assert "API 4711 version 0 is not served" in line


def test_garbage_behind_a_slow_one(server: Broker, stranger: BareClient) -> None:
    """Nobody can tell where the next request would begin: the connection ends now."""
    slow = fetch_frame(fetch_request("bystander", max_wait_ms=30_000, min_bytes=1 << 30))
    stranger.send(slow)
    stranger.send(b"\xff" * 100)
    assert stranger.is_closed()
    (line,) = lines_about(server, stranger.address)
    assert "a frame of -1 bytes" in line


# --- anything


REQUESTS = [
    (api, version)
    for api in (entry.api for entry in apis.SERVED)
    if api is not Api.DELETE_TOPICS  # It would take away what the others are about.
    for version in range(api.version_first, api.version_last + 1)
]


WAITING = (Api.FETCH, Api.JOIN_GROUP, Api.SYNC_GROUP)


@pytest.fixture(scope="module")
def target(server: Broker) -> Topic:
    """A topic for requests to be about."""
    with BareClient(server) as client:
        client.create("target", 2)
        client.produce("target", batch_of(b"value"))
        request = MetadataRequest(topics=None, include_topic_authorized_operations=False)
        (found,) = [each for each in client.ask(request).topics if each.name == "target"]
    return Topic(found.name, found.topic_id, 2)


@st.composite
def mutations(draw: st.DrawFn) -> tuple[Api, int, int, bool, list[tuple[int, int, bytes]]]:
    """A request of some kind, by its seed, and bytes to change, add or take away."""
    api, version = draw(st.sampled_from(REQUESTS))
    changes = st.tuples(st.integers(0, 2_000), st.integers(0, 6), st.binary(max_size=6))
    seed, is_aimed = draw(st.integers(0, 2**16)), draw(st.booleans())
    return api, version, seed, is_aimed, draw(st.lists(changes, max_size=4))


def mutated(
    target: Topic,
    api: Api,
    version: int,
    seed: int,
    is_aimed: bool,
    changes: list[tuple[int, int, bytes]],
) -> bytes:
    layout = request_class(api, version)
    message = make(layout, Random(seed))
    data = bytearray(encode(aimed(message, target) if is_aimed else message, layout))
    for position, size, change in changes:
        place = position % (len(data) + 1)
        data[place : place + size] = change
    return framed(request_header(api, version, 1, "fuzz") + bytes(data))


@given(requests=st.lists(mutations(), min_size=1, max_size=4))
@settings(max_examples=70)
def test_any_request(server: Broker, target: Topic, requests: list[Any]) -> None:
    """All are answered, also a good one behind them, or the connection ends, or one of them
    asks to wait for long."""
    frames = [mutated(target, *request) for request in requests]
    may_wait = any(api in WAITING for api, *_ in requests)
    with ExitStack() as stack:
        if may_wait:
            stack.enter_context(suppress(TimeoutError))
        client = stack.enter_context(BareClient(server, wait_s=1 if may_wait else WAIT_S))
        client.send(b"".join(frames) + framed(request_header(Api.API_VERSIONS, 0, 7, None)))
        while (frame := client.frame()) is not None and bytes(frame[:4]) != b"\0\0\0\7":
            pass


@given(data=st.binary(max_size=200))
@settings(max_examples=50)
def test_any_bytes(server: Broker, data: bytes) -> None:
    with BareClient(server) as client:
        client.send(data)
        client.half_close()
        assert client.is_closed()


def test_nothing_of_ours_broke(server: Broker) -> None:
    """Of all that happened above."""
    said = server.log_path.read_text()
    assert "internal error" not in said
    assert "Traceback" not in said
    assert "CRITICAL" not in said
