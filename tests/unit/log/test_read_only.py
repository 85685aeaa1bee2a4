"""A data directory, read beside the process that writes it and when that is gone.

`tests/spark/test_segments.py` has the stories: compaction, retention, transactions, damage.
"""

import asyncio
from pathlib import Path

import pytest

from entrepot.core.clock import SystemClock
from entrepot.core.errors import Corruption
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


def test_not_a_data_directory(tmp_path: Path) -> None:
    assert not DataDirectory(str(tmp_path)).is_a_brokers()
    with pytest.raises(NotADirectoryError):
        DataDirectory(str(tmp_path / "nowhere"))
