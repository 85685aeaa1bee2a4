"""The queue source as Spark calls it, without Spark, on a real broker."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("pika", reason="pip install pika for this test")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from entrepot.spark import leasing
from entrepot.spark.options import OptionError, read_queue_source
from entrepot.spark.queue_source import QueueStreamReader
from entrepot.spark.source import arrow_schema, columns
from entrepot.spark.spans import Spans
from entrepot.testing import Broker, broker
from tests.spark.producing import create, texts
from tests.spark.queueing import SETTINGS, channel, declare, drain, options, publish

ALL = ReadMaxRows(1_000)
LATE_S = 0.3


class Query:
    """What Spark keeps of a query, over any number of drivers."""

    def __init__(self, server: Broker, queue: str, **more: str) -> None:
        self._options = options(server, queue, **more)
        self.offsets: list[Any] = []  # As Spark's log has them: before each batch, and its end.
        self.is_committed = True
        self.seen: list[str] = []
        self.reader: Any = None
        self.start()

    def start(self) -> None:
        self.reader = self.new_reader()
        if not self.offsets:
            self.offsets.append(self.reader.initialOffset())

    def new_reader(self) -> QueueStreamReader:
        said = read_queue_source(self._options)
        return QueueStreamReader(said, arrow_schema(columns(said.with_headers), said))

    def kill(self) -> None:
        """Without a word, as far as that can be done in our own process."""
        holder = self.reader._holder
        if holder is not None:
            holder.close()
        self.reader = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def fail(self) -> None:
        self.reader.stop()
        self.start()

    def fail_late(self) -> threading.Timer:
        """As Spark does it: the new driver is at work before the old one has said anything."""
        report = threading.Timer(LATE_S, self.reader.stop)
        self.start()
        report.start()
        return report

    def fail_too_late(self) -> None:
        """The old driver speaks when the new one has taken it for dead."""
        old = self.reader
        self.start()
        self.rows()
        old.stop()

    def plan(self, limit: Any = ALL) -> bool:
        """Whether there is a batch to run."""
        if not self.is_committed:
            return True
        end = json.loads(json.dumps(self.reader.latestOffset(self.offsets[-1], limit)))
        if end == self.offsets[-1]:
            return False
        self.offsets.append(end)
        self.is_committed = False
        return True

    def rows(self) -> list[str]:
        parts = self.reader.partitions(*self.offsets[-2:])
        executor = self.new_reader()
        found = []
        for part in parts:
            for batch in executor.read(part):
                assert set(batch.column("topic").to_pylist()) == {self._options["queue"]}
                found += [value.decode() for value in batch.column("value").to_pylist()]
        return found

    def run(self, limit: Any = ALL) -> list[str]:
        """One batch, committed."""
        if not self.plan(limit):
            return []
        rows = self.rows()
        self.seen += rows
        self.is_committed = True
        return rows


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings=SETTINGS) as started:
        yield started


@pytest.fixture
def dead_are_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting until a killed driver's lease was not renewed for long enough."""
    monkeypatch.setattr(leasing, "IDLE_S_MAX", -1.0)


@pytest.fixture
def queue(server: Broker, new_topic: Callable[..., str]) -> str:
    return declare(server, new_topic("q"))


def test_a_batch_after_the_other(server: Broker, queue: str) -> None:
    publish(server, queue, texts(10))
    query = Query(server, queue)
    assert query.run(ReadMaxRows(4)) == texts(4)
    assert query.run(ReadMaxRows(4)) == texts(4, 4)
    assert query.run(ReadAllAvailable()) == texts(2, 8)
    assert query.run() == []
    query.reader.stop()
    assert drain(server, queue) == []


def test_what_is_not_committed_is_not_gone(server: Broker, queue: str) -> None:
    publish(server, queue, texts(3))
    query = Query(server, queue)
    assert query.plan()
    query.reader.stop()
    assert drain(server, queue) == texts(3)


@pytest.mark.usefixtures("dead_are_dead")
def test_a_killed_driver_reads_the_same_again_and_no_more(server: Broker, queue: str) -> None:
    publish(server, queue, texts(10))
    query = Query(server, queue)
    query.run(ReadMaxRows(4))
    query.plan(ReadMaxRows(4))
    first = query.rows()
    query.restart()
    assert query.rows() == first == texts(4, 4)
    query.restart()
    query.run()
    query.restart()  # Committed by the sink, and never settled.
    query.run()
    assert query.run() == []
    query.reader.stop()
    assert (query.seen, drain(server, queue)) == (texts(10), [])


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
def test_a_restarted_broker_has_forgotten_the_leases(new_topic: Callable[..., str]) -> None:
    with broker(settings=SETTINGS) as server:
        queue = declare(server, new_topic("q"))
        publish(server, queue, texts(10))
        query = Query(server, queue)
        for batch in range(3):
            query.plan(ReadMaxRows(3))
            server.kill()
            server.start()
            assert query.run(ReadMaxRows(3)) == texts(3, 3 * batch)
            server.kill()
            server.start()
        query.restart()
        query.run()
        query.run()
        query.reader.stop()
        assert (query.seen, drain(server, queue)) == (texts(10), [])


