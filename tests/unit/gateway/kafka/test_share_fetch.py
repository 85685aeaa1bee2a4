import asyncio
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from entrepot.core import limits
from tests.unit.gateway.kafka.group_requests import deny_everything
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.serving import values_in
from tests.unit.gateway.kafka.sharing import (
    ACCEPT,
    RELEASE,
    RENEW,
    Member,
    acquired,
    append,
    configure,
    opened,
    partitions_of,
)

# --- sessions


@on_node()
async def test_a_session_goes_on(node: Node) -> None:
    member = await opened(node, partitions=2, records=3)
    first = await member.fetch(partitions=(0, 1))
    assert first.acquisition_lock_timeout.total_seconds() == 30
    records, nothing = partitions_of(first)
    assert (acquired(records), acquired(nothing)) == ([(0, 2, 1)], [])
    assert values_in(records.records) == [b"value"] * 3
    assert records.current_leader.leader_id == node.context.node_id
    await append(node, 1, 1)
    (more,) = partitions_of(await member.fetch())
    assert (more.partition_index, acquired(more)) == (1, [(0, 0, 1)])
    await append(node, 1, 1)
    assert (await member.fetch(forgotten=(1,))).responses == ()


@on_node()
async def test_what_is_wrong_with_a_session(node: Node) -> None:
    member = await opened(node, records=1)
    assert (await member.fetch(epoch=5)).error_code is ErrorCode.share_session_not_found
    assert (await member.fetch(epoch=-1)).error_code is ErrorCode.share_session_not_found
    acks = {0: [(0, 0, ACCEPT)]}
    assert (await member.fetch(epoch=0, acks=acks)).error_code is ErrorCode.invalid_request
    assert (await member.fetch(epoch=0, member="")).error_code is ErrorCode.invalid_request
    await member.fetch(epoch=0)
    wrong = await member.fetch(epoch=7)
    assert (wrong.error_code, wrong.responses) == (ErrorCode.invalid_share_session_epoch, ())
    assert wrong.error_message
    member.epoch = 1
    assert (await member.fetch(acks=acks)).error_code is ErrorCode.none


@on_node()
async def test_one_that_begins_anew_keeps_its_locks(node: Node) -> None:
    member = await opened(node, records=1)
    await member.fetch()
    assert await member.get(epoch=0, partitions=(0,)) == []
    member.epoch = 1
    (row,) = partitions_of(await member.fetch(acks={0: [(0, 0, ACCEPT)]}))
    assert row.acknowledge_error_code == 0


@on_node()
async def test_the_end_gives_back(node: Node) -> None:
    member, other = await opened(node, records=3), Member(node, "other")
    await member.fetch()
    (row,) = partitions_of(await member.fetch(epoch=-1, acks={0: [(0, 0, ACCEPT)]}))
    assert (row.acknowledge_error_code, acquired(row)) == (0, [])
    assert await other.get() == [(1, 2, 2)]
    assert (await member.fetch()).error_code is ErrorCode.share_session_not_found


@on_node()
async def test_a_lost_connection_gives_back(node: Node) -> None:
    member, other = await opened(node, records=1), Member(node, "other")
    await member.fetch()
    moved = Member(node)
    moved.epoch = 1
    await moved.fetch()
    member.disconnect()  # It is used on another one by now.
    assert await other.get() == []
    moved.disconnect()
    assert await other.get() == [(0, 0, 2)]


@on_node()
async def test_who_wants_nothing_waits_for_nothing(node: Node) -> None:
    member = await opened(node, records=1)
    serving, answer = member.begin(partitions=(), wait_ms=100)
    await asyncio.sleep(0.05)
    assert not serving.done()
    await serving
    assert answer.body is not None


@on_node()
async def test_sessions_are_bounded(node: Node) -> None:
    member = await opened(node, records=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "SHARE_SESSION_PARTITIONS_MAX", 0)
        assert (await member.fetch()).error_code is ErrorCode.share_session_limit_reached
        patch.setattr(limits, "SHARE_SESSIONS_MAX", 0)
        member.epoch = 0
        assert (await member.fetch()).error_code is ErrorCode.share_session_limit_reached


# --- acknowledgements


@on_node()
async def test_acknowledgements_come_along(node: Node) -> None:
    member = await opened(node, records=4)
    await member.fetch()
    acks = {0: [(0, 1, ACCEPT), (2, 2, RELEASE)], 5: [(0, 0, ACCEPT)]}
    rows = partitions_of(await member.fetch(acks=acks))
    codes = {row.partition_index: row.acknowledge_error_code for row in rows}
    assert codes == {0: 0, 5: ErrorCode.unknown_topic_or_partition}
    assert acquired(rows[0]) == [(2, 2, 2)]
    await member.fetch(forgotten=(5,))
    (wrong,) = partitions_of(await member.fetch(acks={0: [(0, 0, ACCEPT)]}))
    assert wrong.acknowledge_error_code == ErrorCode.invalid_record_state
    (wrong,) = partitions_of(await member.fetch(acks={0: [(3, 2, ACCEPT)]}))
    assert wrong.acknowledge_error_code == ErrorCode.invalid_request
    await node.power_fails()
    assert await Member(node).get() == [(2, 2, 2), (3, 3, 1)]


