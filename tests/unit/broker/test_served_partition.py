"""What a topic promises about its records: size, clock, codec, and every batch whole."""

import pytest

from entrepot.core import batch
from entrepot.core.batch import Codec
from entrepot.core.errors import (
    BatchTooLarge,
    InvalidBatch,
    InvalidTimestamp,
    OutOfOrderSequence,
)
from entrepot.core.record import Record
from tests.unit.broker.bed import Bed
from tests.unit.log.bed import make, simulated


@simulated
async def test_batches_get_offsets_in_their_order(bed: Bed) -> None:
    await bed.start()
    await bed.create("t")
    first = await bed.commit("t", make(b"a", b"b"))
    second = await bed.commit("t", make(b"c") + make(b"d", b"e"))
    assert (first.offset_first, first.offset_end, first.append_time_ms) == (0, 2, -1)
    assert (second.offset_first, second.offset_end) == (2, 5)
    assert bed.values("t") == [b"a", b"b", b"c", b"d", b"e"]


# --- what is refused, whole


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        make(b"a")[:-1],
        make(b"a") + b"x",
        make(b"a") + make(b"b")[:40],
        make(b"a") + make(b"b")[:-1] + b"!",
        make(b"a")[:16] + b"\1" + make(b"a")[17:],
        b"\0" * 61,
    ],
    ids=["empty", "byte", "cut", "rest", "header", "checksum", "magic", "zeros"],
)
@simulated
async def test_what_is_not_whole_batches_is_refused(bed: Bed, data: bytes) -> None:
    await bed.start()
    await bed.create("t")
    with pytest.raises(InvalidBatch):
        bed.append("t", data)
    assert bed.served_partition("t").partition.offset_end == 0


@simulated
async def test_control_batches_are_refused(bed: Bed) -> None:
    await bed.start()
    await bed.create("t")
    data = batch.build(
        [Record(b"\0\0\0\1", b"")], now_ms=1, producer_id=1, producer_epoch=0, control=True
    )
    with pytest.raises(InvalidBatch, match="control"):
        bed.append("t", data)


@simulated
async def test_the_largest_batch(bed: Bed) -> None:
    await bed.start()
    fits = make(b"x" * 500)
    await bed.create("t", max_message_bytes=str(len(fits)))
    await bed.commit("t", fits + fits)
    with pytest.raises(BatchTooLarge, match=str(len(fits) + 1)):
        bed.append("t", make(b"x" * 501))
    with pytest.raises(BatchTooLarge):
        bed.append("t", fits + make(b"x" * 501))
    assert bed.served_partition("t").partition.offset_end == 2


@simulated
async def test_a_batch_may_not_grow_over_the_limit(bed: Bed) -> None:
    """Small as it came, large as it would be stored."""
    await bed.start()
    await bed.create("t", max_message_bytes="1000", compression_type="uncompressed")
    bomb = make(b"x" * 100_000, codec=Codec.ZSTD)
    assert len(bomb) < 1_000
    with pytest.raises(BatchTooLarge):
        bed.append("t", bomb)


@pytest.mark.parametrize("first", [True, False])
@simulated
async def test_an_idempotent_producer_sends_one_batch(bed: Bed, first: bool) -> None:
    await bed.start()
    await bed.create("t")
    numbered = make(b"a", producer=1, sequence=0)
    data = numbered + make(b"b") if first else make(b"b") + numbered
    with pytest.raises(InvalidBatch, match="one batch"):
        bed.append("t", data)
    assert len(bed.served_partition("t").producers) == 0


# --- the codec


