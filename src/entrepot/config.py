"""Reads the configuration into frozen dataclasses, once, before anything else is made.

There are three sources, each overriding the one before: the defaults in this module, a file (TOML,
or a Kafka `server.properties`), and the flags of the command line. A mistake in any of them raises
`ConfigError`, one line with the source, the key, and the most similar legal key. Only the server
and the command line import this module; other parts get plain values.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from entrepot.core import limits
from entrepot.log.policy import Durability

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

# Each has a port in `Ports` and a flag `--<protocol>-port`.
PROTOCOLS = (
    "kafka",
    "kafka_tls",
    "amqp",
    "amqp_tls",
    "mqtt",
    "mqtt_tls",
    "stomp",
    "stomp_tls",
    "http",
    "http_tls",
    "sqs",
)

_Natural = Annotated[int, Meta(ge=0)]
_Positive = Annotated[int, Meta(ge=1)]
_OrUnlimited = Annotated[int, Meta(ge=-1)]  # -1 stands for no limit.
_Port = Annotated[int, Meta(ge=0, le=65535)]


class ConfigError(Exception):
    """A mistake in the configuration. The text is one line for the user."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The port of each protocol. 0 means: any free port. None ("off") means: do not listen."""

    kafka: _Port | None = 9092
    kafka_tls: _Port | None = None
    amqp: _Port | None = 5672
    amqp_tls: _Port | None = None
    mqtt: _Port | None = 1883
    mqtt_tls: _Port | None = None
    stomp: _Port | None = 61613
    stomp_tls: _Port | None = None
    http: _Port | None = 15672  # Management, and MQTT and STOMP over WebSocket.
    http_tls: _Port | None = None
    sqs: _Port | None = 9324


@dataclass(frozen=True, slots=True)
class Advertised:
    """The address that Kafka's clients are told to connect to. None means: the one we listen on."""

    host: str | None = None
    kafka_port: _Port | None = None
    kafka_tls_port: _Port | None = None


@dataclass(frozen=True, slots=True)
class Security:
    """Authentication and authorisation."""

    authentication: Literal["none", "sasl"] = "none"
    authorization: bool = False  # Whether ACLs and permissions are enforced.
    super_users: tuple[str, ...] = ()  # As in "User:ana". They may do everything.
    insecure: bool = False  # Accept other machines without authentication.
    # What the addresses of topics' tiers may begin with. None means: anything, or nothing where
    # `authorization` is on.
    tiers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files, for the ports whose names end in `_tls`."""

    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None  # Clients must have a certificate signed by this CA.


@dataclass(frozen=True, slots=True)
class Topics:
    """The defaults of topics' settings, with Kafka's names."""

    auto_create: bool = True
    num_partitions: Annotated[int, Meta(ge=1, le=limits.PARTITIONS_PER_TOPIC_MAX)] = 1
    cleanup_policy: Literal["delete", "compact", "compact,delete"] = "delete"
    compression_type: Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] = (
        "producer"
    )
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    max_message_bytes: Annotated[int, Meta(ge=0, le=limits.FRAME_BYTES_MAX)] = (
        limits.BATCH_BYTES_MAX
    )
    retention_ms: _OrUnlimited = 7 * 24 * 3600 * 1000
    retention_bytes: _OrUnlimited = -1
    segment_bytes: Annotated[
        int, Meta(ge=limits.SEGMENT_BYTES_MIN, le=limits.SEGMENT_BYTES_MAX)
    ] = limits.SEGMENT_BYTES
    segment_ms: _Positive = 7 * 24 * 3600 * 1000
    file_delete_delay_ms: _Natural = 60_000
    flush_messages: _Positive | None = None  # None means: as the durability defines it.
    flush_ms: _Natural | None = None


@dataclass(frozen=True, slots=True)
class Queues:
    """Settings of all queues, and of messages published over AMQP, MQTT, STOMP and HTTP."""

    max_message_bytes: Annotated[int, Meta(ge=1, le=limits.MESSAGE_BYTES_MAX)] = (
        limits.MESSAGE_BYTES
    )


class Rewrite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule that changes topics of MQTT."""

    match: str  # A topic filter.
    to: str  # With `$1`, `$2` for what the wildcards stand for.
    on: Literal["all", "publish", "subscribe"] = "all"