@on_node()
async def test_renewing_takes_nothing(node: Node) -> None:
    member = await opened(node, records=1)
    await member.fetch()
    await append(node, 1)
    (wrong,) = partitions_of(await member.fetch(acks={0: [(0, 0, RENEW)]}))
    assert wrong.acknowledge_error_code == ErrorCode.invalid_request
    assert acquired(wrong) == [(1, 1, 1)]
    await append(node, 1)
    (row,) = partitions_of(await member.fetch(acks={0: [(0, 0, RENEW)]}, renews=True))
    assert (row.acknowledge_error_code, acquired(row)) == (0, [])


# --- how much


@on_node()
async def test_bounds(node: Node) -> None:
    member = await opened(node, partitions=3)
    for index in range(3):
        await append(node, 4, index)
    assert await member.get(partitions=(0, 1, 2), max_records=5) == [(0, 3, 1), (0, 3, 1)]
    assert await member.get(max_records=3, mode=1) == [(0, 2, 1)]
    assert await member.get(max_records=0) == []
    assert await member.get(max_bytes=0) == []
    assert await member.get(version=1, max_records=1) == [(3, 3, 1)]


@on_node()
async def test_no_partition_waits_for_another(node: Node) -> None:
    member = await opened(node, partitions=2)
    for index in (0, 0, 1, 1):
        await append(node, 1, index)
    seen = []
    for _ in range(4):
        (row,) = [
            row
            for row in partitions_of(await member.fetch(partitions=(0, 1), max_records=1))
            if row.acquired_records
        ]
        seen.append(row.partition_index)
    assert seen == [0, 1, 0, 1]


# --- waiting


@on_node()
async def test_it_waits_for_records(node: Node) -> None:
    member = await opened(node)
    started = node.clock.monotonic()
    assert await member.get(wait_ms=500) == []
    assert node.clock.monotonic() - started == pytest.approx(0.5, abs=0.01)
    serving, answer = member.begin(wait_ms=60_000)
    await asyncio.sleep(1)
    assert not answer.is_over
    await append(node, 1)
    await serving
    assert answer.is_over


@on_node()
async def test_it_waits_for_what_others_give_back(node: Node) -> None:
    member, other = await opened(node, records=1), Member(node, "other")
    await member.fetch()
    serving, _ = other.begin(wait_ms=60_000)
    await asyncio.sleep(1)
    await member.acknowledge({0: [(0, 0, RELEASE)]})
    await asyncio.wait_for(serving, 0.1)
    assert await Member(node, "third").get(wait_ms=40_000) == [(0, 0, 3)]  # The lock ended.


@on_node()
async def test_it_waits_for_enough(node: Node) -> None:
    member = await opened(node, records=1)
    serving, answer = member.begin(wait_ms=1_000, min_bytes=1_000)
    await asyncio.sleep(0.5)
    assert not answer.is_over
    await serving
    assert answer.is_over
    assert await Member(node, "other").get() == []  # It has got what there was.


@on_node()
async def test_who_goes_while_waiting_leaves_nothing_behind(node: Node) -> None:
    member = await opened(node)
    serving, _ = member.begin(wait_ms=60_000)
    await asyncio.sleep(1)
    serving.cancel()
    await asyncio.sleep(0.001)
    broker = node.context.broker
    assert not broker.served_partition(broker.topic("t"), 0).partition._listeners
    member.disconnect()
    serving, answer = Member(node, "other").begin(wait_ms=60_000)
    await asyncio.sleep(1)
    session = broker.share_groups.sessions.find("g", "other")
    assert session is not None
    broker.share_groups.end_session(session)
    await append(node, 1)
    await serving
    assert answer.is_over
    assert not broker.share_groups.partition("g", broker.topic("t"), 0).ledger.leased


# --- what is refused


@on_node()
async def test_partitions_that_cannot_be_read(node: Node) -> None:
    member = await opened(node, records=1)
    (row,) = partitions_of(await member.fetch(topic_id=UUID(int=9), wait_ms=60_000))
    assert row.error_code is ErrorCode.unknown_topic_id
    stranger = Member(node, group="h")
    (row,) = partitions_of(await stranger.fetch())
    assert row.error_code is ErrorCode.unknown_topic_or_partition
    assert row.error_message


@on_node()
async def test_who_may_not(node: Node) -> None:
    member = await opened(node, records=1)
    deny_everything(node)
    refused = await member.fetch()
    assert refused.error_code is ErrorCode.group_authorization_failed


@on_node()
async def test_settings_count_at_once(node: Node) -> None:
    member = await opened(node, records=1)
    await configure(node, share_record_lock_duration_ms="2000")
    assert (await member.fetch()).acquisition_lock_timeout.total_seconds() == 2
    await asyncio.sleep(2.1)
    assert await Member(node, "other").get() == [(0, 0, 2)]
