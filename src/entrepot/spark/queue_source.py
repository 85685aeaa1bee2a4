"""A queue as a stream: `spark.readStream.format("entrepot").option("queue", "work")`.

The driver leases messages for a batch, and settles them when Spark asks what comes after it:
then the batch is committed for good. Tasks read the leased offsets from the queue's log, as
of a topic. `plans` says how a batch is the same again after a crash, and what is done about
one that keeps failing; `leasing` how leases live through a restart of the broker.

A failure is only what is reported: Spark ends this process while a batch is running. It counts
against a message, in its queue, when that was the only one in the batch; nobody can say whose
fault it was otherwise. A driver that is killed reports nothing, and its lease runs out.
"""

import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from entrepot.client.errors import ClientError
from entrepot.client.queue_leases import QueueLeases
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.spark.connecting import Connected
from entrepot.spark.leasing import Leaseholder
from entrepot.spark.options import OptionError, QueueSourceOptions
from entrepot.spark.plans import Plan, Tried, recall_tried, remember_tried
from entrepot.spark.queue_rows import Rows, divide, read_rows
from entrepot.spark.spans import Spans

PLAN_ID_BYTES = 12

Json = dict[str, Any]


class QueuePart(InputPartition):
    """One task's work."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)


class Running(NamedTuple):
    plan: Plan
    tried: Tried


class Settled(NamedTuple):
    plan_id: str
    tried: Tried
    left: Spans  # What somebody else has.


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are plans, as JSON that Spark keeps, and hands back."""

    def __init__(self, options: QueueSourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._holder: Leaseholder | None = None  # Only on the driver.
        self._planned: tuple[str, Plan] | None = None  # After which offset, and what.
        self._running: Running | None = None
        self._settled: Settled | None = None  # Of the last batch.
        self._is_available_now = False
        self._left: int | None = None  # Messages, until an available-now query ends.

    def initialOffset(self) -> Json:  # noqa: N802
        self._driver()
        return Plan().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.trigger_rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note it. Messages are counted later: a predecessor may be about to give back its last."""
        self._is_available_now = True

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Plan the next batch. Spark asks when the batch up to `start` is committed, for good."""
        after = json.dumps(start)
        if self._planned is not None and self._planned[0] == after:
            return self._planned[1].to_json()
        before = Plan.from_json(start)
        holder = self._driver()
        settled = self._finished(before)
        if self._is_available_now and self._left is None:
            self._left = holder.facts()["messages_ready"]
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.trigger_rows_max
        size, hold = before.next_size(settled.tried, most)
        count = min(size or most, most if self._left is None else self._left)
        rows, unsettled = self._next_rows(count, settled)
        if not rows:
            return start
        if self._left is not None:
            self._left -= len(rows)
        name = SystemEntropy().token(PLAN_ID_BYTES).hex()
        plan = Plan(name, holder.lease, rows, unsettled, size, hold)
        self._planned = after, plan
        return plan.to_json()

    def partitions(self, start: Json, end: Json) -> list[QueuePart]:
        if start == end:
            return []
        plan = Plan.from_json(end)
        if self._planned is not None and self._planned[1].id == plan.id:
            self._running = Running(plan, Tried(plan.rows, lease=plan.lease))
        elif self._running is None or self._running.plan.id != plan.id:
            self._running = self._resumed(plan)
        rows, options = self._running.tried.rows, self._options
        tasks = divide(options.queue, rows, options.partitions_min, options.range_rows_max)
        return [QueuePart(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_rows(self._options, self._schema, partition.value)

    def commit(self, end: Json) -> None:
        """Do nothing: the batch was settled when the next one was asked for."""

    def stop(self) -> None:
        holder, self._holder = self._holder, None
        if holder is None:
            return
        _on_termination(signal.SIG_IGN)  # This must be said to the end.
        with contextlib.suppress(ClientError):  # Then it runs out, and does not count.
            if self._running is not None:
                self._report_failure(holder, *self._running)
            else:
                holder.give_back()
        holder.close()
        _on_termination(signal.SIG_DFL)

    # --- the driver's

    def _driver(self) -> Leaseholder:
        if self._holder is None:
            options = self._options
            api = QueueLeases(options.http, options.login, options.queue)
            self._holder = Leaseholder(api, options.lease_seconds)
            check_queue(self._holder.facts())
            # Spark ends its driver's Python so. The batch that is running has failed then.
            _on_termination(_end)
        return self._holder

    def _next_rows(self, count: int, settled: Settled) -> tuple[Spans, Spans]:
        """Lease at most so many messages. Those that earlier batches had, and that somebody has
        given back, are settled at last; also returns what is left of these."""
        holder, rows, left = self._driver(), Spans(), settled.left
        while count and not rows and (rows := holder.take(count)):
            known = rows & left
            rows -= known
            if known and holder.settle_part(known):
                left -= known
        self._settled = settled._replace(left=left)
        return rows, left

    def _finished(self, plan: Plan) -> Settled:
        """Settle a batch, for good."""
        known = self._settled
        if known is not None and known.plan_id == plan.id:
            tried, left = known.tried, known.left
        else:
            tried = self._tried(plan)
            left = tried.rows + plan.unsettled
        if left:
            left = self._driver().settle(left)
        self._running, self._settled = None, Settled(plan.id, tried, left)
        return self._settled

    def _tried(self, plan: Plan) -> Tried:
        """Return what was read of a plan: known if this process ran it, else looked up."""
        if not plan.id:
            return Tried(plan.rows)
        if self._running is not None and self._running.plan.id == plan.id:
            return self._running.tried
        return self._recalled(plan)

    def _recalled(self, plan: Plan) -> Tried:
        with Connected(self._options.address) as connected:
            return connected.run(lambda client: recall_tried(client, plan))

    def _resumed(self, plan: Plan) -> Running:
        """Begin a batch that another process planned, when that one is at its end."""
        holder, before = self._driver(), self._recalled(plan)
        lease = before.lease
        if lease is not None and not holder.wait_for_predecessor(lease):
            lease, before = None, self._recalled(plan)
        tried = before.for_next_try()
        gone = holder.resume(lease, tried.rows, plan.rows - tried.rows)
        # A message that failed alone may be a dead letter by now. Else nothing is left out.
        rows = tried.rows - gone if tried.is_reduced else tried.rows
        tried = replace(tried, rows=rows, lease=holder.lease)
        self._remember(plan, tried)
        return Running(plan, tried)

    def _report_failure(self, holder: Leaseholder, plan: Plan, tried: Tried) -> None:
        if not self._may_report(holder, plan, tried):
            return
        failed = tried.failed()
        self._remember(plan, failed)
        is_alone = len(tried.rows) == 1
        most = self._options.failures_max
        is_enough = is_alone and most is not None and failed.failures >= most
        holder.give_back(failed=is_alone, reject=is_enough)

    def _may_report(self, holder: Leaseholder, plan: Plan, tried: Tried) -> bool:
        """Return whether no successor is at work: what it remembers must not be undone."""
        if holder.renew():
            return True
        # With all its messages dead or settled, a batch has no lease that a successor could take
        # over. Its failures count all the same, or it would be read, and fail, for ever.
        return holder.is_for_nothing and self._recalled(plan) == tried

    def _remember(self, plan: Plan, tried: Tried) -> None:
        with Connected(self._options.address) as connected:
            connected.run(lambda client: remember_tried(client, SystemClock(), plan, tried))


def _end(*_: object) -> None:
    """Exit with a report. Spark sends the signal twice; the second must not interrupt that."""
    _on_termination(signal.SIG_IGN)
    sys.exit(0)


def _on_termination(what: Any) -> None:
    with contextlib.suppress(ValueError):  # Not the main thread: then it is not our process.
        signal.signal(signal.SIGTERM, what)


def check_queue(facts: Json) -> None:
    """Raise OptionError for a queue that has no log that tasks could read."""
    if facts.get("type") == "stream":
        raise OptionError(f"queue: {facts['name']} is a topic; read it with subscribe")
    if not facts.get("durable") or facts.get("exclusive"):
        raise OptionError(f"queue: {facts['name']} is not durable, so it has no log to read")
