from typing import Any

import pytest
from crc32c import crc32c

from entrepot.broker.broker import Broker
from entrepot.broker.server_settings import Defaults
from entrepot.broker.share_group.dead_letter import Dead, ShareDeadLetterCause
from entrepot.broker.share_group.store import ShareName
from entrepot.core import batch
from entrepot.core.errors import DamagedBatch, InvalidName, UnknownTopic
from entrepot.core.record import Record
from tests.unit.broker.share_group.stage import Stage
from tests.unit.log.bed import make, simulated


async def copy(bed: Stage, *dead: Dead, index: int = 0, **settings: str) -> None:
    topic = bed.broker.topic("t")
    await bed.configure(**{"errors_deadletterqueue_topic_name": "dlq", **settings})
    letters, served = bed.groups._dead_letters, bed.served_partition("t", index)
    name = ShareName("g", topic.id, index)
    await bed.do(letters.copy(name, served, dead, bed.groups.settings.of("g")))


def rejected(*offsets: int) -> list[Dead]:
    return [Dead(range(offset, offset + 1), 3, ShareDeadLetterCause.REJECTED) for offset in offsets]


@simulated
async def test_a_letter_is_the_record_and_why(bed: Stage) -> None:
    await bed.open("t")
    old = ("__dlq.errors.group", b"another")
    record = Record(b"key", b"value", (("own", b"1"), old), 1_000)
    await bed.commit("t", batch.build([record], now_ms=1))
    await copy(bed, *rejected(0))
    (letter,) = bed.records("dlq")
    assert (letter.key, letter.value) == (b"key", b"value")
    assert letter.headers == (
        ("own", b"1"),
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"3"),
        ("__dlq.errors.message", b"Offset rejected by client."),
        ("__dlq.errors.offset", b"0"),
    )


@simulated
async def test_only_why_when_that_is_enough(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(2)
    dead = Dead(range(2), 5, ShareDeadLetterCause.DELIVERED_TOO_OFTEN)
    await copy(bed, dead, errors_deadletterqueue_copy_record_enable="false")
    letters = bed.records("dlq")
    assert [(letter.key, letter.value) for letter in letters] == [(None, None)] * 2
    assert [dict(letter.headers)["__dlq.errors.offset"] for letter in letters] == [b"0", b"1"]


@simulated
async def test_each_goes_to_the_partition_of_its_number(bed: Stage) -> None:
    await bed.open("t", count=3)
    await bed.create("dlq", 2)
    for index in range(3):
        await bed.commit("t", make(b"%d" % index), index)
        await copy(bed, *rejected(0), index=index)
    assert (bed.values("dlq", 0), bed.values("dlq", 1)) == ([b"0", b"2"], [b"1"])


@simulated
async def test_many_out_of_many_batches(bed: Stage) -> None:
    await bed.open("t")
    await bed.create("dlq", 1, max_message_bytes="1000")
    await bed.fill(*(3 for _ in range(20)))
    await copy(bed, Dead(range(1, 50), 1, ShareDeadLetterCause.REJECTED), *rejected(55, 59))
    offsets = [*range(1, 50), 55, 59]
    assert bed.values("dlq") == [b"%d" % offset for offset in offsets]
    batches = list(bed.served_partition("dlq").partition.batches())
    assert len(batches) > 5
    assert max(map(len, batches)) <= 1_000


@simulated
async def test_what_is_nonsense_is_named_and_what_is_gone_is_not(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(2)
    broken = bytearray(make(b"x", b"y"))
    broken[batch.HEADER_BYTES] = 0xFF  # A record's size.
    broken[17:21] = crc32c(broken[21:]).to_bytes(4, "big")
    bed.call(bed.served_partition("t").write, bytes(broken))
    await bed.fill(1)
    await bed.do(bed.broker.delete_records(bed.served_partition("t"), 1))
    await copy(bed, Dead(range(5), 1, ShareDeadLetterCause.REJECTED))
    assert bed.values("dlq") == [b"1", None, None, b"4"]


@simulated
async def test_what_is_damaged_is_not_copied(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(2)
    bed.flip("partitions/t-0/00000000000000000000.log", -3)
    with pytest.raises(DamagedBatch, match="checksum"):
        await copy(bed, Dead(range(2), 1, ShareDeadLetterCause.REJECTED))


@pytest.mark.parametrize(
    ("settings", "target", "error"),
    [
        ({"auto_create_topics": False}, "dlq", UnknownTopic),
        ({}, "__consumer_offsets", InvalidName),
    ],
)
@simulated
async def test_where_letters_cannot_go(
    bed: Stage, settings: dict[str, Any], target: str, error: type[Exception]
) -> None:
    await bed.open("t")
    await bed.fill(1)
    broker: Broker = bed.broker
    broker.server_settings.defaults = Defaults(**settings)
    with pytest.raises(error):
        await bed.do(
            bed.groups._dead_letters._target(ShareName("g", broker.topic("t").id, 0), target)
        )
