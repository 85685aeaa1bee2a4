"""Metrics in Prometheus' text format, at `/metrics`.

A scrape needs a login, as the rest of the API, and the right to describe the cluster. The page is
made in turns, so that other clients are served meanwhile (`metrics_text`). Here is what concerns
the broker as a whole; partitions, queues and groups are in `metrics_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.held import Problem
from entrepot.core import limits
from entrepot.core.errors import UnknownVhost
from entrepot.core.measures import Histogram
from entrepot.core.ports import Space
from entrepot.core.steps import Steps
from entrepot.gateway.http.management.call import Call, Context, denied
from entrepot.gateway.http.management.metrics_rows import all_rows
from entrepot.gateway.http.management.metrics_text import (
    Family,
    Rows,
    histogram_of,
    text_of,
    write,
    write_rows,
)
from entrepot.wire.http.response import Response

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# Kafka's clients fetch ranges of files, and nobody counts the records in them.
_KAFKA = ("kafka", "kafka_tls")
_HELD_STEP = 100  # Partitions of a cluster that are counted at once.
_TYPE = ("Content-Type", "text/plain; version=0.0.4; charset=utf-8")


async def scrape(call: Call) -> Response:
    """Return all metrics. Raises HttpError without the right to describe the cluster."""
    if not call.principal.may(Operation.DESCRIBE, ResourceKind.CLUSTER):
        raise denied("Not monitor user")
    library = await call.broker.codec_worker(lambda: import_module("prometheus_client"))
    space = None
    if call.context.sources.space is not None:
        with suppress(OSError):
            space = await call.context.sources.space()
    return Response(
        200, await call.broker.turns.run(page_in_steps(call.context, library, space)), (_TYPE,)
    )


def page_in_steps(context: Context, library: Any, space: Space | None) -> Steps[bytearray]:
    page = bytearray()
    for collector in (library.PROCESS_COLLECTOR, library.GC_COLLECTOR):
        for metric in collector.collect():
            page += text_of(library, metric)
        yield
    for metric in _latencies(context, library):
        page += text_of(library, metric)
        yield
    for family in chain(_of_node(context), _of_resources(context, space), _of_listeners(context)):
        yield from write(library, family, page)
    for family in (yield from _of_cluster(context)):
        yield from write(library, family, page)
    kinds = yield from all_rows(context)
    for rows in kinds:
        yield from write_rows(library, rows, context.label_texts, page)
    yield from write(library, _left_out(kinds), page)
    return page


def _latencies(context: Context, library: Any) -> Iterator[Metric]:
    sources = context.sources

    def histogram(name: str, text: str, found: Mapping[str, Histogram]) -> Metric:
        return histogram_of(library, name, text, found)

    text = "How long commits took, from the start of each to the end of its sync."
    yield histogram("commit_latency_seconds", text, {"": context.broker.commit_latency})
    kafka = {name: each for name, each in sources.messages.items() if name in _KAFKA}
    others = {name: each for name, each in sources.messages.items() if name not in _KAFKA}
    text = "How long requests to produce took until their answer, of a sample."
    found = {name: each.answering.histogram for name, each in kafka.items()}
    yield histogram("produce_latency_seconds", text, found)
    text = "How long requests to fetch took that had not to wait for records, of a sample."
    found = {name: each.fetching.histogram for name, each in kafka.items()}
    yield histogram("fetch_latency_seconds", text, found)
    text = "How long messages took from being published to being confirmed, of a sample."
    found = {name: each.answering.histogram for name, each in others.items()}
    yield histogram("confirm_latency_seconds", text, found)
    text = "How late the event loop calls a timer: how long whoever asks has to wait before."
    yield histogram("event_loop_lag_seconds", text, {"": sources.pulse.lag})
    text = "How long full garbage collections took, in which nobody is served."
    yield histogram("garbage_collection_seconds", text, {"": sources.pulse.collections})


# --- the broker as a whole


def _of_node(context: Context) -> Iterator[Family]:
    broker = context.broker
    yield _one("build_info", "1, with the version as a label.", 1, version=context.version)
    topics = list(broker.topics.values())
    yield _one("topics", "Topics, with those of queues and the broker's own.", len(topics))
    count = sum(topic.partition_count for topic in topics)
    yield _one("partitions", "Partitions of all topics.", count)
    queues = 0
    for name in broker.vhosts.names:
        with suppress(UnknownVhost):  # It may be about to be deleted.
            queues += len(broker.vhosts.get(name).queues)
    yield _one("queues", "Queues of all virtual hosts.", queues)
    faults = [fault.state for fault in broker.partition_faults()]
    states = [((state,), faults.count(state)) for state in ("refused", "stopped", "damaged")]
    text = "Partitions that cannot be read, or written, or not everywhere."
    yield Family("partitions_faulty", text, ("state",), states)
    text = "Syncs of files that failed. Each stops a partition, or the journal."
    yield _one("sync_errors", text, broker.sync_errors, is_counter=True)
    text = "Mistakes in the broker's own code; the log has their tracebacks."
    yield _one("internal_errors", text, broker.faults.count, is_counter=True)
    yield from _of_copier(context)
    text = "Input that all connections together have sent and that is not processed yet."
    yield _one("unfinished_input_bytes", text, context.sources.unfinished_bytes())
    text = "What entrepot_unfinished_input_bytes may be."
    yield _one("unfinished_input_limit_bytes", text, context.sources.unfinished_bytes_max)


def _of_cluster(context: Context) -> Steps[list[Family]]:
    """Return what each node counts so that the sum over all nodes is that of the cluster: its
    leader counts a partition, and the controller those that nobody leads. A broker alone leads
    all."""
    broker, cluster = context.broker, context.broker.cluster
    counts = dict.fromkeys(Problem, 0)
    led, at_min, alive = 0, 0, {broker.node_id}
    if cluster is None:
        led = sum(topic.partition_count for topic in list(broker.topics.values()))
    else:
        alive = {each.id for each in cluster.peers()}
        for number, held in enumerate(broker.held()):
            problem, is_leader = held.problem(alive), held.holders.leader == broker.node_id
            led += is_leader
            at_min += is_leader and len(held.holders.in_sync) == held.in_sync_min
            decides = broker.node_id == cluster.controller
            if problem is not None and (decides if problem is Problem.OFFLINE else is_leader):
                counts[problem] += 1
            if number % _HELD_STEP == 0:
                yield
    is_controller = cluster is None or cluster.controller == broker.node_id
    text = "Partitions that lack something; counted by their leader, or else by the controller."
    samples = [((problem.value,), count) for problem, count in counts.items()]
    return [
        _one("cluster_nodes", "Nodes that are alive, as this one knows.", len(alive)),
        _one("cluster_controller", "1 on the node that decides who leads.", int(is_controller)),
        _one("partitions_led", "Partitions that this node leads.", led),
        Family("partitions_lacking", text, ("problem",), samples),
        _one(
            "partitions_at_min_in_sync", "Those that one more failure closes to acks=all.", at_min
        ),
    ]


def _of_resources(context: Context, space: Space | None) -> Iterator[Family]:
    """Yield what there is of memory and disk, and what is short."""
    memory = context.broker.vhosts.memory_use
    alarms = []
    if memory is not None:
        text = "Memory of messages that are not on disk."
        yield _one("message_memory_bytes", text, memory.size)
        text = "Above it publishers have to wait."
        yield _one("message_memory_limit_bytes", text, memory.bytes_max)
        alarms.append((("memory",), int(memory.is_high)))
    if space is not None:
        yield _one("disk_free_bytes", "Free on the disk with the data directory.", space.free)
        yield _one("disk_size_bytes", "Size of the disk with the data directory.", space.size)
        alarms.append((("disk",), int(space.free < limits.DISK_FREE_BYTES_LOW)))
    text = "1 where publishers have to wait for memory, and where the disk is nearly full."
    yield Family("alarm", text, ("kind",), alarms)


def _of_copier(context: Context) -> Iterator[Family]:
    copier = context.broker.copier
    text = "Segments copied to the tiers of topics."
    yield _one("tier_segments_copied", text, copier.segments_copied, is_counter=True)
    text = "Bytes of segments copied to the tiers of topics."
    yield _one("tier_copied_bytes", text, copier.bytes_copied, is_counter=True)
    text = "Attempts to copy a segment that failed. It stays on the broker's disk."
    yield _one("tier_failures", text, copier.failures, is_counter=True)
    text = "Stores that are away, and partitions that cannot be copied, now."
    yield _one("tiers_away", text, len(copier.troubles()))


def _one(name: str, text: str, value: float, *, is_counter: bool = False, **labels: str) -> Family:
    return Family(name, text, tuple(labels), [(tuple(labels.values()), value)], is_counter)


def _of_listeners(context: Context) -> Iterator[Family]:
    sources = context.sources
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
    delivered = {name: each.delivered for name, each in messages.items() if name not in _KAFKA}
    yield family("messages_delivered", "Messages delivered to clients.", delivered)


def _left_out(kinds: Sequence[Rows]) -> Family:
    samples = [((rows.kind,), rows.total - len(rows.found)) for rows in kinds]
    text = "What is not listed one by one: beyond the limit, or not readable."
    return Family("rows_left_out", text, ("kind",), samples)
