"""One look at the broker: what the overview's charts are made of.

Rates are differences between two looks. What is known at once (counters of protocols, of commits,
of the process) is taken each time. What has to be added up over all queues and partitions is a
sweep, in turns; the next one waits until the last has cost at most a hundredth of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from entrepot.broker.broker import Broker
from entrepot.broker.held import Problem
from entrepot.core.errors import UnknownTopic, UnknownVhost
from entrepot.core.measures import Traffic
from entrepot.core.ports import Clock, Space
from entrepot.core.steps import Steps
from entrepot.gateway.http.management.call import Sources

Row = dict[str, Any]

SWEEP_S_MIN = 2.0
_SWEEP_SHARE = 100  # A sweep waits as often its own duration.
_STEP = 50  # Queues or partitions in a step.
_ALARMS_MAX = 20
_CLUSTER_ALARMS = {
    Problem.OFFLINE: "Partitions without a leader",
    Problem.TOO_FEW_IN_SYNC: "Partitions with too few replicas in sync",
    Problem.UNDER_REPLICATED: "Partitions that lack a replica",
}
_UNKNOWN = Space(0, 0)
_TOTALS = ("ready", "unacked", "queues", "topics", "partitions", "nodes", "log_bytes")
_DISK_LOW_SHARE, _DISK_LOW_BYTES = 0.05, 2**30
# Kafka's clients fetch ranges of files, and nobody counts the records in them.
_NOT_COUNTED = ("kafka", "kafka_tls")


@dataclass(slots=True)
class Totals:
    """What is added up over everything, at one time."""

    space: Space = _UNKNOWN
    ready: int = 0
    unacked: int = 0
    queues: int = 0
    topics: int = 0
    partitions: int = 0
    nodes: int = 1
    log_bytes: int = 0
    alarms: list[str] = field(default_factory=list)

    def alarm(self, text: str) -> None:
        if len(self.alarms) < _ALARMS_MAX:
            self.alarms.append(text)


class Sampler:
    """Makes the samples; keeps what the next one is compared with."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        sources: Sources,
        space: Callable[[], Awaitable[Space]],
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._sources = sources
        self._space = space
        # Returns seconds of processor and bytes of memory; None until it is loaded.
        self.process: Callable[[], tuple[float, float]] | None = None
        self._before: dict[str, tuple[float, ...]] = {}
        self._time_s = 0.0
        self._totals: Totals | None = None  # Not known before the first sweep has ended.
        self._sweeping: asyncio.Future[None] | None = None
        self._sweep_s = 0.0  # When the next sweep is due.

    def forget(self) -> None:
        """Begin anew: what is compared next is not as old as the last sample."""
        self._before.clear()
        self._sweep_s = 0.0

    def sample(self) -> Row:
        now_s = self._clock.monotonic()
        seconds = max(now_s - self._time_s, 0.001) if self._before else 0.0
        self._time_s = now_s
        totals, broker = self._totals, self._broker
        free, size = _UNKNOWN if totals is None else totals.space
        row: Row = {
            "t": self._clock.now_ms(),
            "protocols": dict(self._protocols(seconds)),
            "connections": sum(each.opened - each.closed for each in self.traffic().values()),
            "clients": len(broker.sessions),
            **{name: getattr(totals, name, None) for name in _TOTALS},
            "disk_free": free,
            "disk_size": size,
            "errors": broker.faults.count,
            "alarms": [*self._alarms(free, size), *([] if totals is None else totals.alarms)],
        }
        row["commits"], row["commit_ms"] = self._commits(seconds)
        if self.process is not None:
            cpu_s, row["memory"] = self.process()
            (used_s,) = self._rates("cpu", (cpu_s,), seconds)
            row["cpu"] = _rounded(used_s, 4)
        return row

    def traffic(self) -> dict[str, Traffic]:
        return dict(self._sources.traffic())

    def _rates(
        self, name: str, now: tuple[float, ...], seconds: float
    ) -> tuple[float, ...] | tuple[None, ...]:
        """Return by how much these have grown in a second; None the first time."""
        before = self._before.get(name)
        self._before[name] = now
        if before is None or not seconds:
            return (None,) * len(now)
        return tuple((new - old) / seconds for new, old in zip(now, before, strict=True))

    def _protocols(self, seconds: float) -> Iterator[tuple[str, Row]]:
        messages = self._sources.messages
        for name, traffic in self.traffic().items():
            count = messages.get(name)
            published = 0 if count is None else count.published
            delivered = 0 if count is None else count.delivered
            now = published, delivered, traffic.bytes_received, traffic.bytes_sent
            rates = [_rounded(each, 1) for each in self._rates(name, now, seconds)]
            is_counted = count is not None and name not in _NOT_COUNTED
            yield (
                name,
                {
                    "in": None if count is None else rates[0],
                    "out": rates[1] if is_counted else None,
                    "bytes_in": rates[2],
                    "bytes_out": rates[3],
                    "connections": traffic.opened - traffic.closed,
                },
            )

    def _commits(self, seconds: float) -> tuple[float | None, float | None]:
        """Return commits in a second, and how long each took in ms."""
        latency = self._broker.commit_latency
        count, total = self._rates("commits", (sum(latency.counts), latency.total), seconds)
        if count is None or total is None:
            return None, None
        return round(count, 1), round(total / count * 1_000, 2) if count else 0.0

    def _alarms(self, free: int, size: int) -> Iterator[str]:
        broker = self._broker
        if size and free < min(size * _DISK_LOW_SHARE, _DISK_LOW_BYTES):
            yield f"The disk is nearly full: {free // 2**20} MiB are free."
        if not broker.sessions.is_accepting:
            yield "The application is stopped: clients of queues are refused."
        if broker.sync_errors:
            yield f"{broker.sync_errors} syncs of files have failed."
        for tier in broker.copier.troubles()[:_ALARMS_MAX]:
            yield f"Segments of {tier.name} are not copied: {tier.reason}"

    # --- sweeps

    def sweep_if_due(self) -> None:
        """Add up everything again, in the background, if it is time."""
        if self._sweeping is None and self._sweep_s <= self._clock.monotonic():
            self._sweeping = asyncio.ensure_future(self._sweep())
            self._sweeping.add_done_callback(self._swept)

    async def _sweep(self) -> None:
        started_s = self._clock.monotonic()
        try:
            totals = Totals(space=await self._space())
            await self._broker.turns.run(self._add_up(totals))
            self._totals = totals
        finally:
            now_s = self._clock.monotonic()
            self._sweep_s = now_s + max(SWEEP_S_MIN, (now_s - started_s) * _SWEEP_SHARE)

    def _swept(self, done: asyncio.Future[None]) -> None:
        self._sweeping = None
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._broker.faults.caught("the console's totals", error)

    def _add_up(self, totals: Totals) -> Steps[None]:
        yield from self._add_queues(totals)
        yield from self._add_topics(totals)
        yield from self._add_cluster(totals)

    def _add_cluster(self, totals: Totals) -> Steps[None]:
        """Count the nodes, and the partitions of all of them that lack something."""
        broker, cluster = self._broker, self._broker.cluster
        if cluster is None:
            return
        alive = {each.id for each in cluster.peers()}
        counts = dict.fromkeys(_CLUSTER_ALARMS, 0)
        for number, held in enumerate(broker.held()):
            if (problem := held.problem(alive)) is not None:
                counts[problem] += 1
            if number % _STEP == 0:
                yield
        totals.nodes = len(alive)
        for problem, count in counts.items():
            if count:
                totals.alarm(f"{_CLUSTER_ALARMS[problem]}: {count}.")

    def _add_queues(self, totals: Totals) -> Steps[None]:
        for name in list(self._broker.vhosts.names):
            with suppress(UnknownVhost):  # It may be about to be deleted.
                queues = list(self._broker.vhosts.get(name).queues.values())
                totals.queues += len(queues)
                for number, queue in enumerate(queues):
                    fault = queue.fault
                    if fault is None:
                        totals.ready += queue.ready_count
                        totals.unacked += queue.unacked_count
                    elif not queue.is_gone:
                        totals.alarm(f"Queue {queue.name} is down: {fault}")
                    if number % _STEP == 0:
                        yield

    def _add_topics(self, totals: Totals) -> Steps[None]:
        broker = self._broker
        topics = list(broker.catalog.all_topics())
        for topic in topics:
            if not topic.is_queue and not broker.is_internal(topic.name) and not topic.is_hidden:
                totals.topics += 1
            for index in range(topic.partition_count):
                with suppress(UnknownTopic):  # It may be deleted by now.
                    partition = broker.served_partition(topic, index).partition
                    totals.partitions += 1
                    totals.log_bytes += partition.size
                    reason = partition.stopped or partition.damage
                    if reason is not None:
                        totals.alarm(f"Partition {partition.directory}: {reason}")
                if totals.partitions % _STEP == 0:
                    yield


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
