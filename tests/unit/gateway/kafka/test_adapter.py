import asyncio
import gc
import logging
import warnings
from collections.abc import Callable, Sequence
from struct import unpack_from
from typing import Any

import pytest
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.metadata.v12.request import MetadataRequest
from kio.static.primitive import i8

from bench import wide
from entrepot.core import limits
from entrepot.core.errors import MalformedFrame
from entrepot.core.faults import Faults
from entrepot.core.ports import Chunk
from entrepot.gateway import pump
from entrepot.gateway.kafka import apis
from entrepot.gateway.kafka.adapter import KafkaAdapter
from entrepot.wire.kafka import fetch
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.fetch import FetchTopic
from entrepot.wire.kafka.frames import request_header
from tests.end_to_end.bare import fetch_frame, framed, produce_frame, request_frame
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.serving import batch_of, fetch_request, joined, wanted

HIGH = limits.BACKLOG_BYTES_HIGH


class FakeLink:
    """A link whose other side takes everything at once, or nothing (`is_stuck`)."""

    peer = "the peer"

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.backlog = 0
        self.is_stuck = False
        self.is_paused = False
        self.closed: str | None = None

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self.closed is None:
            self.writes.append(joined(chunks))
            if self.is_stuck:
                self.backlog += len(self.writes[-1])

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self, reason: str) -> None:
        self.closed = reason

    abort = close

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        call(*arguments)

    @property
    def answered(self) -> list[int]:
        """The correlation ids of the answers so far."""
        data, position, found = b"".join(self.writes), 0, []
        while position < len(data):
            size, correlation_id = unpack_from(">ii", data, position)
            found.append(correlation_id)
            position += 4 + size
        return found


def connected(node: Node) -> tuple[KafkaAdapter, FakeLink]:
    link = FakeLink()
    return KafkaAdapter(link, node.context), link


def feed(adapter: KafkaAdapter, *frames: bytes) -> None:
    """All of them in as few reads as the adapter has room for."""
    data = b"".join(frames)
    while data:
        view = adapter.writable()
        size = min(len(view), len(data))
        view[:size] = data[:size]
        del view
        adapter.received(size)
        data = data[size:]


def versions(correlation_id: int) -> bytes:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return request_frame(request, correlation_id)


def metadata(correlation_id: int) -> bytes:
    request = MetadataRequest(topics=None, include_topic_authorized_operations=False)
    return request_frame(request, correlation_id)


def produce(correlation_id: int, acks: int = -1, topic: str = "one") -> bytes:
    return produce_frame(topic, batch_of(b"value"), acks=acks, correlation_id=correlation_id)


def long_fetch(correlation_id: int) -> bytes:
    request = fetch_request("one", wanted(), max_wait_ms=1_000)
    return fetch_frame(request, correlation_id)


def find_coordinator(correlation_id: int) -> bytes:
    request = FindCoordinatorRequest(key_type=i8(0), coordinator_keys=("group",))
    return request_frame(request, correlation_id)


def unknown_api(correlation_id: int) -> bytes:
    return framed(b"\x7f\x00\x00\x00" + correlation_id.to_bytes(4, "big") + b"\xff\xff")


async def settle() -> None:
    await asyncio.sleep(0.1)


# --- what is connected


@on_node()
async def test_a_connection_is_listed_and_can_be_closed(node: Node) -> None:
    adapter, link = connected(node)
    sessions = node.context.broker.topic_sessions
    assert list(sessions) == [adapter]
    feed(adapter, versions(1))
    await settle()
    facts = adapter.facts()
    assert (facts.protocol, facts.user, facts.peer) == ("Kafka", "ANONYMOUS", "the peer")
    assert facts.client_properties == {"client_id": "bare", "product": "test", "version": "1"}
    adapter.close("Closed in the console")
    assert link.closed == "Closed in the console"
    adapter.closed("gone")
    assert list(sessions) == []


# --- order


@on_node()
async def test_answers_come_in_the_order_of_the_requests(node: Node) -> None:
    await node.context.broker.create_topic("one")
    adapter, link = connected(node)
    feed(adapter, produce(1), versions(2), metadata(3), produce(4), produce(5, acks=0), versions(6))
    assert link.answered == [], "the first waits for its commit"
    await settle()
    assert link.answered == [1, 2, 3, 4, 6]


