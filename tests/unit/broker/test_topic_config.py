"""A topic's settings: defaults under the server's, under the topic's own."""

import pytest

from entrepot.broker.topic_config import SETTINGS, check_settings, topic_config
from entrepot.core import limits
from entrepot.core.batch import Codec
from entrepot.core.errors import InvalidConfig
from entrepot.log.policy import Durability, Policy


def test_every_default_is_legal() -> None:
    check_settings({name: setting.default for name, setting in SETTINGS.items()})


def test_without_settings_the_defaults_are_the_policys() -> None:
    config = topic_config({}, {})
    assert config.policy == Policy()
    assert config.batch_bytes_max == limits.BATCH_BYTES_MAX
    assert (config.codec, config.append_time) == (None, False)


def test_the_topic_counts_more_than_the_server() -> None:
    config = topic_config(
        {"retention.ms": "1", "durability": "os"},
        {"retention.ms": "2", "segment.ms": "3", "durability": "interval"},
    )
    policy = config.policy
    assert (policy.retention_ms, policy.segment_ms) == (1, 3)
    assert policy.durability is Durability.OS


def test_every_setting_arrives() -> None:
    config = topic_config(
        {
            "compression.type": "zstd",
            "durability": "interval",
            "file.delete.delay.ms": "1",
            "flush.messages": "2",
            "flush.ms": "3",
            "max.message.bytes": "4",
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.before.max.ms": "5",
            "message.timestamp.after.max.ms": "6",
            "retention.bytes": "7",
            "retention.ms": "8",
            "segment.bytes": "1000",
            "segment.ms": "10",
        },
        {},
    )
    assert config.policy == Policy(Durability.INTERVAL, 3, 2, 1_000, 10, 8, 7, 1)
    assert (config.batch_bytes_max, config.codec, config.append_time) == (4, Codec.ZSTD, True)
    assert (config.timestamp_before_ms, config.timestamp_after_ms) == (5, 6)


def test_uncompressed_is_a_codec_of_its_own() -> None:
    assert topic_config({"compression.type": "uncompressed"}, {}).codec is Codec.NONE


def test_never_is_never() -> None:
    policy = topic_config({"flush.ms": str(2**63 - 1), "flush.messages": str(2**63 - 1)}, {}).policy
    assert (policy.flush_ms, policy.flush_messages, policy.flush_after_ms) == (None, None, None)
    assert topic_config({"durability": "interval"}, {}).policy.flush_after_ms == 1_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.setting", "1"),
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("retention.ms", ""),
        ("segment.bytes", "13"),
        ("segment.bytes", str(2**31)),
        ("segment.ms", "0"),
        ("flush.messages", "0"),
        ("max.message.bytes", str(limits.FRAME_BYTES_MAX + 1)),
        ("compression.type", "brotli"),
        ("durability", "maybe"),
        ("message.timestamp.type", "logappendtime"),
        ("min.insync.replicas", "0"),
    ],
)
def test_what_a_setting_does_not_take(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name.replace(".", r"\.")):
        check_settings({name: value})
