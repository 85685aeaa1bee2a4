import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from entrepot.core import limits
from entrepot.gateway.kafka import fetch_session
from entrepot.gateway.kafka.fetch_session import FetchSessions, Wanted
from entrepot.wire.kafka.fetch import FetchedPartition, FetchResponse, FetchTopic, ForgottenTopic
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.serving import (
    Fetching,
    Produced,
    batch_of,
    fetch_request,
    to,
    values_in,
    wanted,
)


async def topic(node: Node, partitions: int) -> Any:
    return await node.context.broker.create_topic("one", partitions)


async def append(node: Node, value: bytes, index: int) -> None:
    await Produced(node, [to("one", batch_of(value), index)]).done()


def opened(node: Node, *indexes: int) -> FetchResponse:
    """A new session over these partitions of the topic."""
    request = fetch_request("one", *(wanted(0, index) for index in indexes), session_epoch=0)
    return Fetching(node, request).response()


def next_of(node: Node, session_id: int, epoch: int, *changed: Any, **bounds: Any) -> FetchResponse:
    topics = [FetchTopic("one", None, changed)] if changed else []
    request = fetch_request(topics, session_id=session_id, session_epoch=epoch, **bounds)
    return Fetching(node, request).response()


def partitions(response: FetchResponse) -> list[FetchedPartition]:
    return [each for topic in response.topics for each in topic.partitions]


def told(response: FetchResponse) -> dict[int, list[bytes | None]]:
    return {each.partition_index: values_in(each.records) for each in partitions(response)}


@on_node()
async def test_a_session_is_told_only_what_is_new(node: Node) -> None:
    await topic(node, 3)
    await append(node, b"a", 1)
    first = opened(node, 0, 1, 2)
    assert told(first) == {0: [], 1: [b"a"], 2: []}
    assert first.session_id > 0
    assert told(next_of(node, first.session_id, 1, wanted(1, 1))) == {}
    await append(node, b"b", 2)
    assert told(next_of(node, first.session_id, 2)) == {2: [b"b"]}
    # It did not say that it has read this, so it comes again.
    assert told(next_of(node, first.session_id, 3)) == {2: [b"b"]}
    assert told(next_of(node, first.session_id, 4, wanted(1, 2))) == {}


@on_node()
async def test_a_new_start_of_the_log_is_news(node: Node) -> None:
    made = await topic(node, 2)
    await append(node, b"a", 0)
    session_id = opened(node, 0, 1).session_id
    assert told(next_of(node, session_id, 1, wanted(1, 0))) == {}
    await node.context.broker.delete_records(node.context.broker.served_partition(made, 0), 1)
    (news,) = partitions(next_of(node, session_id, 2))
    assert (news.partition_index, news.log_start_offset) == (0, 1)


@on_node()
async def test_an_error_is_told_every_time(node: Node) -> None:
    made = await topic(node, 1)
    session_id = opened(node, 0).session_id
    await node.context.broker.delete_topic(made)
    for epoch in (1, 2):
        (news,) = partitions(next_of(node, session_id, epoch))
        assert news.error_code == ErrorCode.unknown_topic_or_partition


@on_node()
async def test_partitions_come_and_go(node: Node) -> None:
    await topic(node, 2)
    for index in (0, 1):
        await append(node, b"a", index)
    session_id = opened(node, 0).session_id
    assert told(next_of(node, session_id, 1, wanted(0, 1))) == {0: [b"a"], 1: [b"a"]}
    forgotten = [ForgottenTopic("one", None, [0])]
    assert told(next_of(node, session_id, 2, forgotten=forgotten)) == {1: [b"a"]}


@on_node()
async def test_the_next_answer_begins_with_others(node: Node) -> None:
    """One that gave records goes to the end, so that a small answer starves nobody."""
    await topic(node, 3)
    for index in range(3):
        await append(node, b"%d" % index, index)
    session_id = opened(node, 0, 1, 2).session_id
    served = [
        next(index for index, values in told(answer).items() if values)
        for answer in (next_of(node, session_id, epoch, max_bytes=1) for epoch in range(1, 7))
    ]
    assert served == [0, 1, 2, 0, 1, 2]


@on_node()
async def test_wrong_ids_and_epochs(node: Node) -> None:
    await topic(node, 1)
    session_id = opened(node, 0).session_id
    for identity, epoch, code in (
        (session_id + 1, 1, ErrorCode.fetch_session_id_not_found),
        (session_id, 2, ErrorCode.invalid_fetch_session_epoch),
        (session_id, -5, ErrorCode.invalid_fetch_session_epoch),
    ):
        response = next_of(node, identity, epoch)
        assert (response.error_code, response.session_id, response.topics) == (code, 0, [])
    assert next_of(node, session_id, 1).error_code == 0


