"""A data directory, read beside the process that writes it and when that is gone.

`tests/spark/test_segments.py` has the stories: compaction, retention, transactions, damage.
"""

import asyncio
from pathlib import Path

import pytest

from entrepot.core import batch
from entrepot.core.clock import SystemClock
from entrepot.core.errors import Corruption
from entrepot.core.record import Record
from entrepot.log.disk import FileDisk
from entrepot.log.log import Log
from entrepot.log.policy import Policy
from entrepot.log.read_only import DataDirectory
from tests.unit.log.bed import headed, identity, make

TOPIC = identity("t")


def test_beside_a_writer_and_without_one(tmp_path: Path) -> None:
    async def story() -> None:
        log = Log(FileDisk(tmp_path), SystemClock())
        log.begin()
        written = log.open(TOPIC, "t", Policy()).partition
        written.view_snapshot = bytes
        await log.ready()
        log.append(written, headed(make(b"a"), make(b"b")))
        await log.committer.drain()

        data = DataDirectory(str(tmp_path))
        assert data.is_a_brokers()
        before = data.partition_at("t", TOPIC.number, 0)
        log.append(written, headed(make(b"c")))
        await log.committer.drain()
        assert before.offset_end == 2
        assert data.partition_at("t", TOPIC.number, 0).offset_end == 3
        assert before.isolation().last_stable(2) == 2

        assert data.partition_recovered(TOPIC, "t").offset_end == 3  # As after a crash.
        swap = tmp_path / "partitions" / "t-0" / "cleaned.swap"
        swap.touch()
        with pytest.raises(Corruption, match="t-0: a compaction was cut short; start the broker"):
            data.partition_recovered(TOPIC, "t")
        swap.unlink()
        await log.close()
        assert data.partition_recovered(TOPIC, "t").offset_end == 3  # By the checkpoint.
        data.close()

    asyncio.run(story())


def test_a_segment_that_compaction_replaces(tmp_path: Path) -> None:
    """Its file and its seal are renamed one after the other: who comes between tries again."""
    policy = Policy(segment_bytes=400, compacts=True, expires=False, dirty_ratio_min=0.1)
    directory = tmp_path / "partitions" / "t-0"
    file, seal = directory / f"{0:020}.log", directory / f"{0:020}.index"

    async def story() -> None:
        log = Log(FileDisk(tmp_path), SystemClock())
        log.begin()
        written = log.open(TOPIC, "t", policy).partition
        written.view_snapshot = bytes
        await log.ready()
        for number in range(40):
            key = f"k{number % 3}".encode()
            log.append(written, headed(batch.build([Record(key, b"v")], now_ms=1)))
            await log.committer.drain()
        before = file.read_bytes(), seal.read_bytes()
        await log.cleaner.clean(written)
        await log.close()
        after = file.read_bytes(), seal.read_bytes()
        assert len(after[0]) < len(before[0])

        data = DataDirectory(str(tmp_path))
        for pair in ((after[0], before[1]), (before[0], after[1])):
            file.write_bytes(pair[0])
            seal.write_bytes(pair[1])
            with pytest.raises(FileNotFoundError, match="being replaced"):
                data.partition_at("t", TOPIC.number, 0)
        file.write_bytes(after[0])
        found = data.partition_at("t", TOPIC.number, 0)
        assert found.segments[0].compacted
        data.close()

    asyncio.run(story())


def test_not_a_data_directory(tmp_path: Path) -> None:
    assert not DataDirectory(str(tmp_path)).is_a_brokers()
    with pytest.raises(NotADirectoryError):
        DataDirectory(str(tmp_path / "nowhere"))
