"""Chance against the log: appends, failures, retention and the end of power, in any order.

The model is what each partition should hold, by offset. After every restart the log must
be a beginning of it: not shorter than what was answered or synced, nothing changed,
nothing reordered, and no partition refused, for no disk lies here. What was written but
not answered may be there or not; from then on it is what the disk says.
"""

import asyncio
import contextlib
import errno
from functools import partial
from random import Random

import pytest

from entrepot.core import limits
from entrepot.core.errors import StorageError
from entrepot.log.log import Log
from entrepot.log.partition import Partition
from entrepot.log.policy import Durability, Policy
from entrepot.log.verify import Verdict, verify
from sim.disk import Operation
from sim.loop import SimLoop, run
from tests.unit.log.bed import Bed, make, simulated

NAMES = [f"t{number}" for number in range(limits.SEGMENTS_SYNCED_DIRECTLY_MAX + 3)]
STEPS = 60
FAULTS: list[tuple[Operation, int]] = [
    ("write", errno.ENOSPC), ("write", errno.EIO), ("truncate", errno.EIO), ("open", errno.EMFILE),
    ("sync", errno.EIO), ("rename", errno.EIO), ("remove", errno.EIO), ("read", errno.EIO),
]  # fmt: skip


class Story:
    def __init__(self, bed: Bed, random: Random) -> None:
        self.bed = bed
        self.random = random
        self.policies = {name: self._policy() for name in NAMES}
        self.expected: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self.promised = dict.fromkeys(NAMES, 0)  # Below it, somebody has an answer.
        self.appended = 0
        self.restarts = 0

    def _policy(self) -> Policy:
        return Policy(
            durability=self.random.choice([Durability.FSYNC, Durability.FSYNC, *Durability]),
            flush_messages=self.random.choice([None, None, 3]),
            segment_bytes=self.random.choice([80, 500, 2_000, 100_000]),
            segment_ms=self.random.choice([1_000, 10**9]),
            retention_ms=self.random.choice([-1, 100_000]),
            retention_bytes=self.random.choice([-1, -1, 3_000]),
            file_delete_delay_ms=self.random.choice([0, 5_000]),
        )

    # --- restarts

    async def start(self) -> None:
        """Sometimes the power fails again in the middle of it, or the disk does."""
        bed, random = self.bed, self.random
        while random.random() < 0.3:
            starting = bed.loop.create_task(self._open())
            await asyncio.sleep(random.uniform(0, 0.03))
            starting.cancel()
            bed.crash() if random.random() < 0.7 else bed.kill()
        if random.random() < 0.2:
            self.fault()
            with contextlib.suppress(OSError, StorageError):
                await self._open()
                await asyncio.sleep(random.choice([0, 7]))
            bed.kill()
        reports = list(verify(bed.disk))
        assert [r for r in reports if r.verdict is Verdict.CORRUPT] == []
        await self._open()
        self.check()
        self.restarts += 1

    async def _open(self) -> None:
        self.bed.log = log = Log(self.bed.disk, self.bed.clock)

        async def begin() -> None:
            log.begin()
            for name in NAMES:
                self.bed.open(name, self.policies[name])
            await log.ready()

        await self.bed.begin(begin())

    async def end(self) -> None:
        """One way or the other; what was synced until now must be found again."""
        for name in NAMES:
            synced = self.bed[name].offset_synced
            self.promised[name] = max(self.promised[name], synced)
        way = self.random.choice(["stop", "kill", "crash", "crash", "crash"])
        if way == "stop":
            await self.bed.do(self.bed.log.close())
            way = self.random.choice(["kill", "crash"])
        getattr(self.bed, way)()

    def check(self) -> None:
        for name in NAMES:
            partition = self.bed[name]
            assert partition.stopped is None, partition.stopped
            found = self.bed.records(name)
            expected = self.expected[name]
            assert self.promised[name] <= partition.offset_end <= len(expected), name
            assert partition.high_watermark == partition.offset_end
            offsets = [record.offset for record in found]
            assert offsets == list(range(partition.offset_start, partition.offset_end)), name
            values = expected[partition.offset_start : partition.offset_end]
            assert [record.value for record in found] == values, name
            del expected[partition.offset_end :]

    # --- steps

    async def step(self) -> None:
        step = self.random.choices(
            [self.append, self.fault, self.forget, self.alter, self.wait, self.jump, self.restart],
            [60, 4, 6, 3, 10, 2, 15],
        )[0]
        result = step()
        if result is not None:
            await result
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.uniform(0, 0.01))

    def append(self) -> None:
        count = self.random.choice([1, 2, len(NAMES)])
        for name in self.random.sample(NAMES, count):
            sizes = self.random.choices([1, 30, 700], k=self.random.choice([1, 1, 3]))
            values = [b"%d " % (self.appended + n) * size for n, size in enumerate(sizes)]
            self.appended += len(values)
            try:
                self.bed.append(name, *map(make, values))
            except StorageError:
                continue
            self.expected[name] += values
            self._expect_answer(name, self.bed[name])

    def _expect_answer(self, name: str, partition: Partition) -> None:
        offset_end = partition.offset_end

        def answered(error: StorageError | None) -> None:
            if error is None and partition.policy.durability is Durability.FSYNC:
                self.promised[name] = max(self.promised[name], offset_end)

        partition.when_committed(offset_end, answered)

    def fault(self) -> None:
        operation, error = self.random.choice(FAULTS)
        # A directory whose sync failed would fail for ever, also for the next process.
        pattern = self.random.choice(
            [f"*/{self.random.choice(NAMES)}-0/*", "*.log", "*.journal", "*.index", "*.view", "*.*"]
        )
        self.bed.disk.fail_next(operation, error, pattern, self.random.choice([1, 1, 5]))

    def forget(self) -> None:
        partition = self.bed[self.random.choice(NAMES)]
        if partition.stopped is None and partition.segments:
            low, high = partition.offset_start, partition.high_watermark
            partition.delete_before(self.random.choice([high, self.random.randint(low, high)]))
            with contextlib.suppress(OSError, StorageError):
                self.bed.call(self.bed.log.sweep, partition)

    def alter(self) -> None:
        name = self.random.choice(NAMES)
        self.policies[name] = self.bed[name].policy = self._policy()

    async def wait(self) -> None:
        await asyncio.sleep(self.random.choice([0.1, 1, 6, 40]))

    def jump(self) -> None:
        self.bed.clock.jump(self.random.choice([-1, 1]) * self.random.randrange(100_000))

    async def restart(self) -> None:
        await self.end()
        await self.start()


