"""The settings of a topic: their names, types, defaults and limits, in one table.

Names and meanings are Kafka's, so that Kafka's tools can set them; `durability` and
`entrepot.tier` are ours. A topic stores only what was set on it; the rest follows the server's
defaults, and those follow this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from entrepot.core import limits
from entrepot.core.batch import Codec
from entrepot.core.errors import InvalidConfig
from entrepot.core.store_address import parse_store_address
from entrepot.log.policy import Durability, Policy

TIER = "entrepot.tier"
_DAY_MS = 24 * 3_600_000
_INT64_MAX = 2**63 - 1


class SettingType(Enum):
    """The type of a setting; gateways map it to their protocol's types."""

    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    kind: SettingType
    default: str
    doc: str
    check: Callable[[str], object]  # Returns the parsed value or raises ValueError.


def whole_number(least: int, most: int) -> Callable[[str], object]:
    """Return a check for a whole number from `least` to `most`."""

    def check(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not least <= value <= most:
            raise ValueError(f"must be {least} to {most}")
        return value

    return check


def one_of(*words: str) -> Callable[[str], object]:
    """Return a check for one of these words."""

    def check(text: str) -> str:
        if text not in words:
            raise ValueError("must be " + " or ".join(words))
        return text

    return check


def _cleanup(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not words or any(word not in ("compact", "delete") for word in words):
        raise ValueError("must be delete, compact, or compact,delete")
    return words


def _tier(text: str) -> object:
    return parse_store_address(text) if text else None


def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if not 0 <= value <= 1:
        raise ValueError("must be 0 to 1")
    return value


_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            "cleanup.policy", SettingType.LIST, "delete",
            "What becomes of old records: delete by retention, compact by key, or both.",
            _cleanup,
        ),
        Setting(
            "compression.type", SettingType.STRING, "producer",
            "How batches are stored: as the producer sent them, or recompressed.",
            one_of(*_CODECS),
        ),
        Setting(
            "delete.retention.ms", SettingType.LONG, str(_DAY_MS),
            "How long a deletion stays visible in a compacted topic.", whole_number(0, _INT64_MAX),
        ),
        Setting(
            "durability", SettingType.STRING, "fsync",
            "What an acknowledgement means: fsync (on disk), interval, or os.",
            one_of(*Durability),
        ),
        Setting(
            TIER, SettingType.STRING, "",
            "Where full segments are copied before retention removes them: file:///directory or "
            "s3://bucket/prefix. Empty: nowhere.", _tier,
        ),
        Setting(
            "file.delete.delay.ms", SettingType.LONG, "60000",
            "How long a file stays after it was marked for removal.", whole_number(0, _INT64_MAX),
        ),
        Setting(
            "flush.messages", SettingType.LONG, str(_INT64_MAX),
            "Sync before answering once so many records are unsynced.", whole_number(1, _INT64_MAX),
        ),
        Setting(
            "flush.ms", SettingType.LONG, str(_INT64_MAX),
            "How long a record may stay unsynced.", whole_number(0, _INT64_MAX),
        ),
        Setting(
            "max.compaction.lag.ms", SettingType.LONG, str(_INT64_MAX),
            "How long a record may wait for compaction.", whole_number(1, _INT64_MAX),
        ),
        Setting(
            "max.message.bytes", SettingType.INT, str(limits.BATCH_BYTES_MAX),
            "The largest record batch.", whole_number(0, limits.FRAME_BYTES_MAX),
        ),
        Setting(
            "message.timestamp.type", SettingType.STRING, "CreateTime",
            "Whose clock stamps a record: the producer's or the broker's.",
            one_of("CreateTime", "LogAppendTime"),
        ),
        Setting(
            "message.timestamp.before.max.ms", SettingType.LONG, str(_INT64_MAX),
            "How far behind the broker's clock a timestamp may be.", whole_number(0, _INT64_MAX),
        ),
        Setting(
            "message.timestamp.after.max.ms", SettingType.LONG, str(_INT64_MAX),
            "How far ahead of the broker's clock a timestamp may be.", whole_number(0, _INT64_MAX),
        ),
        Setting(
            "min.cleanable.dirty.ratio", SettingType.DOUBLE, "0.5",
            "How much of a partition is new before it is compacted.", _ratio,
        ),
        Setting(
            "min.compaction.lag.ms", SettingType.LONG, "0",
            "How long a record is safe from compaction.", whole_number(0, _INT64_MAX),
        ),
        Setting(
            "min.insync.replicas", SettingType.INT, "1",
            "How many replicas must be in sync for a record that all of them are to have.",
            whole_number(1, limits.REPLICAS_MAX),
        ),
        Setting(
            "retention.bytes", SettingType.LONG, "-1",
            "Old segments go when a partition is larger. -1: any size.",
            whole_number(-1, _INT64_MAX),
        ),
        Setting(
            "retention.ms", SettingType.LONG, str(7 * _DAY_MS),
            "Segments go when all their records are older. -1: never.",
            whole_number(-1, _INT64_MAX),
        ),
        Setting(
            "segment.bytes", SettingType.INT, str(limits.SEGMENT_BYTES),
            "When a segment is full.",
            whole_number(limits.SEGMENT_BYTES_MIN, limits.SEGMENT_BYTES_MAX),
        ),
        Setting(
            "segment.ms", SettingType.LONG, str(7 * _DAY_MS),
            "When a segment is closed although not full.", whole_number(1, _INT64_MAX),
        ),
        Setting(
            "unclean.leader.election.enable", SettingType.BOOLEAN, "false",
            "Whether a replica that lacks records may lead when no other is there.",
            one_of("true", "false"),
        ),
    )
}  # fmt: skip


