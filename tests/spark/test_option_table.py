"""Every row of the guide's tables of options, beside the tests that would fail if it were wrong.

Most of these are elsewhere, with what they are about. Here is what nobody else asks, and that
what the tables say in words is what the code says.
"""

import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")

from confluent_kafka import Producer

from entrepot.client.errors import ClientError
from entrepot.client.transactions import Transactions
from entrepot.core.batch import walk
from entrepot.core.clock import SystemClock
from entrepot.core.compression import Codec
from entrepot.spark.connecting import Connected
from entrepot.spark.decoding import PIECE_BYTES
from entrepot.spark.kafka_options import IGNORED_BY_SINK, IGNORED_BY_SOURCE, REFUSED
from entrepot.spark.options import (
    OptionError,
    read_queue_source,
    read_sink,
    read_source,
)
from entrepot.spark.source import EntrepotSource, columns
from entrepot.spark.writing import TaskWriter
from entrepot.testing import Broker
from tests.spark.producing import create, produce, texts
from tests.spark.test_options import GUIDE, LEAST, QUEUE, TO_SINK
from tests.spark.test_stream_reader import ranges, table

# By the first option of a row.
PROOFS = {
    "kafka.bootstrap.servers": [
        "test_stream_reader.py::test_missing_things",
        "test_sink.py::test_a_table_of_every_column",
    ],
    "subscribe": ["test_option_table.py::test_several_topics"],
    "subscribePattern": ["test_stream_reader.py::test_new_partitions_and_topics"],
    "assign": ["test_stream_reader.py::test_places"],
    "startingOffsets": [
        "test_stream_reader.py::test_places",
        "test_stream_reader.py::test_begin_and_end",
        "test_options.py::test_defaults_are_those_of_sparks_kafka_source_but_committed",
    ],
    "endingOffsets": [
        "test_stream_reader.py::test_places",
        "test_option_table.py::test_no_end_of_a_stream",
    ],
    "startingTimestamp": [
        "test_stream_reader.py::test_times",
        "test_option_table.py::test_a_time_goes_before_offsets",
    ],
    "startingOffsetsByTimestamp": [
        "test_stream_reader.py::test_times",
        "test_option_table.py::test_a_time_for_each_partition",
    ],
    "startingOffsetsByTimestampStrategy": ["test_stream_reader.py::test_times"],
    "failOnDataLoss": [
        "test_fetching.py::test_what_is_gone",
        "test_stream_reader.py::test_a_topic_that_goes_away",
    ],
    "minPartitions": [
        "test_stream_reader.py::test_limits",
        "test_offsets.py::test_pieces_are_the_whole",
    ],
    "maxRecordsPerPartition": [
        "test_stream_reader.py::test_limits",
        "test_offsets.py::test_pieces_are_the_whole",
    ],
    "maxOffsetsPerTrigger": [
        "test_stream_reader.py::test_limits",
        "test_option_table.py::test_a_table_is_read_at_once",
    ],
    "minOffsetsPerTrigger": [
        "test_stream_reader.py::test_a_batch_waits_for_enough_offsets_but_not_for_ever",
        "test_stream_reader.py::test_an_available_now_query_does_not_wait",
    ],
    "maxTriggerDelay": [
        "test_stream_reader.py::test_a_batch_waits_for_enough_offsets_but_not_for_ever",
        "test_options.py::test_a_batch_may_wait_for_enough",
    ],
    "includeHeaders": [
        "test_source.py::test_headers_and_times",
        "test_sink.py::test_a_table_of_every_column",
    ],
    "dataDirectory": [
        "test_segments.py::test_files_give_what_the_broker_gives",
        "test_source.py::test_segment_files_with_and_without_a_broker",
    ],
    "tier": ["test_tier.py::test_an_archive_gives_what_the_broker_gave"],
    "kafka.isolation.level": [
        "test_fetching.py::test_aborted_transactions_and_markers",
        "test_stream_reader.py::test_an_open_transaction_holds_back",
    ],
    "kafka.client.id": ["test_option_table.py::test_what_the_broker_is_told_of_us"],
    "kafka.security.protocol": ["test_connecting.py::test_a_broker_that_asks_who_we_are"],
    "topic": ["test_sink.py::test_many_rows_over_several_tasks"],
    "kafka.compression.type": ["test_option_table.py::test_what_is_written_is_compressed"],
    "queue": ["test_queue_source.py::test_queues_that_cannot_be_read_so"],
    "entrepot.http": [
        "test_queue_source.py::test_a_batch_after_the_other",
        "test_options.py::test_a_queue_needs_two_addresses",
    ],
    "entrepot.user": ["test_queue_source.py::test_queues_that_cannot_be_read_so"],
    "maxMessagesPerTrigger": ["test_queue_source.py::test_a_batch_after_the_other"],
    "leaseSeconds": ["test_leasing.py::test_a_lease_is_kept_alive"],
    "maxFailures": ["test_queue_source.py::test_failures_may_be_bounded_without_a_delivery_limit"],
}


