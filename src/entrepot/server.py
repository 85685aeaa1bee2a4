"""Assembles the broker, its gateways and the network; only this module knows every part.

Only this module makes the real clock, entropy, disk and network, and only it reads the
configuration: the other parts get plain values. A start that fails raises `StartError`, whose
text is one line for the user.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import resource
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from entrepot.broker.access import NODE, AccessSettings
from entrepot.broker.broker import Broker
from entrepot.broker.consumer_group.settings import GroupSettings
from entrepot.broker.login import LoginPolicy, host_of, is_loopback
from entrepot.broker.router.event import Exchange
from entrepot.broker.server_settings import Defaults
from entrepot.config import (
    Advertised,
    Config,
    ConfigError,
    Groups,
    Topics,
    coordinator_address,
    read_text,
)
from entrepot.core import limits
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.core.errors import (
    InvalidConfig,
    InvalidName,
    PeerError,
    StorageError,
    StoreUnavailable,
)
from entrepot.core.faults import Faults
from entrepot.core.measures import MessageCount, Pulse, Traffic
from entrepot.core.neutral import Formats
from entrepot.core.ports import (
    Link,
    Listener,
    Net,
    ObjectStore,
    OpenStore,
    ServingReceiver,
    Stores,
    Worker,
    World,
    in_place,
)
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.amqp.reply_to import Replies
from entrepot.gateway.amqp10.format import AMQP_1_0
from entrepot.gateway.greeting import Greeting
from entrepot.gateway.http.console.feed import Feed
from entrepot.gateway.kafka.adapter import KafkaAdapter
from entrepot.gateway.kafka.config_entries import Fact, Type
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.fetch_session import FetchSessions
from entrepot.gateway.kafka.login import Login
from entrepot.gateway.kafka.principals import principal_of, user_named
from entrepot.gateway.mqtt.format import MQTT
from entrepot.gateway.rabbitmq.dialect import RabbitDialect
from entrepot.gateway.rabbitmq.exchange_arguments import LINKS, PREDECLARED
from entrepot.gateway.rabbitmq.rights import DEFAULT_EXCHANGE_NAME
from entrepot.gateway.relay import MAGIC, Needs, Relay
from entrepot.log.disk import FileDisk
from entrepot.log.object_store import open_store
from entrepot.net.sockets import SocketNet
from entrepot.net.unfinished import UnfinishedInput
from entrepot.wire.sasl import MECHANISMS

if TYPE_CHECKING:
    from entrepot.clustering.node import ClusterNode
    from entrepot.gateway.amqp.context import Context as AmqpContext
    from entrepot.gateway.amqp.context import Wanted
    from entrepot.gateway.amqp10.context import Context as Amqp10Context
    from entrepot.gateway.http.adapter import Upgrade
    from entrepot.gateway.http.console.live import Live
    from entrepot.gateway.http.management.call import Setting
    from entrepot.gateway.http.management.call import Sources as HttpSources
    from entrepot.gateway.http.static import StaticFiles
    from entrepot.gateway.http.websocket import WebSockets
    from entrepot.gateway.mqtt.bridge.bridge import Bridge
    from entrepot.gateway.mqtt.context import Context as MqttContext
    from entrepot.gateway.mqtt.ordering import Unordered
    from entrepot.gateway.mqtt.rewriting import Rewriting
    from entrepot.gateway.mqtt.system_topics import SystemTopics
    from entrepot.gateway.sqs.sns.endpoints import Endpoints as SnsEndpoints
    from entrepot.gateway.stomp.context import Context as StompContext
    from entrepot.linking.manager import QueueManager
    from entrepot.tracing import OpenTelemetry
    from entrepot.wire.http.request import Request
    from entrepot.wire.http.response import Response

log = logging.getLogger("entrepot.server")

_SECRET_CHARACTERS_MIN = 32
_SPANS_SENT_S_MAX = 2  # A stop waits no longer for the collector.
_KAFKA_GROUP_NAMES = {
    "initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "min_session_timeout_ms": "group.min.session.timeout.ms",
    "max_session_timeout_ms": "group.max.session.timeout.ms",
    "max_size": "group.max.size",
    "offsets_retention_minutes": "offsets.retention.minutes",
    "consumer_heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
    "consumer_session_timeout_ms": "group.consumer.session.timeout.ms",
}


class StartError(Exception):
    """Why the broker cannot start, in one line."""


class Endpoint(NamedTuple):
    host: str
    port: int


def world(config: Config) -> World:
    """Return the real clock, entropy, disk and network."""
    _check_exposure(config)
    descriptors = _allow_many_files()
    try:
        disk = FileDisk(config.data_dir)
    except OSError as error:
        raise StartError(f"{config.data_dir}: {error.strerror}") from None
    nets = 2 if _tls_ports(config) else 1
    connections_max = min(limits.CONNECTIONS_MAX, (descriptors - 2 * disk.files_max) // nets)
    faults = Faults()
    unfinished = UnfinishedInput(config.limits.unfinished_bytes, config.limits.unfinished_ms)
    net = SocketNet(connections_max=connections_max, faults=faults, unfinished=unfinished)
    tls_net = _tls_net(config, connections_max, faults, unfinished)
    return World(
        SystemClock(),
        SystemEntropy(),
        disk,
        net,
        tls_net,
        faults,
        lambda: unfinished.bytes_held,
        _allowed_stores(config),
    )


def _allowed_stores(config: Config) -> OpenStore:
    """Return what opens stores, and refuses those that the configuration does not allow: a user
    who may alter a topic must not write wherever the broker may."""
    allowed = config.security.tiers
    if allowed is None and not config.security.authorization:
        return open_store

    def open_allowed(address: str, /) -> ObjectStore:
        if not any(f"{address}/".startswith(f"{each.rstrip('/')}/") for each in allowed or ()):
            raise StoreUnavailable("security.tiers in the server's configuration does not allow it")
        return open_store(address)

    return open_allowed


def _tls_ports(config: Config) -> list[str]:
    ports = dataclasses.asdict(config.ports)
    return [name for name, port in ports.items() if name.endswith("_tls") and port is not None]


def _check_exposure(config: Config) -> None:
    """Raise StartError if other machines can connect without a login, unless `insecure` is set.

    The others always have a login: without authentication, that of guest from this machine.
    """
    ports, security = config.ports, config.security
    plain = ports.kafka, ports.mqtt
    encrypted = ports.kafka_tls, ports.mqtt_tls  # Who has a certificate is known by it.
    asked = plain if config.tls.client_ca is not None else (*plain, *encrypted)
    asks_nobody = security.authentication == "none" and any(port is not None for port in asked)
    is_exposed = config.host != "localhost" and not is_loopback(config.host)
    if asks_nobody and is_exposed and not security.insecure:
        raise StartError(
            f"{config.host or 'every address'} is open to other machines, and nobody is asked "
            "who they are: whoever reaches the port could read, write and delete everything. "
            'Set security.authentication = "sasl", or say --insecure if that is what you want'
        )


def _tls_net(
    config: Config, connections_max: int, faults: Faults, unfinished: UnfinishedInput
) -> Net | None:
    ports = _tls_ports(config)
    if not ports:
        return None
    from entrepot.net.tls import TlsNet, client_context, server_context

    certificate, key = config.tls.certificate, config.tls.key
    if certificate is None or key is None:
        raise StartError(f"ports.{ports[0]} needs tls.certificate and tls.key")
    try:
        ca = config.tls.client_ca
        return TlsNet(
            server=server_context(certificate, key, ca),
            # Other nodes of a cluster are known as clients are: by a certificate of that CA.
            client=None if ca is None else client_context(ca, certificate, key),
            connections_max=connections_max,
            faults=faults,
            unfinished=unfinished,
        )
    except OSError as error:
        files = ", ".join(filter(None, (certificate, key, config.tls.client_ca)))
        raise StartError(f"tls: {error.strerror or error} ({files})") from None


def _secret(path: str | None) -> str:
    """Return the secret of the cluster: the first line of its file. Raises StartError."""
    if path is None:
        return ""
    try:
        found = (read_text(path).splitlines() or [""])[0].strip()
    except ConfigError as error:
        raise StartError(str(error)) from None
    if len(found) < _SECRET_CHARACTERS_MIN:
        raise StartError(
            f"{path}: the cluster's secret has less than {_SECRET_CHARACTERS_MIN} characters. "
            "Let a program choose it: openssl rand -hex 32"
        )
    return found


def _tracing(config: Config) -> OpenTelemetry | None:
    if not config.tracing.endpoint:
        return None
    from entrepot.tracing import MISSING, over_http

    endpoint, service = config.tracing.endpoint, config.tracing.service
    try:
        return over_http(endpoint, service=service, version=_version(), node=str(config.node_id))
    except ImportError:
        raise StartError(MISSING) from None


class Server:
    _cluster: ClusterNode | None = None  # None means: this node is alone.
    _relay: Relay | None = None  # None means: what clients want of queues is here.

    def __init__(
        self,
        config: Config,
        doors: World,
        worker: Worker = in_place,
        codec_worker: Worker = in_place,
        store_worker: Worker = in_place,
        origins: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._config = config
        self._origins = origins  # Where settings were given, for those who look at them.
        self._doors = doors
        self._store_worker = store_worker
        self._secret = _secret(config.cluster.secret_file)
        self._listeners: list[Listener] = []
        self._bridges: list[Bridge] = []
        self._manager: QueueManager | None = None
        self._sns_endpoints: SnsEndpoints | None = None
        self.endpoints: dict[str, Endpoint] = {}
        self._traffic: dict[str, Traffic] = {}  # By endpoint, as are the messages.
        self._messages: dict[str, MessageCount] = {}
        self.pulse = Pulse()
        self._system_topics: SystemTopics | None = None
        self._feed = Feed()
        self._live: tuple[Live, StaticFiles] | None = None
        self._tracing = _tracing(config)
        try:
            self.broker = Broker(
                doors.disk,
                doors.clock,
                doors.entropy,
                _defaults(config),
                node_id=config.node_id,
                check_all=config.recovery == "full",
                groups=_groups(config.groups),
                access=self._access(),
                worker=worker,
                codec_worker=codec_worker,
                stores=Stores(doors.open_store, store_worker),
                formats=Formats((AMQP, AMQP_1_0, MQTT)),
                dialect=RabbitDialect() if self._has_queues else None,
                predeclared=self._predeclared(),
                faults=doors.faults,
                is_clustered=self._is_clustered,
                tracer=self._tracing,
            )
            self.broker.manager_name = config.manager.name
            self.broker.has_queues = not self._is_clustered or config.cluster.queues
        except InvalidConfig as error:
            raise StartError(str(error)) from None
        self._login = LoginPolicy(
            self.broker.users,
            self.broker.access,
            asks_users=config.security.authentication == "sasl",
            is_open=config.security.insecure,
            secret=self._secret if self._nodes_log_in else "",
        )

    def _access(self) -> AccessSettings:
        security = self._config.security
        return AccessSettings(
            is_enforced=security.authorization,
            super_users=tuple(map(user_named, security.super_users)),
            default_exchange_name=DEFAULT_EXCHANGE_NAME,
            has_nodes=self._nodes_log_in,
        )

    @property
    def _nodes_log_in(self) -> bool:
        return self._is_clustered and self._config.security.authentication == "sasl"

    @property
    def _is_clustered(self) -> bool:
        return bool(self._config.cluster.coordinator) or self._doors.coordinator is not None

    @property
    def _has_queues(self) -> bool:
        return not self._is_clustered or self._config.cluster.queues

    def _predeclared(self) -> tuple[Exchange, ...]:
        """Return the exchanges that each virtual host has."""
        return (*PREDECLARED, LINKS) if self._config.manager.name else PREDECLARED

    async def start(self) -> None:
        """Recover the data, then listen. When this returns, every port accepts connections."""
        if self._config.mqtt.rewrite:
            self._rewriting()  # It raises what is wrong with them.
        if self._config.mqtt.unordered:
            self._unordered()
        started = self._doors.clock.monotonic()
        try:
            cluster_id = None
            if self._is_clustered:
                self._cluster = self.broker.cluster = self._join()
                cluster_id = await self._enter(self._cluster)
                self._relay = self._new_relay(self._cluster)
            await self.broker.open(cluster_id)
        except BlockingIOError:
            raise StartError(f"{self._config.data_dir}: another broker is using it") from None
        except OSError as error:
            raise StartError(f"{self._config.data_dir}: {error.strerror}") from None
        except StorageError as error:
            raise StartError(f"{self._config.data_dir}: {error}") from None
        if self._has_http:
            logging.getLogger("entrepot").addHandler(self._feed)
        await self._start_sns_endpoints()
        await self._listen_all()
        if self._cluster is not None:
            amqp = self.endpoints.get(self._forwarding_port)
            amqp_port = 0 if amqp is None else amqp.port
            await self._cluster.start(*self._kafka_address(), amqp_port)
        self._start_bridges()
        await self._start_manager()
        seconds = self._doors.clock.monotonic() - started
        log.info("%d topics, started in %.3f s", len(self.broker.topics), seconds)

    @property
    def _has_http(self) -> bool:
        return self._config.ports.http is not None or self._config.ports.http_tls is not None

    async def stop(self) -> None:
        """Close all listeners and connections, then the broker. Everything is committed then. In a
        cluster, others lead before."""
        if self._cluster is not None:
            await self._cluster.stop()
        for listener in self._listeners:
            listener.close()
        if self._system_topics is not None:
            self._system_topics.stop()
        for bridge in self._bridges:
            await bridge.stop()
        if self._manager is not None:
            await self._manager.stop()
        if self._sns_endpoints is not None:
            await self._sns_endpoints.stop()
        self.broker.sessions.send_away("broker forced connection closure with reason 'shutdown'")
        for net in (self._doors.net, self._doors.tls_net):
            if net is not None:
                net.close()
        await asyncio.sleep(0)  # Adapters are told, and cancel what they wait for.
        await self.broker.close()
        if self._tracing is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._store_worker(self._tracing.stop), _SPANS_SENT_S_MAX)
        log.info("stopped")
        logging.getLogger("entrepot").removeHandler(self._feed)

    def beat(self, late_s: float) -> None:
        """Note how late the event loop is, and let the next message of each port be timed."""
        self.pulse.lag.add(late_s)
        for each in self._messages.values():
            each.answering.is_due = each.fetching.is_due = True

    def _join(self) -> ClusterNode:
        """Return what makes this node one of several. Raises StartError."""
        from entrepot.client.sasl import Credentials
        from entrepot.cluster.etcd_coordinator import EtcdCoordinator
        from entrepot.cluster.prefixed import PrefixedCoordinator
        from entrepot.clustering.node import ClusterNode, ClusterSettings

        config, doors, chosen = self._config, self._doors, self._config.cluster
        is_tls = self._nodes_speak_tls
        if config.ports.kafka is None and not is_tls:
            raise StartError(
                "cluster: nodes find each other by ports.kafka, which is off, or by "
                "ports.kafka_tls, which needs tls.client_ca for that"
            )
        credentials = None
        if self._nodes_log_in:
            if not self._secret:
                raise StartError("cluster: nodes log in, too, and need cluster.secret_file")
            credentials = Credentials(NODE, self._secret)
        if config.manager.name or config.bridge:
            raise StartError("cluster: a node is neither a manager nor a bridge, so far")
        addresses = [coordinator_address(each) for each in chosen.coordinator]
        endpoints = [each for each in addresses if each is not None]
        coordinator = doors.coordinator or EtcdCoordinator(doors.net, endpoints)
        settings = ClusterSettings(
            config.node_id,
            chosen.rack,
            chosen.replication_factor,
            max(1, round(chosen.session_timeout_ms / 1_000)),
            chosen.replica_lag_time_max_ms / 1_000,
            self._secret,
            is_tls,
        )
        coordinator = PrefixedCoordinator(coordinator, f"{chosen.name}/")
        net = doors.tls_net if is_tls else doors.net
        assert net is not None
        return ClusterNode(self.broker, coordinator, net, doors.clock, settings, credentials)

    async def _enter(self, cluster: ClusterNode) -> str:
        """Join the cluster, and return its id. Raises StartError when this node may not."""
        from entrepot.cluster.joining import CannotJoin

        self.broker.lock()
        try:
            return await cluster.begin(self._doors.disk, self._doors.entropy)
        except CannotJoin as error:
            raise StartError(f"{self._config.data_dir}: {error}") from None

    def _kafka_address(self) -> tuple[str, int, int]:
        """Return where other nodes find this one, and Kafka's clients: the host, the port without
        TLS and that with TLS; 0 where there is none."""
        advertised, config = self._config.advertised, self._config
        found = {name: self.endpoints.get(name) for name in ("kafka", "kafka_tls")}
        hosts = [endpoint.host for endpoint in found.values() if endpoint is not None]
        plain, tls = (0 if each is None else each.port for each in found.values())
        return (
            advertised.host or hosts[0] or config.host,
            advertised.kafka_port or plain,
            advertised.kafka_tls_port or tls,
        )

    async def _listen_all(self) -> None:
        config, doors = self._config, self._doors
        if config.security.authentication == "sasl" and not len(self.broker.users):
            log.warning(
                "nobody can log in: there are no users yet. With the broker stopped: "
                "entrepot users add NAME --data-dir %s",
                config.data_dir,
            )
        sessions = FetchSessions(doors.clock, doors.entropy)
        advertised = config.advertised
        if config.ports.kafka is not None:
            adapter = self._kafka(sessions, "kafka", advertised.kafka_port)
            await self._listen(doors.net, "kafka", config.ports.kafka, adapter)
        if config.ports.kafka_tls is not None:
            assert doors.tls_net is not None
            adapter = self._kafka(sessions, "kafka_tls", advertised.kafka_tls_port)
            await self._listen(doors.tls_net, "kafka_tls", config.ports.kafka_tls, adapter)
        if self._serves_queues():
            await self._listen_for_queues()
        started_ms = doors.clock.now_ms()
        if config.ports.http is not None:
            http = self._http("http", started_ms)
            await self._listen(doors.net, "http", config.ports.http, http)
        if config.ports.http_tls is not None:
            assert doors.tls_net is not None
            http = self._http("http_tls", started_ms)
            await self._listen(doors.tls_net, "http_tls", config.ports.http_tls, http)

    @property
    def _nodes_speak_tls(self) -> bool:
        return self._config.ports.kafka_tls is not None and self._config.tls.client_ca is not None

    @property
    def _forwarding_port(self) -> str:
        """Return at which port other nodes forward clients to this one: they speak TLS where they
        do so otherwise, too."""
        return "amqp_tls" if self._nodes_speak_tls else "amqp"

    def _serves_queues(self) -> bool:
        """Return whether clients of queues are served. If not, it is logged why."""
        if self._cluster is None:
            return True
        if not self._has_queues:
            log.warning("AMQP, MQTT, STOMP and SQS are not served: cluster.queues is off")
            return False
        if getattr(self._config.ports, self._forwarding_port) is None:
            log.warning("queues are not served: ports.%s is off", self._forwarding_port)
            return False
        return True

    def _new_relay(self, cluster: ClusterNode) -> Relay:
        """Return what serves those protocols that are passed on byte by byte."""
        doors = self._doors
        net = doors.tls_net if self._nodes_speak_tls else doors.net
        assert net is not None
        secret = self._secret.encode()
        needs = Needs(cluster.queues, net, doors.entropy, doors.faults, self._login, secret)
        cluster.queues.listen(self, self._queues_moved)
        return Relay(needs)

    def _queues_moved(self) -> None:
        assert self._cluster is not None
        if not self._cluster.queues.is_here and self._system_topics is not None:
            self._system_topics.stop()
            self._system_topics = None

    def _relayed(
        self, protocol: str, accept: Callable[[Link], ServingReceiver]
    ) -> Callable[[Link], ServingReceiver]:
        """Return what accepts clients, whichever node has the queues."""
        return accept if self._relay is None else self._relay.accepts(protocol, accept)

    async def _listen_for_queues(self) -> None:
        config, doors = self._config, self._doors
        replies = Replies(doors.entropy)
        make: dict[str, Callable[[str], Callable[[Link], ServingReceiver]]] = {
            "amqp": partial(self._either_amqp, replies),
            "mqtt": self._mqtt,
            "stomp": self._stomp,
            "sqs": self._sqs,
        }
        for protocol, accept in make.items():
            for name in (protocol, f"{protocol}_tls"):
                port = getattr(config.ports, name, None)
                if port is not None:
                    net = doors.tls_net if name != protocol else doors.net
                    assert net is not None
                    await self._listen(net, name, port, accept(name))

    def _kafka(
        self, sessions: FetchSessions, endpoint: str, advertised_port: int | None
    ) -> Callable[[Link], KafkaAdapter]:
        config, policy = self._config, self._login
        asked_for: dict[tuple[int, int], None] = {}
        messages = self._messages.setdefault(endpoint, MessageCount())

        def accept(link: Link) -> KafkaAdapter:
            host = host_of(link.peer)
            context = Context(
                self.broker,
                self._doors.clock,
                sessions,
                config.node_id,
                config.advertised.host or config.host,
                advertised_port or self.endpoints[endpoint].port,
                policy.identify(link.subject, host),
                login=Login(policy, host) if policy.asks_users else None,
                is_tls=endpoint.endswith("_tls"),
                facts=self._kafka_facts,
                asked_for=asked_for,
                messages=messages,
            )
            return KafkaAdapter(link, context)

        return accept

    def _kafka_facts(self) -> list[Fact]:
        """Return the settings that the server was started with, by Kafka's names."""
        config, groups = self._config, dataclasses.asdict(self._config.groups)
        usual_groups = dataclasses.asdict(Groups())
        security, facts = config.security, []

        def add(name: str, kind: Type, doc: str, value: object, default: object = "") -> None:
            facts.append(Fact(name, kind, str(value), str(default), doc))

        add("node.id", Type.INT, "Which node this is.", config.node_id)
        add("broker.id", Type.INT, "Which node this is.", config.node_id)
        add("listeners", Type.STRING, "Where clients come in.", self._kafka_listeners())
        advertised = self._kafka_listeners(config.advertised)
        add("advertised.listeners", Type.STRING, "Where clients are told to connect.", advertised)
        for ours, name in _KAFKA_GROUP_NAMES.items():
            add(name, Type.INT, "Of consumer groups.", groups[ours], usual_groups[ours])
        users = ";".join(principal_of(user_named(each)) for each in security.super_users)
        add("super.users", Type.STRING, "Who is not subject to ACLs.", users)
        mechanisms = ",".join(MECHANISMS) if security.authentication == "sasl" else ""
        add("sasl.enabled.mechanisms", Type.LIST, "How clients say who they are.", mechanisms)
        key, doc = config.tls.key or "", "The server's private key."
        add("ssl.keystore.key", Type.PASSWORD, doc, key)
        return facts

    def _kafka_listeners(self, advertised: Advertised | None = None) -> str:
        """Return the listeners, or the addresses that clients are given, as Kafka writes them."""
        sasl = "SASL_" if self._config.security.authentication == "sasl" else ""
        listeners = []
        for name, plain in (("kafka", "PLAINTEXT"), ("kafka_tls", "SSL")):
            if name in self.endpoints:
                host, port = self.endpoints[name]
                if advertised is not None:
                    host = advertised.host or host
                    port = getattr(advertised, f"{name}_port") or port
                listeners.append(f"{sasl}{plain}://{_bracketed(host)}:{port}")
        return ",".join(listeners)

    # All but Kafka are imported for their first client: the start does not wait for them.

    def _either_amqp(self, replies: Replies, endpoint: str) -> Callable[[Link], ServingReceiver]:
        """Return what accepts AMQP 0-9-1 and 1.0 on one port, and in a cluster other nodes: their
        first bytes differ."""
        older, newer = self._amqp(replies, endpoint), self._amqp_1_0(endpoint)

        def choose(first: bytes) -> Callable[[Link], ServingReceiver]:
            if first == MAGIC and self._relay is not None:
                return self._relay.accept_node
            return newer if first in (b"AMQP\0\1\0\0", b"AMQP\3\1\0\0") else older

        return lambda link: Greeting(link, 8, choose)

    def _amqp_1_0(self, endpoint: str) -> Callable[[Link], ServingReceiver]:
        messages = self._messages.setdefault(endpoint, MessageCount())

        @cache
        def context() -> Amqp10Context:
            from entrepot.gateway.amqp10.context import Context as Amqp10Context

            return Amqp10Context(
                self.broker,
                self._doors.clock,
                self._doors.entropy,
                RabbitDialect(),
                self._login,
                _version(),
                *self.endpoints[endpoint],
                is_tls=endpoint.endswith("_tls"),
                message_bytes_max=self._config.queues.max_message_bytes,
                messages=messages,
            )

        def accept(link: Link) -> ServingReceiver:
            from entrepot.gateway.amqp10.adapter import Amqp10Adapter

            return Amqp10Adapter(link, context())

        return self._relayed(f"amqp10{_tls(endpoint)}", accept)

    def _amqp(self, replies: Replies, endpoint: str) -> Callable[[Link], ServingReceiver]:
        messages = self._messages.setdefault(endpoint, MessageCount())

        @cache
        def context() -> AmqpContext:
            from entrepot.gateway.amqp.context import Context as AmqpContext

            return AmqpContext(
                self.broker,
                self._doors.clock,
                self._doors.entropy,
                replies,
                self._login,
                _version(),
                *self.endpoints[endpoint],
                is_tls=endpoint.endswith("_tls"),
                message_bytes_max=self._config.queues.max_message_bytes,
                messages=messages,
            )

        def accept(link: Link) -> ServingReceiver:
            from entrepot.gateway.amqp.adapter import AmqpAdapter

            if self._cluster is None:
                return AmqpAdapter(link, context())
            return self._forwarded_amqp(link, context())

        return accept

    def _forwarded_amqp(self, link: Link, context: AmqpContext) -> ServingReceiver:
        """Return what serves a client here if this node has the queues, or leaves it to the node
        that has them."""
        from entrepot.gateway.amqp.adapter import AmqpAdapter
        from entrepot.gateway.amqp.forwarding import Forwarding, Surroundings
        from entrepot.gateway.front import Front

        assert self._cluster is not None
        doors, port = self._doors, self._forwarding_port
        net = doors.tls_net if self._nodes_speak_tls else doors.net
        assert net is not None
        queues = self._cluster.queues
        around = Surroundings(queues, net, doors.faults, lambda: self.endpoints[port])
        front = Front()

        def forward(link: Link, wanted: Wanted) -> None:
            front.receiver = Forwarding(link, wanted, around)

        front.receiver = AmqpAdapter(link, dataclasses.replace(context, forward=forward))
        return front

    def _stomp(
        self, endpoint: str, counted_as: str | None = None
    ) -> Callable[[Link], ServingReceiver]:
        messages = self._messages.setdefault(counted_as or endpoint, MessageCount())

        @cache
        def context() -> StompContext:
            from entrepot.gateway.stomp.context import Context as StompContext

            return StompContext(
                self.broker,
                self._doors.clock,
                self._doors.entropy,
                RabbitDialect(),
                self._login,
                _version(),
                *self.endpoints[endpoint],
                is_tls=endpoint.endswith("_tls"),
                message_bytes_max=self._config.queues.max_message_bytes,
                messages=messages,
            )

        def accept(link: Link) -> ServingReceiver:
            from entrepot.gateway.stomp.adapter import StompAdapter

            return StompAdapter(link, context())

        return self._relayed(f"stomp{_tls(endpoint)}", accept)

    def _mqtt(
        self, endpoint: str, counted_as: str | None = None
    ) -> Callable[[Link], ServingReceiver]:
        messages = self._messages.setdefault(counted_as or endpoint, MessageCount())

        @cache
        def context() -> MqttContext:
            is_tls = endpoint.endswith("_tls")
            return self._mqtt_context(*self.endpoints[endpoint], messages, is_tls=is_tls)

        def accept(link: Link) -> ServingReceiver:
            from entrepot.gateway.mqtt.adapter import MqttAdapter

            self._begin_system_topics()
            return MqttAdapter(link, context())

        return self._relayed(f"mqtt{_tls(endpoint)}", accept)

    def _mqtt_context(
        self, host: str, port: int, messages: MessageCount, *, is_tls: bool = False
    ) -> MqttContext:
        from entrepot.gateway.mqtt.context import Context as MqttContext

        return MqttContext(
            self.broker,
            self._doors.clock,
            self._doors.entropy,
            self._login,
            host,
            port,
            is_tls=is_tls,
            message_bytes_max=self._config.queues.max_message_bytes,
            keep_alive_s_max=self._config.mqtt.max_keep_alive_seconds,
            kept_sessions_max=self._config.mqtt.max_kept_sessions,
            session_expiry_s_max=self._config.mqtt.max_session_expiry_seconds,
            messages=messages,
            rewriting=self._rewriting(),
            unordered=self._unordered(),
        )

    def _start_bridges(self) -> None:
        """Make the bridges and let them connect. Raises StartError."""
        for settings in self._config.bridge:
            from entrepot.bridging import make_bridge

            messages = self._messages.setdefault("bridge", MessageCount())
            context = self._mqtt_context(settings.address, 0, messages)
            try:
                bridge = make_bridge(settings, context, self._doors.net)
            except ConfigError as error:
                raise StartError(str(error)) from None
            self._bridges.append(bridge)
            self.broker.bridges.add(bridge)
            bridge.start()

    async def _start_sns_endpoints(self) -> None:
        """Send what waits for HTTP endpoints, if some are allowed. Raises StartError."""
        config, doors = self._config, self._doors
        if not config.sns.endpoints:
            return
        if self._is_clustered:
            raise StartError("sns.endpoints: in a cluster messages are not sent to HTTP, so far")
        from entrepot.gateway.sqs.sns import url
        from entrepot.gateway.sqs.sns.endpoints import Endpoints as SnsEndpoints
        from entrepot.net.tls import TlsNet, client_context

        allowed = []
        for text in config.sns.endpoints:
            parsed = url.parse(text)
            if parsed is None:
                raise StartError(f'sns.endpoints: "{text}" is not like "https://example.com/hooks"')
            allowed.append(parsed)
        nets = {"http": doors.net}
        try:
            if any(each.scheme == "https" for each in allowed):
                tls = client_context(config.sns.ca or None, None, None)
                nets["https"] = TlsNet(client=tls, faults=self.broker.faults)
        except OSError as error:
            raise StartError(f"sns.ca: {error}") from None
        endpoints = SnsEndpoints(self.broker, doors.clock, doors.entropy, nets, allowed)
        try:
            await endpoints.start()
        except (PeerError, StorageError) as error:
            raise StartError(str(error)) from None
        self._sns_endpoints = endpoints

    async def _start_manager(self) -> None:
        """Make the queue manager, if the broker is one, and let its links connect. Raises
        StartError."""
        config, doors = self._config, self._doors
        if not config.manager.name:
            if config.link or config.route:
                raise StartError("link: this broker needs a name of its own, manager.name")
            return
        from entrepot.linking.settings import make_manager

        try:
            manager = make_manager(config, self.broker, doors.clock, doors.entropy, doors.net)
            await manager.start()
        except (ConfigError, PeerError, StorageError) as error:
            raise StartError(str(error)) from None
        self._manager = self.broker.links = manager

    def _rewriting(self) -> Rewriting:
        """Return the rules that change topics of MQTT. Raises StartError."""
        from entrepot.gateway.mqtt.rewriting import InvalidRule, On, Rewriting, rule

        try:
            rules = self._config.mqtt.rewrite
            return Rewriting(rule(each.match, each.to, On(each.on)) for each in rules)
        except InvalidRule as error:
            raise StartError(f"mqtt.rewrite: {error}") from None

    def _unordered(self) -> Unordered:
        """Return which topics of MQTT are unordered. Raises StartError."""
        from entrepot.gateway.mqtt.ordering import Unordered

        try:
            return Unordered(self._config.mqtt.unordered)
        except InvalidName as error:
            raise StartError(f"mqtt.unordered: {error}") from None

    def _begin_system_topics(self) -> None:
        """Publish the topics under `$SYS/` from the first client of MQTT on."""
        if self._system_topics is not None:
            return
        from entrepot.gateway.mqtt.system_topics import Sources, SystemTopics

        ports = ("mqtt", "mqtt_tls")
        sources = Sources(
            lambda: [self._traffic[each] for each in ports if each in self._traffic],
            [self._messages[each] for each in ports if each in self._messages],
        )
        interval_s = self._config.mqtt.sys_interval_seconds
        self._system_topics = SystemTopics(
            self.broker, sources, _version(), interval_s, self._doors.clock
        )

    def _http(self, endpoint: str, started_ms: int) -> Callable[[Link], ServingReceiver]:
        websockets = self._websockets(endpoint)

        @cache
        def accept_as() -> Callable[[Link], ServingReceiver]:
            return self._management(websockets(), started_ms, endpoint)

        return lambda link: accept_as()(link)

    def _websockets(self, endpoint: str) -> Callable[[], WebSockets]:
        """Return what makes the services of an endpoint: those that have a port of their own.

        Without TLS there are those whose port is without TLS.
        """
        ports, is_tls = self._config.ports, endpoint.endswith("_tls")
        tls = "_tls" if is_tls else ""
        has_queues = self._has_queues
        has_mqtt = ports.mqtt is not None or (is_tls and ports.mqtt_tls is not None)
        has_stomp = ports.stomp is not None or (is_tls and ports.stomp_tls is not None)

        def make() -> WebSockets:
            from entrepot.gateway.http.websocket import Service, WebSockets

            services = {}
            if has_mqtt and has_queues:
                mqtt = self._mqtt(endpoint, f"mqtt{tls}")
                services["mqtt"] = Service(("mqtt", "mqttv3.1"), mqtt)
            if has_stomp and has_queues:
                names = "v12.stomp", "v11.stomp", "v10.stomp"
                stomp = self._stomp(endpoint, f"stomp{tls}")
                services["stomp"] = Service(names, stomp, accepts_text=True)
            origins = tuple(each.lower() for each in self._config.websocket.origins)
            security = self._config.security
            trusts_machine = security.authentication == "none" and not security.insecure
            return WebSockets(services, origins, trusts_machine)

        return make

    def _management(
        self, websockets: WebSockets, started_ms: int, endpoint: str
    ) -> Callable[[Link], ServingReceiver]:
        """Return what serves the console, the API, and what else there is on a port of HTTP."""
        from entrepot.gateway.front import Front
        from entrepot.gateway.http.adapter import HttpAdapter, Upgrades
        from entrepot.gateway.http.console.event_stream import EventStreams
        from entrepot.gateway.http.console.logins import Logins
        from entrepot.gateway.http.management.application import Management
        from entrepot.gateway.http.management.call import Context as HttpContext

        clock, is_tls = self._doors.clock, endpoint.endswith("_tls")
        name = self.broker.cluster_id[:8]
        logins = Logins(self._login, clock, self._doors.entropy, name, is_tls=is_tls)
        live, files = self._console()
        events = EventStreams(live, logins)
        context = HttpContext(
            self.broker,
            clock,
            self._login,
            _version(),
            self._node_name,
            started_ms,
            lambda: self.endpoints,
            self._config.queues.max_message_bytes,
            self._http_sources(),
            logins,
            self._settings,
        )
        management = Management(context)

        def handle(request: Request, peer_host: str) -> Response | Awaitable[Response]:
            return files(request) or management(request, peer_host)

        def upgrade(request: Request, peer_host: str) -> Upgrade | Response | None:
            return websockets(request, peer_host) or events(request, peer_host)

        def accept(link: Link) -> ServingReceiver:
            front = Front()
            upgrades = Upgrades(upgrade, front)
            faults = self._doors.faults
            front.receiver = HttpAdapter(link, handle, clock, faults, upgrades=upgrades)
            return front

        return accept

    def _settings(self) -> list[Setting]:
        """Return what the server was started with; not passwords, nor what is not a value."""
        from entrepot.gateway.http.management.call import Setting

        usual, found = dataclasses.asdict(Config()), []
        for part, value in dataclasses.asdict(self._config).items():
            table = value if isinstance(value, dict) else {"": value}
            usual_table = usual[part] if isinstance(value, dict) else {"": usual[part]}
            for name, each in table.items():
                if not isinstance(each, list | tuple) or all(isinstance(x, str) for x in each):
                    full_name = f"{part}.{name}" if name else part
                    told, default = _told(each), _told(usual_table[name])
                    unnamed = "default" if told == default else "configuration"
                    origin = self._origins.get(full_name, unnamed)
                    found.append(Setting(full_name, told, default, origin))
        return found

    def _http_sources(self) -> HttpSources:
        from entrepot.gateway.http.management.call import Sources as HttpSources

        return HttpSources(
            lambda: self._traffic,
            self._messages,
            self._doors.unfinished_bytes,
            self._config.limits.metrics_rows,
            self._config.limits.unfinished_bytes,
            self.pulse,
            self._doors.disk.space,
        )

    @property
    def _node_name(self) -> str:
        """Return the name as RabbitMQ's tools show it; in a cluster its nodes' differ."""
        number = f"-{self._config.node_id}" if self._config.cluster.coordinator else ""
        return f"entrepot{number}@{self._config.advertised.host or self._config.host}"

    def _console(self) -> tuple[Live, StaticFiles]:
        """Return what tells the pages of the console, on all ports, and their files."""
        if self._live is None:
            from entrepot.console.files import page_files
            from entrepot.gateway.http.console.live import live
            from entrepot.gateway.http.static import StaticFiles

            doors, sources = self._doors, self._http_sources()
            told = live(self.broker, doors.clock, sources, doors.disk.space, self._feed)
            self._live = told, StaticFiles(page_files)
        return self._live

    def _sqs(self, endpoint: str) -> Callable[[Link], ServingReceiver]:
        messages = self._messages.setdefault(endpoint, MessageCount())

        @cache
        def accept_as() -> Callable[[Link], ServingReceiver]:
            from entrepot.gateway.http.adapter import HttpAdapter
            from entrepot.gateway.sqs.application import Sqs
            from entrepot.gateway.sqs.call import Context as SqsContext
            from entrepot.wire.sqs.limits import BODY_BYTES_MAX

            clock, faults = self._doors.clock, self._doors.faults
            context = SqsContext(
                self.broker, clock, self._login, messages, endpoints=self._sns_endpoints
            )
            handle = Sqs(context)
            return lambda link: HttpAdapter(link, handle, clock, faults, BODY_BYTES_MAX)

        return self._relayed("sqs", lambda link: accept_as()(link))

    async def _listen(
        self, net: Net, protocol: str, port: int, adapter: Callable[[Link], ServingReceiver]
    ) -> None:
        host = self._config.host
        try:
            listener = await net.listen(host, port, adapter)
        except OSError as error:
            await self.broker.close()
            why = os.strerror(error.errno) if error.errno else str(error)
            raise StartError(f"cannot listen on {host}:{port} for {protocol}: {why}") from None
        self._listeners.append(listener)
        self._traffic[protocol] = listener.traffic
        self.endpoints[protocol] = Endpoint(host, listener.port)


