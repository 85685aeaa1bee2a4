"""Any number of kills, restarts and failures, in any order: every message is in the sink once,
or a dead letter.

A query without Spark, over a sink that takes each batch once, as ours does: what comes again
under a number that it has committed, it passes over. The broker is a real one.
"""

import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("pika", reason="pip install pika for this test")

from pyspark.sql.streaming.datasource import ReadMaxRows

from entrepot.spark import leasing
from entrepot.testing import Broker, broker
from tests.spark.producing import texts
from tests.spark.queueing import SETTINGS, declare, drain, publish
from tests.spark.test_queue_source import Query

STEPS = 40
POISON = "poison"
POISONED_MAX = 50  # Failures of it, of which most are a broker's that died with its death.
PAUSE_S = 0.05  # Between two looks at what others have of the queue.


class World:
    def __init__(self, server: Broker, queue: str, chance: random.Random) -> None:
        self.server = server
        self.queue = queue
        self.chance = chance
        self.query = Query(server, queue, leaseSeconds="1")
        self.sink: dict[int, list[str]] = {}  # By batch.
        self.published = 0
        self.failed = 0  # The last batch that did.
        self.poisoned = 0  # How often the poison was read.
        self.limit = ReadMaxRows(20)

    def publish(self, count: int) -> None:
        publish(self.server, self.queue, texts(count, self.published))
        self.published += count

    @property
    def batch(self) -> int:
        return len(self.query.offsets) - 1

    def write(self, rows: list[str]) -> None:
        self.sink.setdefault(self.batch, rows)

    def step(self) -> None:
        fate = self.chance.choice(
            ["kill", "write, kill", "fail", "fail, late", "write, fail", "broker", "well"]
        )
        if not self.query.plan(self.limit):
            self.publish(self.chance.randrange(1, 30))
            return
        rows = self.rows()
        # A sink that has the batch says so, and then it fails no more. That it fails after the
        # sink has it, and for the second time, is the one case that nobody can tell: see `plans`.
        may_fail = self.batch not in self.sink
        if may_fail and (POISON in rows or fate == "fail"):
            self.failed = self.batch
            self.query.fail()
        elif fate == "fail, late":
            self.query.fail_too_late()
        elif fate == "kill":
            self.query.restart()
        elif fate == "write, kill":
            self.write(rows)
            self.query.restart()
        elif fate == "write, fail" and may_fail and self.failed != self.batch:
            self.write(rows)
            self.query.fail()
        else:
            if fate == "broker":
                self.server.kill()
                self.server.start()
            self.write(rows)
            self.query.is_committed = True

    def rows(self) -> list[str]:
        rows = self.query.rows()
        self.poisoned += POISON in rows
        assert self.poisoned < POISONED_MAX, "a message that always fails is read again and again"
        return rows

    def end(self) -> None:
        """All that is left, until the last lease of a dead driver is over."""
        while self.query.plan(self.limit) or self.is_held():
            if self.query.is_committed:
                time.sleep(PAUSE_S)
            elif POISON in (rows := self.rows()):
                self.query.fail()
            else:
                self.write(rows)
                self.query.is_committed = True
        self.query.reader.stop()

    def is_held(self) -> bool:
        """Whether the queue has a message that we cannot get yet."""
        facts: dict[str, int] = self.query.reader._driver().facts()
        return facts["messages"] > 0


@pytest.mark.slow
def test_once_whatever_happens(
    seed: int, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leasing, "IDLE_S_MAX", -1.0)  # Who says nothing is dead, at once.
    with broker(settings=SETTINGS) as server:
        dead = declare(server, new_topic("dead"))
        letters = {"dead_letter_exchange": "", "dead_letter_routing_key": dead}
        limited = {"queue_type": "quorum", "delivery_limit": 1}
        queue = declare(server, new_topic("q"), **limited, **letters)
        world = World(server, queue, random.Random(seed))
        for number in range(STEPS):
            if number == STEPS // 2:
                publish(server, queue, [POISON])
            world.step()
        world.end()
        found = Counter(value for rows in world.sink.values() for value in rows)
        assert POISON not in found
        # Chance may fail a message that is alone again and again: it is put aside, too.
        letters = drain(server, dead)
        assert found + Counter(letters) == Counter([*texts(world.published), POISON])
        assert drain(server, queue) == []