@on_node()
async def test_produces_behind_each_other_share_a_commit(node: Node) -> None:
    topic = await node.context.broker.create_topic("one")
    partition = node.context.broker.served_partition(topic, 0).partition
    adapter, link = connected(node)
    feed(adapter, *(produce(number) for number in range(10)))
    assert (partition.offset_end, partition.high_watermark) == (10, 0)
    await settle()
    assert link.answered == list(range(10))
    assert len(link.writes) == 1


@on_node()
async def test_answers_of_one_read_are_one_write(node: Node) -> None:
    adapter, link = connected(node)
    feed(adapter, versions(1), versions(2), versions(3))
    assert (link.answered, len(link.writes)) == ([1, 2, 3], 1)


@on_node()
async def test_a_request_waits_for_the_fetch_before_it(node: Node) -> None:
    await node.context.broker.create_topic("one")
    adapter, link = connected(node)
    feed(adapter, long_fetch(1), versions(2))
    await asyncio.sleep(0.95)
    assert link.answered == []
    await settle()
    assert link.answered == [1, 2]


@on_node()
async def test_a_request_waits_for_the_long_request_before_it(node: Node) -> None:
    """It is read in turns, and then waits like others."""
    await node.context.broker.create_topic("one")
    adapter, link = connected(node)
    nowhere = [FetchTopic(f"{index:0200}", None, ()) for index in range(200)]
    topics = [*nowhere, FetchTopic("one", None, (wanted(),))]
    feed(adapter, fetch_frame(fetch_request(topics, max_wait_ms=1_000), 1), versions(2))
    await asyncio.sleep(0.95)
    assert link.answered == []
    await settle()
    assert link.answered == [1, 2]


@on_node()
async def test_who_waits_and_is_gone_is_not_answered(node: Node) -> None:
    topic = await node.context.broker.create_topic("one", 1, {"durability": "os"})
    adapter, link = connected(node)
    feed(adapter, long_fetch(1), versions(2))
    adapter.closed("gone")
    await settle()
    served = node.context.broker.served_partition(topic, 0)
    assert not served.partition._listeners
    served.append(batch_of(b"value"))
    assert link.answered == []


@on_node()
async def test_frames_in_pieces(node: Node) -> None:
    adapter, link = connected(node)
    data = versions(1) + versions(2)
    for position in range(len(data)):
        feed(adapter, data[position : position + 1])
    assert link.answered == [1, 2]


# --- refusals


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (unknown_api(3), "API 32512 version 0 is not served"),
        (framed(b"\0\0\0\x63" + b"\0" * 8), "API 0 version 99 is not served"),
        (framed(b"\0"), "request header"),
        (framed(b"\0\x12\0\3\0\0\0\3\xff\xff\0" + b"\xff" * 9), "a varint of more than five"),
        (produce(3, acks=0, topic="nosuch"), "acks=0 failed: there is no topic"),
    ],
    ids=["unknown API", "unknown version", "no header", "no message", "acks=0"],
)
@on_node()
async def test_what_cannot_be_answered_ends_the_connection(
    node: Node, caplog: Any, frame: bytes, reason: str
) -> None:
    adapter, link = connected(node)
    with caplog.at_level(logging.WARNING):
        feed(adapter, versions(1), frame, versions(4))
    assert link.answered == [1], "what was ready before goes out"
    assert link.closed is not None
    assert reason in link.closed
    assert [record.getMessage() for record in caplog.records] == [
        f"the peer: closed: {link.closed}"
    ]


@on_node()
async def test_a_damaged_frame_is_the_nets_to_close(node: Node) -> None:
    adapter, _ = connected(node)
    with pytest.raises(MalformedFrame, match="a frame of -1 bytes"):
        feed(adapter, b"\xff\xff\xff\xff")