async def tell(bed: Bed, seed: int, steps: int) -> None:
    random = Random(seed)
    bed.disk.habits.short_write_chance = random.choice([0, 0.2])
    story = Story(bed, random)
    await story.start()
    for _ in range(steps):
        await story.step()
    await story.end()
    await story.start()
    assert story.appended > 0


async def tell_alone(seed: int, loop: SimLoop, *, lying: bool = False) -> None:
    bed = Bed(loop)
    bed.disk.habits.sync_is_noop = lying
    await tell(bed, seed, STEPS)


@pytest.mark.usefixtures("small_journal")
def test_a_disk_that_lies_is_found_out() -> None:
    """Its sync does nothing: most stories must end badly, or these tests say nothing."""
    caught = 0
    for seed in range(5):
        try:
            run(seed, partial(tell_alone, seed, lying=True))
        except AssertionError:
            caught += 1
    assert caught >= 3


@pytest.fixture
def small_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JOURNAL_BYTES_MAX", 4_000)


@pytest.mark.usefixtures("small_journal")
@simulated
async def test_nothing_promised_is_ever_lost(bed: Bed, seed: int) -> None:
    await tell(bed, seed, STEPS)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.usefixtures("small_journal")
def test_nothing_promised_is_ever_lost_in_a_thousand_stories() -> None:
    for seed in range(1_000):
        run(seed, partial(tell_alone, seed))
