"""Stores the server's settings that can be changed while it runs: defaults of topics' settings.

A setting is set for one node, or for all nodes (under the empty name). A node uses its own value,
or else the value for all nodes, or else the value it was started with. Names are Kafka's, in
which the default of a topic's setting often has another name than the setting itself. Settings
are stored as records of the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from entrepot.broker.topic_config import SETTINGS, TIER, check_settings
from entrepot.core.errors import InvalidConfig, PeerError
from entrepot.core.record import Record

CATALOG_KIND = "server-settings"
ALL_NODES = ""

_RENAMED = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
}
SERVER_NAMES = {
    name: _RENAMED.get(name, name)
    for name in SETTINGS
    if name
    != TIER  # Each topic says it for itself: no topic of ours, and no queue, has an archive.
}  # Topic setting -> server setting.
_TOPIC_NAMES = {server: name for name, server in SERVER_NAMES.items()}


class ReadOnlySetting(PeerError):
    """A setting that cannot be changed while the server runs, or does not exist."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The defaults for new topics."""

    partition_count: int = 1
    auto_create_topics: bool = True
    settings: dict[str, str] = field(default_factory=dict)  # By topic setting.


class Layers(NamedTuple):
    """The defaults of topics' settings on one node, by topic setting; each layer hides the next."""

    own: Mapping[str, str]  # Set on this node.
    shared: Mapping[str, str]  # Set for all nodes.
    static: Mapping[str, str]  # What the node was started with.


def check_server_settings(values: Mapping[str, str]) -> None:
    """Raise PeerError for settings that cannot be changed, and for invalid values."""
    fixed = [name for name in values if name not in _TOPIC_NAMES]
    if fixed:  # In Kafka's words, which its users may search for.
        raise ReadOnlySetting(f"Cannot update these configs dynamically: Set({', '.join(fixed)})")
    for name, value in values.items():
        try:
            check_settings({_TOPIC_NAMES[name]: value})
        except InvalidConfig as error:
            raise PeerError(f"Invalid value {value} for configuration {name}: {error}") from None


def settings_record(name: str, values: Mapping[str, str]) -> Record:
    """Return the catalog's record that sets exactly these settings."""
    value = msgspec.json.encode(dict(values)) if values else None
    return Record(f"{CATALOG_KIND}:{name}".encode(), value)


class ServerSettings:
    """The settings that the server was started with, overridden by those in the catalog."""

    def __init__(self, node_id: int, static: Defaults) -> None:
        self._node = str(node_id)
        self._static = static
        # Node's id, or ALL_NODES -> server setting -> value.
        self._set: dict[str, dict[str, str]] = {}
        self.defaults = static

    def apply(self, name: str, value: bytes | None, /) -> None:
        if value is None:
            self._set.pop(name, None)
        else:
            self._set[name] = msgspec.json.decode(value, type=dict[str, str])
        own, shared, static = self.layers()
        self.defaults = replace(self._static, settings={**static, **shared, **own})

    def texts(self, name: str) -> Mapping[str, str]:
        """Return what was set on a node, or for ALL_NODES, by server setting."""
        return self._set.get(name, {})

    def layers(self) -> Layers:
        """Return the defaults of topics' settings on this node, by where they are set."""
        own, shared = self.texts(self._node), self.texts(ALL_NODES)
        return Layers(_of_topics(own), _of_topics(shared), self._static.settings)


def _of_topics(values: Mapping[str, str]) -> dict[str, str]:
    return {_TOPIC_NAMES[name]: value for name, value in values.items() if name in _TOPIC_NAMES}