@on_node()
async def test_an_unknown_version_of_api_versions_is_answered(node: Node) -> None:
    adapter, link = connected(node)
    feed(adapter, framed(b"\0\x12\0\x63\0\0\0\x07\xff\xff\0"))
    assert link.answered == [7]
    assert unpack_from(">h", link.writes[0], 8) == (ErrorCode.unsupported_version,)
    assert link.closed is None


@on_node()
async def test_our_mistake_ends_one_connection(node: Node, caplog: Any, monkeypatch: Any) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("oops")

    node.context.broker.faults = faults = Faults()
    adapter, link = connected(node)
    monkeypatch.setattr(apis, "find", lambda *_: broken)
    feed(adapter, metadata(1))
    await settle()
    assert link.closed == "internal error"
    assert faults.count == 1
    assert "a request failed" in caplog.text
    assert "oops" in caplog.text


# --- the end


@on_node()
async def test_a_closed_link_leaves_nothing_behind(node: Node) -> None:
    topic = await node.context.broker.create_topic("one")
    partition = node.context.broker.served_partition(topic, 0).partition
    adapter, link = connected(node)
    feed(adapter, produce(1), long_fetch(2), versions(3))
    ended: list[str] = []
    node.context.at_close["a session"] = lambda: ended.append("a session")
    link.close("gone")
    adapter.closed("gone")
    await settle()
    assert ended == ["a session"]
    assert partition.high_watermark == 1, "what was appended stays"
    assert partition._listeners == {}
    assert link.writes == []


@on_node()
async def test_a_link_that_is_closed_in_the_turn_of_a_request(node: Node) -> None:
    """What serves it has not begun yet, and is cancelled all the same."""
    adapter, link = connected(node)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        feed(adapter, find_coordinator(1))
        link.close("gone")
        adapter.closed("gone")
        await settle()
        gc.collect()  # Also finds what tests of clients have left behind, who warn of other things.
    assert [each for each in map(str, (w.message for w in caught)) if "never awaited" in each] == []


# --- bounds


@on_node()
async def test_a_client_that_sends_ahead_is_not_read_from(node: Node) -> None:
    await node.context.broker.create_topic("one")
    adapter, link = connected(node)
    ahead = limits.FRAMES_WAITING_MAX + 1
    feed(adapter, long_fetch(0), *(versions(1 + number) for number in range(ahead)))
    assert link.is_paused
    await asyncio.sleep(2)
    assert link.answered == list(range(ahead + 1))
    assert not link.is_paused


@on_node()
async def test_large_requests_that_wait_count_by_their_size(node: Node) -> None:
    await node.context.broker.create_topic("one")
    adapter, link = connected(node)
    large = produce_frame("nosuch", b"x" * limits.MIB)
    feed(adapter, long_fetch(0), *[large] * 8)
    assert link.is_paused
    await asyncio.sleep(2)
    assert not link.is_paused


@on_node()
async def test_a_client_that_reads_nothing_gets_no_more(node: Node) -> None:
    adapter, link = connected(node)
    link.is_stuck, link.backlog = True, HIGH
    feed(adapter, versions(1), versions(2))
    assert link.answered == [1, 2], "up to the mark all is well: the link says when it is over"
    feed(adapter, versions(3))
    assert link.answered == [1, 2]
    assert link.is_paused
    link.backlog = 0
    adapter.drained()
    assert link.answered == [1, 2, 3]
    assert not link.is_paused


@on_node()
async def test_large_answers_are_not_gathered(node: Node, monkeypatch: Any) -> None:
    """A read may hold thousands of small requests for large answers."""
    message = versions_answer(node)[8:]  # Without the frame's size and the header.
    monkeypatch.setattr(pump, "TURN_BYTES_MAX", 2 * len(message))
    adapter, link = connected(node)
    feed(adapter, *(versions(number) for number in range(6)))
    assert link.answered == [0, 1], "then the others have their turn"
    await settle()
    assert link.answered == list(range(6))
    assert len(link.writes) == 3


def versions_answer(node: Node) -> bytes:
    adapter, link = connected(node)
    feed(adapter, versions(1))
    return link.writes[0]