@dataclass(frozen=True, slots=True)
class Mqtt:
    """Settings of MQTT's clients."""

    # What a client of version 5 is told that wants a longer keep-alive, or none. 0: no limit.
    max_keep_alive_seconds: Annotated[int, Meta(ge=0, le=65_535)] = 0
    # Sessions that outlive their connections; another one is refused.
    max_kept_sessions: Annotated[int, Meta(ge=0, le=limits.SESSIONS_MAX)] = limits.SESSIONS_KEPT_MAX
    # How long a session is kept after its connection, at most. 0: no limit.
    max_session_expiry_seconds: Annotated[int, Meta(ge=0, le=2**32 - 2)] = 0
    # How often the topics under `$SYS/` are updated. 0: there are none.
    sys_interval_seconds: Annotated[int, Meta(ge=0, le=65_535)] = 10
    # The first one that matches changes a topic or filter.
    rewrite: Annotated[tuple[Rewrite, ...], Meta(max_length=limits.REWRITES_MAX)] = ()
    # Filters of topics whose messages may overtake those that are sent again after a crash.
    unordered: Annotated[tuple[str, ...], Meta(max_length=limits.UNORDERED_MAX)] = ()


@dataclass(frozen=True, slots=True)
class WebSocket:
    """Settings of MQTT and STOMP over WebSocket, on the ports of HTTP."""

    # Whose pages may connect, as in "https://shop.example", besides those that come from here.
    # "*" means: any.
    origins: tuple[str, ...] = ()


class BridgeTopics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Topics that cross a bridge."""

    filter: str  # Of what follows the prefixes.
    direction: Literal["in", "out", "both"] = "out"  # "in" means: from the other broker.
    qos: Literal[0, 1, 2] = 1  # At most.
    local_prefix: str = ""
    remote_prefix: str = ""


class Bridge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bridge to another MQTT broker."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]
    address: str  # As in "mqtt.example.com:1883".
    topics: Annotated[tuple[BridgeTopics, ...], Meta(max_length=limits.BRIDGE_TOPICS_MAX)]
    version: Literal["3.1.1", "5"] = "5"  # That the other broker speaks.
    client_id: str | None = None  # That the other broker knows us by; "entrepot-" and the name.
    user: str | None = None
    password: str | None = None
    password_file: str | None = None  # Whose first line is the password.
    tls: bool = False
    ca: str | None = None  # A PEM file; None means: those that the system trusts.
    certificate: str | None = None  # Ours, if the other broker asks for one.
    key: str | None = None
    keep_alive_seconds: Annotated[int, Meta(ge=1, le=65_535)] = 60


@dataclass(frozen=True, slots=True)
class Sns:
    """Settings of Amazon SNS: to which HTTP endpoints messages may be sent."""

    # As in "https://hooks.example.com/orders": that address, and all below it.
    endpoints: Annotated[tuple[str, ...], Meta(max_length=1_000)] = ()
    ca: str = ""  # A PEM file with who signs their certificates. Empty means: the system's.


@dataclass(frozen=True, slots=True)
class Manager:
    """This broker as a queue manager, which relays messages to others."""

    # Others know it by this name. Empty means: it is none.
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{0,100}$")] = ""
    announce: tuple[str, ...] = ()  # Queues that neighbours are told of; "*" means: durable ones.
    store: bool = True  # Without it, what is to be sent waits in memory, and is confirmed late.


class ManagerLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link to another queue manager, or another broker of AMQP 0-9-1."""

    to: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]  # The other manager.
    address: str  # As in "london.example.com:5672".
    vhost: str = "/"
    user: str = "guest"
    password: str | None = None  # None means: "guest".
    password_file: str | None = None  # Whose first line is the password.
    tls: bool = False
    ca: str | None = None  # A PEM file; None means: those that the system trusts.
    certificate: str | None = None  # Ours, if the other broker asks for one.
    key: str | None = None


class ManagerRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A route that is set by hand: to a manager by way of a neighbour, or where a queue is."""

    manager: str
    via: str | None = None  # The neighbour. None means: as it is learned, or the neighbour itself.
    queues: tuple[str, ...] = ()  # Queues of that manager that are addressed without its name.


@dataclass(frozen=True, slots=True)
class Cluster:
    """This node as one of several. Without a coordinator it is alone, and none of this counts."""

    # Where etcd answers, as in "http://10.0.0.1:2379".
    coordinator: Annotated[tuple[str, ...], Meta(max_length=limits.COORDINATOR_ENDPOINTS_MAX)] = ()
    # What the cluster is called in etcd, where several may be.
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,100}$")] = "entrepot"
    rack: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{0,100}$")] = ""  # Or the machine.
    # Whose first line all nodes know, and nobody else: a node without it does not join.
    secret_file: str | None = None
    # Of topics whose creator does not say, and of the broker's own.
    replication_factor: Annotated[int, Meta(ge=1, le=limits.REPLICAS_MAX)] = 3
    min_insync_replicas: Annotated[int, Meta(ge=1, le=limits.REPLICAS_MAX)] = 1
    # A node that says nothing for so long has no part in the cluster any more.
    session_timeout_ms: Annotated[int, Meta(ge=1_000, le=600_000)] = 6_000
    # A replica that has not had everything for so long is not in sync any more.
    replica_lag_time_max_ms: Annotated[int, Meta(ge=100, le=600_000)] = 30_000
    # Serve queues and sessions. All nodes alike.
    queues: bool = True


@dataclass(frozen=True, slots=True)
class Groups:
    """Settings of consumer groups. Names with `consumer_` apply to the modern protocol only."""

    initial_rebalance_delay_ms: _Natural = 100
    min_session_timeout_ms: _Positive = 6_000
    max_session_timeout_ms: _Positive = 1_800_000
    max_size: Annotated[int, Meta(ge=1, le=limits.GROUP_MEMBERS_MAX)] = limits.GROUP_MEMBERS_MAX
    offsets_retention_minutes: _Positive = 7 * 24 * 60
    consumer_heartbeat_interval_ms: _Positive = 5_000
    consumer_session_timeout_ms: _Positive = 45_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of unfinished input (received and not processed): the bytes of all connections
    together, and how long a connection may wait for the rest of a frame."""

    unfinished_bytes: Annotated[int, Meta(ge=limits.MIB)] = limits.UNFINISHED_BYTES_MAX
    unfinished_ms: _Positive = limits.UNFINISHED_MS_MAX
    # Partitions that metrics list one by one, and queues.
    metrics_rows: Annotated[int, Meta(ge=0, le=limits.PARTITIONS_MAX)] = limits.METRICS_ROWS_MAX


@dataclass(frozen=True, slots=True)
class Tracing:
    """Spans of messages whose publishers trace them. Needs the extra `otel`."""

    # Of a collector that takes OTLP over HTTP, as "http://127.0.0.1:4318". Empty: no spans.
    endpoint: Annotated[str, Meta(pattern=r"^(https?://[^/ ]+)?$")] = ""
    service: str = "entrepot"  # The name of this broker in traces.


@dataclass(frozen=True, slots=True)
class Config:
    data_dir: str = "data"  # Relative to the current directory.
    host: str = "localhost"  # 127.0.0.1 and ::1.
    node_id: _Natural = 1
    durability: Durability = Durability.FSYNC
    recovery: Literal["tail", "full"] = "tail"  # What is checked after a crash.
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    ports: Ports = field(default_factory=Ports)
    advertised: Advertised = field(default_factory=Advertised)
    topics: Topics = field(default_factory=Topics)
    queues: Queues = field(default_factory=Queues)
    mqtt: Mqtt = field(default_factory=Mqtt)
    websocket: WebSocket = field(default_factory=WebSocket)
    groups: Groups = field(default_factory=Groups)
    security: Security = field(default_factory=Security)
    tls: Tls = field(default_factory=Tls)
    sns: Sns = field(default_factory=Sns)
    manager: Manager = field(default_factory=Manager)
    cluster: Cluster = field(default_factory=Cluster)
    link: Annotated[tuple[ManagerLink, ...], Meta(max_length=limits.LINKS_MAX)] = ()
    route: Annotated[tuple[ManagerRoute, ...], Meta(max_length=limits.LINK_MANAGERS_MAX)] = ()
    bridge: Annotated[tuple[Bridge, ...], Meta(max_length=limits.BRIDGES_MAX)] = ()
    limits: Limits = field(default_factory=Limits)
    tracing: Tracing = field(default_factory=Tracing)


