"""A broker at work, and every power failure it could have had.

    python -m tests.crash.power_loss --rounds 200

Clients of Kafka and AMQP work with a node on a disk whose operations are recorded, and so is
every answer they get. Then the disk is rebuilt as a power failure at some moment would have
left it: what was synced is there, of other writes any part, of other changes of names any of
them. A node is started on that, and what was answered before the moment must be there.
"""

import asyncio
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, NamedTuple
from unittest.mock import AsyncMock, patch

import click

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.core import batch, limits
from entrepot.core.errors import StorageError, UnknownTopic
from entrepot.core.ports import Disk
from entrepot.log.log import Log
from entrepot.log.partition import Partition
from entrepot.server import StartError
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic
from sim import transaction_messages as messages
from sim.amqp_client import Gone
from sim.disk import SimDisk
from sim.loop import SimLoop, run
from sim.trouble import PATIENCE_S
from tests.crash.power_loss_work import (
    BRIEF,
    BRIEF_PARTITIONS,
    GROUP,
    MONEY,
    ORDERS,
    QUEUES,
    TOPICS,
    TRANSACTION_MS,
    WIDE,
    Node,
    Work,
)
from tests.crash.recorder import Recorder, Step, notes, rebuilt

SECONDS = 1.6
MOMENTS_PER_RUN = 10


class Lost(NamedTuple):
    """Something that was answered and is not there, or the other way round."""

    seed: int
    step: int
    what: str


class Summary(NamedTuple):
    rounds: int
    operations: int
    acknowledged: int
    journaled: int  # Commits that went through the journal.
    lost: list[Lost]


@contextmanager
def small(random: Random) -> Iterator[None]:
    """Everything that happens rarely happens often; mostly, the journal takes turns."""
    with ExitStack() as stack:
        journal_bytes = random.choice((6_000, 20_000, 80_000))
        stack.enter_context(patch.object(limits, "JOURNAL_BYTES_MAX", journal_bytes))
        stack.enter_context(patch.object(limits, "QUEUE_SEGMENT_BYTES", 700))
        stack.enter_context(patch("entrepot.log.log.RETENTION_EVERY_S", 0.3))
        stack.enter_context(patch("entrepot.log.log.CHECKPOINT_EVERY_S", 0.4))
        stack.enter_context(patch("entrepot.log.log.CLEAN_EVERY_S", 0.3))
        yield


class _Judge(Node):
    """What is there after a power failure, against what was answered before it."""

    def __init__(self, loop: SimLoop, disk: Disk, told: Sequence[tuple[Any, ...]]) -> None:
        super().__init__(loop, disk)
        self._told = told
        self.lost: list[str] = []

    async def run(self) -> list[str]:
        try:
            await self.server.start()
            if ("begun",) in self._told:
                await asyncio.sleep(2 * TRANSACTION_MS / 1_000)  # Those left open are aborted.
                self._check_records()
                self._check_transactions()
                await self._check_offsets()
                await self._check_queues()
        except (StartError, UnknownTopic, StorageError, Gone) as error:
            self.lost.append(f"{type(error).__name__}: {error}")
        return self.lost

    def _of(self, kind: str) -> list[tuple[Any, ...]]:
        return [event[1:] for event in self._told if event[0] == kind]

    def _check_records(self) -> None:
        starts = dict.fromkeys(range(BRIEF_PARTITIONS), 0)
        starts.update(self._of("start"))
        found = {
            (topic, number): dict(_values(self.partition(topic, number)))
            for topic in (ORDERS, WIDE, BRIEF)
            for number in range(TOPICS[topic][0])
        }
        for topic, number, offset, value in self._of("record"):
            may_be_gone = topic == BRIEF and offset < starts[number]
            there = found[topic, number].get(offset)
            if there != value and not (may_be_gone and there is None):
                self.lost.append(f"{topic}-{number}: {value} at {offset} is {there}")

    def _check_transactions(self) -> None:
        there = {
            (number, value)
            for number in range(TOPICS[MONEY][0])
            for _, value in _values(self.partition(MONEY, number), committed=True)
        }
        for (rows,) in self._of("transacted"):
            self.lost += [f"{MONEY}: {row} was committed" for row in rows if row not in there]
        for (rows,) in self._of("transacting"):
            if len({row in there for row in rows}) > 1:
                self.lost.append(f"{MONEY}: {rows} is there in part")

    async def _check_offsets(self) -> None:
        async with self.kafka("judge") as connection:
            for number, offset in dict(self._of("offset")).items():
                request = messages.fetch_offset(GROUP, TopicPartition(ORDERS, number))
                answer = await connection.ask(request, messages.answer_of(request), PATIENCE_S)
                group = answer.groups[0]
                if not group.topics:
                    self.lost.append(f"the offsets of {GROUP} are refused: {group.error_code}")
                    break
                found = group.topics[0].partitions[0].committed_offset
                if found < offset:
                    self.lost.append(f"offset of {ORDERS}-{number} is {found}, not {offset}")

    async def _check_queues(self) -> None:
        found: list[str] = []
        client = await self.amqp("judge", lambda _, __, body: found.append(body.decode()))
        settling, settled = self._of("settling"), set(self._of("settled"))
        for name in QUEUES:
            found.clear()
            answer: Method | None = None
            while not isinstance(answer, basic.GetEmpty):
                answer = await client.ask(basic.Get(0, name), basic.GetOk, basic.GetEmpty)
            due = [v for q, v in self._of("message") if q == name and (q, v) not in settling]
            self.lost += [f"{name}: {value} is gone" for value in due if value not in found]
            again = [value for value in found if (name, value) in settled]
            self.lost += [f"{name}: {value} is there again" for value in again]


