"""What can be set on the server while it runs: the defaults of topics' settings.

Set for one node, or for all of them under the empty name. A node's own counts first, then
what is set for all, then what the node was started with. Names are Kafka's, which calls
the default of a topic's setting often otherwise than the setting. Kept as records of the
catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from entrepot.broker.topic_config import SETTINGS, check_settings
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
SERVER_NAMES = {name: _RENAMED.get(name, name) for name in SETTINGS}  # By name of the topic's.
_TOPIC_NAMES = {server: name for name, server in SERVER_NAMES.items()}


class ReadOnlySetting(PeerError):
    """It is what the server was started with, or there is no such setting."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a topic is made of when nobody says."""

    partition_count: int = 1
    auto_create_topics: bool = True
    settings: dict[str, str] = field(default_factory=dict)  # By name of the topic's.


class Layers(NamedTuple):
    """Topics' settings on one node, by name of the topic's; each hides those after it."""

    own: Mapping[str, str]  # Of this node.
    shared: Mapping[str, str]  # Of all nodes.
    static: Mapping[str, str]  # What it was started with.


def check_server_settings(values: Mapping[str, str]) -> None:
    """Refuse what cannot be changed while the server runs, and values that are none."""
    fixed = [name for name in values if name not in _TOPIC_NAMES]
    if fixed:  # In Kafka's words: its users look for them.
        raise ReadOnlySetting(f"Cannot update these configs dynamically: Set({', '.join(fixed)})")
    for name, value in values.items():
        try:
            check_settings({_TOPIC_NAMES[name]: value})
        except InvalidConfig as error:
            raise PeerError(f"Invalid value {value} for configuration {name}: {error}") from None


def settings_record(name: str, values: Mapping[str, str]) -> Record:
    """For the catalog: exactly these are set from now on."""
    value = msgspec.json.encode(dict(values)) if values else None
    return Record(f"{CATALOG_KIND}:{name}".encode(), value)


class ServerSettings:
    """The catalog's records of this kind, folded over what the server was started with."""

    def __init__(self, node_id: int, static: Defaults) -> None:
        self._node = str(node_id)
        self._static = static
        self._set: dict[str, dict[str, str]] = {}  # By node's id, or for all. Server's names.
        self.defaults = static

    def apply(self, name: str, value: bytes | None, /) -> None:
        if value is None:
            self._set.pop(name, None)
        else:
            self._set[name] = msgspec.json.decode(value, type=dict[str, str])
        own, shared, static = self.layers()
        self.defaults = replace(self._static, settings={**static, **shared, **own})

    def texts(self, name: str) -> Mapping[str, str]:
        """What was set on a node, or for all of them, by the server's names."""
        return self._set.get(name, {})

    def layers(self) -> Layers:
        own, shared = self.texts(self._node), self.texts(ALL_NODES)
        return Layers(_of_topics(own), _of_topics(shared), self._static.settings)


def _of_topics(values: Mapping[str, str]) -> dict[str, str]:
    return {_TOPIC_NAMES[name]: value for name, value in values.items() if name in _TOPIC_NAMES}