def test_what_somebody_else_has_is_settled_when_it_comes_back(server: Broker, queue: str) -> None:
    publish(server, queue, texts(2))
    query = Query(server, queue, leaseSeconds="1")
    query.plan()
    query.kill()
    with channel(server) as other:
        for _ in range(40):  # Until the dead driver's lease is over.
            other.connection.sleep(0.1)
            method, _, _ = other.basic_get(queue)
            if method is not None:
                break
        query.start()
        assert query.run() == texts(2)
        publish(server, queue, texts(1, 2))
        assert query.run() == texts(1, 2)
        assert query.offsets[-1]["unsettled"] == [[0, 0, 1]]
        other.basic_nack(method.delivery_tag)
        publish(server, queue, texts(1, 3))
    assert query.run() == texts(1, 3)
    assert query.offsets[-1]["unsettled"] == []
    query.run()
    query.reader.stop()
    assert drain(server, queue) == []


def test_a_message_that_keeps_failing_ends_up_alone_and_dead(
    server: Broker, new_topic: Callable[..., str]
) -> None:
    dead = declare(server, new_topic("dead"))
    letters = {"dead_letter_exchange": "", "dead_letter_routing_key": dead}
    queue = declare(server, new_topic("q"), queue_type="quorum", delivery_limit=2, **letters)
    publish(server, queue, [*texts(30), "poison", *texts(30, 30)])
    query = Query(server, queue)
    failures = 0
    while query.plan():
        if "poison" in query.rows():
            failures += 1
            assert failures < 20
            query.fail()
        else:
            query.run()
    query.reader.stop()
    assert sorted(query.seen) == sorted(texts(60))
    assert (drain(server, dead), drain(server, queue)) == (["poison"], [])


def test_a_failure_that_is_reported_late_counts_as_well(
    server: Broker, new_topic: Callable[..., str]
) -> None:
    dead = declare(server, new_topic("dead"))
    letters = {"dead_letter_exchange": "", "dead_letter_routing_key": dead}
    queue = declare(server, new_topic("q"), queue_type="quorum", delivery_limit=1, **letters)
    publish(server, queue, ["1", "poison", "3", "4"])
    query = Query(server, queue)
    query.reader.prepareForTriggerAvailableNow()
    failures = 0
    while query.plan():
        if "poison" in query.rows():
            failures += 1
            assert failures < 10
            report = query.fail_late()
            query.reader.prepareForTriggerAvailableNow()
            if not query.is_committed:
                query.rows()
            report.join()
        else:
            query.run()
    query.reader.stop()
    assert query.seen == ["1", "3", "4"]  # All, in the run that read the last of them.
    assert (drain(server, dead), drain(server, queue)) == (["poison"], [])
    assert failures == 4  # Twice as planned, and twice alone.


def test_what_is_about_to_be_a_dead_letter_is_not_read(
    server: Broker, new_topic: Callable[..., str]
) -> None:
    full = declare(server, new_topic("dead"), max_length=1, overflow="reject-publish")
    publish(server, full, ["in the way"])
    letters = {"dead_letter_exchange": "", "dead_letter_routing_key": full}
    lasting = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}
    queue = declare(server, new_topic("q"), queue_type="quorum", **lasting, **letters)
    publish(server, queue, ["poison", "2"])
    query = Query(server, queue, maxFailures="2")
    query.plan(ReadMaxRows(1))
    for _ in range(2):
        assert query.rows() == ["poison"]
        query.fail()
    assert query.rows() == []
    query.fail()  # And once more, for another reason.
    assert query.run() == []
    assert query.run() == ["2"]
    query.run()
    query.reader.stop()
    assert drain(server, full) == ["in the way"]
    assert query.offsets[-1]["unsettled"] == []  # Else it would be lost if the broker restarts.


@pytest.mark.usefixtures("dead_are_dead")
def test_a_driver_that_was_taken_for_dead_changes_nothing(server: Broker, queue: str) -> None:
    publish(server, queue, texts(2))
    query = Query(server, queue)
    query.plan()
    query.rows()
    slow = query.reader
    query.start()
    query.rows()
    slow.stop()
    assert drain(server, queue) == []  # The new one has them.
    query.fail()
    assert query.rows() == texts(2)  # That was the first failure.
    query.reader.stop()


@pytest.mark.usefixtures("dead_are_dead")
def test_a_batch_that_failed_once_is_read_as_it_was(server: Broker, queue: str) -> None:
    publish(server, queue, texts(40))
    query = Query(server, queue)
    query.plan()
    query.rows()
    query.fail()
    assert query.rows() == texts(40)
    query.fail()
    assert query.rows() == texts(2)
    query.restart()  # Says nothing: the same again.
    assert query.run() == texts(2)
    query.restart()
    while query.run():
        pass
    query.reader.stop()
    assert sorted(query.seen) == sorted(texts(40))
    assert drain(server, queue) == []


def test_failures_may_be_bounded_without_a_delivery_limit(server: Broker, queue: str) -> None:
    publish(server, queue, ["poison"])
    query = Query(server, queue, maxFailures="3")
    for _ in range(3):
        query.plan()
        assert query.rows() == ["poison"]
        query.fail()
    assert query.run() == []
    query.run()
    query.reader.stop()
    assert drain(server, queue) == []


