"""What nearly all requests of Kafka's clients are goes a short way: it must give the same answers.

One story is told twice, to a node that takes the short ways and to one that never does. Everything
that clients hear must be the same, to the byte, and so must the log.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from entrepot.broker.quotas import DEFAULT, Entity, Limit, quota_record
from entrepot.broker.server_settings import Defaults
from entrepot.core import batch
from entrepot.core.errors import PeerError
from entrepot.core.record import Record
from entrepot.gateway.kafka import fetch as fetch_api
from entrepot.gateway.kafka import produce as produce_api
from entrepot.log.partition import Partition
from entrepot.log.policy import Durability, Policy
from entrepot.wire.kafka import fetch, produce
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from entrepot.wire.kafka.frames import (
    KnownHeader,
    RequestHeader,
    read_request_header,
    request_header,
)
from entrepot.wire.kafka.produce import ProducePartition, ProduceRequest
from entrepot.wire.kafka.repeated_fetch import RepeatedRequest
from sim import loop
from tests.unit.gateway.kafka.node import Node
from tests.unit.gateway.kafka.serving import Answer
from tests.unit.log.bed import Bed, headed, make

ONE = "one"


class Forgetful(dict[Any, Any]):
    """Remembers nothing, so that everything is looked after in full."""

    def __setitem__(self, key: Any, value: Any) -> None: ...


class Produce(NamedTuple):
    version: int
    acks: int
    sequence: int
    values: int
    damage: bool
    repeats: int

    async def act(self, told: "Told") -> None:
        data = bytearray(
            batch.build(
                [Record(b"k", b"v" * each) for each in range(1, self.values + 1)],
                now_ms=told.node.clock.now_ms(),
                producer_id=7 if self.sequence >= 0 else -1,
                producer_epoch=0 if self.sequence >= 0 else -1,
                sequence_first=self.sequence,
            )
        )
        data[-1] ^= self.damage
        for _ in range(self.repeats):
            wanted = ProducePartition(*told.topic(self.version), 0, bytes(data))
            request = ProduceRequest(None, self.acks, 1_000, [wanted])
            message = produce.encode_request(self.version, request)
            await told.ask(Api.PRODUCE, self.version, message, produce_api.serve)


class Fetch(NamedTuple):
    version: int
    back: int  # How far before the end.
    wait_ms: int
    bytes_min: int
    isolation: int
    has_session: bool
    times: int

    async def act(self, told: "Told") -> None:
        for _ in range(self.times):
            offset = max(0, told.partition().offset_end - self.back)
            session_id, epoch = told.session if self.has_session else (0, -1)
            name, identity = told.topic(self.version)
            request = FetchRequest(
                max_wait_ms=self.wait_ms if epoch else 0,  # Who begins a session needs its id.
                min_bytes=self.bytes_min,
                max_bytes=1 << 20,
                isolation_level=self.isolation,
                session_id=session_id,
                session_epoch=epoch,
                topics=[
                    FetchTopic(name, identity, [FetchPartition(0, 0, offset, -1, -1, 1 << 16)])
                ],
            )
            message = fetch.encode_request(self.version, request)
            answer = await told.ask(Api.FETCH, self.version, message, fetch_api.serve)
            if self.has_session:
                told.began(answer, self.version, epoch)


class Wait(NamedTuple):
    seconds: float

    async def act(self, told: "Told") -> None:
        await asyncio.sleep(self.seconds)


class Recreate(NamedTuple):
    settings: dict[str, str]

    async def act(self, told: "Told") -> None:
        broker = told.node.context.broker
        await broker.delete_topic(broker.topic(ONE))
        told.identity = (await broker.create_topic(ONE, 1, self.settings)).id


class Quota(NamedTuple):
    bytes_per_s: float | None

    async def act(self, told: "Told") -> None:
        values = {} if self.bytes_per_s is None else {Limit.CONSUMER_BYTE_RATE: self.bytes_per_s}
        broker = told.node.context.broker
        await broker._change(quota_record(Entity(None, DEFAULT), values))


class Told:
    """A node, and what its client has heard."""

    def __init__(self, node: Node, is_short: bool) -> None:
        self.node = node
        self.is_short = is_short
        self.answers: list[Answer] = []
        self.session = (0, 0)
        self.identity: Any = None
        if not is_short:
            node.context.writable = Forgetful()

    def topic(self, version: int) -> tuple[str | None, Any]:
        return (None, self.identity) if version >= 13 else (ONE, None)

    def partition(self) -> Partition:
        broker = self.node.context.broker
        return broker.served_partition(broker.topic(ONE), 0).partition

    async def ask(
        self, api: Api, version: int, message: bytes, serve: Callable[..., Any]
    ) -> Answer:
        if not self.is_short:
            self.node.context.last_fetch = None
        answer = Answer()
        self.answers.append(answer)
        header = RequestHeader(api, version, len(self.answers), "client")
        try:
            pending = serve(self.node.context, header, memoryview(bytearray(message)), 0, answer)
        except PeerError as error:
            answer.refuse(str(error))
            return answer
        if pending is not None:
            await pending
        await asyncio.sleep(0.001)
        return answer

    def began(self, answer: Answer, version: int, epoch: int) -> None:
        """Go on with the session that an answer told of; begin another if it was refused."""
        if answer.body is None:  # It waits, so the session is there.
            self.session = (self.session[0], epoch + 1)
            return
        told = fetch.decode_response(version, memoryview(answer.body), 0)
        known = told.session_id and not told.error_code
        self.session = (told.session_id, epoch + 1) if known else (0, 0)

    def heard(self) -> list[Any]:
        return [(one.body, one.is_omitted, one.refused, bool(one.held)) for one in self.answers]


PRODUCES = st.builds(
    Produce,
    version=st.sampled_from([3, 8, 9, 12, 13]),
    acks=st.sampled_from([-1, -1, -1, 1, 0, 5]),
    sequence=st.sampled_from([-1, -1, -1, 0, 1, 2]),
    values=st.integers(1, 2),
    damage=st.sampled_from([False, False, False, True]),
    repeats=st.integers(1, 3),
)
FETCHES = st.builds(
    Fetch,
    version=st.sampled_from([11, 12, 13, 15, 18]),
    back=st.sampled_from([0, 0, 0, 1, 2, -1]),
    wait_ms=st.sampled_from([0, 500, 5_000]),
    bytes_min=st.sampled_from([0, 1, 1, 1, 100, 250]),
    isolation=st.integers(0, 1),
    has_session=st.booleans(),
    times=st.integers(1, 3),
)
WAITS = st.sampled_from([Wait(0.1), Wait(0.5), Wait(4), Wait(6)])
RARE = st.sampled_from(
    [
        Recreate({}),
        Recreate({"durability": "os"}),
        Recreate({"message.timestamp.type": "LogAppendTime", "durability": "os"}),
        Recreate({"cleanup.policy": "compact"}),
        Quota(1000.0),
        Quota(None),
    ]
)
STORIES = st.lists(st.one_of(PRODUCES, FETCHES, PRODUCES, FETCHES, WAITS, RARE), max_size=14)


def tell(story: list[Any], durability: str, *, is_short: bool) -> list[Any]:
    async def main(sim: loop.SimLoop) -> list[Any]:
        node = Node(sim, Defaults())
        await node.start()
        told = Told(node, is_short)
        await node.context.broker.create_topic(ONE, 1, {"durability": durability})
        told.identity = node.context.broker.topic(ONE).id
        for act in story:
            await act.act(told)
        await asyncio.sleep(10)
        told.session = (0, 0)
        await Fetch(18, 1_000, 0, 1, 0, True, 1).act(told)  # All that there is.
        return [*told.heard(), told.partition().offset_end]

    return loop.run(0, main)


@pytest.mark.timeout(900)  # Two brokers for each example.
@given(STORIES, st.sampled_from(["os", "fsync"]))
# Who has fetched without a session begins one.
@example([Produce(3, -1, -1, 1, False, 1), Fetch(18, 0, 0, 1, 0, False, 1)], "os")
def test_the_short_way_gives_the_same_answers(story: list[Any], durability: str) -> None:
    in_full = tell(story, durability, is_short=False)
    assert tell(story, durability, is_short=True) == in_full


def test_the_story_takes_the_short_way() -> None:
    """Otherwise it would prove nothing."""
    taken: list[str] = []

    async def main(sim: loop.SimLoop) -> None:
        node = Node(sim, Defaults())
        await node.start()
        told = Told(node, is_short=True)
        await node.context.broker.create_topic(ONE, 1, {"durability": "os"})
        told.identity = node.context.broker.topic(ONE).id
        for _ in range(3):
            await Fetch(18, 0, 5_000, 1, 0, True, 1).act(told)
            await Produce(13, -1, -1, 1, False, 1).act(told)
            work = node.context.last_fetch
            taken.append("none" if work is None else str(id(work)))
        assert (ONE, 0) not in node.context.writable
        assert (told.identity, 0) in node.context.writable

    loop.run(0, main)
    assert taken[0] == "none"  # It began the session.
    assert taken[1] == taken[2] != "none"


NUMBERS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
# Topic, bounds, isolation level, session, partition, leader's epoch, start of the log, bytes.
FIELDS = st.tuples(
    *(st.uuids(), NUMBERS, NUMBERS, NUMBERS, st.integers(-128, 127)),
    *(NUMBERS, NUMBERS, NUMBERS, LONGS, NUMBERS),
)


@given(st.sampled_from([11, 13, 14, 15, 18]), st.data())
def test_a_repeated_fetch_is_known_by_its_bytes(version: int, data: st.DataObject) -> None:
    def request(fields: tuple[Any, ...], epoch: int, offset: int) -> bytes:
        name, wait, least, most, isolation, session, index, leader, start, size = fields
        topic = (None, name) if version >= 13 else (str(name), None)
        partition = FetchPartition(index, leader, offset, -1, start, size)
        asked = FetchRequest(
            max_wait_ms=wait, min_bytes=least, max_bytes=most, isolation_level=isolation,
            session_id=session, session_epoch=epoch, topics=[FetchTopic(*topic, [partition])],
        )  # fmt: skip
        return fetch.encode_request(version, asked)

    fields, others = data.draw(FIELDS), data.draw(FIELDS)
    epoch, offset = data.draw(NUMBERS), data.draw(LONGS)
    first = request(fields, 1, 5)
    known = RepeatedRequest.of(version, memoryview(first), 0)
    assert known is not None
    again = request(fields, epoch, offset)
    assert known.read(again) == (epoch, offset)
    for cut in range(len(again)):
        assert known.read(again[:cut]) is None
    assert known.read(again + b"\0") is None
    place = data.draw(st.integers(0, len(fields) - 1))
    changed = (*fields[:place], others[place], *fields[place + 1 :])
    assert (known.read(request(changed, epoch, offset)) is None) == (changed != fields)


@given(
    st.sampled_from([(Api.PRODUCE, 8), (Api.PRODUCE, 13), (Api.FETCH, 11), (Api.FETCH, 18)]),
    st.none() | st.text(max_size=20),
    st.none() | st.text(max_size=20),
    st.integers(-(2**31), 2**31 - 1),
    st.binary(max_size=20),
)
def test_a_known_header_is_read_as_any_other(
    api: tuple[Api, int], client: str | None, other: str | None, number: int, body: bytes
) -> None:
    first = memoryview(request_header(*api, 1, client) + b"x")
    header, position = read_request_header(first)
    known = KnownHeader(header, first, position)
    frame = memoryview(request_header(*api, number, other) + body)
    expected = read_request_header(frame)
    found = known.read(frame)
    assert found is None if client != other else (found, known.end) == expected
    for cut in range(len(frame)):
        if known.read(frame[:cut]) is not None:
            assert read_request_header(frame[:cut]) == expected


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([1, 900, 9_000])), max_size=8),
    st.sampled_from(["fsync", "os"]),
)
def test_a_batch_alone_is_appended_as_among_others(
    batches: list[tuple[int, int]], durability: str
) -> None:
    def appended(is_short: bool) -> list[Any]:
        async def main(sim: loop.SimLoop) -> list[Any]:
            bed = Bed(sim)
            await bed.start("t", policy=Policy(durability=Durability(durability)))
            partition = bed["t"]
            in_full = partial(partition._append_all, is_stamped=False)
            append = partition.append if is_short else in_full
            found: list[Any] = []
            for count, size in batches:
                found.append(bed.call(append, headed(make(*[b"x" * size] * count))))
            found += [partition.offset_end, partition.high_watermark, partition._last]
            found += [partition._recent, partition._recent_bytes]
            found += [bed.read_file(segment.path) for segment in partition.segments]
            return found

        return loop.run(0, main)

    assert appended(is_short=True) == appended(is_short=False)
