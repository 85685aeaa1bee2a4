"""Tells a broker how far queries of Spark are, for its console and for whoever reads the topic.

    from entrepot.spark.reporting import Reports

    spark.streams.addListener(Reports("localhost:9092"))

Every query of the session is told of: when it starts, after each micro-batch, when it ends. What
is told is what Spark reports of its progress, shortened; a record of the compacted topic
`spark.progress` for each, so the newest of each query stays. A query never waits for this: a
thread writes, and what it cannot write in time is left out.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from functools import partial
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from entrepot.client.admin import Admin, NewTopic
from entrepot.client.client import Client
from entrepot.client.errors import ClientError
from entrepot.core import batch
from entrepot.core.clock import SystemClock
from entrepot.core.record import Record
from entrepot.spark.connecting import Connected
from entrepot.spark.options import Address
from entrepot.spark.progress import sources_behind

TOPIC = "spark.progress"
CLIENT_ID = "entrepot-spark-progress"
WAITING_MAX = 100
CLOSE_S = 2.0  # For what waits; and for Spark, to tell of the queries that have just ended.

log = logging.getLogger(__name__)

Told = dict[str, Any]


class Reports(StreamingQueryListener):
    def __init__(self, address: str | Address) -> None:
        self._address = Address(address) if isinstance(address, str) else address
        self._names: dict[str, str] = {}  # By the query's id. A progress has no name to go by.
        self._running: dict[str, None] = {}  # Queries; and whether there are none.
        self._all_ended = threading.Event()
        self._all_ended.set()
        self._waiting: queue.Queue[Told | None] = queue.Queue(WAITING_MAX)
        self._writer = threading.Thread(target=self._write_all, name=CLIENT_ID, daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Write what waits, for as long as that does not take long. The queries have ended."""
        self._all_ended.wait(CLOSE_S)
        self._put(None)
        self._writer.join(CLOSE_S)

    # --- called by Spark

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        self._running[str(event.id)] = None
        self._all_ended.clear()
        self._tell(str(event.id), event.name, {"state": "running"})

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        report = json.loads(event.progress.json)
        self._tell(str(event.progress.id), event.progress.name, {"state": "running"} | told(report))

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...  # noqa: N802

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        error = event.exception
        ended = {"state": "failed", "error": error[:1_000]} if error else {"state": "ended"}
        self._tell(str(event.id), None, ended)
        self._running.pop(str(event.id), None)
        if not self._running:
            self._all_ended.set()

    # --- writing

    def _tell(self, identity: str, name: str | None, what: Told) -> None:
        if name:
            self._names[identity] = name
        now_ms = SystemClock().now_ms()
        self._put({"id": identity, "name": self._names.get(identity), "time": now_ms} | what)

    def _put(self, what: Told | None) -> None:
        try:
            self._waiting.put_nowait(what)
        except queue.Full:
            log.warning("the broker does not take the progress of queries: some is left out")

    def _write_all(self) -> None:
        with Connected(self._address, client_id=CLIENT_ID) as connected:
            while (what := self._waiting.get()) is not None:
                try:
                    connected.run(partial(_write, what))
                except ClientError as error:
                    log.warning("the progress of a query is not written: %s", error)


async def _write(what: Told, client: Client) -> None:
    topic = NewTopic(TOPIC, 1, settings={"cleanup.policy": "compact"})
    await Admin(client).ensure_topic(topic)
    record = Record(what["id"].encode(), json.dumps(what).encode(), ())
    await client.produce(TOPIC, 0, batch.build([record], now_ms=what["time"]))


def told(report: Told) -> Told:
    """Return what of Spark's report of a progress is told. While nothing comes, Spark now and then
    reports a batch that has not been: then there is nothing to tell but that it runs."""
    if "addBatch" not in report["durationMs"]:
        return {}
    behind = sources_behind(json.dumps(report))
    return {
        "batch": report["batchId"],
        "rows": report["numInputRows"],
        "input_rows_per_s": report.get("inputRowsPerSecond"),
        "rows_per_s": report.get("processedRowsPerSecond"),
        "batch_ms": report.get("batchDuration"),
        "topics": sorted({topic for each in behind for topic in each.get("topics", ())}),
        "behind": max((each["maxOffsetsBehindLatest"] for each in behind if each), default=None),
        "sink": report.get("sink", {}).get("description", "")[:200],
    }
