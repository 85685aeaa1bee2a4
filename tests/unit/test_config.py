"""Defaults, files, flags, and what a mistake is answered with."""

import re
from pathlib import Path
from typing import Any

import pytest

from entrepot.config import (
    Config,
    ConfigError,
    Ports,
    Topics,
    build,
    coordinator_address,
    legal_keys,
    load,
    origins,
)
from entrepot.log.policy import Durability

EXAMPLE = Path(__file__).parents[2] / "config" / "entrepot.toml"


def write(directory: Path, text: str) -> str:
    path = directory / "entrepot.toml"
    path.write_text(text)
    return str(path)


def test_no_file_gives_the_defaults() -> None:
    assert load(None) == Config()


def test_a_file_and_flags_over_it(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        host = "0.0.0.0"
        durability = "os"
        [ports]
        kafka = 1234
        [topics]
        num_partitions = 3
        retention_ms = -1
        """,
    )
    config = load(path, {"ports.kafka": 0, "durability": "interval"})
    assert config.host == "0.0.0.0"
    assert config.durability is Durability.INTERVAL
    assert config.ports == Ports(kafka=0)
    assert config.topics == Topics(num_partitions=3, retention_ms=-1)


def test_the_ports_that_people_know() -> None:
    """Proves P-01 and S-10."""
    ports = Config().ports
    assert (ports.kafka, ports.amqp, ports.mqtt, ports.http) == (9092, 5672, 1883, 15672)
    assert ports.sqs == 9324  # As local servers of SQS have it.
    assert ports.stomp == 61613


def test_where_the_coordinator_is() -> None:
    config = build({}, "test", {"cluster.coordinator": ["http://10.0.0.1:2379"], "node_id": 3})
    assert (config.node_id, config.cluster.coordinator) == (3, ("http://10.0.0.1:2379",))
    assert coordinator_address("http://[::1]:2379/") == ("::1", 2379)
    for wrong in ("10.0.0.1:2379", "https://a:1", "http://a", "http://a:x", "http://a:1/v3", ""):
        with pytest.raises(ConfigError, match=r"^test: cluster\.coordinator: .* is no address"):
            build({"cluster": {"coordinator": [wrong]}}, "test")


def test_off_is_no_port() -> None:
    assert build({"ports": {"kafka": "off"}}, "test").ports.kafka is None


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({"hots": "x"}, 'unknown key "hots"; did you mean "host"?'),
        (
            {"topics": {"retention_msec": 1}},
            'unknown key "topics.retention_msec"; did you mean "topics.retention_ms"?',
        ),
        (
            {"num_partitions": 1},
            'unknown key "num_partitions"; did you mean "topics.num_partitions"?',
        ),
        ({"port": {"kafka": 1}}, 'unknown key "port"'),
        ({"zzz": 1}, 'unknown key "zzz"'),
        ({"topics": 3}, "topics: expected a table, as in [topics]"),
        ({"node_id": "one"}, "node_id: expected `int`, got `str`"),
        ({"topics": {"num_partitions": 0}}, "topics.num_partitions: expected `int` >= 1"),
        ({"ports": {"kafka": 65536}}, "ports.kafka: expected `int` <= 65535"),
        ({"durability": "paper"}, "durability: invalid enum value 'paper'; one of fsync, interval"),
        ({"log_format": "xml"}, "log_format: invalid enum value 'xml'; one of text, json"),
        ({"topics": {"auto_create": "yes"}}, "topics.auto_create: expected `bool`, got `str`"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(document: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"the file: {line}")) as caught:
        build(document, "the file")
    assert "\n" not in str(caught.value)


def test_a_mistake_in_a_flag_is_not_the_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^command line: node_id"):
        load(write(tmp_path, "node_id = 2"), {"node_id": -1})


@pytest.mark.parametrize(
    ("content", "problem"), [(b"a = = b", "not TOML"), (b"a = '\xff'", "cannot be read: not UTF-8")]
)
def test_a_file_that_is_not_toml(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=problem):
        load(str(path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nosuch\.toml: cannot be read: No such file"):
        load(str(tmp_path / "nosuch.toml"))


def test_the_example_shows_every_setting_with_its_default(tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    assert load(str(EXAMPLE)) == Config()
    uncommented = re.sub(r"(?m)^#(?=\w+ = )", "", text)
    shown = load(write(tmp_path, uncommented))
    for key in legal_keys():
        assert re.search(rf"(?m)^#{key.rpartition('.')[2]} = ", text), key
        without = ("advertised.", "cluster.secret", "security.tiers", "tls.", "topics.flush")
        assert key.startswith(without) or _value(shown, key) == _value(Config(), key), key


def _value(config: Config, key: str) -> object:
    value: object = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def test_where_settings_were_given(tmp_path: Path) -> None:
    file = tmp_path / "entrepot.toml"
    file.write_text('host = "::1"\n[ports]\nkafka = 1\nhttp = 2\n')
    assert origins(str(file), {"ports.http": 0, "node_id": 3}) == {
        "host": str(file),
        "ports.kafka": str(file),
        "ports.http": "command line",
        "node_id": "command line",
    }
    assert origins(None, {}) == {}
