"""Kafka's server.properties: its syntax, and what each key means here."""

from pathlib import Path

import pytest

from entrepot.cli.properties import convert, load, parse
from entrepot.config import Advertised, Config, ConfigError

SHIPPED = Path(__file__).parents[3] / "config"


def test_syntax() -> None:
    text = """
    # a comment
    ! another
    plain=value
    spaced = a value with spaces  \n
    colon: x
    blank y
    empty=
    long=one,\\
         two
    a\\:b\\ c=d\\te\\u0041
    """
    assert parse(text) == {
        "plain": "value",
        "spaced": "a value with spaces",
        "colon": "x",
        "blank": "y",
        "empty": "",
        "long": "one,two",
        "a:b c": "d\teA",
    }


def config(**given: str) -> Config:
    return convert({name.replace("_", "."): value for name, value in given.items()}, "test")[0]


def test_listeners_p01() -> None:
    found = config(
        listeners="PLAINTEXT://broker1:9192,CONTROLLER://broker1:9093",
        advertised_listeners="PLAINTEXT://public.example.org:19192",
        controller_listener_names="CONTROLLER",
    )
    assert (found.host, found.ports.kafka) == ("broker1", 9192)
    assert found.advertised == Advertised("public.example.org", 19192)
    assert config().ports.kafka == 9092


@pytest.mark.parametrize(
    ("listener", "host"), [("PLAINTEXT://:9092", "0.0.0.0"), ("PLAINTEXT://[::1]:9092", "::1")]
)
def test_hosts(listener: str, host: str) -> None:
    assert config(listeners=listener).host == host


def test_a_named_listener() -> None:
    found, ignored = convert(
        {"listeners": "HERE://h:1", "listener.security.protocol.map": "HERE:PLAINTEXT"}, "test"
    )
    assert (found.host, found.ports.kafka, ignored) == ("h", 1, [])


@pytest.mark.parametrize(
    ("listeners", "problem"),
    [
        ("SSL://h:9093", "SSL is not supported"),
        ("PLAINTEXT://a:1,PLAINTEXT://b:2", "one listener"),
        ("localhost:9092", "is not like PLAINTEXT://host:9092"),
        ("PLAINTEXT://h", "is not like PLAINTEXT://host:9092"),
    ],
)
def test_what_cannot_be_honoured_is_refused(listeners: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"listeners: .*{problem}"):
        config(listeners=listeners)


def test_flush_policy_p01() -> None:
    found = config(log_flush_interval_messages="10000", log_flush_interval_ms="1000")
    assert (found.topics.flush_messages, found.topics.flush_ms) == (10_000, 1_000)
    assert config().topics.flush_ms is None


def test_the_finer_unit_wins_whatever_the_order() -> None:
    found = config(log_retention_ms="5", log_retention_minutes="4", log_retention_hours="3")
    assert found.topics.retention_ms == 5
    assert config(log_retention_hours="2").topics.retention_ms == 2 * 3600 * 1000
    assert config(log_retention_hours="-1").topics.retention_ms == -1


def test_settings() -> None:
    found = config(
        log_dirs="/somewhere",
        node_id="7",
        num_partitions="3",
        auto_create_topics_enable="false",
        message_max_bytes="2000",
        compression_type="zstd",
        log_segment_bytes="1000",
        log_roll_hours="1",
    )
    assert (found.data_dir, found.node_id) == ("/somewhere", 7)
    assert (found.topics.num_partitions, found.topics.auto_create) == (3, False)
    assert (found.topics.max_message_bytes, found.topics.compression_type) == (2_000, "zstd")
    assert (found.topics.segment_bytes, found.topics.segment_ms) == (1_000, 3_600_000)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("num.partitions", "many", "num.partitions: 'many' is not a value"),
        ("auto.create.topics.enable", "1", "auto.create.topics.enable: '1' is not a value"),
        ("num.partitions", "0", "topics.num_partitions: expected"),
        ("log.dirs", "/a,/b", "log.dirs: one directory only"),
    ],
)
def test_bad_values(key: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^test: {problem}"):
        convert({key: value}, "test")


def test_other_keys_are_named() -> None:
    _, ignored = convert({"zookeeper.connect": "x", "num.io.threads": "8", "node.id": "1"}, "test")
    assert ignored == ["num.io.threads", "zookeeper.connect"]


def test_the_shipped_file() -> None:
    found, ignored = load(str(SHIPPED / "server.properties"), {"log.dirs": "elsewhere"})
    assert ignored == []
    assert (found.host, found.ports.kafka, found.data_dir) == ("localhost", 9092, "elsewhere")
    assert found.topics == Config().topics


def test_the_file_of_the_lectures_p01() -> None:
    """A flush policy, and what a broker with a controller of its own would need."""
    found, ignored = load(str(SHIPPED / "kafka.properties"), {})
    assert ignored == ["controller.quorum.voters", "process.roles"]
    assert (found.host, found.ports.kafka, found.node_id) == ("localhost", 9092, 1)
    assert (found.topics.flush_messages, found.topics.flush_ms) == (10_000, 1_000)
