"""What the source and the sink take, and how they refuse the rest."""

import pickle
import re
from pathlib import Path

import pytest

from entrepot.client.client import EARLIEST, LATEST, TopicPartition
from entrepot.core.compression import Codec
from entrepot.spark.kafka_options import IGNORED_BY_SINK, IGNORED_BY_SOURCE, REFUSED
from entrepot.spark.options import (
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    OptionError,
    ReadBound,
    SourceOptions,
    check,
    ignored,
    read_queue_source,
    read_sink,
    read_source,
)

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def batch(**more: str) -> SourceOptions:
    return read_source(LEAST | more, is_stream=False)


def stream(**more: str) -> SourceOptions:
    return read_source(LEAST | more, is_stream=True)


def test_defaults_are_those_of_sparks_kafka_source_but_committed() -> None:
    assert batch().begin.everywhere == EARLIEST
    assert stream().begin.everywhere == LATEST
    assert batch().end.everywhere == LATEST
    assert batch().committed
    assert batch().fail_on_data_loss
    assert not batch().with_headers
    assert batch().partitions_min is batch().trigger_rows_max is None


def test_names_are_read_in_any_case_and_values_too() -> None:
    found = batch(FAILONDATALOSS="False", MinPartitions="7", includeheaders="TRUE")
    assert not found.fail_on_data_loss
    assert found.partitions_min == 7
    assert found.with_headers
    assert (
        read_source(LEAST | {"kafka.isolation.level": "read_uncommitted"}, is_stream=True).committed
        is False
    )


def test_options_travel_to_the_executors() -> None:
    options = batch(startingOffsets='{"t": {"1": 5, "0": -2}}')
    assert pickle.loads(pickle.dumps(options)) == options


def test_where_to_begin() -> None:
    each = batch(startingOffsets='{"t": {"1": 5, "0": -2}}').begin.each
    assert each == ((TopicPartition("t", 0), -2), (TopicPartition("t", 1), 5))
    assert batch(startingTimestamp="99").begin == ReadBound("startingTimestamp", 99, is_time=True)
    both = batch(startingTimestamp="99", startingOffsets="earliest").begin
    assert both.is_time  # A time goes before offsets, as Spark has it.
    by_time = batch(startingOffsetsByTimestamp='{"t": {"0": 7}}').begin
    assert by_time.is_time
    assert by_time.each == ((TopicPartition("t", 0), 7),)


