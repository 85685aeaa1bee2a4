"""Topics as streams: what is published is appended, or refused."""

import asyncio

import pytest

from entrepot.broker.queue.message import Refused
from entrepot.broker.served_partition import ServedPartition
from entrepot.core.errors import StorageError
from entrepot.core.ports import Buffer
from tests.unit.broker.virtual_host.bed import FORMATS, Host, message
from tests.unit.log.bed import simulated


@simulated
async def test_what_is_published_is_appended(bed: Host) -> None:
    await bed.start()
    await bed.create("orders")
    await bed.declare("work")
    for name in ("orders", "work"):
        await bed.bind("amq.fanout", name)
    await bed.publish("amq.fanout", "k", message(b"1", {"h": 1}), b"2")
    await bed.publish("", "orders", b"3")
    assert bed.values("orders") == [b"1", b"2", b"3"]
    envelope = FORMATS.envelope(bed.records("orders")[0])
    assert (envelope.exchange, envelope.subject) == ("amq.fanout", "k")
    assert envelope.properties.headers == {"h": 1}
    assert bed.bodies("work") == [b"1", b"2"]


@simulated
async def test_a_turn_is_one_batch_and_the_next_goes_to_the_next_partition(bed: Host) -> None:
    await bed.start()
    await bed.create("orders", 3)
    for number in range(6):
        first = bed.send("", "orders", b"%d" % number, b"and")[1]
        second = bed.send("", "orders", b"then")[1]
        assert await first is None
        assert await second is None
    ends = [bed.served_partition("orders", index).partition.offset_end for index in range(3)]
    assert ends == [6, 6, 6]
    assert all(bed.values("orders", index)[1::3] == [b"and"] * 2 for index in range(3))


@simulated
async def test_what_a_topic_does_not_take_is_refused(bed: Host) -> None:
    await bed.start()
    await bed.create("keyed", cleanup_policy="compact")
    _, failure = await bed.published("", "keyed", b"1")
    assert isinstance(failure, Refused)
    assert str(failure) == "a compacted topic takes no record without a key"


@simulated
async def test_one_runs_fault_is_not_the_others(bed: Host) -> None:
    await bed.start()
    await bed.create("small", max_message_bytes="500")
    answers = [bed.send("", "small", body)[1] for body in (b"a", bytes(1_000), b"b")]
    first, large, last = [await answer for answer in answers]
    assert (first, last) == (None, None)
    assert isinstance(large, Refused)
    assert bed.values("small") == [b"a", b"b"]


@simulated
async def test_a_topic_that_goes_meanwhile(bed: Host) -> None:
    await bed.start()
    await bed.create("orders")
    _, answer = bed.send("", "orders", b"1")
    deleting = asyncio.ensure_future(bed.delete("orders"))
    failure = await answer
    await deleting
    assert failure is None or isinstance(failure, Refused | StorageError)
    assert await bed.publish("", "orders", b"2") == [b"2"]


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
@simulated
async def test_a_topics_settings_count(bed: Host, kind: str) -> None:
    await bed.start()
    await bed.create("orders", compression_type=kind)
    await bed.publish("", "orders", b"1" * 5_000)
    assert bed.served_partition("orders").partition.size < 1_000
    assert bed.values("orders") == [b"1" * 5_000]


@simulated
async def test_a_large_message_finds_room_in_a_stream(bed: Host) -> None:
    await bed.start()
    await bed.declare("orders", queue_type="stream")
    await bed.publish("", "orders", bytes(5_000_000))
    assert len(bed.values("orders")[0] or b"") == 5_000_000


@pytest.mark.pure
@pytest.mark.parametrize(
    "settings",
    [{}, {"compression_type": "zstd"}, {"message_timestamp_type": "LogAppendTime"}],
)
@simulated
async def test_a_large_message_is_written_ahead_and_what_follows_waits_for_it(
    bed: Host, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    ahead: list[int] = []
    write_ahead = ServedPartition.write_ahead

    async def noted(served: ServedPartition, chunks: list[Buffer]) -> None:
        ahead.append(served.partition.offset_end)
        await write_ahead(served, chunks)

    monkeypatch.setattr(ServedPartition, "write_ahead", noted)
    await bed.start()
    await bed.create("orders", max_message_bytes="5000000", **settings)
    large = bytes(3_000_000)
    answers = [bed.send("", "orders", body)[1] for body in (b"a", large, b"b", large, b"c")]
    assert [await answer for answer in answers] == [None] * 5
    assert bed.values("orders") == [b"a", large, b"b", large, b"c"]
    assert ahead == [1, 3]


@simulated
async def test_a_large_message_that_is_not_taken_holds_up_nobody(bed: Host) -> None:
    await bed.start()
    await bed.create("small", max_message_bytes="500")
    answers = [bed.send("", "small", body)[1] for body in (bytes(3_000_000), b"b")]
    refused, taken = [await answer for answer in answers]
    assert isinstance(refused, Refused)
    assert taken is None
    assert bed.values("small") == [b"b"]


@simulated
async def test_a_topic_that_goes_while_a_large_message_is_written(bed: Host) -> None:
    await bed.start()
    await bed.create("orders")
    answers = [bed.send("", "orders", body)[1] for body in (bytes(900_000), bytes(3_000_000), b"c")]
    await bed.delete("orders")
    for answer in answers:
        failure = await answer
        assert failure is None or isinstance(failure, Refused | StorageError)
