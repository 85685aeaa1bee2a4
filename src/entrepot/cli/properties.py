"""Kafka's `server.properties`, read as our settings.

Lectures, books and old machines have such files. What we have a setting for is
taken; every other key is returned, so that the server can say it ignores it. A key
we do have, with a value we cannot honour, is an error: a broker that quietly listens
elsewhere, or quietly drops TLS, is worse than one that does not start.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from entrepot.config import PROTOCOLS, Config, ConfigError, build, put, read_text

_HOUR_MS = 3600 * 1000
_LISTENER = re.compile(r"(?P<name>\w+)://(?P<host>\[[^]]*\]|[^:]*):(?P<port>\d+)")


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _hours(text: str) -> int:
    return int(text) * _HOUR_MS if int(text) >= 0 else -1


def _minutes(text: str) -> int:
    return int(text) * 60_000 if int(text) >= 0 else -1


# Kafka's key, ours, and how to read the value. Of several keys for one thing the last
# one here wins, which is Kafka's order: milliseconds over minutes over hours.
_SETTINGS: tuple[tuple[str, str, Callable[[str], object]], ...] = (
    ("log.dir", "data_dir", str),
    ("log.dirs", "data_dir", str),
    ("broker.id", "node_id", int),
    ("node.id", "node_id", int),
    ("num.partitions", "topics.num_partitions", int),
    ("auto.create.topics.enable", "topics.auto_create", _boolean),
    ("compression.type", "topics.compression_type", str),
    ("message.max.bytes", "topics.max_message_bytes", int),
    ("log.cleanup.policy", "topics.cleanup_policy", str),
    ("log.message.timestamp.type", "topics.message_timestamp_type", str),
    ("log.flush.interval.messages", "topics.flush_messages", int),
    ("log.flush.interval.ms", "topics.flush_ms", int),
    ("log.retention.hours", "topics.retention_ms", _hours),
    ("log.retention.minutes", "topics.retention_ms", _minutes),
    ("log.retention.ms", "topics.retention_ms", int),
    ("log.retention.bytes", "topics.retention_bytes", int),
    ("log.segment.bytes", "topics.segment_bytes", int),
    ("log.segment.delete.delay.ms", "topics.file_delete_delay_ms", int),
    ("log.roll.hours", "topics.segment_ms", _hours),
    ("log.roll.ms", "topics.segment_ms", int),
    ("group.initial.rebalance.delay.ms", "groups.initial_rebalance_delay_ms", int),
    ("group.min.session.timeout.ms", "groups.min_session_timeout_ms", int),
    ("group.max.session.timeout.ms", "groups.max_session_timeout_ms", int),
    ("group.max.size", "groups.max_size", int),
    ("group.consumer.heartbeat.interval.ms", "groups.consumer_heartbeat_interval_ms", int),
    ("group.consumer.session.timeout.ms", "groups.consumer_session_timeout_ms", int),
    ("offsets.retention.minutes", "groups.offsets_retention_minutes", int),
)
_LISTENERS = (
    "listeners",
    "advertised.listeners",
    "controller.listener.names",
    "listener.security.protocol.map",
)


def load(path: str, overrides: Mapping[str, str]) -> tuple[Config, list[str]]:
    """The settings in the file, under the overrides; and the keys we ignore."""
    given = parse(read_text(path))
    given.update(overrides)
    return convert(given, path)


def convert(given: Mapping[str, str], source: str) -> tuple[Config, list[str]]:
    document: dict[str, Any] = {}
    for key, ours, read in _SETTINGS:
        if key in given:
            try:
                put(document, ours, read(given[key]))
            except (ValueError, KeyError):
                raise ConfigError(f"{source}: {key}: {given[key]!r} is not a value") from None
    if "," in document.get("data_dir", ""):
        raise ConfigError(f"{source}: log.dirs: one directory only")
    _listen(given, document, source)
    known = {key for key, _, _ in _SETTINGS}.union(_LISTENERS)
    return build(document, source), sorted(key for key in given if key not in known)


def _listen(given: Mapping[str, str], document: dict[str, Any], source: str) -> None:
    """Kafka's clients only: of several such servers on a machine, each has its own port."""
    for protocol in PROTOCOLS:
        if protocol != "kafka":
            put(document, f"ports.{protocol}", "off")
    listeners = _endpoints(given, "listeners", source)
    if len(listeners) > 1:
        raise ConfigError(f"{source}: listeners: one listener for clients only")
    for host, port in listeners:
        document["host"] = host or "0.0.0.0"  # An empty host is every interface.
        put(document, "ports.kafka", port)
    for host, port in _endpoints(given, "advertised.listeners", source)[:1]:
        document["advertised"] = {"host": host, "kafka_port": port}


def _endpoints(given: Mapping[str, str], key: str, source: str) -> list[tuple[str, int]]:
    """The listeners for clients: one controller's listener means nothing to us."""
    controllers = given.get("controller.listener.names", "").split(",")
    protocols = dict(
        entry.split(":", 1)
        for entry in given.get("listener.security.protocol.map", "").split(",")
        if ":" in entry
    )
    found = []
    for entry in filter(None, map(str.strip, given.get(key, "").split(","))):
        match = _LISTENER.fullmatch(entry)
        if match is None:
            raise ConfigError(f"{source}: {key}: {entry!r} is not like PLAINTEXT://host:9092")
        if match["name"] in controllers:
            continue
        protocol = protocols.get(match["name"], match["name"])
        if protocol.upper() != "PLAINTEXT":
            raise ConfigError(f"{source}: {key}: {protocol} is not supported, PLAINTEXT is")
        found.append((match["host"].strip("[]"), int(match["port"])))
    return found


def parse(text: str) -> dict[str, str]:
    """A Java properties file: `key=value`, `key: value` or `key value`, `#` and `!` comments.

    A backslash at the end of a line continues it; escapes are those of Java.
    """
    found = {}
    lines = iter(text.splitlines())
    for line in lines:
        line = line.lstrip()
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, "").lstrip()
        match = re.match(r"((?:\\.|[^\\\s=:])*)\s*[=:]?\s*", line)
        assert match is not None  # Every part of it may be empty.
        found[_unescape(match[1])] = _unescape(line[match.end() :]).rstrip()
    return found


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replace, text)