def load(path: str | None, flags: Mapping[str, object] | None = None) -> Config:
    """Read a TOML file, if there is one, and apply the flags: `{"ports.kafka": 0, …}`."""
    document = _read_toml(path) if path is not None else {}
    return build(document, path or "settings", flags)


def origins(path: str | None, flags: Mapping[str, object]) -> dict[str, str]:
    """Return where settings were given: in the file, or on the command line, which goes over it.
    What is missing has its default. Raises ConfigError."""
    document = _read_toml(path) if path is not None else {}
    found = dict.fromkeys(_paths(document), path or "")
    return found | dict.fromkeys(flags, "command line")


def _paths(document: Mapping[str, Any]) -> Iterator[str]:
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from (f"{key}.{name}" for name in value)
        else:
            yield key


def build(
    document: Mapping[str, Any], source: str, flags: Mapping[str, object] | None = None
) -> Config:
    """Make the configuration from a parsed document. Errors name `source` as their source."""
    config = _convert(document, source)
    if flags:
        merged = {key: dict(v) if isinstance(v, Mapping) else v for key, v in document.items()}
        for key, value in flags.items():
            put(merged, key, value)
        config = _convert(merged, "command line")
    return config


def put(document: dict[str, Any], key: str, value: object) -> None:
    """Set a value of a nested document by its path, such as `"ports.kafka"`."""
    table, _, name = key.rpartition(".")
    (document.setdefault(table, {}) if table else document)[name] = value


def _read_toml(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None


def _convert(document: Mapping[str, Any], source: str) -> Config:
    _check_keys(document, Config, source, "")
    ports = document.get("ports", {})
    opened = {name: None if port == "off" else port for name, port in ports.items()}
    try:
        config = msgspec.convert({**document, "ports": opened}, Config)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `$.")
        where = where.rstrip("`")
        raise ConfigError(f"{source}: {where}: {_lower_first(problem)}{_choices(where)}") from None
    for each in config.cluster.coordinator:
        if coordinator_address(each) is None:
            raise ConfigError(
                f'{source}: cluster.coordinator: {each!r} is no address such as "http://host:2379"'
            )
    return config


def coordinator_address(url: str) -> tuple[str, int] | None:
    """Return the host and the port of an address of etcd; None if it is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    has_more = parts.path not in ("", "/") or parts.query or parts.fragment or parts.username
    if parts.scheme != "http" or not parts.hostname or not port or has_more:
        return None
    return parts.hostname, port


def _check_keys(document: Mapping[str, Any], model: type, source: str, prefix: str) -> None:
    assert is_dataclass(model)
    legal = {entry.name: entry for entry in fields(model)}
    for key, value in document.items():
        if key not in legal:
            raise ConfigError(f'{source}: unknown key "{prefix}{key}"{_nearest(key, prefix)}')
        part = legal[key].type
        if isinstance(part, type) and is_dataclass(part):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{source}: {key}: expected a table, as in [{key}]")
            _check_keys(value, part, source, f"{key}.")


def _nearest(key: str, prefix: str) -> str:
    """Return a hint with the most similar legal key of any table, or an empty text."""
    paths = {path.rpartition(".")[2]: path for path in legal_keys()}
    paths.update({path: path for path in legal_keys()})
    for candidate in (prefix + key, key):
        for match in difflib.get_close_matches(candidate, paths, n=1, cutoff=0.7):
            return f'; did you mean "{paths[match]}"?'
    return ""


def legal_keys() -> list[str]:
    """Return the paths of all keys: `"data_dir"`, `"topics.retention_ms"`, …"""
    keys = []
    for entry in fields(Config):
        if isinstance(entry.type, type) and is_dataclass(entry.type):
            keys += [f"{entry.name}.{inner.name}" for inner in fields(entry.type)]
        else:
            keys.append(entry.name)
    return keys


def _choices(key: str) -> str:
    """Return a list of the legal values of a key, or an empty text if there is none."""
    if "[" in key:
        return ""  # One of several tables: what is wrong is said already.
    table, _, name = key.rpartition(".")
    hints: dict[str, Any] = {entry.name: entry.type for entry in fields(Config)}
    if table:
        hints = {entry.name: entry.type for entry in fields(hints[table])}
    hint = hints[name]
    if hint is Durability:
        return f"; one of {', '.join(Durability)}"
    if get_origin(hint) is Literal:
        return f"; one of {', '.join(get_args(hint))}"
    return ""


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