def test_what_to_read() -> None:
    assert batch(subscribe="b, a").which.topics == ("a", "b")
    without = {"kafka.bootstrap.servers": "localhost:9092"}
    found = read_source(without | {"assign": '{"t": [3, 1]}'}, is_stream=False)
    assert found.which.assigned == (TopicPartition("t", 1), TopicPartition("t", 3))
    found = read_source(without | {"subscribePattern": "a.*"}, is_stream=False)
    assert found.which.pattern == "a.*"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "bad topic"}, "subscribe: .*not legal"),
        ({"assign": "{}", "subscribe": "t"}, "subscribe and assign is given"),
        ({"startingOffset": "earliest"}, "no option startingoffset.*startingOffsets"),
        ({"kafka.bootstrap.server": "x"}, "kafka.bootstrap.servers"),
        ({"zzzzzz": "x"}, "there is no option zzzzzz$"),
        ({"kafka.bootstrap.servers": "h:x"}, "kafka.bootstrap.servers: .*localhost:9092"),
        ({"startingOffsets": "newest"}, "startingOffsets: .*earliest nor latest"),
        ({"startingOffsets": '{"t": 5}'}, 'startingOffsets: .*{"topic": {"0": 23}}'),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets: .*from -2"),
        ({"startingOffsets": '{"t": {"a": 1}}'}, "startingOffsets: t: "),
        ({"startingOffsets": "{"}, "startingOffsets: .*not JSON"),
        ({"startingOffsets": "latest"}, "startingOffsets: a batch query"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets: a batch query"),
        ({"endingOffsets": "earliest"}, "endingOffsets: .*no rows"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp: .*milliseconds"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "Strategy: .*error, latest"),
        ({"minPartitions": "0"}, "minPartitions: .*above 0"),
        ({"maxRecordsPerPartition": "many"}, "maxRecordsPerPartition"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss: .*true nor false"),
        ({"includeHeaders": "1"}, "includeHeaders"),
        ({"kafka.isolation.level": "x"}, "kafka.isolation.level: .*read_committed"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read_source(LEAST | options, is_stream=False)


def test_something_must_be_read_and_somewhere() -> None:
    with pytest.raises(OptionError, match=r"one of subscribe, subscribePattern, assign .* none"):
        read_source({"kafka.bootstrap.servers": "h:1"}, is_stream=False)
    with pytest.raises(OptionError, match=r"kafka.bootstrap.servers is missing"):
        read_source({"subscribe": "t"}, is_stream=False)
    with pytest.raises(OptionError, match=r"subscribePattern: .*regular expression"):
        read_source({"kafka.bootstrap.servers": "h", "subscribePattern": "("}, is_stream=False)
    for wrong in ('{"t": [true]}', '{"t": 1}', "{}", "[]"):
        with pytest.raises(OptionError, match="assign: "):
            read_source({"kafka.bootstrap.servers": "h", "assign": wrong}, is_stream=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="endingOffsets is for batch"):
        stream(endingOffsets="latest")


def test_what_belongs_to_spark_passes() -> None:
    assert batch(path="x", checkpointLocation="y", **{"spark.sql.x": "1"})
    assert "path" not in SOURCE_OPTIONS


def test_the_sinks_options() -> None:
    found = read_sink({"kafka.bootstrap.servers": "h:1", "topic": "out"})
    assert (found.address.bootstrap, found.topic) == ("h:1", "out")
    assert read_sink({"kafka.bootstrap.servers": "h:1"}).topic is None
    packed = read_sink({"kafka.bootstrap.servers": "h:1", "kafka.compression.type": "zstd"})
    assert packed.codec is Codec.ZSTD
    with pytest.raises(OptionError, match=r"kafka.compression.type: .*gzip, snappy, lz4, zstd"):
        read_sink({"kafka.bootstrap.servers": "h:1", "kafka.compression.type": "rar"})
    with pytest.raises(OptionError, match="there is no option subscribe"):
        read_sink({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})


def test_security_goes_to_the_client() -> None:
    secured = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.username": "ana"}
    found = read_source(LEAST | secured, is_stream=False).address
    assert dict(found.properties) == {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "ana"}


def test_a_data_directory_stands_for_the_broker_or_beside_it() -> None:
    alone = read_source({"dataDirectory": "/data", "subscribe": "t"}, is_stream=False)
    assert (alone.address, alone.data_directory) == (None, "/data")
    both = read_source(LEAST | {"dataDirectory": "/data"}, is_stream=False)
    assert both.address is not None
    with pytest.raises(OptionError, match="dataDirectory: 'data' is not a whole path"):
        read_source(LEAST | {"dataDirectory": "data"}, is_stream=False)


# --- queues

QUEUE = {
    "kafka.bootstrap.servers": "localhost:9092",
    "entrepot.http": "localhost:15672",
    "queue": "work",
}


def test_a_queue() -> None:
    found = read_queue_source(QUEUE)
    assert (found.queue, found.http, found.login) == ("work", "localhost:15672", ("guest", "guest"))
    assert (found.trigger_rows_max, found.lease_seconds, found.failures_max) == (10_000, 60, None)
    assert pickle.loads(pickle.dumps(found)) == found
    more = {"maxMessagesPerTrigger": "5", "leaseSeconds": "9", "maxFailures": "3"}
    named = {"entrepot.user": "ana", "entrepot.password": "x"}
    found = read_queue_source(QUEUE | more | named)
    assert (found.trigger_rows_max, found.lease_seconds, found.failures_max) == (5, 9, 3)
    assert found.login == ("ana", "x")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"entrepot.http": "a:b"}, "entrepot.http: 'a:b' is not an address"),
        ({"entrepot.http": "a:1,b:2"}, "more than one address"),
        ({"queue": "a/b"}, "queue: "),
        ({"leaseSeconds": "100000"}, "leaseSeconds: 100000 is more than 43200"),
        ({"maxMessagesPerTrigger": "0"}, "not a number above 0"),
        ({"startingOffsets": "earliest"}, "there is no option startingoffsets"),
        ({"maxMessagePerTrigger": "1"}, "is it maxMessagesPerTrigger that is meant"),
        ({"entrepot.password": "x"}, "belong together"),
    ],
)
def test_a_queue_that_cannot_be_meant(said: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        read_queue_source(QUEUE | said)


@pytest.mark.parametrize("missing", ["entrepot.http", "kafka.bootstrap.servers"])
def test_a_queue_needs_two_addresses(missing: str) -> None:
    with pytest.raises(OptionError, match=f"{missing} is missing"):
        read_queue_source({name: value for name, value in QUEUE.items() if name != missing})


# --- options of Spark's Kafka source that are not ours

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "spark.md"
TO_SINK = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}