@pytest.mark.parametrize("sent", list(Codec))
@pytest.mark.parametrize("kept", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
@simulated
async def test_a_batch_is_stored_in_the_codec_of_the_topic(
    bed: Bed, sent: Codec, kept: str
) -> None:
    await bed.start()
    await bed.create("t", compression_type=kept)
    data = make(b"value" * 100, b"other", codec=sent)
    await bed.commit("t", data)
    found = bed.served_partition("t").partition.read(0, 1)
    assert found is not None
    stored = found.file.read(0, found.size)
    codecs = {codec.name.lower(): codec for codec in Codec}
    codecs |= {"producer": sent, "uncompressed": Codec.NONE}
    assert batch.check(stored).codec is codecs[kept]
    assert bed.values("t") == [b"value" * 100, b"other"]
    if kept == "producer":
        assert stored[16:] == data[16:], "as it came"


@simulated
async def test_a_body_that_does_not_unpack_is_the_peers_mistake(bed: Bed) -> None:
    await bed.start()
    await bed.create("t", compression_type="gzip")
    data = bytearray(make(b"a" * 100))
    data[21:23] = (Codec.ZSTD).to_bytes(2, "big")
    header = batch.read_header(data)
    with pytest.raises(InvalidBatch):
        bed.append("t", batch._assemble(header, data[61:]))


# --- the clock


@simulated
async def test_the_producers_clock(bed: Bed) -> None:
    await bed.start()
    await bed.create("t")
    await bed.commit("t", make(b"a", time_ms=5))
    await bed.commit("t", make(b"b", time_ms=10**15))
    assert [record.timestamp_ms for record in bed.records("t")] == [5, 10**15]


@simulated
async def test_the_brokers_clock(bed: Bed) -> None:
    await bed.start()
    await bed.create("t", message_timestamp_type="LogAppendTime")
    now_ms = bed.clock.now_ms()
    appended = await bed.commit("t", make(b"a", b"b", time_ms=5))
    assert appended.append_time_ms == now_ms
    assert [record.timestamp_ms for record in bed.records("t")] == [now_ms, now_ms]
    assert bed.served_partition("t").partition.latest_time() == (0, now_ms)


@simulated
async def test_a_repeat_has_the_time_of_the_first(bed: Bed) -> None:
    await bed.start()
    await bed.create("t", message_timestamp_type="LogAppendTime")
    first = await bed.commit("t", make(b"a", producer=1, sequence=0))
    bed.clock.jump(5_000)
    assert await bed.commit("t", make(b"a", producer=1, sequence=0)) == first
    assert bed.values("t") == [b"a"]


@simulated
async def test_a_producer_does_not_play_the_brokers_clock(bed: Bed) -> None:
    await bed.start()
    await bed.create("t")
    data = batch.build([Record(None, b"a")], now_ms=bed.clock.now_ms(), append_time=True)
    with pytest.raises(InvalidTimestamp):
        bed.append("t", data)


@simulated
async def test_how_far_a_timestamp_may_be(bed: Bed) -> None:
    await bed.start()
    await bed.create(
        "t", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="500"
    )
    now_ms = bed.clock.now_ms()
    for good in (now_ms - 1_000, now_ms, now_ms + 500, -1):
        await bed.commit("t", make(b"x", time_ms=good))
        now_ms = bed.clock.now_ms()
    for bad in (now_ms - 1_001, now_ms + 501):
        with pytest.raises(InvalidTimestamp):
            bed.append("t", make(b"x", time_ms=bad))


# --- settings that change


@simulated
async def test_a_setting_counts_from_the_next_batch_on(bed: Bed) -> None:
    await bed.start()
    await bed.create("t")
    await bed.commit("t", make(b"a" * 1_000))
    await bed.do(bed.broker.alter_settings(bed.broker.topic("t"), {"max.message.bytes": "500"}))
    with pytest.raises(BatchTooLarge):
        bed.append("t", make(b"a" * 1_000))
    await bed.do(bed.broker.alter_settings(bed.broker.topic("t"), {}))
    await bed.commit("t", make(b"a" * 1_000))


# --- a replica's log is cut


@simulated
async def test_what_was_cut_off_is_forgotten_by_the_view(bed: Bed) -> None:
    await bed.start()
    await bed.create("t", segment_bytes="250")
    served = bed.served_partition("t")
    served.partition.replicate(0)
    ends = []
    for sequence in range(8):  # Each segment has two batches.
        for producer in (7, 8):
            data = make(b"x", producer=producer, sequence=sequence)
            ends.append(bed.call(served.append, data).offset_end)
    await bed.do(served._log.truncate(served.partition, 9))  # The fifth of producer 8.
    assert served.partition.offset_end == 9
    repeated = bed.call(served.append, make(b"x", producer=7, sequence=4))
    assert repeated.offset_first == 8
    assert served.partition.offset_end == 9
    with pytest.raises(OutOfOrderSequence):
        bed.call(served.append, make(b"x", producer=7, sequence=6))
    assert bed.call(served.append, make(b"y", producer=8, sequence=4)).offset_first == 9
    assert bed.call(served.append, make(b"y", producer=7, sequence=5)).offset_first == 10
