"""One bit of a real file changes: `verify` and recovery say the right thing each.

Three places, three answers: in a sealed segment and below the recovery point it is
corruption, and the partition is refused; above the recovery point it cannot be told from
a write that never finished, and the log ends there.
"""

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from entrepot.broker.broker import Broker
from entrepot.cli.log import log as log_command
from entrepot.core import batch
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.core.record import Record
from entrepot.log.disk import FileDisk
from entrepot.log.verify import Verdict, verify

PATH = "partitions/t-0/{:020d}.log"
VALUES = [b"%03d" % number * 20 for number in range(10)]
BATCH_BYTES = len(batch.build([Record(None, VALUES[0])], now_ms=1_750_000_000_000))


@pytest.fixture(autouse=True)
def _no_housekeeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or else a slow machine's would say in between what is permanent."""
    monkeypatch.setattr("entrepot.log.log.TICK_S", 3_600)


class Node:
    """A broker on real files that ends without saying goodbye."""

    def __init__(self, directory: Path, *, check_all: bool = False) -> None:
        self._disk = FileDisk(directory)
        self.broker = Broker(self._disk, SystemClock(), SystemEntropy(), check_all=check_all)

    async def __aenter__(self) -> Broker:
        await self.broker.open()
        return self.broker

    async def __aexit__(self, *_: object) -> None:
        self._disk.close()


async def write(broker: Broker, values: list[bytes]) -> None:
    for value in values:
        served = broker.served_partition(broker.topic("t"), 0)
        data = batch.build([Record(None, value)], now_ms=1_750_000_000_000)
        done = asyncio.get_running_loop().create_future()
        served.when_committed(served.append(data).offset_end, done.set_result)
        assert await done is None


async def fill(directory: Path, segment_bytes: int) -> None:
    """Ten batches, of which the first five are below the recovery point."""
    settings = {"segment.bytes": str(segment_bytes), "retention.ms": "-1"}
    async with Node(directory) as broker:
        await broker.create_topic("t", 1, settings)
        await broker.create_topic("u", 1)
        await write(broker, VALUES[:5])
    async with Node(directory) as broker:  # The start says what is permanent.
        await write(broker, VALUES[5:])


def flip(directory: Path, base: int, position: int) -> None:
    path = directory / PATH.format(base)
    data = bytearray(path.read_bytes())
    data[position] ^= 0x04
    path.write_bytes(data)


def verdicts(directory: Path) -> dict[str, Verdict]:
    reports = verify(FileDisk(directory))
    return {report.path: report.verdict for report in reports if "/t-0/" in report.path}


def command(directory: Path) -> tuple[int, str]:
    ran = CliRunner().invoke(log_command, ["verify", str(directory)])
    return ran.exit_code, ran.output


async def recovered(directory: Path, *, check_all: bool = False) -> list[bytes | None] | str:
    """The values that are served, or why none are. The other topic always is."""
    async with Node(directory, check_all=check_all) as broker:
        assert broker.served_partition(broker.topic("u"), 0).partition.stopped is None
        partition = broker.served_partition(broker.topic("t"), 0).partition
        if partition.stopped is not None:
            return partition.stopped
        return [record.value for data in partition.batches() for record in batch.records(data)]


# Bytes of a batch: offset, length, epoch, magic, checksum, attributes, times, count, a value.
POSITIONS = [7, 11, 16, 18, 22, 40, 60, 100]


@pytest.mark.parametrize("position", POSITIONS)
def test_in_a_sealed_segment(tmp_path: Path, position: int) -> None:
    asyncio.run(fill(tmp_path, 2 * BATCH_BYTES))
    assert len(verdicts(tmp_path)) == 5
    flip(tmp_path, 2, BATCH_BYTES + position)
    found = verdicts(tmp_path)
    assert found.pop(PATH.format(2)) is Verdict.CORRUPT
    assert set(found.values()) == {Verdict.GOOD}
    code, said = command(tmp_path)
    assert code == 1
    assert f"{PATH.format(2)}: corrupt" in said
    reason = asyncio.run(recovered(tmp_path, check_all=True))
    assert f"{PATH.format(2)}: " in str(reason)
    assert f"at byte {BATCH_BYTES}, in a sealed part" in str(reason)


@pytest.mark.parametrize("position", POSITIONS)
def test_in_the_tail_below_the_recovery_point(tmp_path: Path, position: int) -> None:
    asyncio.run(fill(tmp_path, 1_000_000))
    flip(tmp_path, 0, 3 * BATCH_BYTES + position)
    assert verdicts(tmp_path) == {PATH.format(0): Verdict.CORRUPT}
    assert command(tmp_path)[0] == 1
    before = (tmp_path / PATH.format(0)).read_bytes()
    for _ in range(2):
        reason = asyncio.run(recovered(tmp_path))
        assert "offset 3; everything below offset 5 was permanent" in str(reason)
    assert (tmp_path / PATH.format(0)).read_bytes() == before, "nothing is repaired by guessing"


@pytest.mark.parametrize("position", POSITIONS)
def test_in_the_tail_above_the_recovery_point(tmp_path: Path, position: int) -> None:
    asyncio.run(fill(tmp_path, 1_000_000))
    flip(tmp_path, 0, 7 * BATCH_BYTES + position)
    assert verdicts(tmp_path) == {PATH.format(0): Verdict.UNFINISHED}
    code, said = command(tmp_path)
    assert code == 0
    assert f"at byte {7 * BATCH_BYTES}, offset 7" in said
    assert asyncio.run(recovered(tmp_path)) == VALUES[:7]
    assert verdicts(tmp_path) == {PATH.format(0): Verdict.GOOD}


def test_after_a_clean_stop(tmp_path: Path) -> None:
    """A quick start does not look; `verify` does, and so does a start with a full check."""

    async def stop_cleanly() -> None:
        async with Node(tmp_path) as broker:
            await broker.close()

    asyncio.run(fill(tmp_path, 1_000_000))
    asyncio.run(stop_cleanly())
    flip(tmp_path, 0, 9 * BATCH_BYTES + 30)
    assert verdicts(tmp_path) == {PATH.format(0): Verdict.CORRUPT}
    reason = asyncio.run(recovered(tmp_path, check_all=True))
    assert "everything below offset 10 was permanent" in str(reason)