@pytest.mark.parametrize("name", sorted(IGNORED_BY_SOURCE))
def test_what_only_tunes_another_client_is_taken_with_a_warning(name: str) -> None:
    assert stream(**{name.lower(): "1"}) == stream()
    assert ignored({name.lower(): "1"}) == [
        f"option {name} has no effect: {IGNORED_BY_SOURCE[name]}"
    ]


@pytest.mark.parametrize("name", sorted(IGNORED_BY_SINK))
def test_and_so_it_is_by_the_sink(name: str) -> None:
    assert read_sink(TO_SINK | {name.lower(): "1"}) == read_sink(TO_SINK)
    assert ignored({name: "1"}) == [f"option {name} has no effect: {IGNORED_BY_SINK[name]}"]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_would_change_the_rows_is_refused_by_its_name(name: str) -> None:
    said = f"{name} is an option of Spark's Kafka source, not supported here: {REFUSED[name]}"
    for read in (lambda given: read_source(given, is_stream=True), read_sink):
        least = LEAST if read is not read_sink else TO_SINK
        with pytest.raises(OptionError, match=re.escape(said)):
            read(least | {name.lower(): "x"})


def test_a_producers_option_is_refused_when_reading() -> None:
    with pytest.raises(OptionError, match=r"kafka.linger.ms .* not supported here"):
        stream(**{"kafka.linger.ms": "5"})


def test_the_guide_has_every_option() -> None:
    """In tables whose first column has the names; `kafka.sasl.*` stands for all that begin so."""
    rows = [line.split("|")[1] for line in GUIDE.read_text().splitlines() if line.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    begins = tuple(name[:-1] for name in named if name.endswith("*"))
    ours = {*SOURCE_OPTIONS, *SINK_OPTIONS, *IGNORED_BY_SOURCE, *IGNORED_BY_SINK, *REFUSED}
    missing = [name for name in ours - named if not name.startswith(begins)]
    assert sorted(missing) == []
    kafka = {name for name in named if name.startswith("kafka") and not name.endswith("*")}
    assert sorted(kafka - ours) == []


def test_a_batch_may_wait_for_enough() -> None:
    found = stream(minOffsetsPerTrigger="100", maxTriggerDelay="5m")
    assert (found.trigger_rows_min, found.trigger_delay_s) == (100, 300)
    assert stream().trigger_delay_s == 900
    for text, seconds in {"250": 0.25, "90s": 90, "2 h": 7_200, "1d": 86_400}.items():
        assert stream(maxTriggerDelay=text).trigger_delay_s == seconds
    for wrong in ("soon", "5 fortnights", "-1s"):
        with pytest.raises(OptionError, match=r"maxTriggerDelay: .* 15m"):
            stream(maxTriggerDelay=wrong)
    with pytest.raises(OptionError, match="minOffsetsPerTrigger: 9 is more than"):
        stream(minOffsetsPerTrigger="9", maxOffsetsPerTrigger="8")


def test_the_brokers_name_for_us() -> None:
    assert stream(**{"kafka.client.id": "nightly"}).address.client_id == "nightly"
    assert read_sink(TO_SINK).address.client_id == "entrepot-spark"


@pytest.mark.parametrize(
    "wrong",
    [
        LEAST | {"startingOffsets": "newest"},
        LEAST | {"kafka.auto.offset.reset": "latest"},
        LEAST | {"endingOffsets": "latest", "minPartitions": "0"},
        TO_SINK | {"kafka.compression.type": "rar"},
        {"queue": "q", "entrepot.http": "h:1", "leaseSeconds": "x"},
        {"queue": "q", "entrepot.amqp": "h:1", "topic": "t"},
    ],
)
def test_mistakes_are_found_before_it_is_known_what_for(wrong: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        check(wrong)


def test_what_is_right_for_one_of_them_passes() -> None:
    check(LEAST | {"startingOffsets": "latest"})
    check(LEAST | {"endingOffsets": "latest"})
    check(TO_SINK)
    check({"kafka.bootstrap.servers": "h:1"})  # For a sink whose rows have a topic.
    check(LEAST | TO_SINK)  # Whoever reads or writes says which of them is wrong.
