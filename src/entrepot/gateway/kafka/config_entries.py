"""Lists settings as DescribeConfigs answers them: value, source, type, and overridden values.

The value of a topic's setting is the topic's own, or else the server's, or else the default. The
server's is the one set on this node, or else the one set for all nodes, or else the one that the
node was started with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from entrepot.broker.server_settings import SERVER_NAMES, Defaults, Layers
from entrepot.broker.share_group.settings import SETTINGS as GROUP_SETTINGS
from entrepot.broker.topic_config import SETTINGS, SettingType


class ResourceType(IntEnum):
    """Kinds of things that have settings, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from, with Kafka's numbers."""

    TOPIC = 1
    NODE = 2  # Set on this node while it runs.
    ALL_NODES = 3  # Set on all nodes while they run.
    SERVER = 4  # Set when this node was started.
    DEFAULT = 5
    GROUP = 8


class Type(IntEnum):
    """Types of values, with Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


_TYPES = {
    SettingType.STRING: Type.STRING,
    SettingType.INT: Type.INT,
    SettingType.LONG: Type.LONG,
    SettingType.DOUBLE: Type.DOUBLE,
    SettingType.LIST: Type.LIST,
    SettingType.BOOLEAN: Type.BOOLEAN,
}


class Value(NamedTuple):
    """One of the values of a setting. Each value overrides those after it."""

    name: str
    text: str | None  # None means: it has no value, or nobody may see it.
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    type: Type
    doc: str
    is_read_only: bool
    values: tuple[Value, ...]  # Never empty. The first one counts.

    @property
    def is_sensitive(self) -> bool:
        return self.type is Type.PASSWORD


class Fact(NamedTuple):
    """A setting of the server that does not change while it runs."""

    name: str
    type: Type
    text: str
    default: str
    doc: str


def topic_entries(settings: Mapping[str, str], layers: Layers) -> Iterator[ConfigEntry]:
    """Return every setting of a topic, from what is set on it and on the server."""
    for name, setting in SETTINGS.items():
        values = _server_values(name, layers)
        if name in settings:
            values.insert(0, Value(name, settings[name], ConfigSource.TOPIC))
        yield ConfigEntry(name, _TYPES[setting.kind], setting.doc, False, tuple(values))


def _server_values(name: str, layers: Layers) -> list[Value]:
    """Return the server's values of a topic's setting, beginning with the one that counts."""
    default = SETTINGS[name].default
    found = [
        (layers.own.get(name), ConfigSource.NODE),
        (layers.shared.get(name), ConfigSource.ALL_NODES),
    ]
    static = layers.static.get(name)
    found += [
        (None if static == default else static, ConfigSource.SERVER),
        (default, ConfigSource.DEFAULT),
    ]
    server_name = SERVER_NAMES.get(name, name)
    return [Value(server_name, text, source) for text, source in found if text is not None]


def group_entries(settings: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Return every setting of a share group, from what is set on it."""
    for name, setting in GROUP_SETTINGS.items():
        values = [Value(name, setting.default, ConfigSource.DEFAULT)]
        if name in settings:
            values.append(Value(name, settings[name], ConfigSource.GROUP))
        yield ConfigEntry(name, _TYPES[setting.kind], setting.doc, False, tuple(reversed(values)))


def server_entries(
    facts: Iterable[Fact], defaults: Defaults, layers: Layers
) -> Iterator[ConfigEntry]:
    """Yield the settings of a node: those it was started with, those of new topics, and the
    defaults of topics' settings."""
    for fact in (*facts, *_of_new_topics(defaults)):
        source = ConfigSource.DEFAULT if fact.text == fact.default else ConfigSource.SERVER
        text = None if fact.type is Type.PASSWORD else fact.text
        yield ConfigEntry(fact.name, fact.type, fact.doc, True, (Value(fact.name, text, source),))
    for name, server_name in SERVER_NAMES.items():
        setting, values = SETTINGS[name], tuple(_server_values(name, layers))
        yield ConfigEntry(server_name, _TYPES[setting.kind], setting.doc, False, values)


def shared_entries(layers: Layers) -> Iterator[ConfigEntry]:
    """Yield the settings that are set for all nodes."""
    for name, text in layers.shared.items():
        setting, value = SETTINGS[name], Value(SERVER_NAMES[name], text, ConfigSource.ALL_NODES)
        yield ConfigEntry(value.name, _TYPES[setting.kind], setting.doc, False, (value,))


def _of_new_topics(defaults: Defaults) -> Iterator[Fact]:
    yield Fact(
        "auto.create.topics.enable",
        Type.BOOLEAN,
        str(defaults.auto_create_topics).lower(),
        "true",
        "Whether asking for a topic that is not there creates it.",
    )
    yield Fact(
        "num.partitions",
        Type.INT,
        str(defaults.partition_count),
        "1",
        "How many partitions a topic gets when nobody says.",
    )
    yield Fact("default.replication.factor", Type.INT, "1", "1", "How many copies there are.")