def _values(partition: Partition, *, committed: bool = False) -> Iterator[tuple[int, str]]:
    """Offsets and values; if so asked, of committed transactions only."""
    offset = partition.offset_start
    end = partition.offset_stable() if committed else partition.high_watermark
    while offset < end and (part := partition.read(offset, 1)) is not None:
        data = part.file.read(part.position, part.size)
        header = batch.check(data)
        for record in batch.records(data):
            is_hidden = committed and partition.is_aborted(header.producer_id, record.offset)
            if not header.is_control and not is_hidden and record.value is not None:
                yield record.offset, record.value.decode()
        offset = header.offset_end


# --- runs


def recorded(seed: int, seconds: float) -> tuple[list[Step], int]:
    """What happened at the disk's door, and how many commits went through the journal."""

    async def work(loop: SimLoop) -> tuple[list[Step], int]:
        recorder = Recorder(SimDisk(loop.random("disk")))
        journaled = await Work(loop, recorder, seconds).run()
        return recorder.steps, journaled

    return run(seed, work)


def judged(seed: int, steps: Sequence[Step]) -> list[str]:
    """What a power failure after these steps takes that was answered."""
    disk = rebuilt(steps, Random(f"{seed}/{len(steps)}"))
    told = notes(steps)
    with patch.object(Log, "enforce_retention", AsyncMock()):  # It would take more, rightly.
        return run(seed, lambda loop: _Judge(loop, disk, told).run())


def play(rounds: int, first_seed: int = 0, seconds: float = SECONDS) -> Summary:
    """Some power failures at moments that chance says, ten in each run of a node."""
    operations = acknowledged = journaled = done = 0
    lost: list[Lost] = []
    for seed in range(first_seed, first_seed + -(-rounds // MOMENTS_PER_RUN)):
        random = Random(f"{seed}/moments")
        with small(random):
            steps, through = recorded(seed, seconds)
            journaled += through
            for _ in range(min(MOMENTS_PER_RUN, rounds - done)):
                moment = random.randrange(1, len(steps) + 1)
                told = notes(steps[:moment])
                operations += moment - len(told)
                acknowledged += sum(event[0] in _ANSWERS for event in told)
                lost += [Lost(seed, moment, what) for what in judged(seed, steps[:moment])]
                done += 1
    return Summary(done, operations, acknowledged, journaled, lost)


_ANSWERS = ("record", "offset", "message", "settled", "transacted")


@click.command()
@click.option("--rounds", default=200, help="How many power failures.", show_default=True)
@click.option("--first-seed", default=0, show_default=True)
@click.option("--verbose", is_flag=True, help="Show the broker's log.")
def main(rounds: int, first_seed: int, verbose: bool) -> None:
    """Rebuild the disk of a busy broker after power failures, and look what is lost."""
    logging.basicConfig(level=logging.DEBUG if verbose else logging.CRITICAL + 1)
    found = play(rounds, first_seed)
    for each in found.lost[:50]:
        click.echo(f"seed {each.seed}, step {each.step}: {each.what}", err=True)
    click.echo(
        f"{found.rounds} rounds, {found.operations} operations, {found.journaled} commits through "
        f"the journal, {found.acknowledged} acknowledged, {len(found.lost)} lost"
    )
    sys.exit(1 if found.lost else 0)


if __name__ == "__main__":
    main()
