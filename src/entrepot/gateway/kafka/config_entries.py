"""Settings as Kafka's tools see them: value, source, type, and what lies behind.

A topic's value is its own, or the server's, or the default. The server's is what was set on
this node, or on all nodes, or what it was started with where that is not the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from entrepot.broker.server_settings import SERVER_NAMES, Defaults, Layers
from entrepot.broker.share_group.settings import SETTINGS as GROUP_SETTINGS
from entrepot.broker.topic_config import SETTINGS, Kind


class ResourceType(IntEnum):
    """What has settings. Numbers are Kafka's."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from. Numbers are Kafka's."""

    TOPIC = 1
    NODE = 2  # Set on it while it runs,
    ALL_NODES = 3  # or on all of them.
    SERVER = 4  # What it was started with.
    DEFAULT = 5
    GROUP = 8


class Type(IntEnum):
    """How a value is written. Numbers are Kafka's."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


_TYPES = {
    Kind.STRING: Type.STRING,
    Kind.INT: Type.INT,
    Kind.LONG: Type.LONG,
    Kind.DOUBLE: Type.DOUBLE,
    Kind.LIST: Type.LIST,
}


class Value(NamedTuple):
    """One of the values a setting has, each hidden by the one before it."""

    name: str
    text: str | None  # None: there is none, or nobody may see it.
    source: Source


class Entry(NamedTuple):
    name: str
    type: Type
    doc: str
    is_read_only: bool
    values: tuple[Value, ...]  # The one that counts is the first. Never empty.

    @property
    def is_sensitive(self) -> bool:
        return self.type is Type.PASSWORD


class Fact(NamedTuple):
    """A setting of the server that is what it was started with."""

    name: str
    type: Type
    text: str
    default: str
    doc: str


def topic_entries(settings: Mapping[str, str], layers: Layers) -> Iterator[Entry]:
    """Every setting of a topic, given what is set on it and what on the server."""
    for name, setting in SETTINGS.items():
        values = _server_values(name, layers)
        if name in settings:
            values.insert(0, Value(name, settings[name], Source.TOPIC))
        yield Entry(name, _TYPES[setting.kind], setting.doc, False, tuple(values))


def _server_values(name: str, layers: Layers) -> list[Value]:
    """The values of a topic's setting that the server has, the one that counts first."""
    default = SETTINGS[name].default
    found = [(layers.own.get(name), Source.NODE), (layers.shared.get(name), Source.ALL_NODES)]
    static = layers.static.get(name)
    found += [(None if static == default else static, Source.SERVER), (default, Source.DEFAULT)]
    return [Value(SERVER_NAMES[name], text, source) for text, source in found if text is not None]


def group_entries(settings: Mapping[str, str]) -> Iterator[Entry]:
    """Every setting of a share group, given what is set on it."""
    for name, setting in GROUP_SETTINGS.items():
        values = [Value(name, setting.default, Source.DEFAULT)]
        if name in settings:
            values.append(Value(name, settings[name], Source.GROUP))
        yield Entry(name, _TYPES[setting.kind], setting.doc, False, tuple(reversed(values)))


def server_entries(facts: Iterable[Fact], defaults: Defaults, layers: Layers) -> Iterator[Entry]:
    """What a node was started with, what new topics are made of, and what topics get on
    which nothing is set."""
    for fact in (*facts, *_of_new_topics(defaults)):
        source = Source.DEFAULT if fact.text == fact.default else Source.SERVER
        text = None if fact.type is Type.PASSWORD else fact.text
        yield Entry(fact.name, fact.type, fact.doc, True, (Value(fact.name, text, source),))
    for name, setting in SETTINGS.items():
        values = tuple(_server_values(name, layers))
        yield Entry(SERVER_NAMES[name], _TYPES[setting.kind], setting.doc, False, values)


def shared_entries(layers: Layers) -> Iterator[Entry]:
    """What is set for all nodes, and nothing else."""
    for name, text in layers.shared.items():
        setting, value = SETTINGS[name], Value(SERVER_NAMES[name], text, Source.ALL_NODES)
        yield Entry(value.name, _TYPES[setting.kind], setting.doc, False, (value,))


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