@pytest.mark.parametrize("tried_before", [0, 1])
def test_a_message_that_is_dead_before_its_batch_was_reduced_fails_it_no_more(
    server: Broker, new_topic: Callable[..., str], tried_before: int
) -> None:
    """Its batch comes again as it was planned, once. That it fails again must count, too, though
    the queue has no message of it any more."""
    dead = declare(server, new_topic("dead"))
    letters = {"dead_letter_exchange": "", "dead_letter_routing_key": dead}
    limited = {"queue_type": "quorum", "delivery_limit": tried_before}
    queue = declare(server, new_topic("q"), **limited, **letters)
    publish(server, queue, ["poison"])
    with channel(server) as other:
        for _ in range(tried_before):
            other.basic_reject(other.basic_get(queue)[0].delivery_tag)
    query = Query(server, queue)
    query.plan()
    for _ in range(2):
        assert query.rows() == ["poison"]
        query.fail()
    publish(server, queue, ["2"])
    assert query.run() == []
    assert query.run() == ["2"]
    query.run()
    query.reader.stop()
    assert (drain(server, dead), drain(server, queue)) == (["poison"], [])


def test_the_first_failure_may_be_enough(server: Broker, queue: str) -> None:
    publish(server, queue, ["poison"])
    query = Query(server, queue, maxFailures="1")
    query.plan()
    for _ in range(2):
        assert query.rows() == ["poison"]
        query.fail()
    assert query.run() == []
    query.run()
    query.reader.stop()
    assert drain(server, queue) == []


@pytest.mark.usefixtures("dead_are_dead")
def test_a_driver_that_held_nothing_says_no_more_of_a_batch_that_went_on(
    server: Broker, queue: str
) -> None:
    publish(server, queue, ["poison"])
    query = Query(server, queue, maxFailures="1")
    query.plan()
    query.rows()
    query.fail()
    query.rows()
    slow = query.reader  # Nothing is left for it to hold.
    query.start()
    query.rows()
    query.fail()
    query.rows()
    slow.stop()
    plan, tried = query.reader._running
    assert tried.is_reduced
    assert query.reader._recalled(plan) == tried
    query.reader.stop()


def test_an_available_now_query_ends(server: Broker, queue: str) -> None:
    publish(server, queue, texts(5))
    query = Query(server, queue)
    query.reader.prepareForTriggerAvailableNow()
    assert query.run(ReadMaxRows(3)) == texts(3)
    publish(server, queue, texts(5, 5))
    assert query.run(ReadMaxRows(3)) == texts(2, 3)
    assert query.run(ReadMaxRows(3)) == []
    query.reader.stop()
    assert drain(server, queue) == texts(5, 5)


def test_an_available_now_query_goes_on_after_what_it_only_has_to_settle(
    server: Broker, queue: str
) -> None:
    publish(server, queue, texts(3))
    query = Query(server, queue)
    query.run(ReadMaxRows(1))
    with channel(server) as other:
        query.reader.stop()  # Committed, and given back before it was settled.
        method, _, _ = other.basic_get(queue)
        query.start()
        query.reader.prepareForTriggerAvailableNow()
        assert query.run(ReadMaxRows(1)) == texts(1, 1)
        settle = query.reader._holder.settle

        def settle_before_it_comes_back(rows: Spans) -> Spans:
            left = settle(rows)
            if other.is_open:
                other.basic_nack(method.delivery_tag)
                other.close()
            return left

        query.reader._holder.settle = settle_before_it_comes_back
        assert query.run(ReadMaxRows(1)) == texts(1, 2)
        assert query.run(ReadMaxRows(1)) == []
    query.reader.stop()
    assert drain(server, queue) == []


def test_a_driver_that_is_terminated_twice_ends_once(server: Broker, queue: str) -> None:
    publish(server, queue, texts(1))
    query = Query(server, queue, maxFailures="1")
    query.plan()
    query.rows()
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)  # Spark does so.
    query.reader.stop()
    assert drain(server, queue) == []


def test_priorities_are_partitions(server: Broker, new_topic: Callable[..., str]) -> None:
    import pika

    queue = declare(server, new_topic("q"), max_priority=1)
    with channel(server) as made:
        for priority in (0, 1, 0):
            made.basic_publish("", queue, b"%d" % priority, pika.BasicProperties(priority=priority))
    query = Query(server, queue)
    assert sorted(query.run()) == ["0", "0", "1"]
    query.run()
    query.reader.stop()


def test_queues_that_cannot_be_read_so(server: Broker, new_topic: Callable[..., str]) -> None:
    topic = create(server, new_topic())
    with pytest.raises(OptionError, match="is a topic; read it with subscribe"):
        Query(server, topic)
    with channel(server) as made:
        made.queue_declare("fleeting", durable=False, exclusive=False)
        with pytest.raises(OptionError, match="is not durable"):
            Query(server, "fleeting")
    with pytest.raises(Exception, match="no queue 'missing'"):
        Query(server, "missing")
