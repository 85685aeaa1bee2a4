"""A program to be killed: it writes to a broker without a server, and says what was answered.

Each answered batch is a line on stdout: partition, offset, value. A value is the life and
a number that grows, so that order can be checked. It ends when somebody ends it. With a tier,
segments are copied there and retention removes them from here, both as fast as they can.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from entrepot.broker.broker import Broker
from entrepot.core import batch
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.core.errors import StorageError
from entrepot.core.ports import Stores
from entrepot.core.record import Record
from entrepot.log import log
from entrepot.log.disk import FileDisk
from entrepot.log.object_store import open_store
from entrepot.workers import store_worker

TOPIC = "t"
PARTITIONS = 12  # Some rounds touch few of them and are synced as they are, others many.
SETTINGS = {"segment.bytes": "3000", "file.delete.delay.ms": "0"}


def answered(index: int, offset: int, value: bytes) -> Callable[[StorageError | None], None]:
    def say(error: StorageError | None) -> None:
        assert error is None, error
        os.write(1, b"%d %d %b\n" % (index, offset, value))

    return say


async def write(broker: Broker, life: int) -> None:
    random, clock, number = Random(life), SystemClock(), 0
    topic = broker.topic(TOPIC)
    while True:
        for index in random.sample(range(PARTITIONS), random.choice((1, 2, PARTITIONS))):
            value = b"%d %d" % (life, number)
            data = batch.build([Record(None, value)], now_ms=clock.now_ms())
            served = broker.served_partition(topic, index)
            appended = served.append(data)
            served.when_committed(
                appended.offset_end, answered(index, appended.offset_first, value)
            )
            number += 1
        await asyncio.sleep(random.choice((0, 0, 0.001)))


def main(directory: Path, life: int, durability: str, tier: str = "") -> None:
    asyncio.run(_main(directory, life, durability, tier))


async def _main(directory: Path, life: int, durability: str, tier: str) -> None:
    stores = Stores(open_store, store_worker())
    broker = Broker(FileDisk(directory), SystemClock(), SystemEntropy(), stores=stores)
    settings = {**SETTINGS, "durability": durability}
    if tier:
        log.RETENTION_EVERY_S = log.COPY_EVERY_S = 0.05
        settings |= {"entrepot.tier": tier, "retention.ms": "100"}
    await broker.open()
    if TOPIC not in broker.topics:
        await broker.create_topic(TOPIC, PARTITIONS, settings)
    await write(broker, life)