class Row(NamedTuple):
    names: tuple[str, ...]
    cells: tuple[str, ...]  # After the names.


def rows_of(heading: str) -> list[Row]:
    """Those of all tables whose first column is headed so."""
    found, is_in = [], False
    for line in GUIDE.read_text().splitlines():
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        if not line.startswith("|"):
            is_in = False
        elif is_in and not cells[0].startswith("---"):
            found.append(Row(tuple(re.findall(r"`([^`]+)`", cells[0])), cells[1:]))
        elif not is_in:
            is_in = cells[0] == heading
    return found


@pytest.mark.parametrize("row", rows_of("Option"), ids=lambda row: row.names[0])
def test_a_row_has_its_tests(row: Row) -> None:
    for test in PROOFS[row.names[0]]:
        file, name = test.split("::")
        assert f"def {name}(" in (Path(__file__).parent / file).read_text(), test


def test_no_row_is_missing_and_none_is_too_much() -> None:
    assert {row.names[0] for row in rows_of("Option")} == set(PROOFS)


def test_the_defaults_are_as_the_tables_say() -> None:
    said = {name: row.cells[0] for row in rows_of("Option") for name in row.names if row.cells[0]}
    options, sink = read_source(LEAST, is_stream=True), read_sink(TO_SINK)
    queue = read_queue_source(QUEUE)
    assert said == {
        "startingOffsets": "`earliest`; a stream `latest`",
        "endingOffsets": "`latest`",
        "startingOffsetsByTimestampStrategy": "`latest`"
        if options.late_begin_is_latest
        else "`error`",
        "failOnDataLoss": f"`{str(options.fail_on_data_loss).lower()}`",
        "maxTriggerDelay": f"`{options.trigger_delay_s / 60:.0f}m`",
        "includeHeaders": f"`{str(options.with_headers).lower()}`",
        "kafka.isolation.level": "`read_committed`" if options.committed else "",
        "kafka.client.id": f"`{options.address.client_id if options.address else ''}`",
        "kafka.compression.type": f"`{sink.codec.name.lower()}`",
        "entrepot.user": f"`{queue.login[0]}`",
        "entrepot.password": f"`{queue.login[1]}`",
        "maxMessagesPerTrigger": str(queue.trigger_rows_max),
        "leaseSeconds": str(queue.lease_seconds),
    }


def test_what_is_taken_is_said_with_its_reason() -> None:
    said = {
        (name, by): reason
        for row in rows_of("Taken, with a warning")
        for name in row.names
        for by, reason in [row.cells]
    }
    true = {}
    for name, reason in (IGNORED_BY_SOURCE | IGNORED_BY_SINK).items():
        takers = [
            by
            for by, names in (("source", IGNORED_BY_SOURCE), ("sink", IGNORED_BY_SINK))
            if name in names
        ]
        true[name, " and ".join(takers)] = reason
    assert said == true


def test_what_is_refused_is_said_with_what_to_do() -> None:
    assert {name: row.cells[0] for row in rows_of("Refused") for name in row.names} == REFUSED