@on_node()
async def test_the_backlog_is_looked_at_between_answers(node: Node, monkeypatch: Any) -> None:
    monkeypatch.setattr(pump, "TURN_BYTES_MAX", 1)
    adapter, link = connected(node)
    link.is_stuck, link.backlog = True, HIGH
    feed(adapter, *(versions(number) for number in range(50)))
    await settle()
    assert link.answered == [0]


@on_node()
async def test_answers_that_wait_for_a_commit_are_bounded(node: Node, monkeypatch: Any) -> None:
    topic = await node.context.broker.create_topic("one")
    partition = node.context.broker.served_partition(topic, 0).partition
    monkeypatch.setattr(limits, "RESPONSES_WAITING_MAX", 3)
    adapter, link = connected(node)
    feed(adapter, *(produce(number) for number in range(10)))
    assert partition.offset_end == 3
    await settle()
    assert link.answered == list(range(10))


@on_node()
async def test_a_long_request_that_is_malformed_is_the_peers_mistake(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    adapter, link = connected(node)
    request = bytearray(wide.metadata(["a" * 200] * 500))
    request[-10:] = b"\xff" * 10
    request = request[:-100]
    request[:4] = (len(request) - 4).to_bytes(4, "big")
    feed(adapter, bytes(request))
    await asyncio.sleep(0.1)
    assert link.closed is not None
    assert link.closed.startswith("a length of 200")
    assert "a request failed" not in caplog.text


@on_node()
async def test_requests_of_one_read_are_served_in_turns(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they cost: the answers are small."""
    monkeypatch.setattr(limits, "TURN_MS", 0)
    adapter, link = connected(node)
    request = wide.offset_fetch("group", [])
    feed(adapter, 10 * request)
    assert len(link.answered) < 10
    await asyncio.sleep(0.1)
    assert len(link.answered) == 10


@on_node()
async def test_what_is_asked_for_first_is_loaded_one_at_a_time(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.context.asked_for = {}
    turn, loaded, find = 0, [], apis.find

    def noting(api_key: int, version: int) -> Any:
        loaded.append(turn)
        return find(api_key, version)

    monkeypatch.setattr(apis, "find", noting)
    clients = [connected(node) for _ in range(2)]
    asked = FindCoordinatorRequest(coordinator_keys=(), key_type=i8(0))
    for (adapter, _), first in zip(clients, (metadata(1), request_frame(asked, 1)), strict=True):
        feed(adapter, first, versions(2))
    assert not loaded
    for turn in range(1, 10):  # noqa: B007  # It is noted.
        await asyncio.sleep(0)
    await settle()
    assert [link.answered for _, link in clients] == [[1, 2], [1, 2]]
    assert len(dict.fromkeys(loaded)) > 1


@on_node()
async def test_a_waiting_fetch_is_answered_in_the_turn_of_the_commit(node: Node) -> None:
    topic = await node.context.broker.create_topic("one", 1, {"durability": "os"})
    adapter, link = connected(node)
    feed(adapter, long_fetch(1))
    assert not link.answered
    node.context.broker.served_partition(topic, 0).append(batch_of(b"value"))
    assert link.answered == [1]
    feed(adapter, versions(2))
    await settle()
    assert link.answered == [1, 2]


# --- a fetch that is repeated


@on_node()
async def test_a_fetch_that_may_be_repeated_keeps_nothing_that_it_sent(node: Node) -> None:
    """Otherwise a consumer that asks no more would keep files open, and deleted ones on disk."""
    topic = await node.context.broker.create_topic("one", 1)
    adapter, link = connected(node)
    feed(adapter, produce(1))
    await settle()
    for correlation_id in (2, 3):
        asked = fetch_request([FetchTopic(None, topic.id, [wanted()])])
        message = fetch.encode_request(18, asked)
        feed(adapter, framed(request_header(Api.FETCH, 18, correlation_id, None) + message))
        await settle()
        work: Any = node.context.last_fetch
        assert work._answer.chunks == []
    assert link.answered == [1, 2, 3]
    assert sum(node.context.messages.fetching.histogram.counts) == 1  # Of one that was due.
    adapter.closed("over")
    assert node.context.last_fetch is None
    assert work.repeated is None
