"""How files of the log are used: in sequence, from the beginning to the end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from entrepot.core import batch
from entrepot.core.ports import Buffer, FileRange
from entrepot.core.record import Record
from sim.disk import SimFile
from tests.unit.gateway.kafka.node import Node, on_node

BATCHES, TOPICS = 400, 4
FETCH_BYTES = 10_000
VALUE = bytes(2_000)


async def write(node: Node) -> None:
    for number in range(TOPICS):
        await node.context.broker.create_topic(f"t{number}", 1)
    for number in range(BATCHES):
        topic = node.context.broker.topic(f"t{number % TOPICS}")
        now_ms = node.clock.now_ms()
        records = [Record(b"key", VALUE, (), now_ms)]
        served = node.context.broker.served_partition(topic, 0)
        served.append(batch.build(records, now_ms=now_ms))
        await node.append(topic.name, [now_ms])


def test_files_are_only_appended_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves L-05 and I-11 in part: whatever is written is written at the end of a file."""
    elsewhere, sizes = [], []
    plain = SimFile.write

    def watched(file: SimFile, position: int, chunks: Sequence[Buffer]) -> int:
        if position != file.size():
            elsewhere.append((file.path, position, file.size()))
        sizes.append(plain(file, position, chunks))
        return sizes[-1]

    monkeypatch.setattr(SimFile, "write", watched)

    @on_node()
    async def work(node: Node) -> None:
        await write(node)
        await node.stop()  # With its checkpoint.
        await node.start()
        await write_more(node)

    async def write_more(node: Node) -> None:
        for number in range(TOPICS):
            await node.append(f"t{number}", [node.clock.now_ms()])

    work()
    assert elsewhere == []
    assert sum(sizes) > BATCHES * len(VALUE)


@on_node()
async def test_who_reads_a_partition_reads_its_files_in_sequence(node: Node) -> None:
    """Proves I-11 in part: each fetch is the range of a file behind the one before it."""
    await write(node)
    served = node.context.broker.served_partition(node.context.broker.topic("t0"), 0)
    offset, end = 0, dict[str, int]()
    while offset < served.partition.offset_end:
        found = served.read(offset, FETCH_BYTES, is_committed=False, may_copy=False)
        assert isinstance(found, FileRange)
        assert found.position == end.get(found.file.path, 0)
        whole = [*batch.walk(found.file.read(found.position, found.size))]
        place, header = whole[-1]  # What was cut off comes with the next.
        end[found.file.path] = found.position + place + header.size
        offset = header.offset_end
    assert sum(end.values()) > BATCHES // TOPICS * len(VALUE)
