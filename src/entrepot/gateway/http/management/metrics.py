"""Metrics in Prometheus' text format, at `/metrics`.

A scrape needs a login, as the rest of the API, and the right to describe the cluster. Partitions
and queues are listed one by one up to a limit, which is a setting; beyond it they count in the
totals only, and `entrepot_rows_left_out` says how many. The page is made in turns, so that other
clients are served meanwhile.

prometheus-client is imported for the first scrape, by a worker: it takes a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.queue import Queue
from entrepot.core.errors import UnknownTopic, UnknownVhost
from entrepot.core.measures import Histogram
from entrepot.core.steps import Steps
from entrepot.gateway.http.management.call import Call, denied
from entrepot.wire.http.response import Response

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

SAMPLES_AT_ONCE = 250  # Written in one step.
# Kafka's clients fetch ranges of files, and nobody counts the records in them.
_NOT_COUNTED = ("kafka", "kafka_tls")
_TYPE = ("Content-Type", "text/plain; version=0.0.4; charset=utf-8")

Labels = tuple[str, ...]
Samples = Sequence[tuple[Labels, float]]


class Family(NamedTuple):
    """One metric: its name without the prefix, what it means, and its samples by labels."""

    name: str
    text: str
    labels: Labels
    samples: Samples
    is_counter: bool = False


async def scrape(call: Call) -> Response:
    """Return all metrics. Raises HttpError without the right to describe the cluster."""
    if not call.principal.may(Operation.DESCRIBE, ResourceKind.CLUSTER):
        raise denied("Not monitor user")
    library = await call.broker.codec_worker(lambda: import_module("prometheus_client"))
    return Response(200, await call.broker.turns.run(_page(call, library)), (_TYPE,))


def _page(call: Call, library: Any) -> Steps[bytearray]:
    page = bytearray()
    for metric in library.PROCESS_COLLECTOR.collect():
        page += _text(library, metric)
    yield
    page += _text(library, _latency(library, call.broker.commit_latency))
    for family in (*_of_node(call), *_of_listeners(call)):
        page += _text(library, _metric(library, family, family.samples))
        yield
    partitions = yield from _partition_rows(call)
    queues = yield from _queue_rows(call)
    for family in (*_of_rows(partitions), *_of_rows(queues), _left_out(partitions, queues)):
        yield from _write(library, family, page)
    return page


# --- the text format


def _write(library: Any, family: Family, page: bytearray) -> Steps[None]:
    """Append the text of a family, some samples in each step."""
    for start in range(0, max(1, len(family.samples)), SAMPLES_AT_ONCE):
        some = family.samples[start : start + SAMPLES_AT_ONCE]
        text = _text(library, _metric(library, family, some))
        if start:  # The lines of its name and type come once.
            text = b"".join(line for line in text.splitlines(True) if not line.startswith(b"#"))
        page += text
        yield


def _metric(library: Any, family: Family, samples: Samples) -> Metric:
    core = library.metrics_core
    kind = core.CounterMetricFamily if family.is_counter else core.GaugeMetricFamily
    metric: Metric = kind(f"entrepot_{family.name}", family.text, labels=family.labels)
    for labels, value in samples:
        metric.add_metric(labels, value)  # type: ignore[attr-defined]
    return metric


def _latency(library: Any, histogram: Histogram) -> Metric:
    buckets, count = [], 0
    for bound, more in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        count += more
        buckets.append((str(bound), count))
    found: Metric = library.metrics_core.HistogramMetricFamily(
        "entrepot_commit_latency_seconds",
        "How long commits took, from the start of each to the end of its sync.",
        buckets=buckets,
        sum_value=histogram.total,
    )
    return found


class _Only(NamedTuple):
    """A collector with one metric, as the library's writer takes it."""

    metric: Metric

    def collect(self) -> Iterable[Metric]:
        return [self.metric]


def _text(library: Any, metric: Metric) -> bytes:
    text: bytes = library.generate_latest(_Only(metric))
    return text