def _told(value: object) -> str:
    """Return a setting's value as a file of settings has it, roughly."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if value is None or isinstance(value, bool):
        return {None: "off", True: "true", False: "false"}[value]
    return str(value)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("entrepot")
    except PackageNotFoundError:  # Run from a source tree that is not installed.
        return "0"


def _tls(endpoint: str) -> str:
    return "_tls" if endpoint.endswith("_tls") else ""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _defaults(config: Config) -> Defaults:
    """Return the defaults of topics: settings that the configuration changes, by Kafka's names."""
    chosen, usual = dataclasses.asdict(config.topics), dataclasses.asdict(Topics())
    auto_create, partitions = chosen.pop("auto_create"), chosen.pop("num_partitions")
    settings = {
        name.replace("_", "."): str(value)
        for name, value in chosen.items()
        if value != usual[name] and value is not None
    }
    if config.cluster.coordinator:
        settings["min.insync.replicas"] = str(config.cluster.min_insync_replicas)
    if config.durability is not Config().durability:
        settings["durability"] = str(config.durability)
    return Defaults(partitions, auto_create, settings)


def _groups(chosen: Groups) -> GroupSettings:
    return GroupSettings(
        initial_rebalance_delay_ms=chosen.initial_rebalance_delay_ms,
        session_ms_min=chosen.min_session_timeout_ms,
        session_ms_max=chosen.max_session_timeout_ms,
        members_max=chosen.max_size,
        offsets_retention_ms=chosen.offsets_retention_minutes * 60_000,
        heartbeat_ms=chosen.consumer_heartbeat_interval_ms,
        session_ms=chosen.consumer_session_timeout_ms,
    )


def _allow_many_files() -> int:
    """Raise the limit of file descriptors as far as the system allows, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def exception_handler(
    faults: Faults,
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return the loop's exception handler, for bugs that no guard has caught.

    It reports them, and the node goes on: a node that ended for one client's request would end
    again with the next one.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        message = str(context.get("message"))
        if error is not None:
            faults.caught(message, error)
        else:
            log.error("%s", message)

    return handle
