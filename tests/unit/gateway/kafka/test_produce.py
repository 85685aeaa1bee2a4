import asyncio
import errno
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from entrepot.broker.turns import Turns
from entrepot.core import batch, limits
from entrepot.core.batch import Codec
from entrepot.core.ports import Buffer, File
from entrepot.core.record import Record
from entrepot.log import ahead
from entrepot.wire.kafka.produce import ProducePartition
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


async def served_partition_of(node: Node, partitions: int = 1, **settings: str) -> Any:
    """The first partition of a new topic `one`."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    topic = await node.context.broker.create_topic("one", partitions, named)
    return node.context.broker.served_partition(topic, 0)


@pytest.mark.parametrize("acks", [1, -1])
@on_node()
async def test_the_answer_waits_for_the_commit(node: Node, acks: int) -> None:
    served = await served_partition_of(node)
    produced = Produced(node, [to("one", batch_of(b"a", b"b"))], acks=acks)
    assert served.partition.offset_end == 2
    assert not produced.answer.is_over
    (result,) = await produced.done()
    assert served.partition.high_watermark == 2
    assert (result.error_code, result.offset_first, result.log_start) == (0, 0, 0)
    assert result.append_time_ms == -1


@on_node()
async def test_acks_0_is_appended_and_not_answered(node: Node) -> None:
    served = await served_partition_of(node)
    produced = Produced(node, [to("one", batch_of(b"a"))], acks=0)
    assert produced.answer.is_omitted
    assert served.partition.offset_end == 1


@on_node()
async def test_acks_0_that_fails_ends_the_connection(node: Node) -> None:
    produced = Produced(node, [to("nosuch", batch_of(b"a"))], acks=0)
    assert produced.answer.refused is not None
    assert "'nosuch'" in produced.answer.refused


@on_node()
async def test_other_acks_are_refused_and_nothing_is_appended(node: Node) -> None:
    served = await served_partition_of(node)
    (result,) = Produced(node, [to("one", batch_of(b"a"))], acks=2).results()
    assert result.error_code == ErrorCode.invalid_required_acks
    assert served.partition.offset_end == 0


@on_node()
async def test_one_partitions_failure_is_its_own(node: Node) -> None:
    await served_partition_of(node, 2)
    damaged = bytearray(batch_of(b"a"))
    damaged[-1] ^= 1
    produced = Produced(
        node,
        [
            to("one", batch_of(b"a"), 0),
            to("one", bytes(damaged), 1),
            to("one", batch_of(b"a"), 2),
            to("two", batch_of(b"a"), 0),
            to("one", None, 0),
            to("one", batch_of(b"b"), 0),
        ],
    )
    results = await produced.done()
    assert [result.error_code for result in results] == [
        0,
        ErrorCode.corrupt_message,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.corrupt_message,
        0,
    ]
    assert results[-1].offset_first == 1
    assert results[1].error_message == "the checksum does not match"


@on_node()
async def test_topics_by_id(node: Node) -> None:
    await served_partition_of(node)
    identity = node.context.broker.topic("one").id
    partitions = [
        ProducePartition(None, identity, 0, batch_of(b"a")),
        ProducePartition(None, UUID(int=5), 0, batch_of(b"a")),
        ProducePartition(None, None, 0, batch_of(b"a")),
    ]
    results = await Produced(node, partitions, version=13).done()
    unknown = ErrorCode.unknown_topic_id
    assert [result.error_code for result in results] == [0, unknown, unknown]


@on_node()
async def test_the_brokers_time_is_told(node: Node) -> None:
    await served_partition_of(node, message_timestamp_type="LogAppendTime")
    now_ms = node.context.clock.now_ms()
    (result,) = await Produced(node, [to("one", batch_of(b"a"))]).done()
    assert result.append_time_ms == now_ms


@on_node()
async def test_a_repeated_batch_gets_the_first_answer(node: Node) -> None:
    served = await served_partition_of(node)
    await Produced(node, [to("one", batch_of(b"before"))]).done()
    data = batch_of(b"a", b"b", producer_id=5, producer_epoch=0, sequence_first=0)
    first = Produced(node, [to("one", data)])
    again = Produced(node, [to("one", data)])
    assert not again.answer.is_over, "the first one is not committed yet"
    assert await again.done() == await first.done()
    assert first.results()[0].offset_first == 1
    assert served.partition.offset_end == 3
    gap = batch_of(b"d", producer_id=5, producer_epoch=0, sequence_first=3)
    (result,) = Produced(node, [to("one", gap)]).results()
    assert result.error_code == ErrorCode.out_of_order_sequence_number


@on_node()
async def test_no_room_is_an_error_and_passes(node: Node) -> None:
    served = await served_partition_of(node)
    node.disk.fail_next("write", errno.ENOSPC, "partitions/one-0/*")
    (result,) = Produced(node, [to("one", batch_of(b"a"))]).results()
    assert result.error_code == ErrorCode.kafka_storage_error
    assert "No space left" in (result.error_message or "")
    (result,) = await Produced(node, [to("one", batch_of(b"b"))]).done()
    assert (result.error_code, result.offset_first) == (0, 0)
    assert served.partition.stopped is None


@on_node()
async def test_a_failed_sync_is_told_to_all_who_wait_and_who_come(node: Node) -> None:
    served = await served_partition_of(node)
    node.disk.fail_next("sync", errno.EIO, "partitions/one-0/*")
    waiting = [Produced(node, [to("one", batch_of(b"a"))]) for _ in range(3)]
    codes = [(await each.done())[0].error_code for each in waiting]
    codes += [Produced(node, [to("one", batch_of(b"a"))]).results()[0].error_code]
    assert codes == [ErrorCode.kafka_storage_error] * 4
    assert served.partition.high_watermark == 0


@on_node()
async def test_what_was_sent_is_what_is_stored(node: Node) -> None:
    served = await served_partition_of(node)
    sent = batch_of(b"a", b"b")
    await Produced(node, [to("one", batch_of(b"before")), to("one", sent)]).done()
    stored = list(served.partition.batches())[1]
    expected = bytearray(sent)
    batch.stamp(expected, 1, served.partition.leader_epoch)
    assert stored == expected


@on_node()
async def test_records_that_a_compacted_topic_does_not_take_are_named(node: Node) -> None:
    served = await served_partition_of(node, cleanup_policy="compact")
    found = [Record(key, b"v") for key in (b"k", None, b"k", None)]
    data = batch.build(found, now_ms=node.clock.now_ms())
    (result,) = Produced(node, [to("one", data)]).results()
    assert result.error_code == ErrorCode.invalid_record
    assert [place for place, _ in result.record_errors] == [1, 3]
    assert all(why == result.error_message for _, why in result.record_errors)
    assert served.partition.offset_end == 0


# --- what has to be unpacked


async def unpacking(node: Node, **settings: str) -> None:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    await node.context.broker.create_topic("unpacked", 2, named)


@on_node()
async def test_a_batch_is_compressed_anew_by_the_worker(node: Node) -> None:
    work: list[object] = []

    async def worker(task: Callable[[], Any], /) -> Any:
        work.append(task)
        await asyncio.sleep(1)
        return task()

    node.context.broker.codec_worker = worker
    await unpacking(node, compression_type="zstd")
    data = batch_of(b"a", b"b", codec=Codec.GZIP)
    later = Produced(node, [to("unpacked", data), to("unpacked", batch_of(b"c"), 1)])
    assert later.pending is not None
    results = await later.done()
    assert [each.error_code for each in results] == [0, 0]
    assert len(work) == 1
    fetched = await Fetching(node, fetch_request("unpacked", wanted(), wanted(index=1))).done()
    stored = [each.records for each in fetched.topics[0].partitions]
    assert [values_in(each) for each in stored] == [[b"a", b"b"], [b"c"]]
    assert [batch.read_header(each).codec for each in stored] == [Codec.ZSTD, Codec.ZSTD]


@on_node()
async def test_what_is_stored_as_it_came_takes_no_worker(node: Node) -> None:
    await unpacking(node)
    assert Produced(node, [to("unpacked", batch_of(b"a", codec=Codec.GZIP))]).pending is None


@pytest.mark.parametrize("sent", [1, 2])
@on_node()
async def test_a_large_batch_is_written_in_slices(
    node: Node, monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    monkeypatch.setattr(limits, "LARGE_BYTES", 200)
    monkeypatch.setattr(ahead, "SLICE_BYTES", 100)
    served = await served_partition_of(node)
    written: list[int] = []
    write_all = ahead.write_all

    def noting(file: File, position: int, chunks: list[Buffer]) -> int:
        written.append(sum(map(len, chunks)))
        return write_all(file, position, chunks)

    monkeypatch.setattr(ahead, "write_all", noting)
    data = batch_of(1_000 * b"a", b"b", producer_id=7, producer_epoch=0, sequence_first=0)
    for _ in range(sent):  # Repeated, it is stored once.
        (result,) = await Produced(node, [to("one", data)]).done()
        assert (result.error_code, result.offset_first) == (0, 0)
    assert len(written) == sent * 12
    assert max(written) == 100
    (result,) = await Produced(node, [to("one", batch_of(b"c"))]).done()
    assert result.offset_first == 2
    fetched = await Fetching(node, fetch_request("one")).done()
    assert values_in(fetched.topics[0].partitions[0].records) == [1_000 * b"a", b"b", b"c"]
    assert served.partition.high_watermark == 3


@on_node()
async def test_keys_are_looked_at_in_turns(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await unpacking(node, cleanup_policy="compact")
    turns, wait = 0, Turns.next

    def counting(self: Turns) -> Any:
        nonlocal turns
        turns += 1
        return wait(self)

    monkeypatch.setattr(Turns, "next", counting)
    monkeypatch.setattr(limits, "TURN_MS", 0)
    many = batch_of(*[b"x"] * 500, codec=Codec.GZIP)
    (result,) = await Produced(node, [to("unpacked", many)]).done()
    assert result.error_code == 0
    assert turns >= 500
    keyless = batch.build([Record(None, b"x")], now_ms=1_000, codec=Codec.GZIP)
    (result,) = await Produced(node, [to("unpacked", keyless)]).done()
    assert result.error_code == ErrorCode.invalid_record


@on_node()
async def test_a_topic_deleted_while_its_batch_is_unpacked(node: Node) -> None:
    broker = node.context.broker

    async def worker(task: Callable[[], Any], /) -> Any:
        await broker.delete_topic(broker.topic("unpacked"))
        return task()

    broker.codec_worker = worker
    await unpacking(node, compression_type="zstd")
    produced = Produced(node, [to("unpacked", batch_of(b"a", codec=Codec.GZIP))])
    (result,) = await produced.done()
    assert result.error_code == ErrorCode.unknown_topic_or_partition


@on_node()
async def test_damage_inside_is_told(node: Node) -> None:
    await unpacking(node, compression_type="zstd")
    whole = batch_of(b"a" * 1_000, codec=Codec.GZIP)
    header = batch.read_header(whole)._replace(count=1)
    damaged = batch._assemble(header, whole[batch.HEADER_BYTES : -8])
    (result,) = await Produced(node, [to("unpacked", damaged)]).done()
    assert result.error_code == ErrorCode.corrupt_message


@on_node()
async def test_what_is_left_is_appended_although_the_client_is_gone(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TURN_MS", 0)
    await node.context.broker.create_topic("one", 10)
    data = [to("one", batch_of(b"a"), index) for index in range(10)]
    produced = Produced(node, data, acks=0)
    assert produced.pending is not None
    pending = asyncio.ensure_future(produced.pending)
    pending.cancel()
    await asyncio.sleep(0.1)
    broker = node.context.broker
    served_partitions = broker.served_partitions(broker.topic("one"))
    assert [served.partition.offset_end for served in served_partitions] == [1] * 10
