"""Settings as Kafka's tools see them: value, source, type, and what lies behind.

A topic's value is its own, or the server's where that is not the default, or the
default. Where a setting is the server's, Kafka often has another name for it; we
answer to that, so that its tools find it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from entrepot.broker.broker import Defaults
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
    SERVER = 4
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


_TYPES = {
    Kind.STRING: Type.STRING,
    Kind.INT: Type.INT,
    Kind.LONG: Type.LONG,
    Kind.DOUBLE: Type.DOUBLE,
    Kind.LIST: Type.LIST,
}

_SERVER_NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
}


class Value(NamedTuple):
    """One of the values a setting has, each hidden by the one before it."""

    name: str
    text: str
    source: Source


class Entry(NamedTuple):
    name: str
    type: Type
    doc: str
    is_read_only: bool
    values: tuple[Value, ...]  # The one that counts is the first. Never empty.


def topic_entries(settings: Mapping[str, str], server: Mapping[str, str]) -> Iterator[Entry]:
    """Every setting of a topic, given what is set on it and what on the server."""
    for name, setting in SETTINGS.items():
        server_name = _SERVER_NAMES.get(name, name)
        values = [Value(server_name, setting.default, Source.DEFAULT)]
        if server.get(name, setting.default) != setting.default:
            values.append(Value(server_name, server[name], Source.SERVER))
        if name in settings:
            values.append(Value(name, settings[name], Source.TOPIC))
        yield Entry(name, _TYPES[setting.kind], setting.doc, False, tuple(reversed(values)))


def group_entries(settings: Mapping[str, str]) -> Iterator[Entry]:
    """Every setting of a share group, given what is set on it."""
    for name, setting in GROUP_SETTINGS.items():
        values = [Value(name, setting.default, Source.DEFAULT)]
        if name in settings:
            values.append(Value(name, settings[name], Source.GROUP))
        yield Entry(name, _TYPES[setting.kind], setting.doc, False, tuple(reversed(values)))


def server_entries(node_id: int, defaults: Defaults) -> Iterator[Entry]:
    """What new topics are made of, and what topics get on which nothing is set."""
    yield _own("node.id", Type.INT, "Which node this is.", str(node_id), "")
    yield _own(
        "auto.create.topics.enable",
        Type.BOOLEAN,
        "Whether asking for a topic that is not there creates it.",
        str(defaults.auto_create_topics).lower(),
        "true",
    )
    yield _own(
        "num.partitions",
        Type.INT,
        "How many partitions a topic gets when nobody says.",
        str(defaults.partition_count),
        "1",
    )
    yield _own("default.replication.factor", Type.INT, "How many copies there are.", "1", "1")
    for entry in topic_entries({}, defaults.settings):
        yield entry._replace(name=entry.values[0].name, is_read_only=True)


def _own(name: str, kind: Type, doc: str, text: str, default: str) -> Entry:
    source = Source.DEFAULT if text == default else Source.SERVER
    return Entry(name, kind, doc, True, (Value(name, text, source),))