def check_settings(values: Mapping[str, str]) -> None:
    """Raise InvalidConfig for an unknown setting or an invalid value."""
    for name, value in values.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise InvalidConfig(f"unknown topic setting {name}")
        try:
            setting.check(value)
        except ValueError as error:
            raise InvalidConfig(f"{name} cannot be {value!r}: {error}") from None


def check_together(values: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    """Raise InvalidConfig for settings of a topic that exclude each other."""
    cleanup = values.get("cleanup.policy") or defaults.get("cleanup.policy") or ""
    if values.get(TIER) and "compact" in cleanup:
        raise InvalidConfig(
            f"{TIER} cannot be set with cleanup.policy={cleanup}: an archive keeps every record, "
            "and compaction removes some"
        )


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings that apply to a topic, parsed once."""

    policy: Policy
    batch_bytes_max: int
    codec: Codec | None  # None means: as the producer sent it.
    append_time: bool
    timestamp_before_ms: int
    timestamp_after_ms: int
    in_sync_min: int = 1


def topic_config(values: Mapping[str, str], defaults: Mapping[str, str]) -> TopicConfig:
    """Parse the topic's own settings, and the server's defaults for the others."""

    def text(name: str) -> str:
        return values.get(name) or defaults.get(name) or SETTINGS[name].default

    def number(name: str) -> int:
        return int(text(name))

    def bounded(name: str) -> int | None:
        value = number(name)
        return None if value == _INT64_MAX else value

    return TopicConfig(
        policy=Policy(
            durability=Durability(text("durability")),
            flush_ms=bounded("flush.ms"),
            flush_messages=bounded("flush.messages"),
            segment_bytes=number("segment.bytes"),
            segment_ms=number("segment.ms"),
            retention_ms=number("retention.ms"),
            retention_bytes=number("retention.bytes"),
            file_delete_delay_ms=number("file.delete.delay.ms"),
            expires="delete" in text("cleanup.policy"),
            compacts="compact" in text("cleanup.policy"),
            dirty_ratio_min=float(text("min.cleanable.dirty.ratio")),
            tombstone_ms=number("delete.retention.ms"),
            compaction_lag_ms_min=number("min.compaction.lag.ms"),
            compaction_lag_ms_max=bounded("max.compaction.lag.ms"),
            tier=values.get(TIER) or None,  # Only a topic's own: see `server_settings`.
        ),
        batch_bytes_max=number("max.message.bytes"),
        codec=_CODECS[text("compression.type")],
        append_time=text("message.timestamp.type") == "LogAppendTime",
        timestamp_before_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_ms=number("message.timestamp.after.max.ms"),
        in_sync_min=number("min.insync.replicas"),
    )