def _label(name: str) -> str:
    """Return a name as a label. Names of queues need not be Unicode."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# --- the broker as a whole


def _of_node(call: Call) -> Iterator[Family]:
    broker, context = call.broker, call.context
    yield _one("build_info", "1, with the version as a label.", 1, version=context.version)
    topics = list(broker.topics.values())
    yield _one("topics", "Topics, with those of queues and the broker's own.", len(topics))
    count = sum(topic.partition_count for topic in topics)
    yield _one("partitions", "Partitions of all topics.", count)
    faults = [fault.state for fault in broker.partition_faults()]
    states = [((state,), faults.count(state)) for state in ("refused", "stopped", "damaged")]
    text = "Partitions that cannot be read, or written, or not everywhere."
    yield Family("partitions_faulty", text, ("state",), states)
    text = "Syncs of files that failed. Each stops a partition, or the journal."
    yield _one("sync_errors", text, broker.sync_errors, is_counter=True)
    text = "Mistakes in the broker's own code; the log has their tracebacks."
    yield _one("internal_errors", text, broker.faults.count, is_counter=True)
    text = "Input that all connections together have sent and that is not processed yet."
    yield _one("unfinished_input_bytes", text, context.sources.unfinished_bytes())


def _one(name: str, text: str, value: float, *, is_counter: bool = False, **labels: str) -> Family:
    return Family(name, text, tuple(labels), [(tuple(labels.values()), value)], is_counter)


def _of_listeners(call: Call) -> Iterator[Family]:
    sources = call.context.sources
    traffic, messages = dict(sources.traffic()), dict(sources.messages)

    def family(name: str, text: str, found: Mapping[str, float], is_counter: bool = True) -> Family:
        samples = [((protocol,), value) for protocol, value in found.items()]
        return Family(name, text, ("protocol",), samples, is_counter)

    is_open = {name: each.opened - each.closed for name, each in traffic.items()}
    yield family("connections", "Open connections.", is_open, is_counter=False)
    opened = {name: each.opened for name, each in traffic.items()}
    yield family("connections_opened", "Connections that were accepted.", opened)
    received = {name: each.bytes_received for name, each in traffic.items()}
    yield family("received_bytes", "Bytes received from clients.", received)
    sent = {name: each.bytes_sent for name, each in traffic.items()}
    yield family("sent_bytes", "Bytes sent to clients.", sent)
    published = {name: each.published for name, each in messages.items()}
    yield family("messages_published", "Messages published by clients.", published)
    delivered = {
        name: each.delivered for name, each in messages.items() if name not in _NOT_COUNTED
    }
    yield family("messages_delivered", "Messages delivered to clients.", delivered)


# --- partitions and queues, up to a limit


class _Rows(NamedTuple):
    """The values of partitions or queues, by labels."""

    kind: str
    labels: Labels
    texts: Mapping[str, str]  # Metric -> what it means, in the order of the values.
    found: dict[Labels, tuple[float, ...]]
    total: int  # How many there are, listed or not.


def _rows(
    kind: str,
    labels: Labels,
    texts: Mapping[str, str],
    all_of_them: Iterator[Callable[[], tuple[Labels, tuple[float, ...]] | None]],
    count_max: int,
) -> Steps[_Rows]:
    found: dict[Labels, tuple[float, ...]] = {}
    count = 0
    for look in all_of_them:
        count += 1
        if len(found) < count_max:
            row = look()
            if row is not None:
                found[tuple(map(_label, row[0]))] = row[1]
        yield
    return _Rows(kind, labels, texts, found, count)


def _partition_rows(call: Call) -> Steps[_Rows]:
    broker = call.broker

    def row(name: str, index: int) -> tuple[Labels, tuple[float, ...]] | None:
        with suppress(UnknownTopic):  # It may be deleted by now.
            partition = broker.served_partition(broker.topic(name), index).partition
            sizes = partition.offset_start, partition.offset_end, partition.size
            return (name, str(index)), sizes
        return None

    texts = {
        "partition_log_start_offset": "The offset of the oldest record.",
        "partition_log_end_offset": "The offset after the newest record.",
        "partition_size_bytes": "The size of the partition's segments.",
    }
    topics = [
        topic
        for topic in broker.topics.values()
        if not topic.is_queue and not broker.is_internal(topic.name)
    ]
    looks = (
        lambda name=topic.name, index=index: row(name, index)
        for topic in topics
        for index in range(topic.partition_count)
    )
    count_max = call.context.sources.rows_max
    return (yield from _rows("partition", ("topic", "partition"), texts, looks, count_max))


def _queue_rows(call: Call) -> Steps[_Rows]:
    texts = {
        "queue_messages_ready": "Messages that can be delivered.",
        "queue_messages_leased": "Messages that are delivered and not acknowledged.",
        "queue_consumers": "Consumers.",
    }
    queues: list[Queue] = []
    for name in list(call.broker.vhosts.names):
        with suppress(UnknownVhost):  # It may be about to be deleted.
            queues += call.broker.vhosts.get(name).queues.values()
    looks = (
        lambda queue=queue: (
            None
            if queue.fault is not None
            else (
                (queue.vhost, queue.name),
                (queue.ready_count, queue.unacked_count, queue.consumer_count),
            )
        )
        for queue in queues
    )
    count_max = call.context.sources.rows_max
    return (yield from _rows("queue", ("vhost", "queue"), texts, looks, count_max))


def _of_rows(rows: _Rows) -> Iterator[Family]:
    for place, (name, text) in enumerate(rows.texts.items()):
        samples = [(labels, values[place]) for labels, values in rows.found.items()]
        yield Family(name, text, rows.labels, samples)


def _left_out(*all_rows: _Rows) -> Family:
    samples = [((rows.kind,), rows.total - len(rows.found)) for rows in all_rows]
    text = "Partitions and queues that are not listed: beyond the limit, or not readable."
    return Family("rows_left_out", text, ("kind",), samples)