def test_how_much_is_fetched_at_once_is_true() -> None:
    assert f"up to {PIECE_BYTES >> 20} MiB" in IGNORED_BY_SOURCE["kafka.fetch.max.bytes"]


# --- what nobody else asks


def test_several_topics(server: Broker, new_topic: Callable[[], str]) -> None:
    first, second, third = (create(server, new_topic()) for _ in range(3))
    for topic in (first, second, third):
        produce(server, topic, texts(3))
    found = ranges(table(server, subscribe=f"{second}, {first}"))
    assert found == [(first, 0, 0, 3), (second, 0, 0, 3)]


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_no_end_of_a_stream(name: str) -> None:
    value = "5" if name == "endingTimestamp" else '{"t": {"0": 5}}'
    read_source(LEAST | {name: value}, is_stream=False)
    with pytest.raises(OptionError, match=f"{name} is for batch queries"):
        read_source(LEAST | {name: value}, is_stream=True)


@pytest.fixture
def seconds(server: Broker, new_topic: Callable[[], str]) -> str:
    """A topic of five records, a second apart."""
    topic = create(server, new_topic())
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for second in range(1, 6):
        producer.produce(topic, b"v", partition=0, timestamp=second * 1_000)
    assert producer.flush(30) == 0
    return topic


def test_a_time_goes_before_offsets(server: Broker, seconds: str) -> None:
    at = {
        "startingTimestamp": "2000",
        "startingOffsets": f'{{"{seconds}": {{"0": 4}}}}',
        "endingTimestamp": "4000",
        "endingOffsets": f'{{"{seconds}": {{"0": 1}}}}',
    }
    assert ranges(table(server, subscribe=seconds, **at)) == [(seconds, 0, 1, 3)]


def test_a_time_for_each_partition(server: Broker, seconds: str) -> None:
    said = f'{{"{seconds}": {{"0": %d}}}}'
    at = {
        "startingOffsetsByTimestamp": said % 2_000,
        "endingOffsetsByTimestamp": said % 3_500,
    }
    assert ranges(table(server, subscribe=seconds, **at)) == [(seconds, 0, 1, 3)]


def test_a_table_is_read_at_once(server: Broker, seconds: str) -> None:
    found = table(server, subscribe=seconds, maxOffsetsPerTrigger="2")
    assert ranges(found) == [(seconds, 0, 0, 5)]


def test_what_the_broker_is_told_of_us() -> None:
    """In the header of every request, where a broker has it from for its quotas and its log."""
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            peer, _ = listener.accept()
            with peer:
                heard.extend(peer.recv(1_024))

        listening = threading.Thread(target=listen)
        listening.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        said = LEAST | {"kafka.bootstrap.servers": address, "kafka.client.id": "nightly"}
        reader = EntrepotSource(said).reader(columns(False))
        with pytest.raises(ClientError):
            reader.partitions()
        listening.join()
    assert b"\x00\x07nightly" in heard


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_written_is_compressed(
    server: Broker, connected: Connected, new_topic: Callable[[], str], name: str
) -> None:
    import pyarrow as pa

    topic = create(server, new_topic())
    options = read_sink(
        {
            "kafka.bootstrap.servers": server.bootstrap,
            "topic": topic,
            "kafka.compression.type": name,
        }
    )
    writer = TaskWriter(
        connected, SystemClock(), topic=topic, codec=options.codec, first_partition=0
    )
    row = pa.RecordBatch.from_pydict({"value": [b"the same again and again " * 40]})
    writer.write([row], lambda client: Transactions(client).take(topic))
    transaction = writer.transaction
    assert transaction is not None
    connected.run(lambda client: Transactions(client).end(transaction, commit=True))
    answer = connected.run(lambda client: client.fetch({(topic, 0): 0}))
    (found,) = answer.values()
    codecs = [
        header.codec for _, header in walk(memoryview(found.batches)) if not header.is_control
    ]
    assert codecs == [Codec[name.upper()]]