@on_node()
async def test_a_session_ends_when_told_so(node: Node) -> None:
    await topic(node, 1)
    session_id = opened(node, 0).session_id
    request = fetch_request("one", session_id=session_id, session_epoch=-1)
    assert Fetching(node, request).response().session_id == 0
    assert next_of(node, session_id, 1).error_code == ErrorCode.fetch_session_id_not_found


@on_node()
async def test_names_and_ids_do_not_mix(node: Node) -> None:
    """A session keeps to what it began with, also when its answer waits."""
    made = await topic(node, 1)
    session_id = opened(node, 0).session_id
    request = fetch_request([], session_id=session_id, session_epoch=1, max_wait_ms=500)
    response = await Fetching(node, request, version=13).done()
    assert response.error_code == ErrorCode.fetch_session_topic_id_error
    by_id = fetch_request([FetchTopic(None, made.id, [wanted()])], session_epoch=0)
    session_id = Fetching(node, by_id, version=13).response().session_id
    request = fetch_request([], session_id=session_id, session_epoch=1, max_wait_ms=500)
    response = await Fetching(node, request, version=12).done()
    assert response.error_code == ErrorCode.fetch_session_topic_id_error


# --- how many


def wants(count: int) -> list[Wanted]:
    return [Wanted(("one", index), 0, 1, -1) for index in range(count)]


@on_node()
async def test_sessions_are_bounded_and_young_ones_stay(node: Node, monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "FETCH_SESSIONS_MAX", 2)
    sessions = node.context.sessions
    first, second = sessions.open(wants(1), by_name=True), sessions.open(wants(1), by_name=True)
    assert first is not None
    assert second is not None
    assert sessions.open(wants(1), by_name=True) is None
    await asyncio.sleep(limits.FETCH_SESSION_IDLE_MS_MIN / 1_000)
    assert sessions.find(first.id) is first
    third = sessions.open(wants(1), by_name=True)
    assert third is not None
    assert sessions.find(second.id) is None, "the one unused for longest makes room"
    assert sessions.find(first.id) is first
    assert sessions.open(wants(1), by_name=True) is None


@on_node()
async def test_a_client_without_a_session_is_served_all_the_same(
    node: Node, monkeypatch: Any
) -> None:
    await topic(node, 1)
    await append(node, b"a", 0)
    monkeypatch.setattr(limits, "FETCH_SESSIONS_MAX", 0)
    node.context.sessions = FetchSessions(node.context.clock, node.context.sessions._entropy)
    response = opened(node, 0)
    assert (response.session_id, told(response)) == (0, {0: [b"a"]})


@on_node()
async def test_what_sessions_remember_is_bounded_together(node: Node, monkeypatch: Any) -> None:
    monkeypatch.setattr(fetch_session, "PARTITIONS_MAX", 10)
    sessions = node.context.sessions
    assert sessions.open(wants(11), by_name=True) is None
    first = sessions.open(wants(6), by_name=True)
    assert first is not None
    assert sessions.open(wants(5), by_name=True) is None
    second = sessions.open(wants(4), by_name=True)
    assert second is not None
    assert not sessions.update(second, wants(5), []), "it may not grow"
    assert sessions.find(second.id) is None
    third = sessions.open(wants(3), by_name=True)
    assert third is not None
    assert sessions.update(third, wants(4), [])
    sessions.close(first.id)
    assert sessions.open(wants(6), by_name=True) is not None


@on_node()
async def test_a_session_that_grew_too_large_begins_anew(node: Node, monkeypatch: Any) -> None:
    await topic(node, 3)
    monkeypatch.setattr(fetch_session, "PARTITIONS_MAX", 2)
    session_id = opened(node, 0, 1).session_id
    assert session_id > 0
    response = next_of(node, session_id, 1, wanted(0, 2))
    assert response.error_code == ErrorCode.fetch_session_id_not_found
    assert opened(node, 0, 1, 2).session_id == 0


@on_node()
async def test_epochs_begin_again_at_one(node: Node) -> None:
    session = node.context.sessions.open(wants(1), by_name=True)
    assert session is not None
    session.epoch = 2**31 - 1
    assert node.context.sessions.update(session, [], [])
    assert session.epoch == 1
